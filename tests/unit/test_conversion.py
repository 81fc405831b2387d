"""Weights in pickles: converted once by a guest that nobody trusts, whole or not at all, and told in the result."""

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.job import Job, Result, to_json
from scripts.containers import container
from scripts.containers.container import Outcome
from scripts.errors import KitError, NothingRuns, PreflightError
from scripts.models import article_models, converted, files, manifest, store
from scripts.models.article_models import ArticleModel
from scripts.models.held import HeldModel
from scripts.run import checkpoints, conversion
from scripts.run.options import Options

NAME = "someone/model-in-pickles"
PARAMETERS = 10_000
MODEL = ArticleModel(NAME, "bloom-7b1", PARAMETERS, "")
WEIGHTS = random.Random(1).randbytes(2 * PARAMETERS)


class Guest:
    """An engine of which `leave(folder)` is the guest: what it leaves where the safetensors are to lie. `jobs` are those it was asked to do."""

    name, gpus = "docker", ()
    image = SimpleNamespace(pins={"torch": SimpleNamespace(version="2.11.0")})

    def __init__(self, models: Path, leave: Callable[[Path], None], **changes: object) -> None:
        self.models, self.leave, self.changes = models, leave, changes
        self.jobs: list[Job] = []

    def guest_path(self, path: Path, work: Path) -> str:
        return str(path)

    def run(self, job: Job, work: Path, on_line: Callable[[str], None]) -> Outcome:
        self.jobs.append(job)
        self.leave(Path(job.options["into"]))
        (work / "result.json").write_text(to_json(Result(**{"id": job.id, "status": "ok", **self.changes})))
        return Outcome(0, False, False, time.time(), time.time())


def honest(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(WEIGHTS)


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """MODEL_PATH: a folder of pickles."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bloom"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(random.Random(2).randbytes(2 * PARAMETERS))
    return folder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def held_of(models: Path, typed: Path) -> HeldModel:
    return store.provide(MODEL, models, typed)


def convert(models: Path, typed: Path, leave: Callable[[Path], None] = honest, **changes: object) -> HeldModel:
    return conversion.convert(MODEL, held_of(models, typed), Guest(models, leave, **changes), print)


def left_behind(models: Path) -> list[str]:
    """What lies in the models' folder beside links to MODEL_PATH and locks."""
    return [path.name for path in models.rglob("*") if not path.name.startswith((".lock", "path-", "hub", "someone")) and path.parent.name[:5] != "path-"]


def test_the_converted_folder_has_safetensors_and_all_that_stood_beside_the_pickles(models, typed):
    held = convert(models, typed)
    assert {path.name for path in held.folder.iterdir()} == {"config.json", "tokenizer.json", "model.safetensors", manifest.NAME}
    assert not any(path.is_symlink() for path in held.folder.iterdir())
    assert (held.folder / "model.safetensors").read_bytes() == WEIGHTS and not held.in_pickles
    assert (held.folder / "config.json").stat().st_mode & 0o777 == 0o644


def test_the_guest_gets_the_pickles_and_a_folder_of_its_own_and_nothing_else(models, typed):
    held, guest = held_of(models, typed), Guest(models, honest)
    conversion.convert(MODEL, held, guest, print)
    (job,) = guest.jobs
    assert (job.kind, job.device, job.model["path"]) == ("convert", "cpu", str(held.folder))
    assert Path(job.options["into"]).is_relative_to(models)


def test_a_second_time_nothing_is_converted_and_no_weights_are_read(models, typed, monkeypatch):
    first = convert(models, typed)
    monkeypatch.setattr(files, "digest_of", lambda *_: pytest.fail("a file was read again"))
    monkeypatch.setattr(conversion, "_engine", lambda *_: pytest.fail("an engine was started"))
    again = conversion.loadable(MODEL, held_of(models, typed), Options(models=models), print)
    assert again == first


def test_other_pickles_are_converted_again(models, typed):
    first = convert(models, typed)
    (typed / "pytorch_model.bin").write_bytes(random.Random(3).randbytes(2 * PARAMETERS))
    held = held_of(models, typed)
    assert converted.kept(held) is None
    second = conversion.convert(MODEL, held, Guest(models, lambda folder: (folder / "model.safetensors").write_bytes(WEIGHTS[::-1])), print)
    assert (second.folder, second.weights_sha256 == first.weights_sha256) == (first.folder, False)
    assert (second.folder / "model.safetensors").read_bytes() == WEIGHTS[::-1]


def test_another_tokenizer_beside_the_same_pickles_counts_as_other_files(models, typed):
    convert(models, typed)
    (typed / "tokenizer.json").write_text('{"other": 1}')
    assert converted.kept(held_of(models, typed)) is None


def test_a_converted_file_that_changed_is_made_again(models, typed):
    held = convert(models, typed)
    (held.folder / "model.safetensors").write_bytes(WEIGHTS[:-1])
    assert converted.kept(held_of(models, typed)) is None
    assert (convert(models, typed).folder / "model.safetensors").read_bytes() == WEIGHTS


def test_verifying_removes_a_converted_folder_with_a_wrong_byte(models, typed, capsys):
    path = convert(models, typed).folder / "model.safetensors"
    before = path.stat()
    path.write_bytes(WEIGHTS[:-1] + bytes([WEIGHTS[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    store.verify(MODEL, models)
    assert not path.parent.exists()
    assert "was removed because model.safetensors has sha256" in capsys.readouterr().err
    untouched = convert(models, typed).folder
    store.verify(MODEL, models)
    assert untouched.exists()


# ---------------------------------------------------------------- interrupted, failed, hostile
def test_an_interrupted_conversion_leaves_nothing_half(models, typed):
    def interrupted(folder: Path) -> None:
        honest(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(models, typed, interrupted)
    assert left_behind(models) == []


def test_what_a_killed_conversion_left_goes_with_the_next(models, typed, monkeypatch):
    monkeypatch.setattr("scripts.machine.removal.remove", lambda _: None)  # as after kill -9
    with pytest.raises(KitError):
        convert(models, typed, honest, status="failed", reason="killed")
    assert any(name.startswith(checkpoints.WORK) for name in left_behind(models)) and converted.kept(held_of(models, typed)) is None
    monkeypatch.undo()
    held = convert(models, typed)
    assert not list(models.glob(f"{checkpoints.WORK}*")) and converted.kept(held_of(models, typed)) == held


def test_a_refused_pickle_ends_in_one_line_with_the_next_command(models, typed):
    with pytest.raises(KitError) as refused:
        convert(models, typed, lambda _: None, status="failed", reason="ValueError: pytorch_model.bin is refused:\nGLOBAL posix.system")
    words = str(refused.value)
    assert words.startswith(f"{NAME}: its pickles were not converted, failed: ValueError: pytorch_model.bin is refused: GLOBAL posix.system")
    assert "\n" not in words and "type MODEL_PATH=" in words and "WEIGHTS=random" in words
    assert left_behind(models) == []


def a_link(folder: Path) -> None:
    (folder / "model.safetensors").symlink_to("/etc/passwd")


def another_file(folder: Path) -> None:
    honest(folder)
    (folder / "modeling.py").write_text("import os")


def a_manifest(folder: Path) -> None:
    honest(folder)
    (folder / manifest.NAME).write_text("{}")


def a_folder(folder: Path) -> None:
    (folder / "model.safetensors").mkdir()


def a_large_index(folder: Path) -> None:
    honest(folder)
    with (folder / converted.INDEX).open("wb") as sparse:
        sparse.truncate(converted.INDEX_BYTES + 1)


def another_size(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(WEIGHTS[: PARAMETERS // 2])


@pytest.mark.parametrize(
    ("leave", "words"),
    [
        (a_link, "model.safetensors is a symbolic link"),
        (another_file, "its conversion left 'modeling.py', allowed are model.*safetensors"),
        (a_manifest, r"its conversion left '\.manifest\.json'"),
        (a_folder, "its conversion left 'model.safetensors'"),
        (lambda _: None, "its conversion left no file"),
        (a_large_index, "its conversion left an index of more than 16 MiB"),
        (another_size, "its conversion has 5,000 bytes of weights, and 10,000 parameters have 19,000 bytes to 50,000 bytes"),
    ],
)
def test_what_a_hostile_pickle_made_of_its_guest_is_not_let_in(models, typed, leave, words):
    with pytest.raises(KitError, match=words):
        convert(models, typed, leave)
    assert left_behind(models) == []


def test_a_conversion_that_does_not_fit_on_the_disk_is_refused_before_it_starts(models, typed, monkeypatch):
    held = held_of(models, typed)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10_000, 0, 10_000))
    guest = Guest(models, honest)
    with pytest.raises(PreflightError, match="type MODELS=/another/disk"):
        conversion.convert(MODEL, held, guest, print)
    assert guest.jobs == []


def test_without_docker_no_pickle_is_read(models, typed, monkeypatch):
    def none(*_: object) -> None:
        raise NothingRuns("no Docker answers at its usual address; install Docker")

    monkeypatch.setattr(container, "connect", none)
    asked = Options(models=models, engine="host", device="cpu")
    with pytest.raises(PreflightError, match="its weights are pickles, which are read in a container only, and no Docker answers .*MODEL_PATH="):
        conversion.loadable(MODEL, held_of(models, typed), asked, print)


# ---------------------------------------------------------------- the result, and the disk
def test_a_result_says_that_its_weights_were_converted_and_carries_the_digest_of_the_pickles(models, typed, monkeypatch):
    monkeypatch.setattr(article_models, "find", lambda _: MODEL)
    monkeypatch.setattr(conversion, "_engine", lambda *_: Guest(models, honest))
    asked = Options(models=models, model_path=typed)
    folder, model = conversion.hub_checkpoint({"name": NAME, "weights": "hub", "revision": "", "path": ""}, asked, print)
    assert model["converted_by"] == "torch 2.11.0" and folder.name.startswith(converted.PREFIX)
    assert model["weights_sha256"] == held_of(models, typed).weights_sha256
    (typed / "pytorch_model.bin").rename(typed / "model.safetensors")
    _, model = conversion.hub_checkpoint({"name": NAME, "weights": "hub", "revision": "", "path": ""}, asked, print)
    assert "converted_by" not in model


def test_the_disk_has_to_hold_the_safetensors_too_until_they_are_there(models, typed):
    held = held_of(models, typed)
    folder = models / "hub" / NAME.replace("/", "--") / ("1" * 40)
    shutil.copytree(held.folder, folder)
    read = manifest.read(folder)
    assert read
    manifest.Manifest(NAME, "1" * 40, read.files, {file.name: manifest.look(folder / file.name) for file in read.files}).write(folder)
    assert store.still_to_come_bytes(MODEL, models) == 2 * PARAMETERS
    conversion.convert(MODEL, store.provide(MODEL, models), Guest(models, honest), print)
    assert store.still_to_come_bytes(MODEL, models) == 0
