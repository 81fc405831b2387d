"""The weights on this machine: fetched from the hub at a fixed commit, or random ones written once.

    models/hub/<organisation>--<name>/<commit>/      as the hub holds it; `.complete` is written last
    models/random/<shape>-<scale>-s<seed>-r<recipe>/  as bench/models/weights.py writes it
    models/references/<key>.npz                       right answers for the output check
    models/readings/<key>.npz                         what the reference said of tokens that were judged

`make models` fetches. Containers get this folder read-only; the token stays in this process.
"""

import contextlib
import dataclasses
import errno
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.job import Job
from bench.models import weights
from scripts import surroundings
from scripts.errors import KitError, PreflightError
from scripts.machine import locks, permissions
from scripts.results import door
from scripts.run import jobs
from scripts.run.engines import Engine, must_answer

#: What of a repository is fetched: no other framework's copies of the weights.
WANTED = ["*.json", "*.safetensors", "*.bin", "*.model", "*.txt"]
UNWANTED = ["*onnx*", "*.h5", "*.msgpack", "*training_args*", "original/*"]

#: How the names of work folders begin; whoever holds the lock of the models' folder has the only living one.
WORK = ".work-"


def without_places(job: Job, root: Path) -> Job:
    """A job as it is kept: its paths from the models' folder `root` on, for where that lies may name its user."""

    def shown(path: str | None) -> str | None:
        return f"models/{Path(path).relative_to(root)}" if path and Path(path).is_relative_to(root) else path

    return dataclasses.replace(job, model={**job.model, "path": shown(job.model["path"])}, reference=shown(job.reference))


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """One process at a time makes files under `root`, from where dead processes left theirs. Raises KitError where it cannot be written or is full."""
    try:
        permissions.make(root)
        with locks.held(root / ".lock"):
            for left in root.glob(f"{WORK}*"):
                shutil.rmtree(left, ignore_errors=True)
            yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR):
            raise
        raise KitError(f"the models' folder {root} cannot be written ({error.strerror or error}); type MODELS=/another/folder") from error


@contextlib.contextmanager
def work_folder(root: Path) -> Iterator[Path]:
    """A folder under `root` that a helping job may write, gone afterwards."""
    path = Path(tempfile.mkdtemp(dir=root, prefix=WORK))
    try:
        path.chmod(0o755)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _let_in() -> Iterator[None]:
    """A file of a guest that the door refuses ends what needs it: KitError."""
    try:
        yield
    except door.Refused as error:
        raise KitError(f"a guest left what is not let in: {error}") from error


def random_checkpoint(engine: Engine, job: Job, on_line: Callable[[str], None]) -> Path:
    """The folder of the random weights of a job's model, written by the guest unless they are there."""
    model, root = job.model, engine.models
    path = root / "random" / f"{model['shape']}-{model['scale']}-s{model['seed']}-r{weights.recipe_of(model)}"
    with _locked(root):
        if path.exists():
            return path
        permissions.make(path.parent)
        with work_folder(root) as work:
            made = work / "checkpoint"
            made.mkdir()
            made.chmod(0o777)  # the container's user is not this one
            writing = dataclasses.replace(job, kind="weights", id="weights", backend="transformers", model={**model, "path": engine.guest_path(made, work)})
            facts = must_answer(engine, writing, work, on_line).used
            with _let_in():
                door.check_folder(made)
            (made / "checkpoint.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
            permissions.open_to_all(made)
            made.rename(path)
    return path


def reference(engine: Engine, job: Job, on_line: Callable[[str], None]) -> Path:
    """The file with the right answer for a measuring job, computed by plain transformers unless it is there."""
    root = engine.models
    path = root / "references" / f"{jobs.reference_key(job)}.npz"
    with _locked(root):
        if path.exists():
            return path
        permissions.make(path.parent)
        with work_folder(root) as work:
            made = work / "reference.npz"
            asking = dataclasses.replace(jobs.reference_job(job), reference=engine.guest_path(made, work))
            must_answer(engine, asking, work, on_line)
            with _let_in():
                door.keep(made, path)
    return path


def judgement(engine: Engine, job: Job, dtype: str, floors: dict[str, Any], answers: list[Path], on_line: Callable[[str], None]) -> dict[str, Any]:
    """The verdict of a job of kind "judge" on the files that a measuring job left; what it read is kept. Raises KitError where it fails."""
    root = engine.models
    path = root / "readings" / f"{jobs.readings_key(job)}.npz"
    with _locked(root):
        permissions.make(path.parent)
        with work_folder(root) as work:
            made = work / path.name
            with _let_in():
                for file in answers:
                    door.keep(file, work / file.name)
                door.keep(path, made, door.READINGS_BYTES)
            judging = dataclasses.replace(jobs.judge_job(job, dtype, floors), reference=engine.guest_path(made, work))
            verdict = must_answer(engine, judging, work, on_line).check
            with _let_in():
                door.keep(made, path, door.READINGS_BYTES)
    return verdict or {}


def hub_checkpoint(model: Mapping[str, Any], root: Path) -> tuple[Path, str]:
    """(folder, commit) of a model from the hub under the models' folder, fetched unless it is there."""
    home = root / "hub" / model["name"].replace("/", "--")
    for path in sorted(home.glob("*/.complete")):
        if model["revision"] in (path.parent.name, path.read_text().strip()):
            return path.parent, path.parent.name
    return fetch(model, root)


def fetch(model: Mapping[str, Any], root: Path) -> tuple[Path, str]:
    """Fetch a model at its revision, resuming what an earlier try left. Raises KitError with the next command."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    name, token = model["name"], surroundings.current().hub_token or False
    try:
        info = HfApi(token=token).model_info(name, revision=model["revision"], files_metadata=True, timeout=30)
        commit = str(info.sha)
        path = root / "hub" / name.replace("/", "--") / commit
        permissions.make(path)
        _room_for(path, sum(int(file.size or 0) for file in info.siblings or () if file.rfilename.endswith((".safetensors", ".bin"))))
        snapshot_download(name, revision=commit, local_dir=path, token=token, allow_patterns=WANTED, ignore_patterns=UNWANTED)
    except (GatedRepoError, RepositoryNotFoundError) as error:
        raise KitError(f"{name} is gated or unknown: accept its licence on the hub, then type HF_TOKEN=… make models") from error
    except PreflightError:
        raise
    except Exception as error:  # whatever the hub's client and the HTTP library below it may raise
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise KitError(f"{name} cannot be fetched ({cause}); type `make models` to go on, or WEIGHTS=random") from error
    (path / ".complete").write_text(model["revision"] + "\n")
    permissions.open_to_all(path)
    return path, commit


def _room_for(path: Path, needed_bytes: int) -> None:
    there = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    free = shutil.disk_usage(path).free
    if needed_bytes - there > free:
        raise PreflightError(f"{path} needs {(needed_bytes - there) / 1e9:.0f} GB, {free / 1e9:.0f} GB are free; type MODELS=/another/disk")
