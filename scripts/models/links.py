"""Folders of links: files that lie elsewhere serve without a copy."""

from pathlib import Path


def link(path: Path, target: Path) -> None:
    """Let `path` be a link to a file, whatever was there before."""
    if path.is_symlink() and path.readlink() == target:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def sources(folder: Path) -> list[Path]:
    """The folders that the links of a folder lead to: a container that reads the folder needs them as well."""
    return sorted({path.resolve().parent for path in folder.glob("*") if path.is_symlink()})
