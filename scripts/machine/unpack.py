"""Unpack a tar archive that nobody vouches for. `tarfile`'s own filters are missing from some Pythons that the kit runs on (3.11.0 to 3.11.3)."""

import shutil
import tarfile
from pathlib import Path, PurePosixPath

from scripts.errors import KitError

#: All members of an archive together. The committed results are 10 MB; a larger archive is damaged or hostile.
LIMIT_BYTES = 4 << 30


def unpack(archive: tarfile.TarFile, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
    """Write an archive's files and folders below `folder`, with the permissions of new files.

    Raises KitError, which names the member, where one is a link or a device, leads outside, comes twice or exceeds
    the limit in bytes of all members together. The members before that one are written.
    """
    left_bytes = limit_bytes
    for member in archive:
        target = folder / _inside(member)
        left_bytes -= member.size
        if left_bytes < 0:
            raise KitError(f"the archive's member {member.name!r} exceeds the limit of {limit_bytes:,} bytes for all members together")
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            _write(archive, member, target)


def _inside(member: tarfile.TarInfo) -> PurePosixPath:
    """The member's place below the folder; KitError where it is no regular file or folder, or leads outside."""
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
