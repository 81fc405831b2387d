"""Unpack an untrusted tar archive. `tarfile`'s own filters are missing from some Pythons that the kit runs on (3.11.0 to 3.11.3)."""

import contextlib
import gzip
import io
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Self

from scripts.errors import KitError

#: The most bytes of all members of an archive together. The committed results are 10 MB; a larger archive is damaged or hostile.
LIMIT_BYTES = 4 << 30

#: The most members of an archive: more would be slow to write, and no archive of the kit has as many.
MOST_MEMBERS = 100_000


#: The most nested folders: no archive of the kit has as many, and some programs give up on a thousand.
DEEPEST = 32

#: The largest header that only describes the next member: its long name, its times. `tarfile` takes minutes for some of 1 MiB.
LARGEST_HEADER_BYTES = 8 << 10
OF_THE_NEXT = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class Header(tarfile.TarInfo):
    """A member of an untrusted archive. Raises KitError for a header that is too large."""

    def _proc_member(self, archive: tarfile.TarFile) -> Self:
        """`tarfile` calls this for each header, before it reads what the header announces, and documents it as the method to override."""
        if self.type in OF_THE_NEXT and self.size > LARGEST_HEADER_BYTES:
            raise KitError(f"the archive has a header of {self.size:,} bytes, allowed are {LARGEST_HEADER_BYTES:,}")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


class Limited(io.RawIOBase):
    """A stream that raises KitError after `limit_bytes`: a small archive, or its headers alone, may unpack to more than a disk holds."""

    def __init__(self, source: IO[bytes] | gzip.GzipFile, limit_bytes: int) -> None:
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
    """A .tar.gz that is read once from its beginning to its end; raises KitError within the block where it is damaged, or unpacks to more bytes than the limit.

    Raises FileNotFoundError where there is none.
    """
    try:
        with gzip.open(path) as packed, tarfile.open(fileobj=Limited(packed, limit_bytes), mode="r|", tarinfo=Header) as archive:
            yield archive
    except FileNotFoundError:
        raise
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError, RecursionError) as error:
        raise KitError(f"{path} cannot be unpacked: {error}") from error


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
    if leads_outside(member):
        raise KitError(f"the archive's member {member.name!r} leads outside the archive's folder; allowed are relative names without ..")
    if len(PurePosixPath(member.name).parts) > DEEPEST:
        raise KitError(f"the archive's member {member.name[:60]!r}… lies more than {DEEPEST} folders deep")
    if not member.name.isprintable():
        raise KitError(f"the archive's member {member.name!r} has a name that a terminal cannot show; allowed are printable characters")
    return PurePosixPath(member.name)


def leads_outside(member: tarfile.TarInfo) -> bool:
    """Does a member lie outside the archive's folder, or is it a link that leads there?"""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name + member.linkname:
        return True
    # A symbolic link starts at its own folder, a hard link at the archive's.
    target = posixpath.normpath(posixpath.join(path.parent if member.issym() else "", member.linkname)) if member.issym() or member.islnk() else ""
    return target.startswith(("/", "../")) or target == ".."


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source = archive.extractfile(member)
    assert source is not None, "regular files have a content"
    try:
        with source, target.open("xb") as file:
            shutil.copyfileobj(source, file)
    except FileExistsError:
        raise KitError(f"the archive holds {member.name!r} twice; allowed is each name once") from None
