"""GPUs against a simulated driver: a real shared library, loaded as the real one is, in a child process."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.cdi import uuid
from tests.fakes.machine import Machine

GIB = 1 << 30

SELECT = "with gpus.select({}) as chosen: answer = [gpu.index for gpu in chosen]"


@pytest.fixture
def machine(fake_nvml: Path, tmp_path: Path) -> Machine:
    return Machine(fake_nvml, tmp_path)


@pytest.fixture
def hold(machine: Machine) -> Callable[[str], subprocess.Popen]:
    """A function that starts another run holding GPUs; it lives until the test ends."""
    running = []

    def start(arguments: str) -> subprocess.Popen:
        process = machine.start(f"with gpus.select({arguments}): print('holding', flush=True); sys.stdin.read()")
        running.append(process)
        assert process.stdout.readline() == "holding\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_lists_each_gpu_with_its_uuid_memory_and_architecture(machine: Machine) -> None:
    gpus = machine.ask("import dataclasses; answer = [dataclasses.asdict(gpu) for gpu in gpus.list_gpus()]", gpus=2)
    assert gpus[1] == {
        "index": 1,
        "uuid": uuid(1),
        "name": "Fake GPU",
        "memory_total_bytes": 80 * GIB,
        "compute_capability": "9.0",
        "pci_bus_id": "",
        "memory_bytes_per_s": None,
        "nvlinks": None,
    }
    assert [gpu["index"] for gpu in gpus] == [0, 1]


def test_the_nvlinks_that_are_up_are_counted(machine):
    asked = "answer = [gpu.nvlinks for gpu in gpus.list_gpus()]"
    assert machine.ask(asked, gpus=2, FAKE_NVML_LINKS="uuduu") == [4, 4]
    assert machine.ask(asked, gpus=1, FAKE_NVML_LINKS="dd") == [0] and machine.ask(asked, gpus=1) == [None]
    of_instances = {"FAKE_NVML_MIG": "1", "CUDA_VISIBLE_DEVICES": "MIG-00000000-0000-0000-0000-000000000001", "FAKE_NVML_LINKS": "uu"}
    assert machine.ask("answer = [gpu.nvlinks for gpu in gpus.given()]", gpus=2, **of_instances) == [None], "the links are those of the whole GPU"


def test_the_nominal_rate_of_memory_follows_from_its_bus_and_its_highest_clock(machine: Machine) -> None:
    rate = machine.ask("answer = gpus.list_gpus()[0].memory_bytes_per_s", gpus=1, FAKE_NVML_BUS="6016 3201")
    assert rate == 4_814_304_000_000, "an H200's 6016 bits, two transfers in each of 3201 million cycles a second"


def test_tells_the_versions_of_the_driver(machine: Machine) -> None:
    assert machine.ask("answer = gpus.driver()") == {"driver": "580.65.06", "cuda_driver": "13.0"}


@pytest.mark.parametrize("settings", [{}, {"LD_LIBRARY_PATH": ""}], ids=["driver not loaded", "no library"])
def test_a_machine_without_a_driver_has_no_gpus(machine: Machine, settings: dict[str, str]) -> None:
    assert machine.ask("answer = [gpus.list_gpus(), gpus.driver()]", gpus=0, **settings) == [[], None]


def test_a_driver_that_does_not_answer_is_one_clear_line(machine: Machine) -> None:
    answer = machine.ask("gpus.list_gpus()", FAKE_NVML_INIT="18")
    assert answer["exit_code"] == 3
    assert "version mismatch" in answer["error"] and "nvidia-smi" in answer["error"]


LOST = {"FAKE_NVML_LOST": "1"}


def test_a_gpu_that_the_driver_has_lost_is_told_of_once_and_the_others_are_used(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    assert machine.ask(SELECT.format("count=3") + "; gpus.list_gpus()", gpus=4, **LOST) == [0, 2, 3]
    note = "note: the driver has lost GPU 1, so no run takes it; see what `nvidia-smi` says, reset it (`sudo nvidia-smi --gpu-reset -i 1`) or reboot"
    assert capfd.readouterr().err == f"{note} the machine\n"
    assert machine.ask(SELECT.format("ids=[3, 0]"), gpus=4, **LOST) == [3, 0]


def test_a_lost_gpu_that_is_asked_for_by_its_number_is_refused_with_what_to_do(machine: Machine) -> None:
    answer = machine.ask(SELECT.format("ids=[0, 1]"), gpus=3, **LOST)
    others = "type GPU_IDS= with others of GPU 0 (Fake GPU), 2 (Fake GPU)"
    way = f"see what `nvidia-smi` says, reset it (`sudo nvidia-smi --gpu-reset -i 1`) or reboot the machine, or {others}"
    assert answer == {"exit_code": 3, "error": f"GPU_IDS=0,1: the driver has lost GPU 1; {way}"}


def test_a_machine_whose_only_gpu_is_lost_is_one_line_that_says_so(machine: Machine) -> None:
    answer = machine.ask(SELECT.format("count=1"), gpus=1, FAKE_NVML_LOST="0")
    assert answer["exit_code"] == 3 and answer["error"].startswith("the driver has lost GPU 0, and there is no other; see what `nvidia-smi` says")


def test_the_other_gpus_are_watched_where_one_is_lost(machine: Machine) -> None:
    watched = "with gpus.MemorySampler(gpus.list_gpus()) as sampler: pass\nanswer = [(one['index'], one['error']) for one in sampler.summary({})]"
    assert machine.ask(watched, gpus=3, **LOST) == [[0, None], [2, None]]


@pytest.mark.parametrize(
    ("variables", "given"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, [0, 2]),
        ({"SLURM_JOB_GPUS": "0,1,2", "SLURM_JOB_ID": "7"}, [0, 2]),  # as many as the machine has left, and the last is another job's
        ({"SLURM_JOB_GPUS": "4-7", "SLURM_JOB_ID": "7"}, [0, 2, 3]),  # hidden and numbered anew
    ],
)
def test_a_lost_gpu_of_an_allocation_is_left_out_and_no_other_takes_its_place(machine: Machine, variables: dict[str, str], given: list[int]) -> None:
    assert machine.ask("answer = [gpu.index for gpu in gpus.given()]", gpus=4, **LOST, **variables) == given


def test_an_old_driver_counts_memory_its_own_way(machine: Machine) -> None:
    watched = "with gpus.MemorySampler(gpus.list_gpus()) as sampler: pass\nanswer = sampler.summary({})[0]['baseline_bytes']"
    assert machine.ask(watched, FAKE_NVML_OLD="1") == 600 << 20


def test_a_count_takes_the_first_free_gpus(machine: Machine) -> None:
    assert machine.ask(SELECT.format("count=2")) == [0, 1]


def test_ids_take_exactly_those_in_their_order(machine: Machine) -> None:
    assert machine.ask(SELECT.format("ids=[3, 1]")) == [3, 1]


def test_two_runs_at_once_get_different_gpus(machine: Machine, hold: Callable) -> None:
    hold("count=2")
    hold("ids=[3]")
    assert machine.ask(SELECT.format("count=3")) == [2, 4, 5]


def test_a_held_gpu_is_refused_by_name_with_its_holder(machine: Machine, hold: Callable) -> None:
    other = hold("ids=[1]")
    answer = machine.ask(SELECT.format("ids=[0, 1]"))
    assert answer["exit_code"] == 3
    assert "GPU 1 is held" in answer["error"] and f"pid {other.pid}" in answer["error"]


def test_a_failed_choice_holds_nothing(machine: Machine, hold: Callable) -> None:
    hold("ids=[1]")
    lines = "try:\n  with gpus.select(ids=[0, 1]): pass\nexcept KitError: pass\n" + SELECT.format("ids=[0]")
    assert machine.ask(lines) == [0]


@pytest.mark.slow
def test_a_killed_run_frees_its_gpus(machine: Machine, hold: Callable) -> None:
    other = hold("count=8")
    assert "GPU 7 is held" in machine.ask(SELECT.format("count=1"))["error"]
    other.kill()
    other.wait()
    assert machine.ask(SELECT.format("count=8")) == list(range(8))


#: A process of another user: the files of this one's may be closed to him, so all that is needed is loaded before.
AS_USER = """
from pathlib import Path
locks.GPUS = Path({folder!r})
gpus.list_gpus()
os.setgroups([]), os.setgid({uid}), os.setuid({uid})
{lines}
"""


@pytest.fixture
def folder_of_users() -> Iterator[str]:
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: only root can be two other users")
    with tempfile.TemporaryDirectory(prefix="llm-repro-users-", dir="/tmp") as name:
        os.chmod(name, 0o1777)
        yield name


@pytest.fixture
def as_user(machine: Machine, folder_of_users: str) -> Iterator[Callable[[int, str], subprocess.Popen]]:
    """A function that runs lines as a user of this machine who types no KIT_LOCKS."""
    running = []

    def start(uid: int, lines: str) -> subprocess.Popen:
        running.append(machine.start(AS_USER.format(folder=f"{folder_of_users}/gpus", uid=uid, lines=lines), KIT_LOCKS=""))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def ask_user(machine: Machine, folder_of_users: str) -> Callable[[int, str], object]:
    """A function that gives the answer of such lines."""
    return lambda uid, lines: machine.ask(AS_USER.format(folder=f"{folder_of_users}/gpus", uid=uid, lines=lines), KIT_LOCKS="")


@pytest.mark.slow
def test_two_users_of_a_machine_never_hold_the_same_gpu_and_a_killed_run_frees_its_own(as_user: Callable, ask_user: Callable) -> None:
    def asks(uid: int, arguments: str) -> object:
        return ask_user(uid, SELECT.format(arguments))

    holder = as_user(4321, "with gpus.select(ids=[0, 1]): print('holding', flush=True); sys.stdin.read()")
    assert holder.stdout.readline() == "holding\n"
    assert asks(4322, "count=1") == [2]
    refused = asks(4322, "ids=[1]")
    assert refused["exit_code"] == 3 and f"GPU 1 is held by another run of this kit, pid {holder.pid} of 4321" in refused["error"]
    assert asks(0, "count=1") == [2], "root is a user like any other"
    holder.kill()
    holder.wait()
    assert asks(4322, "ids=[0, 1]") == [0, 1]
    assert asks(4321, "ids=[0, 1]") == [0, 1]


def test_a_folder_of_locks_that_not_all_may_write_is_refused_with_the_way_out(ask_user: Callable) -> None:
    assert ask_user(0, "locks.GPUS.mkdir(mode=0o755); answer = 'made'") == "made"
    refused = ask_user(4322, SELECT.format("count=1"))
    assert refused["exit_code"] == 3 and "KIT_LOCKS=/another/folder" in refused["error"]


@pytest.mark.parametrize("mode", [0o777, 0o1755])
def test_a_folder_of_locks_in_which_users_remove_each_others_locks_or_make_none_is_refused(ask_user: Callable, mode: int) -> None:
    assert ask_user(0, f"locks.GPUS.mkdir(), locks.GPUS.chmod({mode}); answer = 'made'") == "made"
    refused = ask_user(0, SELECT.format("count=1"))
    assert refused["exit_code"] == 3 and "no folder of mode 1777" in refused["error"]


def test_a_link_in_place_of_the_folder_of_locks_lets_no_sweep_remove_the_files_behind_it(ask_user: Callable, tmp_path: Path) -> None:
    (tmp_path / "Cargo.lock").write_text("precious")
    lines = f"locks.GPUS.symlink_to({str(tmp_path)!r})\nlocks.folder = lambda: Path('/nowhere')\nlocks.sweep()\nanswer = 'swept'"
    assert ask_user(0, lines) == "swept"
    assert (tmp_path / "Cargo.lock").read_text() == "precious"


@pytest.mark.parametrize(
    "made",
    [
        "os.mkfifo(path); path.chmod(0o444)",
        "path.mkdir()",
        "path.symlink_to('/dev/zero')",
        "path.touch(); path.chmod(0o600)",
        "path.with_name('other').touch(); os.link(path.with_name('other'), path)",
    ],
)
def test_what_another_user_put_in_place_of_a_lock_stops_no_run_on_the_other_gpus_and_is_named(ask_user: Callable, made: str) -> None:
    put = f"path = locks.gpu_folder() / '{uuid(0)}.lock'\n{made}\nanswer = 'put'"
    assert ask_user(4321, put) == "put"
    swept = "locks.folder = lambda: Path('/nowhere')\nlocks.sweep()\n"
    assert ask_user(4322, swept + SELECT.format("count=1")) == [1]
    refused = ask_user(4322, SELECT.format("ids=[0]"))
    assert refused["exit_code"] == 3 and "GPU 0 cannot be locked" in refused["error"] and "KIT_LOCKS=/another/folder" in refused["error"]


def test_a_user_sweeps_his_own_locks_of_gpus_and_takes_those_of_others(as_user: Callable, ask_user: Callable) -> None:
    for uid in (4321, 4322):
        as_user(uid, f"with gpus.select(ids=[{uid - 4321}]): print('holding', flush=True); os.kill(os.getpid(), 9)").wait()
    lines = "locks.folder = lambda: Path('/nowhere')\nlocks.sweep()\nanswer = sorted(path.name for path in locks.GPUS.iterdir())"
    assert ask_user(4322, lines) == [f"{uuid(0)}.lock"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("count=9", ["GPUS=9", "has 2", "0 (Fake GPU), 1 (Fake GPU)", "GPUS=2"]),
        ("ids=[0, 7]", ["GPU_IDS=0,7", "no GPU 7", "0 (Fake GPU), 1 (Fake GPU)", "GPU_IDS=0"]),
    ],
)
def test_absent_gpus_are_named_with_those_that_are_there(machine: Machine, arguments: str, said: list[str]) -> None:
    answer = machine.ask(SELECT.format(arguments), gpus=2)
    assert answer["exit_code"] == 3
    assert "\n" not in answer["error"]
    for words in said:
        assert words in answer["error"]


def test_without_gpus_the_way_out_is_named(machine: Machine) -> None:
    answer = machine.ask(SELECT.format("count=2"), gpus=0)
    assert "GPUS=2" in answer["error"] and "make demo" in answer["error"]


def test_a_gpu_with_a_foreign_process_is_skipped_or_refused(machine: Machine) -> None:
    busy = {"FAKE_NVML_PROCESSES": f"0:4242:{GIB},2:77:1"}
    assert machine.ask(SELECT.format("count=2"), **busy) == [1, 3]
    answer = machine.ask(SELECT.format("ids=[0]"), **busy)
    assert "GPU 0 is in use by pid 4242" in answer["error"] and "ALLOW_BUSY=1" in answer["error"]


def test_memory_in_use_counts_where_no_process_can_be_seen(machine: Machine) -> None:
    machine.used.write_text(f"{GIB // 2}\n{2 * GIB}\n")
    assert machine.ask(SELECT.format("ids=[0]")) == [0]
    assert "GPU 1 has 2.0 GiB in use" in machine.ask(SELECT.format("ids=[1]"))["error"]


def test_allow_busy_measures_beside_foreign_processes_but_never_beside_a_run(machine: Machine, hold: Callable) -> None:
    busy = {"FAKE_NVML_PROCESSES": f"1:4242:{GIB}"}
    assert machine.ask(SELECT.format("ids=[1], allow_busy=True"), **busy) == [1]
    hold("ids=[2]")
    assert "GPU 2 is held" in machine.ask(SELECT.format("ids=[2], allow_busy=True"), **busy)["error"]


def test_a_lock_folder_of_somebody_else_is_refused(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "theirs").symlink_to(tmp_path)
    answer = machine.ask(SELECT.format("count=1"), KIT_LOCKS=str(tmp_path / "theirs"))
    assert answer["exit_code"] == 3 and "KIT_LOCKS" in answer["error"]


SAMPLE = """
phases = {}
with gpus.MemorySampler(gpus.list_gpus(), interval_s=0.01) as sampler:
    for name in ("load", "measure"):
        began = time.time()
        print(name, flush=True)
        sys.stdin.readline()
        time.sleep(0.2)
        phases[name] = [began, time.time()]
answer = sampler.summary(phases | {"later": [time.time() + 100, time.time() + 101]})
"""


def step(process: subprocess.Popen, name: str) -> None:
    assert process.stdout.readline() == name + "\n"


def proceed(process: subprocess.Popen) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


def test_memory_peaks_are_told_apart_by_gpu_and_phase(machine: Machine) -> None:
    machine.used.write_text("100\n200\n")
    process = machine.start(SAMPLE, gpus=2)
    step(process, "load")
    machine.used.write_text("5000\n200\n")
    time.sleep(1.0)  # for the samples below on a busy machine too
    machine.used.write_text("1000\n200\n")
    proceed(process)
    step(process, "measure")
    machine.used.write_text("1000\n7000\n")
    proceed(process)
    first, second = json.loads(process.communicate(timeout=60)[0])
    assert (first["uuid"], first["index"], first["baseline_bytes"], first["peak_used_bytes"]) == (uuid(0), 0, 100, 5000)
    assert first["peak_by_phase"] == {"load": 5000, "measure": 1000}
    assert second["peak_by_phase"] == {"load": 200, "measure": 7000}
    assert first["samples"] > 20 and first["error"] is None


def test_a_driver_that_fails_in_mid_run_is_recorded_and_the_rest_kept(machine: Machine) -> None:
    machine.used.write_text("100\n")
    process = machine.start(SAMPLE, gpus=1)
    step(process, "load")
    time.sleep(0.1)
    machine.broken.touch()
    proceed(process)
    step(process, "measure")
    proceed(process)
    (summary,) = json.loads(process.communicate(timeout=60)[0])
    assert summary["error"] == "Unknown Error"
    assert summary["baseline_bytes"] == summary["peak_used_bytes"] == 100
    assert summary["peak_by_phase"] == {"load": 100}


def test_without_gpus_the_sampler_does_nothing(machine: Machine) -> None:
    lines = "with gpus.MemorySampler([]) as sampler: pass\nanswer = sampler.summary({'load': [0, 1]})"
    assert machine.ask(lines, gpus=0) == []
