"""Folders among the temporary files for as long as a command lives; the next command removes those of a dead one.

<temporary files>/llm-repro-jobs-…/.lock    held by a command with JOBS=n, whose jobs have their logs and receipts in the folder
<temporary files>/llm-repro-instrument-…/.lock  held by a command with an instrument, whose job and answer lie in the folder
<temporary files>/llm-repro-pyxis-…/.lock   held by the runner of a job in pyxis, whose /tmp lies in the folder
<temporary files>/llm-repro-host-…/.lock    held by the runner of a job of ENGINE=host, whose temporary files lie in the folder
"""

import contextlib
import os
import platform
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.machine import locks, removal

OF_JOBS, OF_INSTRUMENTS, OF_PYXIS, OF_HOST = "llm-repro-jobs-", "llm-repro-instrument-", "llm-repro-pyxis-", "llm-repro-host-"
LOCK = ".lock"

#: Held while a new folder gets its lock.
CLAIM = "temporary.lock"


@contextlib.contextmanager
def made(prefix: str) -> Iterator[Path]:
    """A folder for the block, gone after it. Raises PreflightError where this user can have no folder of locks, and OSError where the disk is full."""
    with contextlib.ExitStack() as held:
        with locks.held(locks.folder() / CLAIM, locks.FOR_THIS_USER):
            folder = Path(tempfile.mkdtemp(prefix=prefix))
            held.callback(removal.remove, folder)
            lock = locks.take(folder / LOCK)
            assert lock, "nobody else knows of a new folder"
            held.enter_context(lock)
        yield folder


def sweep() -> None:
    """Remove this user's folders whose command is dead; a folder that no command of the kit has signed stays, unless it is empty."""
    among = Path(tempfile.gettempdir())
    left = [path for prefix in (OF_JOBS, OF_INSTRUMENTS, OF_PYXIS, OF_HOST) for path in among.glob(f"{prefix}*") if _is_own_folder(path)]
    if left:
        with locks.held(locks.folder() / CLAIM, locks.FOR_THIS_USER):
            for folder in left:
                _remove_dead(folder)


def _is_own_folder(path: Path) -> bool:
    """Is it a folder of this user? A link does not count: it may lead to any folder."""
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
    signed = locks.holder(lock)
    # Nodes of a cluster may share TMPDIR, on a disk whose locks hold on one node alone: another node's command would look dead.
    if signed.startswith(locks.SIGNATURE) and signed.endswith(f" on {platform.node()}"):
        with contextlib.suppress(OSError), locks.taken_over(lock) as is_dead:
            if is_dead:
                removal.remove(folder)
