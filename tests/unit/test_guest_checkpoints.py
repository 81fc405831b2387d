"""Checkpoints, right answers and readings are written by guests too: what is no plain file is not let into the models' folder."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.job import Job, Result, to_json
from scripts.containers.container import Outcome
from scripts.errors import KitError
from scripts.run import checkpoints, judging
from tests.samples import a_job, a_result


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
    with pytest.raises(KitError, match="reference.npz is a symbolic link"):
        checkpoints.reference(engine, a_job(), print)
    assert not list((tmp_path / "models" / "references").iterdir()) and secret.stat().st_mode & 0o777 == 0o600


def test_a_right_answer_that_is_a_file_is_kept_for_every_user(tmp_path: Path) -> None:
    def write(job: Job) -> None:
        Path(job.reference).write_bytes(b"logits")
        Path(job.reference).chmod(0o600)

    path = checkpoints.reference(Engine(tmp_path / "models", write), a_job(), print)
    assert path.read_bytes() == b"logits" and path.stat().st_mode & 0o777 == 0o644


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

    assert judged(lambda job: Path(job.reference).write_bytes(b"readings"))["passed"]
    (kept,) = (tmp_path / "models" / "readings").iterdir()

    def replace(job: Job) -> None:
        assert Path(job.reference).read_bytes() == b"readings", "what was read before goes to the judge"
        Path(job.reference).unlink()
        Path(job.reference).symlink_to(secret)

    with pytest.raises(KitError, match="is a symbolic link"):
        judged(replace)
    assert kept.read_bytes() == b"readings" and not kept.is_symlink()


@pytest.mark.parametrize(("size", "goes_on"), [(8, True), (50, True), (51, False), (100, False)])
def test_readings_that_half_fill_what_the_door_allows_begin_anew(tmp_path: Path, monkeypatch, size: int, goes_on: bool) -> None:
    monkeypatch.setattr(checkpoints.door, "READINGS_BYTES", 100)
    tokens = tmp_path / "tokens.json"
    tokens.write_text("{}")
    found = []

    def read(job: Job) -> None:
        made = Path(job.reference)
        found.append(made.exists())
        made.write_bytes(b"r" * size)

    for _ in range(2):
        assert checkpoints.judgement(Engine(tmp_path / "models", read), a_job(), "float16", {}, [tokens], print)["passed"]
    assert found == [False, goes_on]


@pytest.mark.parametrize("said", ["int8", "bfloat16", "../float16"])
def test_a_guest_does_not_choose_wider_bounds_by_what_it_says_of_its_dtype(said: str) -> None:
    with pytest.raises(KitError, match="the job asks for 'float16'"):
        judging.dtype_of(a_job(), a_result(used={"dtype": said}))


def test_a_quantised_row_is_judged_as_int8() -> None:
    assert judging.dtype_of(a_job(load={"dtype": "float16", "quantization": True}), a_result(used={"dtype": "int8"})) == "int8"
    assert judging.dtype_of(a_job(), a_result(used={})) == "float16"
