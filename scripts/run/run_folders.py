"""The folders of runs that are being measured, in a folder of results that several processes and users may share.

runs/<prefix>-<NN>/.lock   held by the run's runner as long as it lives, whoever runs it
runs/<prefix>-<NN>/work    what the guest may write; its runner removes it, or else the next sweep
runs/<prefix>-<NN>/.partial-…  a file that is being written; removed in the same way
runs/.claim.lock           held while a new run gets its number, and while a dead one is swept
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.job import PARTIAL
from scripts import results
from scripts.errors import KitError
from scripts.machine import locks, removal
from scripts.results import Record
from scripts.run import resume

LOCK, CLAIM, WORK = ".lock", ".claim.lock", "work"


@contextlib.contextmanager
def claimed(prefix: str, runs: Path, measured: Callable[[], Record | None], anew: bool) -> Iterator[Path | Record]:
    """A new folder for the next run with this prefix; no other process touches it within the block.

    Yields a stored run instead where `measured` finds one that another process stored meanwhile. Raises KitError where another process
    is still measuring, unless `anew` asks for a run beside it.
    """
    with contextlib.ExitStack() as held:
        try:
            with locks.held(runs / CLAIM):
                folder = measured() or _claim(prefix, runs, anew, held)
        except OSError as error:
            raise KitError(f"no file in {runs} can be locked ({error.strerror or error}); type RUNS=/another/folder, on a disk of this machine") from error
        yield folder


def _claim(prefix: str, runs: Path, anew: bool, held: contextlib.ExitStack) -> Path:
    if not anew:
        refuse_twice(prefix, runs)
    folder = _made(prefix, runs)
    lock = locks.take(folder / LOCK, locks.FOR_EVERYBODY)
    assert lock, "nobody else knows of a new folder"
    held.enter_context(lock)
    held.callback(locks.remove, folder / LOCK)
    return folder


def _made(prefix: str, runs: Path) -> Path:
    """A new folder with the next free number."""
    number = results.next_number(prefix, runs)
    while True:
        folder = runs / f"{prefix}-{number:02d}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def refuse_twice(prefix: str, runs: Path) -> None:
    """Raise KitError where a living process measures a run with this prefix."""
    for name in results.existing(prefix, runs):
        lock = runs / name / LOCK
        if lock.exists():
            with locks.taken_over(lock, locks.FOR_EVERYBODY) as is_dead:
                if not is_dead:
                    raise KitError(f"{name} is being measured by {locks.holder(lock)}; wait for it, then type the same again, or FORCE=1 for a run beside it")


def sweep_unfinished(runs: Path) -> Iterator[Path]:
    """Remove what killed runners left: work folders, locks, partial files, folders of runs that had asked nothing yet. Yields the unfinished runs that stay.

    The report names these runs as unfinished. The folders of living runners stay as they are.
    """
    for folder in _folders(runs):
        unfinished = False
        with contextlib.suppress(OSError):  # another user's folder, which that user has to sweep
            if _may_be_left(folder):
                with locks.held(runs / CLAIM):  # a new run has an empty folder for a moment, and then a lock that nobody holds
                    unfinished = _swept(folder)
        if unfinished:
            yield folder


def _may_be_left(folder: Path) -> bool:
    """Has a dead runner left something to sweep? The lock is tried here, before CLAIM is held, so that a living runner's folder makes nobody wait."""
    names = {path.name for path in _inside(folder)}
    if names and not any(name in (LOCK, WORK) or name.startswith(PARTIAL) for name in names):
        return False
    if LOCK not in names:
        return True
    lock = locks.take(folder / LOCK, locks.FOR_EVERYBODY)
    if lock:
        lock.close()
    return lock is not None


def _swept(folder: Path) -> bool:
    """Sweep a folder while nobody claims a run; True where an unfinished run stays there."""
    if not _inside(folder):
        folder.rmdir()
        return False
    lock = locks.take(folder / LOCK, locks.FOR_EVERYBODY)
    if not lock:
        return False
    with lock:
        return not _cleared(folder)


def _cleared(folder: Path) -> bool:
    """Clear a dead runner's folder, whose lock this process holds; False where an unfinished run stays there."""
    resume.keep(folder / WORK)
    for path in (folder / WORK, *folder.glob(f"{PARTIAL}*")):
        removal.remove(path)
    log = folder / "log.txt"
    if not any((folder / name).exists() for name in ("job.json", "result.json")) and not (log.exists() and log.stat().st_size):
        removal.remove(folder)  # it was killed before it asked anything
        return True
    locks.remove(folder / LOCK)
    return (folder / "result.json").exists()


def _folders(runs: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(runs) as entries:
        yield from (Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return [folder]
