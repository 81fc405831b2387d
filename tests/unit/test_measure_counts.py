"""How many further calls a run makes: enough for the GPU's slow counters, and few where a call takes long."""

import pytest

from bench.measuring import longer, token_times


@pytest.mark.parametrize(("timed_ms", "calls"), [([10.0, 20.0], 300), ([7.0], 429), ([1500.0, 1500.0], 0), ([1499.0, 1500.0], 3), ([4000.0], 0)])
def test_the_window_lasts_three_seconds_at_the_fastest_call_s_pace(timed_ms: list[float], calls: int) -> None:
    assert longer.calls_for(timed_ms) == calls


@pytest.mark.parametrize(("mean_ms", "calls"), [(100.0, 5), (3000.0, 5), (3001.0, 4), (7600.0, 1), (60000.0, 1)])
def test_stamped_calls_take_fifteen_seconds_at_most_but_one_is_made(mean_ms: float, calls: int) -> None:
    assert token_times.calls_of(mean_ms) == calls
