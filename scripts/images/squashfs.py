"""Images for pyxis: SquashFS files, the layers of an image on top of each other.

Layers are those of https://github.com/opencontainers/image-spec/blob/main/layer.md: tar archives, in which a file `.wh.name` removes `name` of the
layers below, and `.wh..wh..opq` removes all that they have in its folder.
"""

import contextlib
import errno
import gzip
import hashlib
import io
import os
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import zstandard

from scripts import surroundings
from scripts.containers import programs, restrictions
from scripts.errors import KitError
from scripts.images.image_files import Kind, blob, parsed
from scripts.machine import removal, unpack

#: Names by which a layer removes files of the layers below.
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"

#: The first bytes of a layer that zstd or gzip compressed.
ZSTD, GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"

#: Where an engine mounts devices, processes and the folders of a job.
MOUNT_POINTS = ("dev", "kit/bench", "models", "proc", "run/job", "sys", "tmp")

#: The most bytes and members of all layers of an image together: far more than an image of the kit has.
LIMIT_BYTES, MOST_MEMBERS = 128 << 30, 2_000_000

#: Mount the devices into a folder and enter it as the user restrictions.NOBODY. This runs as root of its own namespaces, who may mount and no more.
ENTER = f'mount --rbind /dev dev && exec unshare --map-user={restrictions.NOBODY} --map-group={restrictions.NOBODY} --root=. --wd=/ "$@"'
NAMESPACES = ("--map-root-user", "--mount", "--propagation", "private", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child")

#: The data stay uncompressed, as in enroot's own files, because they are unpacked again and again. All files belong to root, as in the image.
OPTIONS = ("-noappend", "-no-progress", "-no-xattrs", "-all-root", "-comp", "gzip", "-noD")

#: Seconds for a command that looks into an image.
LOOK_S = 300


def build(layout: Path) -> Path:
    """The SquashFS of the only image of a layout, beside it, and its files in the folder `root` there. Raises KitError where it cannot be made."""
    made, root = layout.parent / "made.sqsh", layout.parent / "root"
    removal.remove(root)
    _make_folder(root)
    try:
        manifest = parsed(blob(layout, parsed(layout / "index.json")["manifests"][0]))
        digests = parsed(blob(layout, manifest["config"]))["rootfs"]["diff_ids"]
        budget = _Budget()
        for layer, digest in zip(manifest["layers"], digests, strict=True):
            _lay(blob(layout, layer), digest, root, budget)
        for place in MOUNT_POINTS:
            _make_place(root, PurePosixPath(place))
    except (tarfile.TarError, zlib.error, zstandard.ZstdError, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise KitError(f"the layers of an image cannot be unpacked: {error}") from error
    words = ["mksquashfs", str(root), str(made), *OPTIONS]
    done = programs.call(words, surroundings.current().variables, "install squashfs-tools, which enroot needs too")
    if done.returncode != 0 or not made.is_file():
        raise KitError(f"mksquashfs could not build {made.name}: {programs.last_line(done)}")
    return made


class _Hashed(io.RawIOBase):
    """A stream that knows the sha256 of all that was read from it."""

    def __init__(self, source: Any) -> None:
        self._source, self.sha256 = source, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        chunk: bytes = self._source.read(size)
        self.sha256.update(chunk)
        return chunk


class _Budget:
    """What the layers of an image may still take."""

    def __init__(self) -> None:
        self.left_bytes, self.left_members = LIMIT_BYTES, MOST_MEMBERS

    def take(self, member: tarfile.TarInfo) -> None:
        """Raise ValueError for a member that is too much."""
        self.left_bytes, self.left_members = self.left_bytes - member.size, self.left_members - 1
        if min(self.left_bytes, self.left_members) < 0:
            raise ValueError(f"{member.name!r} exceeds the limit of {LIMIT_BYTES:,} bytes and {MOST_MEMBERS:,} members of all layers together")


def _lay(layer: Path, digest: str, root: Path, budget: _Budget) -> None:
    """Lay a layer over the files below `root`. Raises ValueError where its content is not what the image's configuration names."""
    with layer.open("rb") as file:
        first = file.read(4)
        file.seek(0)
        opener = zstandard.open if first == ZSTD else gzip.open if first.startswith(GZIP) else contextlib.nullcontext
        with opener(file) as plain:
            hashed = _Hashed(plain)
            with tarfile.open(fileobj=hashed, mode="r|", tarinfo=unpack.Header) as archive:
                apply(archive, root, budget)
            while hashed.read(1 << 20):
                pass
    if f"sha256:{hashed.sha256.hexdigest()}" != digest:
        raise ValueError(f"the layer {layer.name[:12]}… does not have the digest that the image's configuration names")


def apply(archive: tarfile.TarFile, root: Path, budget: _Budget | None = None) -> None:
    """Lay the members of a layer over the files below `root`. Devices and pipes are left out.

    Raises ValueError for a member that leads outside or is too much; the members before it are written.
    """
    top, own, budget = _real(root), set[Path](), budget or _Budget()
    for member in archive:
        budget.take(member)
        place = root / _inside(member.name)
        if place == root or member.isdev():
            continue  # an engine brings devices of its own
        if not _real(place.parent).is_relative_to(top):
            raise ValueError(f"{member.name!r} lies behind a link that leads outside")
        if place.name == OPAQUE:
            _empty(place.parent, own)
        elif place.name.startswith(WHITEOUT):
            _remove(place.parent / _name(place.name.removeprefix(WHITEOUT)))
        else:
            _write(archive, member, place, root)
            own |= {place, *place.parents}


def _real(path: Path) -> Path:
    """Where a path leads. OSError where that is unknown, as behind links that make the path longer than the kernel takes: a guess may lie outside.

    A guess is enough for a path that leads to nothing or in a circle: it is no folder, and `_make_place` builds folders in its place, through no link.
    """
    try:
        return Path(os.path.realpath(path, strict=True))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return Path(os.path.realpath(path))


def _inside(name: str) -> PurePosixPath:
    """A member's path below the root; ValueError where it leads outside, or lies deeper than any program needs."""
    path = PurePosixPath(posixpath.normpath(name))
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} leads outside")
    if len(path.parts) > unpack.DEEPEST:
        raise ValueError(f"{name[:60]!r}… lies more than {unpack.DEEPEST} folders deep")
    return path


def _name(name: str) -> str:
    """The name that a whiteout removes; ValueError where it is no name in its folder."""
    if name in ("", ".", ".."):
        raise ValueError(f"a whiteout of {name!r} leads outside")
    return name


def _empty(folder: Path, kept: Collection[Path]) -> None:
    """Remove everything in a folder but `kept`, which also has the folders above each of its paths."""
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        if path not in kept:
            _remove(path)
        elif path.is_dir() and not path.is_symlink():
            _empty(path, kept)


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        removal.remove(place)
    else:
        place.unlink(missing_ok=True)


def _make_folder(place: Path) -> None:
    """Make a folder that everybody may enter, whatever the umask is; it replaces anything that is no folder."""
    if place.is_symlink() or not place.is_dir():
        _remove(place)
        place.mkdir()
        place.chmod(0o755)


def _make_place(root: Path, place: PurePosixPath) -> None:
    """Make a folder below `root` and the folders above it, through no link."""
    for part in (*reversed(place.parents), place):
        if part.parts:
            _make_folder(root / part)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path, root: Path) -> None:
    """Write a member in place of what lower layers have there; folders are merged."""
    if not place.parent.is_dir():
        _make_place(root, _inside(member.name).parent)
    if member.isdir():
        _make_folder(place)
        place.chmod(member.mode & 0o1777 | 0o700)  # the user who builds this writes into it, and may not be root
        return
    _remove(place)
    if member.issym():
        place.symlink_to(member.linkname)  # it is followed in the container, and there it leads nowhere else
    elif member.islnk():
        target = root / _inside(member.linkname)
        if not _real(target.parent).is_relative_to(_real(root)):
            raise ValueError(f"{member.name!r} is a hard link to what lies outside")
        os.link(target, place, follow_symlinks=False)
    else:
        source = archive.extractfile(member)
        if source is None:
            raise ValueError(f"{member.name!r} is no file, folder or link")
        with source, place.open("xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        place.chmod(member.mode & 0o777 | 0o400)


def output_of(made: Path, image_environment: Mapping[str, str], command: Sequence[str]) -> str:
    """The output of a short command among the files that were built, as a user without privileges and without a network.

    Raises KitError with its last line where it fails.
    """
    root = made.with_name("root")
    user = ["setpriv", f"--reuid={restrictions.NOBODY}", f"--regid={restrictions.NOBODY}", "--clear-groups"] if os.getuid() == 0 else []
    # The command starts within the folder: the user NOBODY may be kept out of the folders above, for example /root.
    words = [*user, "unshare", *NAMESPACES, "sh", "-c", ENTER, "sh", *restrictions.environment(image_environment), *command]
    done = programs.call(words, surroundings.current().variables, "install util-linux", LOOK_S, root)
    if done.returncode != 0:
        raise KitError(f"the image does not run: {programs.last_line(done)} (this needs user namespaces, and unshare of util-linux 2.34 or newer)")
    return done.stdout


KIND = Kind("pyxis", "SquashFS", "sqsh", "KIT_SQSH", "squashfs_sha256", build, output_of)
