"""Folders that containers read. A container has another user than the kit, and the kit's umask may hide new files from other users."""

import errno
from pathlib import Path


def make(path: Path) -> None:
    """Make a folder and its parents where they are missing; every user may read the new folders. Raises OSError."""
    for folder in reversed((path, *path.parents)):
        if not folder.exists():
            if folder.is_symlink():  # `mkdir` would say that it exists
                raise FileNotFoundError(errno.ENOENT, "a link that leads nowhere", str(folder))
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)


def open_to_all(made: Path) -> None:
    """Let every user read a file, or a folder and its content: some libraries write mode 0600 under any umask."""
    for path in (made, *made.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def in_the_way(folder: Path) -> str:
    """What prevents a folder, at its path or above it, as "README.md is a file"; "" where the folder is there or can be made."""
    there = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
    return "" if there.is_dir() else f"{there} is a {'file' if there.exists() else 'link that leads nowhere'}"
