"""Folders of links, which use files of other folders without copying them."""

from pathlib import Path


def link(path: Path, target: Path) -> None:
    """Make `path` a link to a file, in place of whatever was at that path."""
    if path.is_symlink() and path.readlink() == target:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def sources(folder: Path) -> list[Path]:
    """The folders that hold the targets of a folder's links: a container that reads the folder needs them too."""
    return sorted({path.resolve().parent for path in folder.glob("*") if path.is_symlink()})
