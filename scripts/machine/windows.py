"""The window in which the GPUs' slow counters are read for a run's calls: that of the longer calls (bench/measuring/longer.py), else of the timed ones.

Longer calls at another pace than the timed calls say nothing about them, so the window of the timed calls counts then.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Calls that take less than 1 / PACE or more than PACE times as long as the mean timed call are at another pace. On hosts that change their speed
#: honest calls took 0.55 to 1.66 times as long.
PACE = 2.0


@dataclass(frozen=True)
class Window:
    """`began` and `ended` in seconds since the epoch; `calls` were made in it, None for the timed calls themselves."""

    new_tokens: int
    began: float
    ended: float
    calls: int | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What a result says about the calls, beside the readings in their window."""
        return {"new_tokens": self.new_tokens} | ({"calls": self.calls} if self.calls else {})


def _window(one: Mapping[str, Any], at: Sequence[float], calls: int | None = None) -> Window:
    return Window(one["new_tokens"], at[0], at[1], calls)


def of_calls(measurements: Iterable[Mapping[str, Any]], longer: Iterable[Mapping[str, Any]]) -> list[Window]:
    """The window of each measurement that has one; a failed guest may report a window without a timed call, which is left out."""
    made = {one["new_tokens"]: one for one in longer if one.get("at") and one.get("calls")}
    return [_chosen(one, made.get(one["new_tokens"])) for one in measurements if one.get("timed_at") and one["timed_ms"]]


def _chosen(timed: Mapping[str, Any], longer: Mapping[str, Any] | None) -> Window:
    if longer and _at_the_pace(longer, timed["timed_ms"]):
        return _window(longer, longer["at"], longer["calls"])
    return _window(timed, timed["timed_at"])


def _at_the_pace(longer: Mapping[str, Any], timed_ms: Sequence[float]) -> bool:
    """True also where the clock was set back, which leaves no pace: the reading of the counters reports that itself."""
    seconds = longer["at"][1] - longer["at"][0]
    paced = seconds * 1000 / longer["calls"] / statistics.fmean(timed_ms)
    return bool(seconds < 0 or 1 / PACE <= paced <= PACE)
