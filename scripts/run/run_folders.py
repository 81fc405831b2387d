"""The folders of runs that are being measured, in a folder of results that several processes and users may share.

runs/<prefix>-<NN>/.lock   held by the run's runner as long as it lives, whoever runs it
runs/<prefix>-<NN>/work    what the guest may write; gone with its runner, or swept by the next
runs/.claim.lock           held while a new run gets its number
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts import results
from scripts.errors import KitError
from scripts.machine import locks, removal
from scripts.results import Record
from scripts.run import resume

LOCK, CLAIM, WORK = ".lock", ".claim.lock", "work"


@contextlib.contextmanager
def claimed(prefix: str, runs: Path, measured: Callable[[], Record | None], anew: bool) -> Iterator[Path | Record]:
    """The new folder of the next run with this prefix; no other process touches it within the block.

    Where `measured` finds a run that another process stored meanwhile, that run. Raises KitError where another process is still
    measuring, unless `anew` asks for a run beside it.
    """
    with contextlib.ExitStack() as held:
        try:
            with locks.held(runs / CLAIM):
                folder = measured() or _claim(prefix, runs, anew, held)
        except OSError as error:
            raise KitError(f"{runs} gives no lock ({error.strerror or error}); type RUNS=/another/folder, on a disk of this machine") from error
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
    """A new folder with the next number that nothing has."""
    number = int(results.next_id(prefix, runs).rsplit("-", 1)[1])
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
            with locks.abandoned(lock, locks.FOR_EVERYBODY) as is_abandoned:
                if not is_abandoned:
                    raise KitError(f"{name} is being measured by {locks.holder(lock)}; wait for it, then type the same again, or FORCE=1 for a run beside it")


def sweep_unfinished(runs: Path) -> Iterator[Path]:
    """Work folders that killed runners left; their runs stay, named as unfinished by the report. Those of living runners stay too."""
    for work in runs.glob(f"*/{WORK}"):
        path = work.parent / LOCK
        with contextlib.suppress(OSError):  # another user's folder, which is his to sweep
            lock = locks.take(path, locks.FOR_EVERYBODY)
            if lock:
                with lock:
                    resume.keep(work)
                    removal.remove(work)
                    locks.remove(path)
                yield work.parent
