"""The manifest of a model's folder, `.manifest.json`: its commit, its files, and the state of each file when it was last checked.

The manifest grows with each checked file; the model is complete when every file was checked.
"""

from pathlib import Path

import msgspec

from bench.job import write_whole
from scripts.pins.models import ModelFile

NAME = ".manifest.json"


class Manifest(msgspec.Struct):
    """`commit` is the hub's, or `folder-…` for weights that are known only by their digest.

    `seen` is {file: (bytes, modification time in ns since the epoch)} of the checked files.
    `made_from` is the digest of the files that a conversion read, and `converted_by` what made it; "" where the files are the commit's own.
    """

    name: str
    commit: str
    files: tuple[ModelFile, ...]
    seen: dict[str, tuple[int, int]] = {}
    made_from: str = ""
    converted_by: str = ""

    def is_checked(self, folder: Path, file: ModelFile) -> bool:
        """Is the file unchanged since its digest was checked?"""
        return file.name in self.seen and self.seen[file.name] == look(folder / file.name)

    def is_complete(self, folder: Path) -> bool:
        """Is every file present and unchanged since its digest was checked? Reads no content."""
        return all(self.is_checked(folder, file) for file in self.files)

    def remember(self, folder: Path, file: ModelFile) -> None:
        """Note that the file has just been checked."""
        seen = look(folder / file.name)
        if seen:
            self.seen[file.name] = seen
            self.write(folder)

    def forget(self, folder: Path) -> None:
        """Let every file be checked again."""
        self.seen.clear()
        self.write(folder)

    def write(self, folder: Path) -> None:
        write_whole(folder / NAME, msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n")


def look(path: Path) -> tuple[int, int] | None:
    """(bytes, modification time in ns) of a file, through links; None where it is missing."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


def read(folder: Path) -> Manifest | None:
    """The manifest of a folder; None where it is missing, cannot be read or names another folder's files, so that every file is checked again."""
    try:
        found = msgspec.json.decode((folder / NAME).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return None
    # Others may write into a folder of models, and the kit moves a wrong file aside: that must stay within the folder.
    return None if any("/" in file.name or not file.name.isprintable() for file in found.files) else found
