"""Which cores are near a GPU, and that a job stays on them."""

import os
import sys
from pathlib import Path

import pytest

from scripts.containers import restrictions
from scripts.machine import cores, number_ranges
from scripts.machine.gpus import Gpu
from scripts.run.engines import host
from scripts.units import GIB


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 8 cores whose GPU 0 is near 0-3 and GPU 1 near 4-7; GPU 2 tells nothing."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for number, near in enumerate(("0-1,2-3\n", "4-7\n")):
        folder = tmp_path / f"0000:{number}b:00.0"
        folder.mkdir()
        (folder / "local_cpulist").write_text(near)
    return tmp_path


def gpu(number, bus_id=None):
    return Gpu(number, f"GPU-{number}", "SYNTHETIC GPU", GIB, "9.0", f"00000000:{number}B:00.0" if bus_id is None else bus_id)


def test_the_cores_near_a_gpu_are_those_that_the_kernel_names(machine):
    assert cores.near([gpu(0)], machine) == "0-3"
    assert cores.near([gpu(1)], machine) == "4-7"


@pytest.mark.parametrize(
    "chosen", [[], [gpu(0), gpu(1)], [gpu(2)], [gpu(0), gpu(2)], [gpu(0, "")]], ids=["no GPU", "all cores", "no file", "one file", "no id"]
)
def test_no_core_is_chosen_where_nothing_or_all_of_them_is_near(machine, chosen):
    assert cores.near(chosen, machine) == ""


def test_only_cores_that_this_process_may_use_are_chosen(machine, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 4})
    assert cores.near([gpu(0)], machine) == "2-3"
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5})
    assert cores.near([gpu(0)], machine) == ""


def test_a_list_of_cores_is_read_and_written_as_the_kernel_has_it():
    assert number_ranges.parsed("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
    assert number_ranges.parsed("\n") == set()
    assert number_ranges.text({11, 10, 8, 2, 1, 0}) == "0-2,8,10-11"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="NOT TESTED: one core leaves no choice")
def test_a_job_of_the_host_stays_on_its_cores_and_this_process_does_not():
    before = os.sched_getaffinity(0)
    near, lines = str(min(before)), []
    host.run(Path(sys.executable), ["-c", "import os; print(sorted(os.sched_getaffinity(0)))"], Path("/"), [], 20, lines.append, near)
    assert lines == [f"[{near}]"]
    assert os.sched_getaffinity(0) == before


def test_a_container_gets_its_cores_and_a_choice_only_where_there_is_one():
    assert restrictions.settings(8 * GIB, None, cores="0-3")["cpuset_cpus"] == "0-3"
    assert "cpuset_cpus" not in restrictions.settings(8 * GIB, None)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="NOT TESTED: to be kept on fewer cores needs two")
def test_the_cores_that_this_process_is_kept_on_are_told_where_they_are_not_all() -> None:
    one = str(min(os.sched_getaffinity(0)))
    before = cores.own()
    with cores.kept_on(one):
        assert cores.own() == one
    assert cores.own() == before
