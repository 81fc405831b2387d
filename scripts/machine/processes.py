"""The ancestors of a process, from the kernel's own files."""

from pathlib import Path

from scripts.machine import warden

PROC = Path("/proc")


def descends_from(pid: int, ancestor: int, proc: Path = PROC) -> bool | None:
    """Is a process `ancestor` itself, or a descendant of it? None where that is unknown: it has just ended, or lives in another PID namespace."""
    while pid > 0:
        if pid == ancestor:
            return True
        try:
            pid = warden.parent_of(proc / str(pid))
        except (OSError, IndexError, ValueError):
            return None
    return False
