"""Locks that die with their holder: one file each, held by flock, in one folder per user.

The folder lies in /tmp and not under XDG_RUNTIME_DIR, which logind empties when the user logs out while a run goes on.
"""

import fcntl
import os
from pathlib import Path
from typing import TextIO

from scripts import surroundings
from scripts.errors import PreflightError


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


def take(path: Path) -> TextIO | None:
    """The open file of a lock that is now held until the file is closed, or None where somebody holds it.

    The holder's pid is in the file, for people.
    """
    stream = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.close()
        return None
    stream.truncate(0)
    stream.write(str(os.getpid()))
    stream.flush()
    return stream


def holder(path: Path) -> str:
    """The pid in a lock that could not be taken."""
    try:
        return path.read_text(encoding="utf-8") or "unknown"
    except OSError:
        return "unknown"
