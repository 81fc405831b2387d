"""The folder of the jobs of a command with JOBS=n: their logs and receipts, in the folder of temporary files as long as the command lives.

<temporary files>/llm-repro-jobs-…/.lock   held by the command, whatever ends it: the next command removes the folder of a dead one
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.machine import locks

PREFIX, LOCK = "llm-repro-jobs-", ".lock"

#: Held while a new folder gets its lock.
CLAIM = "jobs.lock"


@contextlib.contextmanager
def made() -> Iterator[Path]:
    """A folder for the block, gone after it. Raises PreflightError where this user can have no folder of locks, and OSError where the disk is full."""
    with contextlib.ExitStack() as held:
        with locks.held(locks.folder() / CLAIM, locks.FOR_THIS_USER):
            folder = Path(tempfile.mkdtemp(prefix=PREFIX))
            held.callback(shutil.rmtree, folder, ignore_errors=True)
            lock = locks.take(folder / LOCK)
            assert lock, "nobody else knows of a new folder"
            held.enter_context(lock)
        yield folder


def sweep() -> None:
    """Remove this user's folders whose command is dead; whatever no command of the kit has signed stays, unless it is empty."""
    left = [path for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if _is_own_folder(path)]
    if left:
        with locks.held(locks.folder() / CLAIM, locks.FOR_THIS_USER):
            for folder in left:
                _remove_dead(folder)


def _is_own_folder(path: Path) -> bool:
    """Is it a folder of this user? A link is none: it may lead to any folder."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid()


def _remove_dead(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()  # its command was killed before it took the lock
        return
    lock = folder / LOCK
    if locks.holder(lock).startswith(locks.SIGNATURE):
        with contextlib.suppress(OSError), locks.abandoned(lock) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(folder, ignore_errors=True)
