"""Locks that die with their holder: one file each, held by flock.

Locks of this user's own things (GPUs, containers) lie in one folder per user. It lies in /tmp and not under XDG_RUNTIME_DIR,
which logind empties when the user logs out while a run goes on. The lock of a thing that several users share lies beside it,
and is FOR_EVERYBODY.
"""

import contextlib
import fcntl
import os
import platform
import pwd
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from scripts import surroundings
from scripts.errors import PreflightError

#: The modes of a lock's file: other users may only try a lock that they may open.
FOR_THIS_USER, FOR_EVERYBODY = 0o600, 0o666

#: Whoever sweeps holds a lock for a moment; only who holds it longer than this is its holder.
MOMENT_S = 0.1


def folder() -> Path:
    """The lock folder of this user, made unless it is there; nobody else may have put it there."""
    path = surroundings.current().locks
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PreflightError(f"the folder of locks {path} cannot be made ({error.strerror}); type KIT_LOCKS=/another/folder") from error
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise PreflightError(f"{path} belongs to somebody else; remove it, or type KIT_LOCKS=/another/folder")
    return path


def take(path: Path, mode: int = FOR_THIS_USER) -> TextIO | None:
    """The open file of a lock that is now held until the file is closed, or None where somebody holds it.

    Who holds it is in the file, for people. Raises OSError where the file cannot be made or its disk has no locks.
    """
    deadline = time.monotonic() + MOMENT_S
    while True:
        descriptor = _open(path, mode)
        if _hold(descriptor, path):
            return _signed(descriptor)
        os.close(descriptor)
        if time.monotonic() > deadline:
            return None
        time.sleep(MOMENT_S / 10)


@contextlib.contextmanager
def held(path: Path, mode: int = FOR_EVERYBODY) -> Iterator[None]:
    """Wait for a lock and hold it within the block; its file is gone afterwards."""
    while (lock := take(path, mode)) is None:
        time.sleep(MOMENT_S)
    with lock:
        try:
            yield
        finally:
            remove(path)


def remove(path: Path) -> None:
    """Remove the file of a lock that this process holds. Whoever waits for it notices, and makes a new one."""
    with contextlib.suppress(OSError):  # another user's in a folder like /tmp
        path.unlink()


def holder(path: Path) -> str:
    """Who holds a lock that could not be taken, in words."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") or "another process"
    except OSError:
        return "another process"


def sweep() -> None:
    """Remove this user's locks that no living process holds."""
    for path in folder().glob("*.lock"):
        with contextlib.suppress(OSError):
            lock = take(path)
            if lock:
                with lock:
                    remove(path)


def _open(path: Path, mode: int) -> int:
    """A descriptor of a lock's file, made unless it is there; never of what a link leads to."""
    while True:
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except PermissionError:
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)  # flock asks for no right to write
        except FileNotFoundError:
            pass
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            os.fchmod(descriptor, mode)  # whatever the umask says
            return descriptor


def _hold(descriptor: int, path: Path) -> bool:
    """Hold a lock, unless somebody else does or its holder has just removed the file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except (BlockingIOError, FileNotFoundError):
        return False


def _signed(descriptor: int) -> TextIO:
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    with contextlib.suppress(OSError):  # opened for reading only
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} of {user} on {platform.node()}".encode(), 0)
    return os.fdopen(descriptor, encoding="utf-8")
