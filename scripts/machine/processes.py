"""Which process a process comes from, by the kernel's own files."""

from pathlib import Path

from scripts.machine import warden

PROC = Path("/proc")


def descends_from(pid: int, ancestor: int, proc: Path = PROC) -> bool | None:
    """Is a process another one, or below it? None where that cannot be told: it has just ended, or lives in another namespace of processes."""
    while pid > 0:
        if pid == ancestor:
            return True
        try:
            pid = warden.parent_of(proc / str(pid))
        except (OSError, IndexError, ValueError):
            return None
    return False
