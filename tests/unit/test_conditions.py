"""What the machine does beside a run, and when its times are doubtful."""

from pathlib import Path

import pytest

from scripts.machine import conditions
from scripts.units import GIB
from tests.fakes.cdi import uuid
from tests.fakes.machine import Machine


@pytest.fixture
def machine(fake_nvml: Path, tmp_path: Path) -> Machine:
    return Machine(fake_nvml, tmp_path)


WATCH = """
from scripts.machine import conditions
with conditions.Watch(gpus.list_gpus(), "0-3", interval_s=0.01, look_s=0.01) as watch:
    time.sleep(0.2)
    calls = [time.time(), time.time() + {seconds}]
    time.sleep({seconds})
answer = watch.summary(calls)
"""


def watched(machine, tmp_path, said, gpus=1, **settings):
    (tmp_path / "throttled").write_text(said)
    return machine.ask(WATCH.format(seconds=0.2), gpus=gpus, FAKE_NVML_THROTTLED=str(tmp_path / "throttled"), **settings)


def test_a_gpu_that_lowers_its_clock_for_heat_is_marked(machine: Machine, tmp_path):
    found = watched(machine, tmp_path, f"{0x20 | 0x2} 83")
    (gpu,) = found["gpus"]
    assert gpu["uuid"] == uuid(0) and 5 < gpu["samples"] < 25
    assert gpu["throttled"] == {"applications_clocks_setting": gpu["samples"], "sw_thermal_slowdown": gpu["samples"]}
    assert gpu["temperature_c"] == {"before": 83, "least": 83, "most": 83, "after": 83}
    assert gpu["power_w"]["most"] == 350.5
    throttles = [mark for mark in found["marks"] if mark.startswith("throttled")]
    assert throttles == [f"throttled: GPU 0 lowered its clock in {gpu['samples']} of {gpu['samples']} samples (sw_thermal_slowdown)"]
    assert found["cores"] == "0-3"


def test_an_idle_gpu_and_clocks_that_a_user_set_are_no_throttling(machine: Machine, tmp_path):
    found = watched(machine, tmp_path, f"{0x1 | 0x2} 40")
    assert not [mark for mark in found["marks"] if mark.startswith("throttled")]


def test_what_a_driver_does_not_tell_is_null_and_costs_nothing(machine: Machine):
    (gpu,) = machine.ask(WATCH.format(seconds=0.05), gpus=1)["gpus"]
    assert (gpu["temperature_c"], gpu["sm_clock_mhz"], gpu["throttled"]) == (None, None, {})


def test_a_gpu_that_others_use_is_marked(machine: Machine, tmp_path):
    found = watched(machine, tmp_path, "0 40", gpus=2, FAKE_NVML_PROCESSES=f"1:77:{GIB}")
    assert [mark for mark in found["marks"] if "GPU" in mark] == ["foreign load: others used GPU 1 when it began"]


@pytest.fixture
def busy(monkeypatch):
    """A machine of 64 cores of which so many compute: `busy` takes the numbers of the looks before and after a run."""

    def marks(before, after):
        looks = iter((before, after))
        monkeypatch.setattr(conditions, "busy_cores", lambda seconds: next(looks))
        monkeypatch.setattr(conditions.os, "cpu_count", lambda: 64)
        with conditions.Watch([]) as watch:
            pass
        return watch.summary(None)["marks"]

    return marks


def test_cores_that_compute_for_others_are_marked(busy):
    assert busy(0.3, 4.2) == []
    assert busy(4.3, 0.1) == ["foreign load: 4.3 of 64 cores computed just before it began"]
    assert busy(0.1, 30.0) == ["foreign load: 30.0 of 64 cores computed just after it ended"]


def test_busy_cores_are_the_share_of_all_cores_that_computes(monkeypatch):
    monkeypatch.setattr(conditions.os, "cpu_count", lambda: 10)
    monkeypatch.setattr("psutil.cpu_percent", lambda seconds: 70.0)
    assert conditions.busy_cores(0.1) == 7.0

    def without_proc(seconds):
        raise FileNotFoundError("/proc/stat")

    monkeypatch.setattr("psutil.cpu_percent", without_proc)
    assert conditions.busy_cores(0.1) == 0.0


def test_governors_are_told_once_each(tmp_path):
    for number, name in enumerate(("performance", "powersave", "performance")):
        (tmp_path / f"cpu{number}" / "cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "cpufreq" / "scaling_governor").write_text(name + "\n")
    assert conditions.governors(tmp_path) == ["performance", "powersave"]
    assert conditions.governors(tmp_path / "none") == []
