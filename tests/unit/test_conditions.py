"""What the machine does beside a run, and when its times are doubtful."""

import os
import time
from pathlib import Path

import pytest

from scripts.machine import conditions, pressure, processes
from scripts.units import GIB
from tests.fakes.cdi import uuid
from tests.fakes.machine import Machine


@pytest.fixture
def machine(fake_nvml: Path, tmp_path: Path) -> Machine:
    return Machine(fake_nvml, tmp_path, "scripts.machine.conditions")


WATCH = """
from scripts.machine import conditions, pressure, processes
with conditions.Watch(gpus.list_gpus(), "0-3", interval_s=0.01, look_s=0.01, owns={{11: True, 77: False}}.get) as watch:
    time.sleep(0.1)
    exec({meanwhile!r})
    time.sleep(0.1)
    calls = [time.time(), time.time() + {seconds}]
    time.sleep({seconds})
answer = watch.summary(calls)
"""


def watched(machine, tmp_path, said="0 40", gpus=1, meanwhile="", **settings):
    """What a watch of 0.4 s says, in which a program of `meanwhile` changes the machine before the calls."""
    (tmp_path / "throttled").write_text(said)
    files = {"FAKE_NVML_THROTTLED": "throttled", "FAKE_NVML_COMERS": "comers", "FAKE_NVML_ECC": "ecc"}
    places = {name: str(tmp_path / file) for name, file in files.items()}
    return machine.ask(WATCH.format(seconds=0.2, meanwhile=meanwhile.format(folder=tmp_path)), gpus=gpus, **places, **settings)


def of_gpu(found, kind="marks"):
    """The marks that name a GPU; those of this machine's own load come and go."""
    return [mark for mark in found[kind] if "GPU" in mark]


def test_a_gpu_that_lowers_its_clock_for_heat_is_marked(machine: Machine, tmp_path):
    found = watched(machine, tmp_path, f"{0x20 | 0x2} 83", FAKE_NVML_CLOCKS="1200 2619")
    (gpu,) = found["gpus"]
    assert (gpu["sm_clock_mhz"]["most"], gpu["memory_clock_mhz"]["most"]) == (1200, 2619)
    assert gpu["uuid"] == uuid(0) and 5 < gpu["samples"] < 25
    assert gpu["throttled"] == {"applications_clocks_setting": gpu["samples"], "sw_thermal_slowdown": gpu["samples"]}
    assert gpu["temperature_c"] == {"before": 83, "least": 83, "most": 83, "after": 83}
    assert gpu["power_w"]["most"] == 350.5
    throttles = [mark for mark in found["marks"] if mark.startswith("throttled")]
    assert throttles == [f"throttled: GPU 0 lowered its clock in {gpu['samples']} of {gpu['samples']} samples (sw_thermal_slowdown)"]
    assert found["cores"] == "0-3"


def test_heat_a_fault_of_the_power_supply_and_the_driver_s_protection_disturb_a_run_each_by_its_own_name(machine: Machine, tmp_path):
    found = watched(machine, tmp_path, f"{0x8 | 0x20 | 0x40 | 0x80} 83")
    names = ["hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"]
    assert list(found["gpus"][0]["throttled"]) == names
    assert [mark.partition("(")[2] for mark in of_gpu(found, "disturbed")] == [f"{name})" for name in names]


@pytest.mark.parametrize("calls", ["0.0, 9.0", "began - 5, began - 4", "time.time() + 4, time.time() + 5"])
def test_calls_that_a_guest_places_outside_of_its_run_hide_no_mark(machine: Machine, tmp_path, calls):
    (tmp_path / "throttled").write_text(f"{0x20} 83")
    lines = "began = time.time()" + WATCH.format(seconds=0.1, meanwhile="").replace("watch.summary(calls)", f"watch.summary([{calls}])")
    found = machine.ask(lines, gpus=1, FAKE_NVML_THROTTLED=str(tmp_path / "throttled"))
    assert [mark for mark in found["disturbed"] if mark.startswith("throttled: GPU 0")]


@pytest.mark.parametrize("hot", ["before", "after"])
def test_a_gpu_that_was_hot_before_or_after_the_calls_did_not_slow_them(machine: Machine, tmp_path, hot):
    throttled, cool, warm = tmp_path / "throttled", "0 40", f"{0x20} 83"
    throttled.write_text(warm if hot == "before" else cool)
    lines = WATCH.format(seconds=0.1, meanwhile=f"open({str(throttled)!r}, 'w').write({cool!r}); time.sleep(0.05)")
    lines = lines.replace("answer =", f"    open({str(throttled)!r}, 'w').write({warm if hot == 'after' else cool!r}); time.sleep(0.1)\nanswer =")
    found = machine.ask(lines, gpus=1, FAKE_NVML_THROTTLED=str(throttled))
    assert of_gpu(found) == [] and found["gpus"][0]["temperature_c"] == {
        "before": 83 if hot == "before" else 40,
        "least": 40,
        "most": 40,
        "after": 83 if hot == "after" else 40,
    }


def test_an_idle_gpu_and_clocks_that_a_user_set_are_no_throttling(machine: Machine, tmp_path):
    found = watched(machine, tmp_path, f"{0x1 | 0x2} 40")
    assert not [mark for mark in found["marks"] if mark.startswith("throttled")]


def test_what_a_driver_does_not_tell_is_null_and_costs_nothing(machine: Machine):
    (gpu,) = machine.ask(WATCH.format(seconds=0.05, meanwhile=""), gpus=1)["gpus"]
    assert (gpu["temperature_c"], gpu["sm_clock_mhz"], gpu["throttled"]) == (None, None, {})


def test_a_gpu_that_others_use_is_marked(machine: Machine, tmp_path):
    found = watched(machine, tmp_path, "0 40", gpus=2, FAKE_NVML_PROCESSES=f"1:77:{GIB}")
    assert of_gpu(found) == of_gpu(found, "disturbed") == ["foreign load: others used GPU 1 when it began"]


COMES = "open('{folder}/comers', 'w').write('0:11:1,0:77:1,0:99:1')"


def test_a_process_of_others_that_comes_while_the_job_runs_is_marked(machine: Machine, tmp_path):
    found = watched(machine, tmp_path, meanwhile=COMES)
    assert found["gpus"][0]["foreign_pids"] == [77], "11 is the job's, of 99 nobody knows whose"
    assert of_gpu(found) == of_gpu(found, "disturbed") == ["foreign load: others computed on GPU 0 during the run (pid 77)"]


def test_of_a_process_of_which_nobody_knows_whose_it_is_is_asked_again(machine: Machine, tmp_path):
    (tmp_path / "comers").write_text("0:11:1,0:77:1")
    lines = WATCH.format(seconds=0.2, meanwhile="").replace("owns={11: True, 77: False}.get", "owns=lambda pid: told[pid].pop(0)")
    found = machine.ask("told = {11: [True], 77: [None, False]}\n" + lines, gpus=1, FAKE_NVML_COMERS=str(tmp_path / "comers"))
    assert found["gpus"][0]["foreign_pids"] == [77]


def test_where_no_process_is_known_to_be_the_jobs_the_drivers_numbers_say_nothing(machine: Machine, tmp_path):
    found = watched(machine, tmp_path, meanwhile=COMES.replace("0:11:1,", ""))
    assert found["gpus"][0]["foreign_pids"] == [] and of_gpu(found) == []


@pytest.mark.slow
def test_a_power_limit_below_the_default_is_marked_and_the_gpus_own_limit_disturbs_nothing(machine: Machine, tmp_path):
    found = watched(machine, tmp_path, f"{0x4} 40", FAKE_NVML_LIMITS="350000 700000")
    assert found["gpus"][0]["power_limit_w"] == {"enforced": 350, "default": 700} and found["gpus"][0]["persistence_mode"] is True
    assert of_gpu(found, "disturbed") == ["power limit: GPU 0 is held to 350 W, its default is 700 W"]
    own = watched(machine, tmp_path, f"{0x4} 40", FAKE_NVML_LIMITS="700000 700000")
    assert [mark.partition(":")[0] for mark in of_gpu(own)] == ["throttled"] and of_gpu(own, "disturbed") == []
    assert of_gpu(watched(machine, tmp_path, FAKE_NVML_LIMITS="800000 700000")) == []
    hot = watched(machine, tmp_path, f"{0x20} 90", FAKE_NVML_LIMITS="700000 700000")
    assert of_gpu(hot) == of_gpu(hot, "disturbed") != []


@pytest.mark.slow
def test_errors_of_memory_that_ecc_could_not_correct_are_marked_where_they_came_in_the_run(machine: Machine, tmp_path):
    (tmp_path / "ecc").write_text("3")
    before = watched(machine, tmp_path)
    assert before["gpus"][0]["ecc_uncorrected"] == {"before": 3, "after": 3} and of_gpu(before) == []
    found = watched(machine, tmp_path, meanwhile="open('{folder}/ecc', 'w').write('5')")
    assert of_gpu(found, "disturbed") == ["ECC: GPU 0 had 2 uncorrected errors of memory during the run"]


#: The driver loses the GPU.
LOST = """
import pynvml
def lost(named):
    raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
pynvml.nvmlDeviceGetHandleByUUID = pynvml.nvmlDeviceGetHandleByIndex = lost
"""


@pytest.mark.slow
def test_errors_of_memory_of_a_gpu_that_was_lost_in_the_run_are_not_known(machine: Machine, tmp_path):
    (tmp_path / "ecc").write_text("3")
    assert watched(machine, tmp_path, meanwhile=LOST)["gpus"][0]["ecc_uncorrected"] is None


def test_a_process_is_known_by_those_above_it(tmp_path):
    assert processes.descends_from(os.getpid(), os.getppid()) is True
    assert processes.descends_from(os.getppid(), os.getpid()) is False
    assert processes.descends_from(1234, 5, tmp_path) is None
    (tmp_path / "1234").mkdir()
    (tmp_path / "1234" / "stat").write_text("1234 (a) b) S 5 1 1")
    assert processes.descends_from(1234, 5, tmp_path) is True


def stalled(folder, memory_us):
    for kind, waited_us in (("memory", memory_us), ("cpu", 0)):
        (folder / kind).write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited_us}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n")


def test_the_time_in_which_tasks_waited_for_memory_is_that_of_the_calls(tmp_path):
    stalled(tmp_path, 10)
    with pressure.Watch(tmp_path, interval_s=60) as watch:
        stalled(tmp_path, 20_010)
        watch._look()
        stalled(tmp_path, 900_000)
    watch._looks = [(100.0 + second, said) for second, (_, said) in enumerate(watch._looks)]
    assert watch.shares([100.1, 100.9]) == {"memory": 0.02, "cpu": 0.0}
    assert watch.shares(None)["memory"] == 0.45


@pytest.mark.parametrize("file", ["", "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", "some avg10=0.00\n", "some total=\n"])
def test_a_file_that_does_not_tell_the_time_leaves_the_pressure_not_known(tmp_path, file):
    stalled(tmp_path, 10)
    (tmp_path / "memory").write_text(file)
    assert pressure.waited_us("memory", tmp_path) is None and pressure.waited_us("cpu", tmp_path) == 0
    with pressure.Watch(tmp_path, interval_s=60) as watch:
        time.sleep(0.01)
    assert watch.shares(None) == {"memory": None, "cpu": 0.0}


def test_a_kernel_without_the_files_leaves_the_pressure_not_known(tmp_path):
    assert pressure.waited_us("memory", tmp_path / "none") is None


def test_calls_are_placed_by_a_clock_that_may_be_set_by_a_second(monkeypatch):
    asked = []
    monkeypatch.setattr(pressure.Watch, "shares", lambda self, window: asked.append(window) or {"memory": None, "cpu": None})
    began = time.time()
    with conditions.Watch([], look_s=0.01) as watch:
        pass
    ended = time.time()
    kept = [began - 0.5, ended + 0.5]
    for calls in (kept, [began - 2, ended], [began, ended + 2], [ended, began - 0.5]):
        watch.summary(calls)
    assert asked == [kept, None, None, None]


@pytest.mark.parametrize(("share", "marked"), [(None, False), (0.01, False), (0.011, True)])
def test_short_memory_is_marked(monkeypatch, share, marked):
    monkeypatch.setattr(pressure.Watch, "shares", lambda self, window: {"memory": share, "cpu": 0.5})
    with conditions.Watch([]) as watch:
        pass
    found = watch.summary(None)
    assert any(mark.startswith("memory pressure") for mark in found["disturbed"]) == marked
    assert found["pressure"] == {"memory": share, "cpu": 0.5}


@pytest.fixture
def busy(monkeypatch):
    """A machine of 64 cores of which so many compute: `busy` takes the numbers of the looks before and after a run."""

    def marks(before, after):
        looks = iter((before, after))
        monkeypatch.setattr(conditions, "busy_cores", lambda seconds: next(looks))
        monkeypatch.setattr(conditions.os, "cpu_count", lambda: 64)
        with conditions.Watch([]) as watch:
            pass
        return [mark for mark in watch.summary(None)["disturbed"] if mark.startswith("foreign")]

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
