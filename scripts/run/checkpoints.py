"""The weights on this machine: real ones at a fixed commit (scripts/models), or random ones written once.

    models/hub/                                       real weights, as scripts/models/store.py keeps them
    models/random/<shape>-<scale>-s<seed>-r<recipe>/  as bench/models/weights.py writes it
    models/references/<key>.npz                       right answers for the output check
    models/readings/<key>.npz                         the reference's readings of the tokens that were judged
    models/.lock                                      shared by the processes that make something here; a sweep holds it alone
    models/.lock-<path>                               held by the process that makes the file or folder at this path

`make models` fetches. Containers get this folder read-only; the token stays in this process.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.job import PARTIAL, Job
from bench.models import weights
from scripts.errors import KitError
from scripts.machine import locks, permissions, removal
from scripts.models import article_models, place, store
from scripts.results import door
from scripts.run import jobs
from scripts.run.engines import Engine, must_answer

#: The file with the facts about a checkpoint of random weights.
FACTS = "checkpoint.json"

#: The prefixes of work folders, and of the locks on what is made in them. A process that holds the models' folder's lock alone knows that their makers are
#: dead.
WORK, LOCK_OF = ".work-", ".lock-"


def without_places(job: Job, root: Path) -> Job:
    """The job as it is stored, with its paths relative to the models' folder `root`: an absolute path may name the user."""

    def shown(path: str | None) -> str | None:
        return f"models/{Path(path).relative_to(root)}" if path and Path(path).is_relative_to(root) else path

    return dataclasses.replace(job, model={**job.model, "path": shown(job.model["path"])}, reference=shown(job.reference))


@contextlib.contextmanager
def work_folder(root: Path, path: Path) -> Iterator[Path]:
    """A temporary folder in which a helping job makes the file or folder `path` under `root`; only one process at a time makes this path.

    Raises KitError where `root` cannot be written or is full, and where the door refuses a file of the guest.
    """
    place.make(root)
    try:
        permissions.make(path.parent)
        sweep(root)
        with _alone(root, path):
            work = Path(tempfile.mkdtemp(dir=root, prefix=WORK))
            try:
                work.chmod(0o755)
                yield work
            finally:
                removal.remove(work)
    except door.Refused as error:
        raise KitError(f"the guest left a file that the kit does not accept: {error}") from error
    except OSError as error:
        elsewhere = error.filename is not None and not Path(os.fsdecode(error.filename)).is_relative_to(root)
        if error.errno not in place.OF_THE_FOLDER or elsewhere:
            raise
        raise place.not_written(root, error) from error


@contextlib.contextmanager
def _alone(root: Path, path: Path) -> Iterator[None]:
    """Within the block no other process makes `path` or sweeps `root`. Another process that wants to make it waits, and says so."""
    lock = root / ".lock"
    try:
        with locks.joined(lock, f"another process works in {root}"):
            name = "-".join(path.relative_to(root).parts)
            with locks.held(root / f"{LOCK_OF}{name}", why=f"another process makes or extends {path}"):
                yield
    finally:
        sweep(root)


def sweep(root: Path) -> None:
    """Remove the locks, work folders and partial files that killed commands left in the models' folder, once no living command works there."""
    lock = root / ".lock"
    if lock.exists() or _leftovers(root):
        with contextlib.suppress(OSError), locks.taken_over(lock, locks.FOR_EVERYBODY) as is_dead:
            for leftover in _leftovers(root) if is_dead else ():
                removal.remove(leftover)


def _leftovers(root: Path) -> list[Path]:
    """The locks, work folders and partial files under `root`: leftovers of dead processes where no process holds the lock of `root`."""
    return [leftover for pattern in (f"{WORK}*", f"{LOCK_OF}*", f"references/{PARTIAL}*", f"readings/{PARTIAL}*") for leftover in root.glob(pattern)]


def _random_path(model: dict[str, Any], root: Path) -> Path:
    return root / "random" / f"{model['shape']}-{model['scale']}-s{model['seed']}-r{weights.recipe_of(model)}"


def _sizes(folder: Path) -> dict[str, int]:
    """{path within the checkpoint: bytes} of its files, without the file of facts."""
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file() and path.name != FACTS}


def _sizes_as_recorded(folder: Path) -> bool:
    """Do a checkpoint's files have their recorded sizes? True where an earlier kit recorded none."""
    try:
        recorded = json.loads((folder / FACTS).read_text(encoding="utf-8")).get("files")
    except (FileNotFoundError, ValueError, AttributeError):
        return False
    return recorded is None or recorded.items() <= _sizes(folder).items()


def _is_there(path: Path, is_whole: Callable[[Path], bool]) -> bool:
    """Is a whole file or folder there? It came by one rename, and other processes remove only damaged ones, so reading needs no lock.

    A damaged one that another process is replacing never looks whole: it looks damaged or is missing.
    """
    try:
        return path.exists() and is_whole(path)
    except OSError:
        return False


def _is_damaged(path: Path, is_whole: Callable[[Path], bool]) -> bool:
    """Is a file or folder of the kit cut off? Then a note says so, and the caller makes it anew; otherwise every job would end with a library's error."""
    if is_whole(path):
        return False
    print(f"note: {path} is damaged, and is made anew", file=sys.stderr)
    return True


def random_checkpoint(engine: Engine, job: Job, on_line: Callable[[str], None]) -> Path:
    """The folder of the random weights of a job's model, written by the guest unless they are there."""
    model, path = job.model, _random_path(job.model, engine.models)
    if _is_there(path, _sizes_as_recorded):
        return path
    with work_folder(engine.models, path) as work:
        if path.exists() and not _is_damaged(path, _sizes_as_recorded):
            return path
        if path.exists():
            path.rename(work / "damaged")  # in one step: an interrupted removal would leave a part of it
        made = work / "checkpoint"
        made.mkdir()
        made.chmod(0o777)  # the container's user is not this one
        writing = dataclasses.replace(job, kind="weights", id="weights", backend="transformers", model={**model, "path": engine.guest_path(made, work)})
        facts = must_answer(engine, writing, work, on_line).used
        door.check_folder(made)
        facts = {**facts, "files": _sizes(made)}
        (made / FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
        permissions.open_to_all(made)
        made.rename(path)
    return path


def reference(engine: Engine, job: Job, on_line: Callable[[str], None]) -> Path:
    """The file with the right answer for a measuring job, computed by plain transformers unless it is there."""
    path = engine.models / "references" / f"{jobs.reference_key(job)}.npz"
    if _is_there(path, zipfile.is_zipfile):
        return path
    with work_folder(engine.models, path) as work:
        if path.exists() and not _is_damaged(path, zipfile.is_zipfile):
            return path
        made = work / "reference.npz"
        must_answer(engine, dataclasses.replace(jobs.reference_job(job), reference=engine.guest_path(made, work)), work, on_line)
        door.keep(made, path)
    return path


def judgement(engine: Engine, job: Job, dtype: str, floors: dict[str, Any], answers: list[Path], on_line: Callable[[str], None]) -> dict[str, Any]:
    """The verdict of a job of kind "judge" on the files that a measuring job left; its readings are kept. Raises KitError where it fails."""
    path = engine.models / "readings" / f"{jobs.readings_key(job)}.npz"
    with work_folder(engine.models, path) as work:
        made = work / path.name
        for file in answers:
            door.keep(file, work / file.name)
        is_whole = path.exists() and not _is_damaged(path, zipfile.is_zipfile)
        if is_whole and path.stat().st_size <= door.READINGS_BYTES // 2:  # a larger file begins anew, before it exceeds what the door accepts
            shutil.copy(path, made)
        judging = dataclasses.replace(jobs.judge_job(job, dtype, floors), reference=engine.guest_path(made, work))
        verdict = must_answer(engine, judging, work, on_line).check
        door.keep(made, path, door.READINGS_BYTES)
    return verdict or {}


def still_to_come_bytes(model: dict[str, Any], root: Path, typed: Path | None) -> int | None:
    """The bytes of a model's weights that are not on the disk yet; None where that is unknown, so all of them may be missing."""
    if model["weights"] == "random":
        return 0 if _random_path(model, root).exists() else None
    return store.still_to_come_bytes(article_models.find(model["name"]), root, typed)
