"""Checkpoints, right answers and readings are written by guests too: what is no plain file is not let into the models' folder."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.job import Job, Result, to_json
from scripts.containers.container import Outcome
from scripts.errors import KitError
from scripts.run import checkpoints, judging
from tests.samples import a_job, a_result

#: The smallest archive of arrays: an empty one.
READINGS = b"PK\x05\x06" + bytes(18)


class Engine:
    """An engine of which `leave(job)` is the guest: what that leaves besides an answer that is ok."""

    name, gpus = "host", ()

    def __init__(self, models: Path, leave: Callable[[Job], None]) -> None:
        self.models, self.leave = models, leave

    def guest_path(self, path: Path, work: Path) -> str:
        return str(path)

    def run(self, job: Job, work: Path, on_line: Callable[[str], None]) -> Outcome:
        self.leave(job)
        (work / "result.json").write_text(to_json(Result(id=job.id, status="ok", check={"passed": True, "reason": ""}, used={"seed": 0})))
        return Outcome(0, False, False, time.time(), time.time())


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "shadow"
    path.write_text("root:x:0:0")
    path.chmod(0o600)
    return path


def test_a_right_answer_that_is_a_link_is_refused(tmp_path: Path, secret: Path) -> None:
    engine = Engine(tmp_path / "models", lambda job: os.symlink(secret, job.reference))
    with pytest.raises(KitError, match="the guest left a file that the kit does not accept: reference.npz is a symbolic link"):
        checkpoints.reference(engine, a_job(), print)
    assert not list((tmp_path / "models" / "references").iterdir()) and secret.stat().st_mode & 0o777 == 0o600


def test_a_right_answer_that_is_a_file_is_kept_for_every_user(tmp_path: Path) -> None:
    def write(job: Job) -> None:
        Path(job.reference).write_bytes(b"logits")
        Path(job.reference).chmod(0o600)

    path = checkpoints.reference(Engine(tmp_path / "models", write), a_job(), print)
    assert path.read_bytes() == b"logits" and path.stat().st_mode & 0o777 == 0o644


def test_a_right_answer_that_was_cut_off_is_made_anew_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine(tmp_path / "models", lambda job: Path(job.reference).write_bytes(READINGS))
    path = checkpoints.reference(engine, a_job(), print)
    path.write_bytes(READINGS[:-1])
    assert checkpoints.reference(engine, a_job(), print) == path and path.read_bytes() == READINGS
    assert capsys.readouterr().err == f"note: {path} is damaged, and is made anew\n"
    engine.leave = lambda job: pytest.fail("it is there")
    assert checkpoints.reference(engine, a_job(), print) == path


@pytest.mark.parametrize("damage", [lambda path: (path / "shard").write_bytes(b"we"), lambda path: (path / "shard").unlink()])
def test_weights_that_were_cut_off_are_made_anew_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object]) -> None:
    engine = Engine(tmp_path / "models", lambda job: (Path(job.model["path"]) / "shard").write_bytes(b"weights"))
    path = checkpoints.random_checkpoint(engine, a_job(), print)
    damage(path)
    assert checkpoints.random_checkpoint(engine, a_job(), print) == path and (path / "shard").read_bytes() == b"weights"
    assert capsys.readouterr().err == f"note: {path} is damaged, and is made anew\n"
    engine.leave = lambda job: pytest.fail("it is there")
    assert checkpoints.random_checkpoint(engine, a_job(), print) == path


def test_weights_of_an_earlier_kit_which_wrote_no_sizes_down_count(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "models", lambda job: (Path(job.model["path"]) / "shard").write_bytes(b"weights"))
    path = checkpoints.random_checkpoint(engine, a_job(), print)
    (path / "checkpoint.json").write_text('{"seed": 0}')
    engine.leave = lambda job: pytest.fail("it is there")
    assert checkpoints.random_checkpoint(engine, a_job(), print) == path


@pytest.mark.parametrize("name", ["shard", "checkpoint.json", "folder/shard"])
def test_a_checkpoint_with_a_link_in_it_is_refused_and_nothing_is_written_through_it(tmp_path: Path, secret: Path, name: str) -> None:
    def leave(job: Job) -> None:
        path = Path(job.model["path"]) / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(secret)

    with pytest.raises(KitError, match=f"{name} is a symbolic link"):
        checkpoints.random_checkpoint(Engine(tmp_path / "models", leave), a_job(), print)
    assert secret.read_text() == "root:x:0:0" and secret.stat().st_mode & 0o777 == 0o600
    assert not list((tmp_path / "models" / "random").iterdir())


def test_readings_that_are_a_link_are_refused_and_the_earlier_ones_stay(tmp_path: Path, secret: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text("{}")

    def judged(leave: Callable[[Job], None]) -> dict:
        return checkpoints.judgement(Engine(tmp_path / "models", leave), a_job(), "float16", {}, [tokens], print)

    assert judged(lambda job: Path(job.reference).write_bytes(READINGS))["passed"]
    (kept,) = (tmp_path / "models" / "readings").iterdir()

    def replace(job: Job) -> None:
        assert Path(job.reference).read_bytes() == READINGS, "what was read before goes to the judge"
        Path(job.reference).unlink()
        Path(job.reference).symlink_to(secret)

    with pytest.raises(KitError, match="is a symbolic link"):
        judged(replace)
    assert kept.read_bytes() == READINGS and not kept.is_symlink()


def test_readings_that_were_cut_off_begin_anew_and_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens, found = tmp_path / "tokens.json", []
    tokens.write_text("{}")

    def read(job: Job) -> None:
        found.append(Path(job.reference).exists())
        Path(job.reference).write_bytes(READINGS)

    engine = Engine(tmp_path / "models", read)
    checkpoints.judgement(engine, a_job(), "float16", {}, [tokens], print)
    (kept,) = (tmp_path / "models" / "readings").iterdir()
    kept.write_bytes(READINGS[:-1])
    checkpoints.judgement(engine, a_job(), "float16", {}, [tokens], print)
    assert found == [False, False] and f"note: {kept} is damaged, and is made anew" in capsys.readouterr().err


@pytest.mark.parametrize(("size", "goes_on"), [(80, True), (500, True), (501, False), (1000, False)])
def test_readings_that_half_fill_what_the_door_allows_begin_anew(tmp_path: Path, monkeypatch, size: int, goes_on: bool) -> None:
    monkeypatch.setattr(checkpoints.door, "READINGS_BYTES", 1000)
    tokens = tmp_path / "tokens.json"
    tokens.write_text("{}")
    found = []

    def read(job: Job) -> None:
        made = Path(job.reference)
        found.append(made.exists())
        made.write_bytes(READINGS.rjust(size, b"r"))

    for _ in range(2):
        assert checkpoints.judgement(Engine(tmp_path / "models", read), a_job(), "float16", {}, [tokens], print)["passed"]
    assert found == [False, goes_on]


#: Makes a file of the models' folder for as long as it lives.
MAKING = """
import sys, time
from pathlib import Path
from scripts.run import checkpoints
root = Path(sys.argv[1])
with checkpoints.work_folder(root, root / sys.argv[2]) as work:
    print(work, flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def making(models: Path, name: str) -> Iterator[tuple[subprocess.Popen, Path]]:
    """Another process that makes `name` in the models' folder, and its work folder."""
    command = [sys.executable, "-c", MAKING, str(models), name]
    process = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()


def an_engine(models: Path) -> Engine:
    def leave(job: Job) -> None:
        if job.kind == "weights":
            (Path(job.model["path"]) / "shard").write_bytes(b"weights")
        else:
            Path(job.reference).write_bytes(READINGS)

    return Engine(models, leave)


@pytest.mark.parametrize("make", [checkpoints.random_checkpoint, checkpoints.reference])
def test_who_needs_what_is_there_does_not_wait_for_who_makes_something(tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable) -> None:
    models = tmp_path / "models"
    path = make(an_engine(models), a_job(), print)
    with making(models, str(path.relative_to(models))) as (process, _):
        assert make(an_engine(models), a_job(), print) == path
        assert process.poll() is None and capsys.readouterr().err == ""


def test_two_processes_make_different_things_at_once_and_neither_sweeps_the_work_of_the_other(tmp_path: Path) -> None:
    models = tmp_path / "models"
    with making(models, "references/of-another.npz") as (process, work):
        checkpoints.random_checkpoint(an_engine(models), a_job(), print)
        checkpoints.sweep(models)
        assert process.poll() is None and work.is_dir()
    checkpoints.sweep(models)
    assert sorted(path.name for path in models.iterdir()) == ["random", "references"]


def test_who_waits_for_what_another_process_makes_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = tmp_path / "models"
    path = checkpoints.reference(an_engine(models), a_job(), print)
    path.unlink()
    with making(models, str(path.relative_to(models))) as (process, work):
        threading.Timer(0.6, process.kill).start()
        assert checkpoints.reference(an_engine(models), a_job(), print) == path
        said = f"  another process makes or extends {path} (pid {process.pid} of "
        assert capsys.readouterr().err.startswith(said)
    assert sorted(path.name for path in models.iterdir()) == ["references"], "also what the killed one left is gone"
    assert not work.exists()


def test_what_another_process_replaces_at_this_moment_is_not_there(tmp_path: Path) -> None:
    assert not checkpoints._is_there(tmp_path, lambda path: bool((path / "gone").stat()))


@pytest.mark.parametrize("said", ["int8", "bfloat16", "../float16"])
def test_a_guest_does_not_choose_wider_bounds_by_what_it_says_of_its_dtype(said: str) -> None:
    with pytest.raises(KitError, match="the job asks for 'float16'"):
        judging.dtype_of(a_job(), a_result(used={"dtype": said}))


def test_a_quantised_row_is_judged_as_int8() -> None:
    assert judging.dtype_of(a_job(load={"dtype": "float16", "quantization": True}), a_result(used={"dtype": "int8"})) == "int8"
    assert judging.dtype_of(a_job(), a_result(used={})) == "float16"
