"""Locks that die with their holder, and leave no files."""

import contextlib
import errno
import fcntl
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scripts.commands import clean, line
from scripts.errors import KitError, PreflightError
from scripts.machine import locks
from scripts.models import place
from scripts.run import checkpoints

ROOT = Path(__file__).resolve().parents[2]

HOLDING = "import sys, time; from pathlib import Path; from scripts.machine import locks; lock = locks.take(Path(sys.argv[1])); print(lock is not None, flush=True); time.sleep(60)"


def holding(path: Path) -> subprocess.Popen:
    """A process that holds a lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDING, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "True\n"
    return process


def end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()


def test_a_lock_that_is_held_is_not_taken_and_names_its_holder(tmp_path: Path) -> None:
    process = holding(tmp_path / "a.lock")
    assert locks.take(tmp_path / "a.lock") is None
    assert locks.holder(tmp_path / "a.lock").startswith(f"pid {process.pid} of ")
    end(process)
    with locks.take(tmp_path / "a.lock") as lock:
        assert lock


def test_make_clean_waits_for_every_command_of_the_kit(tmp_path: Path) -> None:
    path = tmp_path / "kit" / ".venv" / ".in-use"
    with clean.not_in_use(path):  # there is no such folder, so no command runs from it
        pass
    path.parent.mkdir(parents=True)
    with locks.shared(path):
        with locks.shared(path):
            pass
        with pytest.raises(PreflightError, match=f"a command of the kit runs from {tmp_path / 'kit'}; wait for its end"):
            with clean.not_in_use(path):
                pytest.fail("a command runs")
    with clean.not_in_use(path):
        assert locks.take(path) is None, "no command begins meanwhile"


def test_a_command_that_begins_while_somebody_looks_at_the_lock_holds_it_a_moment_later(tmp_path: Path) -> None:
    path = tmp_path / ".in-use"
    looked = locks.take(path)
    assert looked
    threading.Timer(locks.MOMENT_S / 4, looked.close).start()
    with locks.shared(path):
        assert locks.take(path) is None
    with locks.take(path) as taken, locks.shared(path):  # for longer: the command goes on without it
        assert taken


def test_a_command_holds_the_lock_of_make_clean_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "IN_USE", tmp_path / ".in-use")
    monkeypatch.setattr(line.signal, "signal", lambda *_: None)
    monkeypatch.setattr(line, "invoke", lambda *_: 7 if locks.take(clean.IN_USE) is None else 0)
    with pytest.raises(SystemExit) as ended:
        line.main()
    assert ended.value.code == 7


def test_locks_of_dead_processes_are_swept_and_those_of_living_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_LOCKS", str(tmp_path))
    (tmp_path / "Cargo.lock").write_text("# of another program")
    living, dead = holding(tmp_path / "living.lock"), holding(tmp_path / "dead.lock")
    end(dead)
    locks.sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Cargo.lock", "living.lock"]
    assert (tmp_path / "Cargo.lock").read_text() == "# of another program"
    end(living)


def test_a_link_in_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        locks.take(tmp_path / "a.lock")
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_holder_that_another_user_made_up_is_a_short_line(tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text("pid 1\n" * 10**5)
    assert len(locks.holder(tmp_path / "a.lock")) <= locks.HOLDER_BYTES and "\n" not in locks.holder(tmp_path / "a.lock")
    os.mkfifo(tmp_path / "b.lock")
    assert locks.holder(tmp_path / "b.lock") == "another process"


def test_a_lock_whose_file_its_holder_has_just_removed_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    first = locks.take(path)
    waiting = locks._open(path, locks.FOR_EVERYBODY)
    locks.remove(path)
    first.close()
    assert not locks._hold(waiting, path, fcntl.LOCK_EX), "the next one to come makes another file and holds that"
    os.close(waiting)


def test_a_lock_that_several_have_joined_is_taken_over_once_all_have_left(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with locks.joined(path):
        with locks.joined(path):
            assert locks.take(path) is None
        assert locks.take(path) is None
    with locks.taken_over(path) as is_dead:
        assert is_dead
    assert not path.exists()


def test_who_joins_a_lock_waits_for_who_holds_it_alone_and_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = holding(tmp_path / "a.lock")
    threading.Timer(0.6, process.kill).start()
    with locks.joined(tmp_path / "a.lock", "it sweeps"):
        assert process.wait()
    assert capsys.readouterr().err.startswith(f"  it sweeps (pid {process.pid} of ") and locks.take(tmp_path / "a.lock")


def _alone(path: Path) -> bool:
    """Is this process alone within the lock, which each holder removes?"""
    for _ in range(20):
        with locks.held(path / "a.lock"):
            (path / "inside").mkdir()  # fails where another process is inside
            time.sleep(0.001)
            (path / "inside").rmdir()
    return True


def test_one_process_at_a_time_holds_a_lock_although_each_removes_its_file(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert all(pool.map(_alone, [tmp_path] * 4, chunksize=1))
    assert list(tmp_path.iterdir()) == []


def test_work_that_a_killed_process_left_beside_the_models_is_swept(tmp_path: Path) -> None:
    left = tmp_path / ".work-left"
    left.mkdir()
    (left / "weights.safetensors").write_bytes(b"x")
    with checkpoints.work_folder(tmp_path, tmp_path / "made.npz") as work:
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([".lock", ".lock-made.npz", work.name])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "options", "refused"),
    [
        ("lustre", "rw,localflock", True),
        ("lustre", "rw,flock", False),
        ("nfs4", "rw,vers=4.2,local_lock=none", False),
        ("nfs", "rw,nolock,local_lock=none", True),
        ("nfs", "rw,vers=3,local_lock=all", True),
        ("nfs", "rw,vers=3,local_lock=flock", True),
        ("nfs", "rw,vers=3,local_lock=posix", False),
    ],
)
def test_locks_that_hold_on_one_node_alone_are_refused_for_a_shared_folder(tmp_path, kind, options, refused):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw,localflock 0 0\nserver:/x {tmp_path} {kind} {options} 0 0\n")
    told = pytest.raises(PreflightError, match=f"lies on {tmp_path} .{kind}, .*type RUNS= and MODELS=") if refused else contextlib.nullcontext()
    with told:
        locks.refuse_local(tmp_path / "runs", mounts)


def test_the_locks_behind_a_link_are_those_of_the_disk_where_it_leads(tmp_path):
    (tmp_path / "scratch").symlink_to(tmp_path / "lustre")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path}/lustre lustre rw,localflock 0 0\n")
    with pytest.raises(PreflightError, match=f"scratch/runs lies on {tmp_path}/lustre .lustre, localflock"):
        locks.refuse_local(tmp_path / "scratch" / "runs", mounts)


def test_a_mount_point_may_have_a_blank(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path}/our\\040data\\134x nfs rw,nolock 0 0\n")
    with pytest.raises(PreflightError, match="lies on .*/our data.x .nfs, nolock"):
        locks.refuse_local(tmp_path / "our data\\x" / "runs", mounts)


def test_what_a_killed_command_left_in_the_models_folder_goes_and_what_a_living_one_has_stays(tmp_path: Path) -> None:
    left = [tmp_path / ".work-a", tmp_path / "references" / ".partial-a", tmp_path / "readings" / ".partial-b"]
    for path in left:
        path.mkdir(parents=True)
    process = holding(tmp_path / ".lock")
    checkpoints.sweep(tmp_path)
    assert all(path.exists() for path in left)
    end(process)
    checkpoints.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["readings", "references"]
    (tmp_path / ".work-b").mkdir()  # its maker was interrupted, and let go of the lock
    checkpoints.sweep(tmp_path)
    assert not (tmp_path / ".work-b").exists() and not (tmp_path / ".lock").exists()
    checkpoints.sweep(tmp_path / "not made yet")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the models' folder .* cannot be written .No space left on device.; type MODELS=/another/folder"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/usr/bin/a-program"), "No such file or directory: '/usr/bin/a-program'"),
    ],
    ids=["models", "a program"],
)
def test_what_fails_elsewhere_is_not_blamed_on_the_models_folder(tmp_path, fault, words):
    with pytest.raises((KitError, FileNotFoundError), match=words), checkpoints.work_folder(tmp_path, tmp_path / "made.npz"):
        raise fault


@pytest.mark.parametrize("typed", ["file", "file/a/b", "nowhere", "nowhere/a/b", "loop", "/proc/a/b"])
def test_a_models_folder_that_cannot_be_made_is_one_line(tmp_path: Path, typed: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "a disk that is not mounted")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    root = tmp_path / typed
    why = "(a link that leads nowhere|Not a directory|No such file or directory)"
    told = rf"the models' folder {root}(/hub/a)? cannot be written \({why}\); type MODELS=/another/folder"
    with pytest.raises(KitError, match=told), checkpoints.work_folder(root, root / "random" / "made"):
        pass
    with pytest.raises(KitError, match=told), place.alone(root / "hub" / "a"):
        pass


def test_who_waits_for_the_folder_of_a_model_says_so_once_and_leaves_no_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = holding(tmp_path / ".lock")
    holder = locks.holder(tmp_path / ".lock")
    threading.Timer(0.6, process.kill).start()
    with place.alone(tmp_path):
        assert process.wait() and locks.take(tmp_path / ".lock") is None
    assert capsys.readouterr().err == f"  another process writes in {tmp_path} ({holder}); waiting for its end\n"
    assert not (tmp_path / ".lock").exists()
