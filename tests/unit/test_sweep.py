"""Batch sizes: which are run, in which order, and where a sweep stops."""

import types

import pytest

from bench import reasons
from scripts.articles import batch_sweep
from scripts.errors import KitError
from scripts.machine.steps import Steps
from scripts.run import rounds
from tests import synthetic
from tests.typed import chosen


def walk(asked, room=None, ends=None):
    """The sizes that were run where more than `room` is out of memory and a size of `ends` ends as it says."""
    tried = []

    def run(size):
        tried.append(size)
        return (ends or {}).get(size, "ok" if room is None or size <= room else "oom")

    batch_sweep.walk(asked, run)
    return tried


def test_what_did_not_run_out_of_memory_is_told_from_the_smallest_up():
    assert batch_sweep.walk([16, 1, 8], {1: "ok", 8: "failed", 16: "oom"}.get) == [1, 8]
    assert batch_sweep.walk({"from": 1, "until": "oom", "within": 0.25}, lambda size: "ok" if size <= 11 else "oom") == [1, 2, 4, 8, 10]


def test_a_list_is_run_from_the_smallest_up():
    assert walk([8, 1, 32]) == [1, 8, 32]


def test_a_list_ends_with_the_first_batch_that_does_not_fit():
    assert walk([1, 8, 16, 32], room=10) == [1, 8, 16]


@pytest.mark.parametrize("status", ["failed", "timeout", "unsupported", None])
def test_a_batch_that_fails_otherwise_does_not_end_a_list(status):
    assert walk([1, 8, 16], ends={8: status}) == [1, 8, 16]


def test_until_memory_runs_out_it_doubles_then_searches_below():
    assert walk({"from": 1, "until": "oom", "within": 0.25}, room=11) == [1, 2, 4, 8, 16, 12, 10]
    assert walk({"from": 4, "until": "oom", "within": 0.01}, room=11) == [4, 8, 16, 12, 10, 11]


@pytest.mark.parametrize("room", range(1, 70))
def test_the_largest_that_fits_is_found_as_near_as_asked(room):
    tried = walk({"until": "oom", "within": 0.01}, room=room)
    assert max(size for size in tried if size <= room) == room
    assert len(tried) == len(set(tried))


def test_on_a_cpu_a_sweep_until_memory_runs_out_ends_soon():
    assert batch_sweep.on_cpu({"until": "oom"}) == [1, 2, 4, 8]
    assert batch_sweep.on_cpu({"from": 3, "until": "oom"}) == [3, 6]
    assert batch_sweep.on_cpu({"from": 64, "until": "oom"}) == [64]
    assert batch_sweep.on_cpu([1, 64]) == [1, 64]


def test_not_even_one_fits():
    assert walk({"until": "oom"}, room=0) == [1]


@pytest.mark.parametrize("status", ["failed", "timeout", "unsupported", None])
def test_what_tells_nothing_about_memory_ends_the_search(status):
    assert walk({"until": "oom"}, room=11, ends={4: status}) == [1, 2, 4]
    assert walk({"until": "oom"}, room=11, ends={12: status}) == [1, 2, 4, 8, 16, 12]


def test_a_sweep_goes_on_below_a_batch_whose_memory_ran_out_after_its_timed_calls(monkeypatch):
    def perform(planned, asked, repeat):
        ends = {"status": "failed", "reason": f"{reasons.AFTER_TIMED_CALLS}no"} if planned.title > 11 else {}
        return synthetic.record(synthetic.job("batch", article="batch-generate"), number=planned.title, **ends)

    monkeypatch.setattr(rounds.runner, "perform", perform)
    sitting = rounds._Sitting(chosen(), True, Steps(None))
    fitting = batch_sweep.walk({"until": "oom"}, lambda size: sitting.run(lambda size: types.SimpleNamespace(title=size), 1, size))
    assert fitting == [1, 2, 4, 8, 10] and [record.number for record in sitting.records] == [1, 2, 4, 8, 16, 12, 10]


@pytest.mark.parametrize(
    "asked", [[], [0], [1, 1], [True], ["8"], {"until": "full"}, {"until": "oom", "from": 0}, {"until": "oom", "within": 2}, {"until": "oom", "to": 8}]
)
def test_what_is_no_sweep_is_refused(asked):
    with pytest.raises(KitError, match="batch sizes are|a sweep is"):
        walk(asked)
