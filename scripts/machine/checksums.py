"""SHA256SUMS: one line per file with its sha256 and its path, as `sha256sum --check` reads it.

Checksums show damage. They do not show who made the files: whoever changes a file can write a new checksum for it.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from scripts.errors import KitError

NAME = "SHA256SUMS"

#: The limits for a file's name and for its path within the folder: Linux's file systems take no longer name, and no path above 4,096 bytes.
LONGEST_NAME_BYTES, LONGEST_PLACE_BYTES = 255, 2048

LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def digest_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def refuse_names(names: Iterable[str]) -> None:
    """Raise KitError for a name that no line of SHA256SUMS can hold, such as one with a line break."""
    for name in names:
        if not name.isprintable():
            raise KitError(f"the name {name!r} cannot stand in {NAME}; rename the file, or remove it")


def text(digests: Mapping[str, str]) -> str:
    """The text of SHA256SUMS from {path: sha256}; raises KitError as `refuse_names`."""
    refuse_names(digests)
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


def parse(listed: str) -> dict[str, str]:
    """{path: sha256}; raises ValueError, which names the line, for a malformed line, a path outside the folder or a second line of one file."""
    digests: dict[str, str] = {}
    for number, line in enumerate(listed.removesuffix("\n").split("\n") if listed else [], 1):
        match = LINE.fullmatch(line)
        if not match:
            raise ValueError(f"line {number} is no checksum with a file's name")
        digest, name = match.groups()
        place = PurePosixPath(name)
        if not place.parts or place.is_absolute() or ".." in place.parts or place.as_posix() != name:
            raise ValueError(f"line {number} names {name!r}, allowed are places within the folder")
        if not name.isprintable():
            raise ValueError(f"line {number} names {name!r}, allowed are printable characters")
        if len(name.encode()) > LONGEST_PLACE_BYTES or max(len(part.encode()) for part in place.parts) > LONGEST_NAME_BYTES:
            raise ValueError(f"line {number} names {name[:60]!r}…, which is longer than a file's name")
        if name in digests:
            raise ValueError(f"line {number} names {name!r} a second time")
        digests[name] = digest
    return digests


def compare(folder: Path, digests: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """(missing files, files with another content) of the listed files, sorted."""
    missing = {name for name in digests if not (folder / name).is_file()}
    return sorted(missing), [name for name in sorted(digests.keys() - missing) if digest_of(folder / name) != digests[name]]
