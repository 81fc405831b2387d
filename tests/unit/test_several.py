"""JOBS=n: cases at once, each on cores or GPUs of its own, marked, and ended together."""

import errno
import functools
import io
import json
import os
import platform
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from scripts import articles, paths, results
from scripts.commands.line import invoke
from scripts.errors import PreflightError, UsageError
from scripts.machine import gpus, locks, temporary_folders
from scripts.run import host_facts, plan, rounds, runner, several
from scripts.run.options import Options
from scripts.verdicts import row_groups
from tests import synthetic
from tests.typed import chosen

#: An interpreter in name, which answers as a guest that timed the calibration's calls; `{meanwhile}` comes before its answer.
GUEST = """#!{python}
import json, os, sys, time
if sys.argv[1] == "-c":
    sys.exit(0)
job = json.load(open(sys.argv[3]))
began, folder = time.time(), {folder!r}
open(os.path.join(folder, job["case"] + "." + job["id"][-2:] + ".began"), "w").write(repr(sorted(os.sched_getaffinity(0))))
{meanwhile}
timed = {{"new_tokens": 1, "cold_ms": 1.0, "warmup_ms": [0.01] * job["warmup_runs"], "timed_ms": [0.01] * job["timed_runs"]}}
answer = {{"schema": 2, "id": job["id"], "status": "ok", "measurements": [timed], "memory": {{"devices": []}}, "figures": {{}}}}
json.dump(answer, open(sys.argv[4], "w"))
"""

#: Wait until both cases have begun, which those of one after another never have.
TOGETHER = """
while len({{name.split(".")[0] for name in os.listdir(folder) if name.endswith("began")}}) < 2:
    time.sleep(0.01)
    assert time.time() < began + 30
"""


@pytest.fixture
def asked(tmp_path: Path):
    """The command line of a calibration's cases by a guest that does this meanwhile."""

    def words(meanwhile: str = "", **typed: str) -> dict[str, str]:
        python = tmp_path / "python3"
        python.write_text(GUEST.format(python=sys.executable, folder=str(tmp_path), meanwhile=meanwhile.format()))
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        own = {"RUNS": str(tmp_path / "runs"), "MODELS": str(tmp_path / "models"), "PYTHON_HOST": str(python)}
        fixed = {"ARTICLE": "calibration", "STACK": "current", "ENGINE": "host", "DEVICE": "cpu", "WEIGHTS": "random", "TIMED_RUNS": "5"}
        return {**fixed, **own, **typed}

    return words


def planned(options: Options) -> list[runner.Planned]:
    return plan.plan(["transformers"], options, every=True)


needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="NOT TESTED: jobs at once need two cores")


@needs_two_cores
@pytest.mark.slow
def test_cases_run_at_once_on_cores_of_their_own_and_their_runs_are_marked(asked, tmp_path: Path, capfd) -> None:
    options = chosen(**asked(TOGETHER), JOBS="2")
    assert several.perform(planned(options), options) == 0
    began = {path.name.partition(".")[0]: set(json.loads(path.read_text())) for path in tmp_path.glob("*.began")}
    assert len(began) == 2 and not began["empty"] & began["fixed-kernel"]
    records, skipped = results.load_all(tmp_path / "runs")
    assert len(records) == 2 and not skipped
    for record in records:
        assert record.host["shared_with"] == 1
        assert "shared machine: up to 1 other job of the same command ran beside it (JOBS)" in record.host["conditions"]["disturbed"]
    said = capfd.readouterr()
    assert [line.partition("]")[0] for line in said.out.splitlines()] == ["[1 of 2 ended, 1 running", "[2 of 2 ended, 0 running"]
    assert "1 ok; 1 new token(s): 0.01" in said.out and said.err.count("starts on cores") == 2


@pytest.mark.slow
@needs_two_cores
def test_a_run_beside_others_stands_for_no_run_of_its_own(asked, tmp_path: Path) -> None:
    words = asked(CASES="empty")
    beside = chosen(**words, JOBS="2")
    several.perform(planned(beside) * 2, chosen(**words, JOBS="2", FORCE="1"))
    assert len(results.load_all(tmp_path / "runs")[0]) == 2
    (alone,) = rounds.run_all(planned(beside), chosen(**words), keep_going=False)
    assert not alone.host["shared_with"] and len(results.load_all(tmp_path / "runs")[0]) == 3
    (again,) = rounds.run_all(planned(beside), chosen(**words), keep_going=False)
    assert again.id == alone.id, "it was measured alone before"


@pytest.mark.slow
def test_each_kind_of_machine_measures_for_itself_in_a_shared_folder_and_no_run_twice(asked, tmp_path: Path, monkeypatch) -> None:
    options = chosen(**asked(CASES="empty"))
    here = host_facts.machine()

    def measured_on(**machine: object) -> str:
        monkeypatch.setattr(host_facts, "machine", lambda: {**here, **machine})
        (record,) = rounds.run_all(planned(options), options, keep_going=False)
        return record.id

    first = measured_on()
    other = measured_on(cpu_count=4096)
    assert first != other
    assert (measured_on(memory_total_bytes=1 << 40), measured_on(cpu_count=4096)) == (first, other), "two nodes of one kind share their runs"
    records, _ = results.load_all(tmp_path / "runs")
    assert [len(group.rows[0].runs) for group in row_groups.build(records, articles.load_all())] == [1, 1]


@needs_two_cores
@pytest.mark.slow
def test_a_case_that_fails_stops_no_other(asked, tmp_path: Path, capfd) -> None:
    options = chosen(**asked("if job['case'] == 'empty': sys.exit(7)"), JOBS="2")
    assert several.perform(planned(options), options) == 1
    assert {record.job.case: record.status for record in results.load_all(tmp_path / "runs")[0]} == {"empty": "failed", "fixed-kernel": "ok"}
    assert "1 failed; failed: the guest ended with exit code 7" in capfd.readouterr().out


def test_a_job_whose_receipt_has_no_room_is_told_with_where_its_results_lie(asked, temporary: Path, tmp_path: Path, capfd, monkeypatch) -> None:
    class Full(io.BytesIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: Full())
    options = chosen(**asked(CASES="empty"), JOBS="2")
    without_receipt = [sys.executable, "-c", "print('error: no space left on device (the output)')"]
    assert several.perform(planned(options), options, without_receipt) == 1
    why = f"its output cannot be written to {temporary} (No space left on device); what it measured is stored in {tmp_path / 'runs'}; make room there, or type"
    assert f"calibration/empty (controlled, current): {why} TMPDIR=/another/folder, " in capfd.readouterr().err


def test_a_job_that_cannot_start_is_named_with_its_reason(asked, tmp_path: Path, capfd) -> None:
    options = chosen(**asked(CASES="empty"), JOBS="2")
    refusing = [sys.executable, "-c", "import sys; print('error: there is no such thing'); sys.exit(3)"]
    assert several.perform(planned(options), options, refusing) == 3
    said = capfd.readouterr().err
    assert "no result: error: there is no such thing" in said and "1 of 1 jobs told no result" in said


@needs_two_cores
@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_every_job_ends_with_the_command_and_its_folder_with_the_next(asked, tmp_path: Path, temporary: Path, number: int) -> None:
    words = asked("open(os.path.join(folder, job['case'] + '.pid'), 'w').write(str(os.getpid())); time.sleep(600)")
    typed = [part for name, value in {**words, "JOBS": "2"}.items() if name != "ARTICLE" for part in (f"--{name.lower().replace('_', '-')}", value)]
    heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell that starts the tests behind itself ignores it
    arguments = [sys.executable, "-m", "scripts", "article", "calibration", *typed]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = subprocess.Popen(arguments, cwd=paths.ROOT, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heeding)
    pids = [tmp_path / f"{case}.pid" for case in ("empty", "fixed-kernel")]
    while not all(path.exists() and path.read_text() for path in pids):
        time.sleep(0.05)
    command.send_signal(number)
    assert command.wait(30) == (130 if number == signal.SIGINT else -number)
    command.stderr.close()
    deadline = time.monotonic() + 20
    while any(Path("/proc", path.read_text()).exists() for path in pids):
        assert time.monotonic() < deadline, "a guest lives on"
        time.sleep(0.1)
    assert len(list(temporary.glob(f"{temporary_folders.OF_JOBS}*"))) == (number == signal.SIGKILL)
    rounds.run_all([], chosen(**words), keep_going=False)
    assert not list(temporary.glob(f"{temporary_folders.OF_JOBS}*"))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch) -> Path:
    """A folder of temporary files of the test's own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def folder_of_a_killed_command(temporary: Path, *, at: str) -> None:
    """A command makes its folder and is killed, at this line of its own."""
    code = f"import os, signal\nfrom scripts.machine import locks\nfrom scripts.machine import temporary_folders\ndie = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n{at}"
    done = subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, env={**os.environ, "TMPDIR": str(temporary)})
    assert done.returncode == -signal.SIGKILL and len(list(temporary.iterdir())) == 1


@pytest.mark.parametrize(
    "at",
    [
        pytest.param("with temporary_folders.made(temporary_folders.OF_JOBS) as folder:\n    (folder / '1').mkdir()\n    (folder / '1' / 'log.txt').touch()\n    die()", id="with a job"),
        pytest.param("real, locks.take = locks.take, lambda path, *mode: die() if path.name == '.lock' else real(path, *mode)\n"
                     "temporary_folders.made(temporary_folders.OF_JOBS).__enter__()", id="before its lock"),
    ],
)  # fmt: skip
def test_a_killed_commands_folder_of_jobs_goes_with_the_next_command(temporary: Path, at: str) -> None:
    folder_of_a_killed_command(temporary, at=at)
    temporary_folders.sweep()
    assert not list(temporary.iterdir())


def test_the_folder_of_a_living_command_stays(temporary: Path) -> None:
    with temporary_folders.made(temporary_folders.OF_JOBS) as folder:
        (folder / "1").mkdir()
        sweep = [sys.executable, "-c", "from scripts.machine import temporary_folders; temporary_folders.sweep()"]
        subprocess.run(sweep, cwd=paths.ROOT, env={**os.environ, "TMPDIR": str(temporary)}, check=True)
        assert (folder / "1").is_dir()
    assert not list(temporary.iterdir())


def test_a_folder_that_no_command_has_signed_stays_and_so_does_what_a_link_leads_to(temporary: Path, tmp_path: Path) -> None:
    notes = temporary / f"{temporary_folders.OF_JOBS}notes"
    notes.mkdir()
    (notes / ".lock").write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".lock").write_text("pid 1 of somebody")
    (temporary / f"{temporary_folders.OF_JOBS}link").symlink_to(elsewhere)
    (temporary / f"{temporary_folders.OF_JOBS}file").touch()
    temporary_folders.sweep()
    assert len(list(temporary.iterdir())) == 3 and (notes / ".lock").exists() and (elsewhere / ".lock").exists()


def test_the_folder_of_another_node_stays_because_its_lock_may_hold_there_alone(temporary: Path, monkeypatch) -> None:
    folder_of_a_killed_command(temporary, at="with temporary_folders.made(temporary_folders.OF_PYXIS):\n    die()")
    (folder,) = temporary.iterdir()
    monkeypatch.setattr(platform, "node", lambda: "another-node")
    temporary_folders.sweep()
    assert folder.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: only root can give a folder to another user")
def test_the_folder_of_another_user_stays(temporary: Path) -> None:
    folder_of_a_killed_command(temporary, at="with temporary_folders.made(temporary_folders.OF_JOBS):\n    die()")
    (folder,) = temporary.iterdir()
    os.chown(folder, 12345, 12345)
    temporary_folders.sweep()
    assert folder.exists()


class Stubborn:
    """In place of a job: its wait meets what the user sends; after its kill, or if it ended by itself, it is over."""

    def __init__(self, meets: list[BaseException], pid: int) -> None:
        self.meets, self.pid, self.waited = meets, pid, 0

    def send_signal(self, number: int) -> None:
        pass

    def wait(self, timeout: float | None = None) -> int:
        self.waited += 1
        if self.meets:
            raise self.meets.pop()
        return -9


@pytest.mark.parametrize("second", [KeyboardInterrupt(), SystemExit(143), subprocess.TimeoutExpired("a job", 60)])
def test_a_second_signal_kills_each_job_also_where_one_has_just_ended(second: BaseException) -> None:
    jobs = [several.Running(None, [number], Stubborn([second], number), Path()) for number in (1, 2)]
    killed = []

    def kill(pid: int, number: int) -> None:
        killed.append(pid)
        if pid == 1:
            raise ProcessLookupError

    several._end(jobs, kill)
    assert killed == [1, 2] and [job.process.waited for job in jobs] == [2, 2]


def test_a_job_whose_command_was_killed_before_it_could_be_bound_to_it_does_not_begin() -> None:
    began = "import os, sys; sys.path.insert(0, '.'); from scripts.run import several; several._die_with(int(sys.argv[1])); print('began')"
    for parent, output in ((os.getpid(), "began\n"), (1 << 22, "")):
        done = subprocess.run([sys.executable, "-c", began, str(parent)], cwd=paths.ROOT, capture_output=True, text=True)
        assert done.stdout == output and (done.returncode == 0) == bool(output)


def test_a_job_that_was_killed_is_no_success_and_is_named_with_its_signal(asked, tmp_path: Path, capfd) -> None:
    options = chosen(**asked(CASES="empty"), JOBS="2")
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert several.perform(planned(options), options, killed) == 1
    assert "no result: ended with -9" in capfd.readouterr().err


def test_a_run_beside_others_is_one_of_those_that_jobs_at_once_ask_for() -> None:
    beside = synthetic.record(synthetic.job("deepspeed", 2))
    beside.host["shared_with"] = 1
    assert runner.counts(beside, chosen(JOBS="2")) and not runner.counts(beside, chosen())


def test_a_plan_shows_the_jobs(asked) -> None:
    options = chosen(**asked(), JOBS="2", REPEATS="3")
    shown = list(several.lines(planned(options), options))
    assert shown[0].startswith("2 jobs, 2 at once, whose runs are marked")
    assert next(several.lines(planned(options)[:1], options)).startswith("1 job, 1 at once")
    assert shown[1:] == ["  calibration/empty (controlled, current), CPU", "  calibration/fixed-kernel (controlled, current), CPU"]


def test_a_job_gets_its_options_as_arguments_and_not_from_the_environment(monkeypatch) -> None:
    for name, value in (("JOBS", "2"), ("GPU_IDS", "0,1"), ("KIT_TYPED", "x"), ("KIT_NAME", "x"), ("HF_TOKEN", "kept"), ("CUDA_VISIBLE_DEVICES", "0,1")):
        monkeypatch.setenv(name, value)
    environment = several._environment()
    assert (
        not {"JOBS", "GPU_IDS", "KIT_TYPED", "KIT_NAME"} & set(environment)
        and environment["HF_TOKEN"] == "kept"
        and environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    )


@pytest.mark.parametrize("in_array", [True, False])
def test_only_a_task_of_an_array_needs_locks_that_other_nodes_see(asked, tmp_path: Path, monkeypatch, in_array: bool) -> None:
    (tmp_path / "mounts").write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path} lustre rw,localflock 0 0\n")
    monkeypatch.setattr(locks.refuse_local, "__defaults__", (tmp_path / "mounts",))
    for name, value in {"SLURM_JOB_ID": "1", **({"SLURM_ARRAY_TASK_ID": "0"} if in_array else {})}.items():
        monkeypatch.setenv(name, value)
    options = chosen(**asked(), JOBS="1" if in_array else "2")
    words = [*several.split(planned(options), options)[0].arguments, "--receipt", str(tmp_path / "receipt.json")]
    if in_array:
        with pytest.raises(PreflightError, match="localflock., whose locks hold on one node alone"):
            invoke(words)
    else:
        assert invoke(words) == 0


class FakeProcess:
    """In place of a job: it ends at the next look but one, and notes who ran at once."""

    running: list = []
    seen: list = []

    def __init__(self, command: list[str], **settings: object) -> None:
        self.own = set(command[command.index("--gpu-ids") + 1].split(","))
        self.left, self.pid, self.returncode = 2, 0, 3
        FakeProcess.running.append(self)
        FakeProcess.seen.append([process.own for process in FakeProcess.running])

    def poll(self) -> int | None:
        self.left -= 1
        if self.left >= 0:
            return None
        FakeProcess.running.remove(self)
        return self.returncode


@pytest.mark.slow
def test_jobs_never_share_a_gpu(monkeypatch) -> None:
    options = chosen(ARTICLE="inference-tools", JOBS="3", GPU_IDS="0,2,5", WEIGHTS="random")
    real = several.subprocess.Popen
    monkeypatch.setattr(several.subprocess, "Popen", lambda command, **settings: (FakeProcess if "--gpu-ids" in command else real)(command, **settings))
    cases = plan.plan(["layer-parallel", "transformers", "int8"], options, every=True)
    several.perform(cases, options)
    assert len(FakeProcess.seen) == len(cases) == 6 and max(map(len, FakeProcess.seen)) > 1
    for at_once in FakeProcess.seen:
        assert set().union(*at_once) <= {"0", "2", "5"} and sum(map(len, at_once)) == len(set().union(*at_once))


@pytest.mark.parametrize(("gpu_ids", "beside"), [("0", 0), ("0,1", 1), ("0,1,2,3", 2)])
def test_a_run_is_marked_by_how_many_others_there_is_room_for(gpu_ids: str, beside: int) -> None:
    options = chosen(ARTICLE="inference-tools", JOBS="3", GPU_IDS=gpu_ids, WEIGHTS="random", CASES="transformers,int8")
    cases = plan.plan(["transformers", "int8"], options, every=True)
    for task in several.split(cases, options):
        typed = dict(zip(task.arguments, task.arguments[1:], strict=False))
        assert int(typed.get("--shared-with", 0)) == beside and "--gpu-ids" not in typed
    assert f"4 jobs, {beside + 1} at once" in next(several.lines(cases, options))


def test_two_instances_of_one_gpu_are_one_place_because_its_number_names_both(monkeypatch) -> None:
    monkeypatch.setattr(gpus, "given", lambda: [gpus.Gpu(number, f"MIG-{name}", "x", 1, "9.0") for number, name in ((0, "a"), (0, "b"), (1, "c"))])
    monkeypatch.setattr(gpus, "foreign_use", lambda gpu: None)
    options = chosen(ARTICLE="inference-tools", JOBS="3", GPUS="1", WEIGHTS="random", CASES="transformers,int8")
    assert several._places(options, 3) == [[0], [1]]
    assert "4 jobs, 2 at once" in next(several.lines(plan.plan(["transformers", "int8"], options, every=True), options))


def test_a_profile_is_never_made_beside_others() -> None:
    with pytest.raises(UsageError, match="JOBS is 2 with profile"):
        invoke(["profile", "transformers", "--jobs", "2"])


def test_what_jobs_cannot_do_is_refused(monkeypatch, asked) -> None:
    with pytest.raises(UsageError, match="JOBS is 2 with SCHEDULER=slurm"):
        Options(jobs=2, scheduler="slurm")
    many = chosen(**asked(), JOBS="64")
    with pytest.raises(UsageError, match="JOBS is 64, allowed is a whole number from 1 to 1, the cores"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
        several.perform(planned(many), many)
    one = Options(article="inference-tools", jobs=2, weights="random")
    monkeypatch.setattr(gpus, "given", lambda: [gpus.Gpu(0, "GPU-0", "x", 1, "9.0")])
    monkeypatch.setattr(gpus, "foreign_use", lambda gpu: None)
    with pytest.raises(PreflightError, match="needs 2 GPUs, but JOBS may use only 1"):
        several.perform(plan.plan(["layer-parallel"], one, every=False), one)
