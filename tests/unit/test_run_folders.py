"""Runs in one folder of results, by several processes and users: each keeps its own, and none is measured twice at once."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.measuring.answers_file import NAME as ANSWERS
from scripts import results
from scripts.errors import KitError
from scripts.machine import locks
from scripts.results.store import RUNS, TRIALS, WITHOUT_CONTAINERS, runs_for
from scripts.run import run_folders
from tests import synthetic
from tests.synthetic import job, record

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "demo.llama"

#: Claims a run in a process with a folder of locks of its own, shows its name, and measures until its input ends.
CLAIMING = """
import sys
from pathlib import Path
from scripts.run import run_folders
with run_folders.claimed(sys.argv[2], Path(sys.argv[1]), lambda: None, anew=False) as folder:
    (folder / "work").mkdir()
    (folder / "job.json").write_text("{}")
    print(folder.name, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen]]:
    """Another user's runner that measures in a folder of results."""
    with contextlib.ExitStack() as stack:

        def start(runs: Path) -> subprocess.Popen:
            typed = os.environ | {"KIT_LOCKS": str(tmp_path / "locks of another")}
            command = [sys.executable, "-c", CLAIMING, str(runs), PREFIX]
            process = subprocess.Popen(command, cwd=ROOT, env=typed, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout.readline() == f"{PREFIX}-01\n"
            return process

        yield start


def test_the_work_of_a_living_run_stays_whoever_runs_it_and_a_dead_one_s_goes(tmp_path: Path, another: Callable) -> None:
    process = another(tmp_path)
    work = tmp_path / f"{PREFIX}-01" / "work"
    assert list(run_folders.sweep_unfinished(tmp_path)) == [] and work.is_dir()
    process.kill()
    process.wait()
    assert list(run_folders.sweep_unfinished(tmp_path)) == [work.parent]
    assert [path.name for path in work.parent.iterdir()] == ["job.json"]


def killed(folder: Path, *names: str) -> Path:
    """The folder of a run whose runner was killed at some moment."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("" if name.startswith(".") else "text")
    return folder


@pytest.mark.parametrize(
    ("names", "stay", "unfinished"),
    [
        ((), None, False),
        ((".lock",), None, False),
        ((".lock", ".partial-x"), None, False),
        ((".lock", "log.txt"), ["log.txt"], True),
        ((".lock", "log.txt", "job.json"), ["job.json", "log.txt"], True),
        ((".lock", "job.json", ".partial-x"), ["job.json"], True),
        ((".lock", "job.json", "result.json"), ["job.json", "result.json"], False),
        (("job.json", "result.json", ".partial-x"), ["job.json", "result.json"], False),
        (("job.json", "result.json"), ["job.json", "result.json"], False),
        ((".lock", "result.json"), ["result.json"], False),
        ((".lock", "log.txt", "result.json"), ["log.txt", "result.json"], False),
    ],
    ids=lambda value: " ".join(value or ["nothing"]) if not isinstance(value, bool) else "",
)
def test_a_runner_that_is_killed_at_any_moment_leaves_no_lock_and_no_half(tmp_path: Path, names: tuple, stay: list | None, unfinished: bool) -> None:
    folder = killed(tmp_path / f"{PREFIX}-01", *names)
    assert list(run_folders.sweep_unfinished(tmp_path)) == ([folder] if unfinished else []), "a finished run is not called unfinished"
    assert (sorted(path.name for path in folder.iterdir()) if folder.exists() else None) == stay
    assert not (tmp_path / run_folders.CLAIM).exists()


def test_a_run_that_was_killed_before_it_said_anything_leaves_no_folder(tmp_path: Path) -> None:
    folder = killed(tmp_path / f"{PREFIX}-01", ".lock")
    (folder / "log.txt").touch()
    assert list(run_folders.sweep_unfinished(tmp_path)) == [] and not folder.exists()


def test_the_answers_of_a_killed_run_stay_for_the_next_one(tmp_path: Path) -> None:
    folder = killed(tmp_path / f"{PREFIX}-01", ".lock", "job.json")
    killed(folder / "work", ANSWERS)
    assert list(run_folders.sweep_unfinished(tmp_path)) == [folder]
    assert sorted(path.name for path in folder.iterdir()) == ["job.json", ANSWERS] and (folder / ANSWERS).read_text() == "text"


@pytest.mark.parametrize("names", [(), (".lock",)], ids=["no lock yet", "a lock that it does not hold yet"])
def test_a_new_run_that_is_just_being_claimed_stays(tmp_path: Path, names: tuple) -> None:
    folder = tmp_path / f"{PREFIX}-01"
    with ThreadPoolExecutor(1) as beside:
        with locks.held(tmp_path / run_folders.CLAIM):
            killed(folder, *names)
            sweep = beside.submit(lambda: list(run_folders.sweep_unfinished(tmp_path)))
            with contextlib.suppress(TimeoutError):
                sweep.result(0.5)
            lock = locks.take(folder / run_folders.LOCK, locks.FOR_EVERYBODY)
        with lock:
            assert sweep.result(20) == []
            assert [path.name for path in folder.iterdir()] == [run_folders.LOCK]


def test_a_sweep_beside_living_runs_keeps_nobody_from_claiming_one(tmp_path: Path, another: Callable) -> None:
    another(tmp_path)
    with ThreadPoolExecutor(1) as beside, locks.held(tmp_path / run_folders.CLAIM):
        assert beside.submit(lambda: list(run_folders.sweep_unfinished(tmp_path))).result(20) == []


def test_a_folder_of_results_is_the_same_by_any_name(tmp_path: Path, another: Callable) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    another(tmp_path / "link")
    assert list(run_folders.sweep_unfinished(tmp_path / "runs")) == []


def test_what_another_process_measures_is_refused_in_one_line(tmp_path: Path, another: Callable) -> None:
    process = another(tmp_path)
    with pytest.raises(KitError, match=rf"^{PREFIX}-01 is being measured by pid {process.pid} of .*; wait for it, .* or FORCE=1"):
        run_folders.refuse_twice(PREFIX, tmp_path)
    with pytest.raises(KitError, match="is being measured by"), run_folders.claimed(PREFIX, tmp_path, lambda: results.enough(PREFIX, 1, tmp_path), anew=False):
        pass


def test_a_forced_run_is_measured_beside_another(tmp_path: Path, another: Callable) -> None:
    another(tmp_path)
    with run_folders.claimed(PREFIX, tmp_path, lambda: None, anew=True) as folder:
        assert folder == tmp_path / f"{PREFIX}-02"


def test_a_run_that_was_killed_is_no_obstacle(tmp_path: Path, another: Callable) -> None:
    process = another(tmp_path)
    process.kill()
    process.wait()
    with run_folders.claimed(PREFIX, tmp_path, lambda: results.enough(PREFIX, 1, tmp_path), anew=False) as folder:
        assert folder == tmp_path / f"{PREFIX}-02"


def test_a_run_that_ended_meanwhile_is_not_measured_again(tmp_path: Path) -> None:
    stored = record(job("int8"), 50.0)
    synthetic.write(tmp_path, [stored])
    prefix = stored.id.rsplit("-", 1)[0]
    with run_folders.claimed(prefix, tmp_path, lambda: results.enough(prefix, 1, tmp_path), anew=False) as folder:
        assert folder == stored


def test_a_plain_file_with_the_name_of_a_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}-01").write_text("")
    with run_folders.claimed(PREFIX, tmp_path, lambda: results.enough(PREFIX, 1, tmp_path), anew=False) as folder:
        assert folder == tmp_path / f"{PREFIX}-02"


def _claim(runs: Path) -> str:
    with run_folders.claimed(PREFIX, runs, lambda: None, anew=True) as folder:
        return folder.name


def test_runs_that_begin_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(8) as pool:
        names = pool.map(_claim, [tmp_path] * 40, chunksize=1)
    assert sorted(names) == [f"{PREFIX}-{number:02d}" for number in range(1, 41)]


def test_a_lock_goes_with_its_run_and_another_user_may_open_it_meanwhile(tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        with run_folders.claimed(PREFIX, tmp_path, lambda: results.enough(PREFIX, 1, tmp_path), anew=False) as folder:
            assert (folder / run_folders.LOCK).stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(umask)
    assert list(folder.iterdir()) == [] and [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_a_folder_whose_files_cannot_be_locked_is_named_with_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def without_locks(path: Path) -> Iterator[None]:
        raise OSError(37, "No locks available")
        yield

    monkeypatch.setattr(run_folders.locks, "held", without_locks)
    with (
        pytest.raises(KitError, match=f"no file in {tmp_path} can be locked .No locks available.; type RUNS=/another/folder"),
        run_folders.claimed(PREFIX, tmp_path, lambda: [], anew=True),
    ):
        pytest.fail("nothing is measured without a lock")


def test_runs_of_tiny_models_or_on_a_cpu_are_trials_and_those_without_containers_lie_apart() -> None:
    apart = {("full", "cuda", "host"): WITHOUT_CONTAINERS, ("full", "cuda", "docker"): RUNS, ("tiny", "cuda", "docker"): TRIALS}
    for asked, place in {**apart, ("full", "cpu", "docker"): TRIALS, ("full", "cpu", "host"): TRIALS}.items():
        assert runs_for(*asked) == place
