"""Joules of a window from a counter that moves in steps, and when they count."""

import dataclasses
import math
from pathlib import Path

import pytest

from scripts.machine import energy
from scripts.machine.energy import Reading
from tests.fakes.machine import Machine


def readings(watts=300.0, seconds=10.0, every=0.2, step=0.1, counter=True):
    """Samples of a GPU whose counter moves every `step` seconds, at a steady power."""
    moments = [100 + place * every for place in range(int(seconds / every) + 1)]
    steps = [math.floor((moment - 100) / step + 1e-6) * step for moment in moments]
    return [Reading(moment, moment, round(1000 * watts * at) if counter else None, watts) for moment, at in zip(moments, steps, strict=True)]


def set_by(seconds, at=104):
    """Samples during which the clock is set, by default after two seconds of the window."""
    return [dataclasses.replace(one, moment=one.moment + seconds * (one.moment >= at)) for one in readings(seconds=30)]


def test_a_steady_power_gives_its_joules_by_the_counter_and_by_the_samples():
    found = energy.of_window(readings(), 102.05, 107.05)
    assert found["code"] == "ok" and found["seconds"] == pytest.approx(5)
    assert found["joules"] == pytest.approx(1500, rel=0.02) and found["power_joules"] == pytest.approx(1500)
    assert found["idle_w"] == 300 and found["updates"] >= 24


def test_idle_power_is_that_before_the_job_and_is_not_subtracted():
    samples = [Reading(99.0, 99.0, 0, 84.0), *readings()]
    found = energy.of_window(samples, 103, 106)
    assert found["idle_w"] == 84 and found["joules"] == pytest.approx(900, rel=0.02)


@pytest.mark.parametrize("told", [lambda moment: moment > 103, lambda moment: moment < 106], ids=["from within", "until within"])
def test_power_that_was_not_sampled_over_the_whole_window_has_no_integral(told):
    samples = [one if told(one.moment) else dataclasses.replace(one, power_w=None) for one in readings()]
    found = energy.of_window(samples, 102.05, 107.05)
    assert found["code"] == "ok" and found["power_joules"] is None


@pytest.mark.parametrize(
    ("samples", "window", "code"),
    [
        (readings(counter=False), (102, 107), "no-counter"),
        (readings(), (99, 107), "not-covered"),
        (readings(), (102, 111), "not-covered"),
        (readings(), (100, 110), "ok"),
        ([*readings()[:20], *(Reading(one.moment, one.moment, 5, one.power_w) for one in readings()[20:])], (102, 107), "went-back"),
        *((set_by(seconds), (102, 107), "clock-set") for seconds in (-15, -0.2, 0.12, 0.2, 30, 3600)),
        (set_by(0.05), (102, 107), "ok"),
        (set_by(30, at=120), (102, 107), "ok"),
        *(
            ([dataclasses.replace(one, moment=one.moment + 0.15 * (place == held_up)) for place, one in enumerate(readings())], (102, 107), "ok")
            for held_up in (0, 30, 50)
        ),
        (readings(), (102, 103.9), "too-short"),
        (readings(step=2.0), (102, 107), "few-updates"),
        (readings(every=0.5), (102, 105), "few-updates"),
    ],
)
def test_a_window_that_says_nothing_has_a_code(samples, window, code):
    assert energy.of_window(samples, *window)["code"] == code


@pytest.mark.parametrize(("ended", "updates", "code"), [(106.5, 9, "few-updates"), (107, 10, "ok")])
def test_ten_updates_of_the_counter_are_the_fewest_that_count(ended, updates, code):
    found = energy.of_window(readings(every=0.5), 102, ended)
    assert (found["updates"], found["code"]) == (updates, code)


WATCH = """
from scripts.machine import conditions
from scripts.machine.windows import Window
with conditions.Watch(gpus.list_gpus(), "", interval_s=0.05, look_s=0.01) as watch:
    time.sleep(0.2)
    began = time.time()
    time.sleep({calls_s})
    ended = time.time()
    time.sleep(0.2)
answer = {{"energy": watch.energy([Window(128, began, ended)]), "busy": watch.busy([Window(128, began, ended)])}}
"""


@pytest.mark.slow
def test_the_watch_reads_the_drivers_counter_around_the_timed_calls(fake_nvml: Path, tmp_path: Path):
    told = Machine(fake_nvml, tmp_path).ask(WATCH.format(calls_s=2.1), gpus=1, FAKE_NVML_WATTS="200", FAKE_NVML_BUSY="18")
    (of_calls,), (computing,) = told["energy"], told["busy"]
    (gpu,) = of_calls["gpus"]
    assert of_calls["new_tokens"] == 128 and gpu["code"] == "ok"
    assert computing["new_tokens"] == 128 and computing["gpus"][0]["share"] == pytest.approx(0.18)
    assert gpu["joules"] == pytest.approx(200 * gpu["seconds"], rel=0.1)
    assert gpu["power_joules"] == pytest.approx(350.5 * gpu["seconds"], rel=0.01), "the simulated power is another one"


@pytest.mark.slow
def test_without_gpus_there_is_no_energy(fake_nvml: Path, tmp_path: Path):
    assert Machine(fake_nvml, tmp_path).ask(WATCH.format(calls_s=0.1), gpus=0, FAKE_NVML_WATTS="200") == {"energy": [], "busy": []}
