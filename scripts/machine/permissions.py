"""Folders that containers read: their user is not the one who runs the kit, whose umask may keep new files from everybody else."""

from pathlib import Path


def make(path: Path) -> None:
    """Make a folder and those above it, unless they are there; every user may read what is made."""
    for one in reversed((path, *path.parents)):
        if not one.exists():
            one.mkdir(exist_ok=True)
            one.chmod(0o755)


def open_to_all(made: Path) -> None:
    """Let every user read a file, or a folder and all that is in it: some libraries write 0600 whatever the umask."""
    for path in (made, *made.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
