"""What the kit knows of a model's folder: its commit and files, and what each file looked like when it was last checked.

The manifest lies in the folder as `.manifest.json`. It grows with each file that was checked; the model is complete when every file is.
"""

from pathlib import Path

import msgspec

from bench.job import write_whole
from scripts.models.files import weights_sha256
from scripts.pins.models import ModelFile

NAME = ".manifest.json"


class Manifest(msgspec.Struct):
    """`commit` is the hub's, or `folder-…` for weights that are known by their digest alone.

    `seen` is {file: (bytes, modified at in ns since the epoch)} of the files that were checked.
    """

    name: str
    commit: str
    files: tuple[ModelFile, ...]
    seen: dict[str, tuple[int, int]] = {}

    @property
    def weights_sha256(self) -> str:
        return weights_sha256(self.files)

    def is_checked(self, folder: Path, file: ModelFile) -> bool:
        """Is the file as it was when its digest was right?"""
        return file.name in self.seen and self.seen[file.name] == look(folder / file.name)

    def is_complete(self, folder: Path) -> bool:
        """Is every file there, and as it was when it was checked? Reads no content."""
        return all(self.is_checked(folder, file) for file in self.files)

    def remember(self, folder: Path, file: ModelFile) -> None:
        """The file was checked now."""
        seen = look(folder / file.name)
        if seen:
            self.seen[file.name] = seen
            self.write(folder)

    def forget(self, folder: Path) -> None:
        """Every file is to be checked again."""
        self.seen.clear()
        self.write(folder)

    def write(self, folder: Path) -> None:
        write_whole(folder / NAME, msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n")


def look(path: Path) -> tuple[int, int] | None:
    """(bytes, modified at in ns) of a file, through links; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def read(folder: Path) -> Manifest | None:
    """The manifest of a folder; None where there is none that can be read, for then everything is checked anew."""
    try:
        return msgspec.json.decode((folder / NAME).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return None
