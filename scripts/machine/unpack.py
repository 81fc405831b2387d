"""Unpack an untrusted tar archive. `tarfile`'s own filters are missing from some Pythons that the kit runs on (3.11.0 to 3.11.3)."""

import contextlib
import gzip
import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from scripts.errors import KitError

#: The most bytes of all members of an archive together. The committed results are 10 MB; a larger archive is damaged or hostile.
LIMIT_BYTES = 4 << 30

#: The most members of an archive: more would be slow to write, and no archive of the kit has as many.
MOST_MEMBERS = 100_000


class _Limited(io.RawIOBase):
    """A stream that raises KitError after `limit_bytes`: a small archive, or its headers alone, may unpack to more than a disk holds."""

    def __init__(self, source: gzip.GzipFile, limit_bytes: int) -> None:
        self._source, self._limit_bytes, self._left_bytes = source, limit_bytes, limit_bytes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        chunk = self._source.read(min(size, self._left_bytes + 1) if size >= 0 else self._left_bytes + 1)
        self._left_bytes -= len(chunk)
        if self._left_bytes < 0:
            raise KitError(f"the archive unpacks to more than the limit of {self._limit_bytes:,} bytes")
        return chunk


@contextlib.contextmanager
def opened(path: Path, limit_bytes: int) -> Iterator[tarfile.TarFile]:
    """A .tar.gz, read once from its beginning to its end; raises KitError within the block where it unpacks to more than `limit_bytes`."""
    with gzip.open(path) as packed, tarfile.open(fileobj=_Limited(packed, limit_bytes), mode="r|") as archive:
        yield archive


def unpack(archive: tarfile.TarFile, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
    """Write an archive's files and folders below `folder`, with the permissions of new files.

    Raises KitError, which names the member, where a member is a link or a device, leads outside, comes twice, or exceeds
    `limit_bytes` (of all members together) or MOST_MEMBERS. The members before it are written.
    """
    left_bytes = limit_bytes
    for count, member in enumerate(archive, 1):
        if count > MOST_MEMBERS:
            raise KitError(f"the archive's member {member.name!r} exceeds the limit of {MOST_MEMBERS:,} members")
        target = folder / _inside(member)
        left_bytes -= member.size
        if left_bytes < 0:
            raise KitError(f"the archive's member {member.name!r} exceeds the limit of {limit_bytes:,} bytes for all members together")
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            _write(archive, member, target)


def _inside(member: tarfile.TarInfo) -> PurePosixPath:
    """The member's path below the folder; raises KitError where it is no regular file or folder, or leads outside."""
    if not (member.isreg() or member.isdir()):
        raise KitError(f"the archive's member {member.name!r} is a link or a device; allowed are regular files and folders")
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise KitError(f"the archive's member {member.name!r} leads outside the archive's folder; allowed are relative names without ..")
    return path


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source = archive.extractfile(member)
    assert source is not None, "regular files have a content"
    try:
        with source, target.open("xb") as file:
            shutil.copyfileobj(source, file)
    except FileExistsError:
        raise KitError(f"the archive holds {member.name!r} twice; allowed is each name once") from None
