"""make restore: the images of an archive folder back into Docker, without a network and without trust in the folder.

Checksums show damage, not who made an archive. So before anything is loaded, the folder may list only what `make archive` writes,
and an archive of a stack may name only that stack's images and their base. After an archive was loaded, each image is asked for
all that it holds, as in `make verify-<backend>`. An image that differs loses its tag, and the tag goes back to what had it before.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import zstandard

from scripts import json_objects, pins
from scripts.containers import apptainer, container, docker_errors, podman
from scripts.containers.docker_library import docker
from scripts.errors import KitError
from scripts.images import archive, image_files, inventory, pieces, sif, squashfs, verify
from scripts.machine import unpack
from scripts.pins import Image, Pins

#: {engine that images are restored for: the function that looks for it}
ENGINES: dict[str, Callable[[], Any]] = {"docker": container.connect, "podman": podman.connect, "apptainer": apptainer.program, "pyxis": lambda: None}

#: The engines that take images as files; these can be built on another machine than the one that runs them.
FILES = {kind.engine: kind for kind in (sif.KIND, squashfs.KIND)}

#: Seconds for a load: Podman says nothing until all is loaded.
LOAD_S = 3600

#: So many images are inspected at once; each inspection reads several GB from the same disk, and its hashes take a core.
AT_ONCE = min(4, os.cpu_count() or 1)

#: The files of an image archive that name images: Docker's own, OCI's, and that of old engines.
INDEXES = ("manifest.json", "index.json", "repositories")

#: {key in lower case: key} of the keys by which an index names images.
KEYS = {key.casefold(): key for key in ("RepoTags", "manifests", "annotations", "io.containerd.image.name", "org.opencontainers.image.ref.name")}

#: The most lines that say what is wrong with a folder.
MOST_LINES = 20

#: An index lists a few dozen images.
LARGEST_INDEX_BYTES = 1 << 20

#: An archive may unpack to so many times its size, or to 1 GiB: beyond that it holds little but zeros. The kit's unpack to two or three times theirs.
MOST_TIMES, SMALL_BYTES = 100, 1 << 30

#: What may be wrong with the bytes of an image archive.
NO_ARCHIVE = (tarfile.TarError, zstandard.ZstdError, OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, RecursionError, KitError)


def restore(where: Path, engine: str = "docker") -> None:
    """Load and verify the images of an archive folder, or build the files that an engine without a daemon takes.

    Raises KitError, with nothing loaded, for a folder that holds anything else.
    """
    sums, loaded = archive.read_sums(where), pins.load()
    damages = archive.damaged(where, sums)
    if damages:
        raise KitError(f"{where} is damaged, so nothing was restored:\n  " + _some(damages) + "\nCopy it again, or type ARCHIVES=/path/to/another.")
    names = sorted({pieces.name_of(name) for name in sums})
    stacks = {name.removesuffix(archive.SUFFIX): [where / file for file in pieces.listed(sums, name)] for name in names if name.endswith(archive.SUFFIX)}
    if not stacks:
        raise KitError(f"{where} lists no images, so nothing was restored; type make archive, or ARCHIVES=/path/to/another")
    foreign = [*foreign_files(sums, loaded), *(line for stack, files in stacks.items() for line in foreign_images(files, allowed(loaded, stack)))]
    if foreign:
        raise KitError(
            f"{where} holds files that `make archive` does not write, so nothing was restored:\n  " + _some(foreign) + "\nType ARCHIVES=/path/to/another."
        )
    client, refused = ENGINES[engine](), list[str]()
    for stack, files in stacks.items():
        images = loaded.images(stack)
        refused += image_files.restore(FILES[engine], files, images) if engine in FILES else _restore(client, files, images)
    if refused:
        raise KitError(
            "these images differ from their pins and locks, and were not kept:\n  " + "\n  ".join(refused) + "\nType make build-all for images of your own"
        )
    print("not checked: the files of the base images, and whether an image lies about itself; restore only archives of people you trust")


def _some(lines: Sequence[str]) -> str:
    """The first of many lines: a folder may list a hundred thousand files."""
    more = [f"and {len(lines) - MOST_LINES:,} more"] if len(lines) > MOST_LINES else []
    return "\n  ".join([*lines[:MOST_LINES], *more])


def foreign_files(sums: Mapping[str, str], loaded: Pins) -> Iterator[str]:
    """What a folder lists that `make archive` does not write, a line each."""
    stacks = {image.stack for image in loaded.images()}
    for name in sums:
        if archive.is_foreign(name, stacks):
            yield f"{name}: neither the images of a stack of docker/pins.toml nor a file of its locks, nor the tools or the kit"


def allowed(loaded: Pins, stack: str) -> set[str]:
    """The names that the archive of a stack may give: its images and their bases."""
    images = loaded.images(stack)
    return {image.tag for image in images} | {image.base for image in images}


def foreign_images(files: Sequence[Path], names: set[str]) -> Iterator[str]:
    """What is in an image archive, whole or in pieces, beside images of these names, a line each; read from its index, nothing is loaded."""
    path = files[0]
    try:
        with _opened(files) as packed:
            archived = {name for kind, index in _indexes(packed).items() for name in _names(kind, index)}
    except NO_ARCHIVE as error:
        yield f"{path.name} is no image archive: {error}"
        return
    if not archived:
        yield f"{path.name} names no image"
    yield from (f"{path.name} holds the image {name!r}, allowed are this kit's images of that stack and their base" for name in sorted(archived - names))


@contextlib.contextmanager
def _opened(files: Sequence[Path]) -> Iterator[tarfile.TarFile]:
    """An image archive, whole or in pieces, to be read once from its beginning to its end."""
    most_bytes = max(SMALL_BYTES, MOST_TIMES * sum(path.stat().st_size for path in files))
    with pieces.opened(files) as compressed, zstandard.open(compressed) as plain:
        limited = unpack.Limited(cast(IO[bytes], plain), most_bytes)
        with tarfile.open(fileobj=limited, mode="r|", tarinfo=unpack.Header) as packed:
            yield packed


def _indexes(packed: tarfile.TarFile) -> dict[str, Any]:
    """{name: content} of an image archive's indexes. ValueError where Docker could write outside of its folder, or an index comes twice."""
    indexes: dict[str, Any] = {}
    for member in _members(packed):
        place = PurePosixPath(member.name)
        if place.name in INDEXES:
            if member.name != place.name or member.name in indexes:
                raise ValueError(f"its member {member.name!r} is a second index, or an index in the wrong folder")
            indexes[member.name] = _index(packed, member)
    if packed.pax_headers:
        raise ValueError("it has headers for all members, and not every program reads such headers")
    assert packed.fileobj is not None
    while rest := packed.fileobj.read(pieces.CHUNK_BYTES):
        if rest.strip(b"\0"):
            raise ValueError("data follow after its end")
    return indexes


def _members(packed: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members of an image archive; ValueError for one that leads outside, or is no file, folder or link, or a file with holes."""
    for count, member in enumerate(packed, 1):
        if count > unpack.MOST_MEMBERS:
            raise ValueError(f"it has more than {unpack.MOST_MEMBERS:,} members")
        if unpack.leads_outside(member) or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            raise ValueError(f"its member {member.name!r} leads outside, or is a device")
        if member.issparse():  # its zeros are not in the archive, so no limit counts them
            raise ValueError(f"its member {member.name!r} is sparse, and no engine writes sparse members")
        yield member


def packed_anew(files: Sequence[Path]) -> Iterator[bytes]:
    """An image archive with plain headers, for an engine: with unusual ones Docker reads other members than were checked. Raises KitError."""
    try:
        with _opened(files) as packed:
            for member in _members(packed):
                plain = tarfile.TarInfo(member.name)
                plain.type, plain.mode, plain.linkname = tarfile.REGTYPE if member.isreg() else member.type, member.mode, member.linkname
                plain.size = member.size if member.isreg() else 0
                yield plain.tobuf(tarfile.GNU_FORMAT)
                stream = packed.extractfile(member) if member.isreg() else None
                while stream and (chunk := stream.read(pieces.CHUNK_BYTES)):
                    yield chunk
                if padding := -plain.size % tarfile.BLOCKSIZE:  # an empty chunk would end the request
                    yield bytes(padding)
        yield bytes(2 * tarfile.BLOCKSIZE)
    except NO_ARCHIVE as error:
        raise KitError(f"{files[0]} cannot be read: {error}; type make restore again, or ARCHIVES=/path/to/another") from error


def _index(packed: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    stream = packed.extractfile(member) if member.isreg() and member.size <= LARGEST_INDEX_BYTES else None
    if stream is None:
        raise ValueError(f"{member.name} is no file, or too large")
    return json.load(stream, object_pairs_hook=_fields)


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. ValueError for ambiguous keys: Docker ignores the case of letters, and takes the last of two equal keys."""
    fields = json_objects.unambiguous(pairs)
    for key in fields:
        if KEYS.get(key.casefold(), key) != key:
            raise ValueError(f"its index has the key {key!r} in place of {KEYS[key.casefold()]!r}")
    return fields


def _names(kind: str, index: Any) -> Iterator[str]:
    """The names that an index gives to images, without the address of Docker's own registry."""
    if kind == "manifest.json":
        names = [tag for entry in index for tag in entry["RepoTags"] or []]
    elif kind == "repositories":
        names = [f"{name}:{tag}" for name, tags in index.items() for tag in tags]
    else:
        marks = [entry.get("annotations") or {} for entry in index["manifests"]]
        names = [mark["io.containerd.image.name"] for mark in marks if "io.containerd.image.name" in mark]
        # A mark without a full name is a tag alone, or a name in itself.
        names += [
            mark["org.opencontainers.image.ref.name"]
            for mark in marks
            if "io.containerd.image.name" not in mark and "org.opencontainers.image.ref.name" in mark
        ]
    for name in names:
        yield re.sub(r"^docker\.io/(library/)?", "", name)


def _restore(client: docker.DockerClient, files: Sequence[Path], images: list[Image]) -> Iterator[str]:
    """Load an archive and verify its images; a line for each difference of an image, which then is not kept.

    An image with a tag of the kit is a checked one. So, however this ends, a tag whose image was not found right goes back to the image that had it.
    """
    tags, bases = {image.tag for image in images}, {image.base for image in images}
    before = {name: _id(client, name) for name in tags | bases}
    right = {base for base in bases if not before[base]}  # a base that this machine has already stays

    def put_back(name: str) -> None:
        if name not in right:
            _put_back(client, name, before[name])

    with contextlib.ExitStack() as at_the_end:
        for name in before:
            at_the_end.callback(put_back, name)
        _load(client, files)
        restored = [image for image in images if _id(client, image.tag)]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for image, lines in zip(restored, pool.map(functools.partial(verify.check_foreign, client), restored), strict=True):
                yield from (f"{image.tag}: {line}" for line in lines)
                if not lines:
                    right.add(image.tag)
                    record = inventory.recorded().get(inventory.key(image), {})
                    same = ", and is the very image of reports/images.json" if record.get("id") == _id(client, image.tag) else ""
                    print(f"{image.tag}: restored, holds what its pins and its lock say{same}", flush=True)


def _load(client: docker.DockerClient, files: Sequence[Path]) -> None:
    """Let the engine load an archive, whole or in pieces; it tags one image after another. Raises KitError."""
    client.api.timeout = LOAD_S
    try:
        docker_errors.follow(client.api.load_image(packed_anew(files)))
    except (docker.errors.DockerException, *docker_errors.silence()) as error:
        raise KitError(f"the engine does not load {files[0]}: {error}; see its log, and type make restore again") from error


def _id(client: docker.DockerClient, name: str) -> str:
    """The id of the image that has a name; "" where none has it."""
    try:
        return str(client.images.get(name).id)
    except docker.errors.ImageNotFound:
        return ""


def _put_back(client: docker.DockerClient, name: str, before: str) -> None:
    """Give a name back to the image that had it, or take it away where none had."""
    if _id(client, name) == before:
        return
    client.images.remove(name, force=True)
    if before and "@" not in name:
        client.images.get(before).tag(name)
