"""Images for pyxis: SquashFS files, the layers of an image on top of each other.

Layers are those of https://github.com/opencontainers/image-spec/blob/main/layer.md: tar archives, in which a file `.wh.name` takes `name` of the layers
below away, and `.wh..wh..opq` all that they have in its folder.
"""

import contextlib
import os
import posixpath
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import zstandard

from scripts import surroundings
from scripts.containers import programs, restrictions
from scripts.errors import KitError
from scripts.images.image_files import Kind, blob, parsed
from scripts.machine import removal, unpack

#: How a layer says that something is gone.
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"

#: The first bytes of a layer that zstd compressed.
ZSTD = b"\x28\xb5\x2f\xfd"

#: Where a job's folders are mounted. In a container that is read-only nothing can make these places.
MOUNT_POINTS = ("dev", "kit/bench", "models", "proc", "run/job", "sys", "tmp")

#: Give a folder devices and processes, and go into it as a user who is nobody there: run as root of a user namespace, which may mount and no more.
ENTER = 'mount --rbind /dev dev && mount --rbind /proc proc && exec unshare --map-user=10001 --map-group=10001 --root=. --wd=/ "$@"'

#: The data stay as they are, as in enroot's own files, because each allocation unpacks them. All files belong to root, as in the image.
OPTIONS = ("-noappend", "-no-progress", "-no-xattrs", "-all-root", "-comp", "gzip", "-noD")

#: Seconds for a command that looks into an image.
LOOK_S = 300


def build(layout: Path) -> Path:
    """The SquashFS of the only image of a layout, beside it, and its files in the folder `root` there. Raises KitError where it cannot be made."""
    made, root = layout.parent / "made.sqsh", layout.parent / "root"
    removal.remove(root)
    root.mkdir()
    try:
        manifest = parsed(blob(layout, parsed(layout / "index.json")["manifests"][0]))
        for layer in manifest["layers"]:
            with _opened(blob(layout, layer)) as archive:
                apply(archive, root)
    except (tarfile.TarError, zstandard.ZstdError, OSError, EOFError, ValueError, LookupError, TypeError) as error:
        raise KitError(f"the layers of an image cannot be unpacked: {error}") from error
    for place in MOUNT_POINTS:
        (root / place).mkdir(parents=True, exist_ok=True)
    words = ["mksquashfs", str(root), str(made), *OPTIONS]
    done = programs.call(words, surroundings.current().variables, "install squashfs-tools, which enroot needs too")
    if done.returncode != 0 or not made.is_file():
        raise KitError(f"mksquashfs builds no {made.name}: {programs.last_line(done)}")
    return made


@contextlib.contextmanager
def _opened(layer: Path) -> Iterator[tarfile.TarFile]:
    with layer.open("rb") as file:
        is_zstd = file.read(len(ZSTD)) == ZSTD
        file.seek(0)
        with contextlib.ExitStack() as opened:
            stream = opened.enter_context(zstandard.open(file)) if is_zstd else file
            yield opened.enter_context(tarfile.open(fileobj=stream, mode="r|" if is_zstd else "r|*", tarinfo=unpack.Header))


def apply(archive: tarfile.TarFile, root: Path) -> None:
    """Lay a layer over the files below `root`. Devices and pipes are left out.

    Raises ValueError for a member that leads outside; the members before it are written.
    """
    top, own = root.resolve(), set[Path]()
    for member in archive:
        place = root / _inside(member.name)
        if place == root or member.isdev():
            continue  # an engine brings devices of its own
        if not place.parent.resolve().is_relative_to(top):
            raise ValueError(f"{member.name!r} lies behind a link that leads outside")
        if place.name == OPAQUE:
            for path in set(place.parent.iterdir()) - own:
                removal.remove(path)
        elif place.name.startswith(WHITEOUT):
            removal.remove(place.parent / _name(place.name.removeprefix(WHITEOUT)))
        else:
            _write(archive, member, place, root)
            own |= {place, *place.parents}


def _inside(name: str) -> PurePosixPath:
    """A member's path below the root; ValueError where it leads outside."""
    path = PurePosixPath(posixpath.normpath(name))
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} leads outside")
    return path


def _name(name: str) -> str:
    """What a whiteout takes away; ValueError where it is no name in its folder."""
    if name in ("", ".", ".."):
        raise ValueError(f"a whiteout of {name!r} leads outside")
    return name


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path, root: Path) -> None:
    """A member in the place of what lower layers have there; folders join."""
    is_folder = place.is_dir() and not place.is_symlink()
    if os.path.lexists(place) and not (member.isdir() and is_folder):
        removal.remove(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        place.mkdir(exist_ok=True)
        place.chmod(member.mode & 0o1777 | 0o700)  # whoever builds this may be no root, and writes into it
    elif member.issym():
        place.symlink_to(member.linkname)  # it is followed in the container, and there it leads nowhere else
    elif member.islnk():
        target = root / _inside(member.linkname)
        if target.is_symlink() or not target.resolve().is_relative_to(root.resolve()):
            raise ValueError(f"{member.name!r} is a hard link to a link or to what lies outside")
        place.hardlink_to(target)
    else:
        source = archive.extractfile(member)
        assert source is not None, "regular files have a content"
        with source, place.open("xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        place.chmod(member.mode & 0o777 | 0o400)


def output_of(made: Path, image_environment: Mapping[str, str], command: Sequence[str]) -> str:
    """The output of a short command among the files that were built, as a user without privileges and without a network.

    Raises KitError with its last line where it fails.
    """
    root = made.with_name("root")
    user = ["setpriv", f"--reuid={restrictions.NOBODY}", f"--regid={restrictions.NOBODY}", "--clear-groups"] if os.getuid() == 0 else []
    own_mounts = ["unshare", "--map-root-user", "--mount", "--propagation", "private", "--net", "--ipc", "--uts", "sh", "-c", ENTER, "sh"]
    # From within: a user who is nobody may not pass the folders above, for example /root.
    words = [*user, *own_mounts, *restrictions.environment(image_environment), *command]
    done = programs.call(words, surroundings.current().variables, "install util-linux", LOOK_S, root)
    if done.returncode != 0:
        raise KitError(f"the image does not run: {programs.last_line(done)}")
    return done.stdout


KIND = Kind("pyxis", "SquashFS", "sqsh", "KIT_SQSH", "squashfs_sha256", build, output_of)
