"""The share of the time in which a GPU computed: which samples count, in which window, and what the report says of it."""

import dataclasses

import pytest

from scripts.machine import busy, windows
from scripts.machine.windows import Window
from scripts.report import data
from scripts.report.views import around, energy, systems
from tests.synthetic import job, probed, record
from tests.unit.test_limits import CONTROLLED, cells_of, group_of


def readings(*percents, began=100.0, every=0.2):
    return [(began + place * every, percent) for place, percent in enumerate(percents)]


def test_the_share_is_the_mean_of_the_samples_that_tell_of_the_window_alone():
    before, within = [0.0] * 10, [40.0, 60.0] * 10  # a sample within the first second of a window tells of the time before it
    found = busy.of_window(readings(*before, *within), 101.0, 105.8)
    assert found == {"code": "ok", "samples": 20, "share": pytest.approx(0.5)}


@pytest.mark.parametrize(
    ("samples", "ended", "code"),
    [
        (readings(*[None] * 30), 105.0, "no-reading"),
        (readings(*[50.0] * 30), 101.7, "too-short"),
        (readings(*[50.0] * 30), 101.9, "ok"),
        ([], 105.0, "no-reading"),
    ],
)
def test_a_share_that_says_nothing_has_a_code(samples, ended, code):
    found = busy.of_window(samples, 100.0, ended)
    assert found["code"] == code and ("share" in found) is (code == "ok")


def test_the_window_of_the_longer_calls_goes_before_that_of_the_timed_ones():
    measurements = [
        {"new_tokens": 1, "timed_ms": [40, 60], "timed_at": [10, 11]},
        {"new_tokens": 128, "timed_ms": [900], "timed_at": [11, 20]},
        {"new_tokens": 7, "timed_ms": [90]},
    ]
    longer = [{"new_tokens": 1, "calls": 50, "at": [20, 22.5]}, {"new_tokens": 128, "reason": "OSError: gone"}]
    assert windows.of_calls(measurements, longer) == [Window(1, 20, 22.5, 50), Window(128, 11, 20)]
    assert [window.facts for window in windows.of_calls(measurements, longer)] == [{"new_tokens": 1, "calls": 50}, {"new_tokens": 128}]


@pytest.mark.parametrize(
    ("calls", "counts"),
    [(49, True), (50, True), (99, True), (100, True), (101, False), (25, True), (24, False)],
)
def test_a_window_of_calls_that_took_less_than_half_or_more_than_twice_as_long_as_the_timed_ones_does_not_count(calls, counts):
    """2.5 s, and timed calls of 50 ms."""
    timed = [{"new_tokens": 1, "timed_ms": [40, 60], "timed_at": [10, 11]}]
    (window,) = windows.of_calls(timed, [{"new_tokens": 1, "calls": calls, "at": [20, 22.5]}])
    assert window == (Window(1, 20, 22.5, calls) if counts else Window(1, 10, 11))


def test_the_pace_of_the_timed_calls_is_their_mean():
    """It is 60 ms, their median is 40: the further calls of 25 ms are at another pace."""
    timed = [{"new_tokens": 1, "timed_ms": [40, 40, 100], "timed_at": [10, 11]}]
    assert windows.of_calls(timed, [{"new_tokens": 1, "calls": 100, "at": [20, 22.5]}]) == [Window(1, 10, 11)]


def test_a_window_of_no_timed_call_says_nothing_whatever_longer_calls_a_guest_tells():
    """A guest that failed, or lies, may tell any of these, and its result is stored."""
    hostile = [{"calls": 10**17, "at": [0, 9e17]}, {"calls": 1, "at": [0, 0]}, {"calls": 1, "at": [3, 4]}, {"calls": 1}, {"at": [3, 4]}]
    for told in [{"new_tokens": 1, **one} for one in hostile]:
        assert windows.of_calls([{"new_tokens": 1, "timed_ms": [], "timed_at": [10, 11]}], [told]) == []
        assert windows.of_calls([{"new_tokens": 1, "timed_ms": [9e17, 1e-9], "timed_at": [10, 11]}], [told]) == [Window(1, 10, 11)]
        assert windows.of_calls([{"new_tokens": 2, "timed_ms": [1.0], "timed_at": [10, 11]}], [told]) == [Window(2, 10, 11)]


def test_a_window_in_which_the_clock_was_set_back_is_left_to_the_counters():
    timed = [{"new_tokens": 1, "timed_ms": [50], "timed_at": [10, 11]}]
    assert windows.of_calls(timed, [{"new_tokens": 1, "calls": 50, "at": [20, 12]}]) == [Window(1, 20, 12, 50)]


def told(shares_by_tokens, calls=None):
    one = probed(record(job("deepspeed", 2, **CONTROLLED), (20.0, 2000.0)))
    gpus = [gpu["uuid"] for gpu in one.host["gpus"]]
    ok = {"code": "ok", "samples": 9}
    one.host["busy"] = [
        {"new_tokens": count, "gpus": [{"uuid": uuid, **ok, "share": share} for uuid, share in zip(gpus, shares, strict=False)]}
        for count, shares in shares_by_tokens.items()
    ]
    if calls:
        one.host["energy"][0]["calls"] = calls
    return one


def test_the_report_tells_the_share_of_each_gpu_for_each_number_of_tokens():
    group = group_of(told({1: (0.176, 0.2), 128: (0.71, 0.7)}))
    (line,) = cells_of(around.section(group, None), "deepspeed")
    assert line["GPU busy, % of the time"] == "18, 20 and 71, 70"
    shares = {one.new_tokens: column.value(one) for one in data.lines_of(group, None) for column in data.COLUMNS if column.name == "gpu_busy_share"}
    assert shares == {1: 0.176, 128: 0.7}


def test_the_main_table_has_the_smallest_and_the_largest_share_of_a_row_s_runs_and_gpus():
    group = group_of(told({1: (0.2, 0.2), 128: (0.7, 0.42)}))
    text = systems.section(group, None)
    assert [line["GPU busy, %"] for line in cells_of(text, "deepspeed")] == ["20", "42 to 70"] and "*GPU busy*" in text
    first, second = told({1: (0.2, 0.2), 128: (0.7, 0.42)}), told({1: (0.31, 0.3), 128: (0.5, 0.5)})
    text = systems.section(group_of(first, dataclasses.replace(second, id=first.id[:-2] + "02")), None)
    assert [line["GPU busy, %"] for line in cells_of(text, "deepspeed")] == ["20 to 31", "42 to 70"]
    one = told({1: (0.2, 0.2), 128: (0.7, 0.42)})
    for window in one.host["busy"]:
        window["gpus"][0]["code"] = "too-short"
    assert [line["GPU busy, %"] for line in cells_of(systems.section(group_of(one), None), "deepspeed")] == ["20", "42"]
    one.host["busy"] = []
    assert not any(words in systems.section(group_of(one), None) for words in ("kernel ran", "GPU busy"))


def test_a_share_that_does_not_count_is_told_by_its_code():
    one = told({1: (0.2, 0.2), 128: (0.7, 0.7)})
    one.host["busy"][0]["gpus"][1] = {"uuid": "x", "code": "too-short", "samples": 2}
    (line,) = cells_of(around.section(group_of(one), None), "deepspeed")
    assert line["GPU busy, % of the time"] == "20, too-short and 70, 70"


def test_a_share_that_is_missing_breaks_no_report():
    one = told({1: (0.2, 0.2), 128: (0.7, 0.7)})
    del one.host["busy"][0]["gpus"][1]["share"]
    one.host["busy"][1]["gpus"][0]["share"] = None
    group = group_of(one)
    (line,) = cells_of(around.section(group, None), "deepspeed")
    assert line["GPU busy, % of the time"] == "20, ok and ok, 70"
    assert busy_share(one) == {None}


def busy_share(one):
    return {column.value(line) for line in data.lines_of(group_of(one), None) for column in data.COLUMNS if column.name == "gpu_busy_share"}


def test_the_share_in_the_data_is_the_smallest_of_the_gpus_that_hold_a_part_of_the_model():
    one = told({1: (0.5, 0.0), 128: (0.5, 0.0)})
    one.guest.used["parameters_per_device"] = {"cuda:0": 7}
    assert busy_share(one) == {0.5}


def test_a_result_that_tells_of_fewer_gpus_than_the_row_had_breaks_no_report():
    one = told({1: (0.5,), 128: (0.5,)})
    one.guest.used["parameters_per_device"] = {"cuda:0": 7}
    assert busy_share(one) == {None}


def test_joules_of_longer_calls_are_of_the_tokens_that_those_calls_made():
    one = told({1: (0.2, 0.2)}, calls=50)
    lines = cells_of(energy.section(group_of(one), None), "deepspeed")
    assert [line["further calls in it"] for line in lines] == ["50", "—"]
    assert float(lines[0]["J a token"]) == pytest.approx(2 * 900 / 50, rel=0.01)


def test_joules_of_several_runs_stand_beside_the_least_and_the_most_of_them():
    runs = [dataclasses.replace(told({1: (0.2, 0.2)}, calls=50), id=f"{told({}).id[:-2]}{number:02d}") for number in (1, 2, 3)]
    for run, joules in zip(runs, (900, 450, 1800), strict=True):
        run.host["energy"][0]["gpus"] = [{**gpu, "joules": joules} for gpu in run.host["energy"][0]["gpus"]]
    lines = cells_of(energy.section(group_of(*runs), None), "deepspeed")
    assert lines[0]["least to most of the runs, J a token"] == "18.0 to 72.0 in 3 runs"
    assert "least to most" not in energy.section(group_of(runs[0]), None)


def test_longer_calls_of_a_batch_made_the_tokens_of_all_its_sequences():
    one = told({1: (0.2, 0.2)}, calls=50)
    one.job.prompt["batch_size"] = 8
    line, _ = cells_of(energy.section(group_of(one), None), "deepspeed")
    assert float(line["J a token"]) == pytest.approx(2 * 900 / (50 * 8), rel=0.01)
