"""Images as single files, for engines without a daemon: Apptainer's SIF, pyxis' SquashFS. make restore ENGINE=… builds them from archives.

Such a file is not reproducible: two builds of one image differ. Its name and the JSON file beside it therefore hold the id of the image that it
was made of, which is the same with Docker and Podman. The JSON file has the sha256 of the image file too.
"""

import dataclasses
import json
import re
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from bench.job import write_whole
from bench.reasons import first_line
from scripts import paths, surroundings
from scripts.errors import KitError, PreflightError
from scripts.images import pieces, verify
from scripts.machine import checksums, locks, permissions, removal, unpack
from scripts.pins import Image

#: The most bytes of all layers of a stack's images, unpacked from an archive.
LIMIT_BYTES = 1 << 40

#: The most bytes of the JSON file beside an image file; an image's environment has a few KB.
FACTS_BYTES = 1 << 20

#: The most bytes of an image's manifest or configuration; the largest of the kit's have some 30 KB.
MANIFEST_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True)
class Kind:
    """What an engine takes for an image.

    engine      the value of ENGINE
    name        of such a file, in words
    suffix      of such a file
    variable    of the environment, with the folder of these files; by default the kit's folder `suffix`, which nodes of a cluster share with the kit
    fact        the name under which a result stores the sha256 of the file
    build       makes the file of the only image of an OCI layout, in the folder of the layout
    output_of   the output of a short command in what `build` made, with the environment of the image
    """

    engine: str
    name: str
    suffix: str
    variable: str
    fact: str
    build: Callable[[Path], Path]
    output_of: Callable[[Path, Mapping[str, str], Sequence[str]], str]

    def folder(self) -> Path:
        return Path(surroundings.current().text(self.variable) or paths.ROOT / self.suffix).absolute()

    @property
    def again(self) -> str:
        """The command that makes such a file anew."""
        return f"type make restore ENGINE={self.engine}"


class ImageFile(msgspec.Struct, frozen=True):
    """An image file on this machine, as the file beside it says; `environment` is that of the image."""

    tag: str
    id: str
    pins_id: str
    stand_in: bool
    environment: dict[str, str]
    sha256: str
    size_bytes: int
    mtime_ns: int


def find(kind: Kind, image: Image) -> Path | None:
    """The file of an image; None where there is none."""
    return next((path for path in sorted(kind.folder().glob(f"{_stem(image)}-*.{kind.suffix}")) if path.with_suffix(".json").exists()), None)


def read(kind: Kind, image: Image) -> tuple[Path, ImageFile]:
    """The file of an image and what is known of it. Raises PreflightError where there is none, KitError where it is another file than was built."""
    path = find(kind, image)
    if not path:
        raise PreflightError(
            f"there is no {kind.name} of {image.tag} in {kind.folder()}; type make archive ONLY=images BACKEND={image.backend} STACK={image.stack} "
            f"where Docker is, and make restore ENGINE={kind.engine} here"
        )
    try:
        known = msgspec.json.decode(_small(path.with_suffix(".json"), FACTS_BYTES), type=ImageFile)
        _check(known.environment)
        about = path.stat()
    except (OSError, ValueError, RecursionError, msgspec.DecodeError) as error:
        raise KitError(f"{path.with_suffix('.json')} is damaged ({error}); {kind.again}") from error
    if (known.tag, known.pins_id) != (image.tag, image.pins_id):
        raise KitError(f"{path.with_suffix('.json')} belongs to {known.tag} and not to {image.tag}; {kind.again}")
    if not stat.S_ISREG(about.st_mode):
        raise KitError(f"{path} is no file; {kind.again}")
    if (about.st_size, about.st_mtime_ns) != (known.size_bytes, known.mtime_ns) and checksums.digest_of(path) != known.sha256:
        raise KitError(f"{path} is not the file that was built; {kind.again}")
    return path, known


def _small(path: Path, most_bytes: int) -> bytes:
    """The bytes of a file; ValueError for a larger file, and for anything but a file: reading a pipe, for example, would wait."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode) or state.st_size > most_bytes:
        raise ValueError(f"a file of at most {most_bytes:,} bytes is allowed")
    return path.read_bytes()


def facts(kind: Kind, known: ImageFile) -> dict[str, Any]:
    """What a result stores of an image, as build.image_facts does for Docker, and the digest of the file."""
    return {"tag": known.tag, "id": known.id, "digest": "", "pins_id": known.pins_id, "stand_in": known.stand_in, kind.fact: known.sha256}


def restore(kind: Kind, files: Sequence[Path], images: Sequence[Image]) -> Iterator[str]:
    """Build and check the files of an image archive, whole or in pieces; a line for each difference of an image, which then is not kept."""
    folder = kind.folder()
    permissions.make(folder)
    with locks.held(folder / ".lock"):
        for left in folder.glob(".restore-*"):
            removal.remove(left)  # of a command that was killed
        yield from _restore_all(kind, files, images, folder)


def _restore_all(kind: Kind, files: Sequence[Path], images: Sequence[Image], folder: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=folder) as name:
        layout = Path(name) / "images"
        layout.mkdir()
        try:
            with pieces.opened(files) as compressed, zstandard.open(compressed) as plain:
                with tarfile.open(fileobj=plain, mode="r|", tarinfo=unpack.Header) as packed:
                    unpack.unpack(packed, layout, LIMIT_BYTES)
            found = dict(_images(layout))
        except (tarfile.TarError, zstandard.ZstdError, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise KitError(f"{files[0]} cannot be unpacked: {error}; type make archive again, with Docker 25 or newer") from error
        for image in images:
            if image.tag in found:
                yield from _restore(kind, image, layout, found[image.tag])


class _Archived(msgspec.Struct, frozen=True):
    """An image of an archive: the descriptor of its manifest, its id and its configuration, `environment` among it."""

    manifest: dict[str, Any]
    id: str
    config: dict[str, Any]
    environment: dict[str, str]


def _images(layout: Path) -> Iterator[tuple[str, _Archived]]:
    """(name, image) of each image of an OCI layout; ValueError, LookupError, TypeError, AttributeError or RecursionError for a layout that is none."""
    for listed in json.loads((layout / "index.json").read_bytes())["manifests"]:
        name = (listed.get("annotations") or {}).get("io.containerd.image.name", "")
        descriptor, manifest = listed, parsed(blob(layout, listed))
        if "manifests" in manifest:  # an index within the index; builds without attestations have one image
            descriptor = manifest["manifests"][0]
            manifest = parsed(blob(layout, descriptor))
        path = blob(layout, manifest["config"])
        config = parsed(path)
        environment = dict(line.split("=", 1) for line in config["config"].get("Env") or [])
        _check(environment)
        if not isinstance(config["config"].get("Labels") or {}, dict):
            raise ValueError("its labels are no table")
        image = _Archived(dict(descriptor), f"sha256:{checksums.digest_of(path)}", config, environment)
        yield name.removeprefix("docker.io/").removeprefix("library/"), image


def _check(environment: Mapping[str, str]) -> None:
    """Raise ValueError for a variable that a program could misread as a word of its command, or could not take at all."""
    for name, value in environment.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
            raise ValueError(f"{name[:80]!r} is no variable of an image")


def blob(layout: Path, descriptor: Mapping[str, Any]) -> Path:
    """The file that a descriptor names; ValueError for a name that could lead elsewhere."""
    digest = str(descriptor["digest"])
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"{digest[:80]!r} is no digest")
    return layout / "blobs/sha256" / digest.removeprefix("sha256:")


def parsed(path: Path) -> Any:
    """The data of a JSON file of a layout; ValueError for any other file, or one that is too large for an image's."""
    return json.loads(_small(path, MANIFEST_BYTES))


def _restore(kind: Kind, image: Image, layout: Path, archived: _Archived) -> Iterator[str]:
    write_whole(layout / "index.json", json.dumps({"schemaVersion": 2, "manifests": [archived.manifest]}))
    print(f"{image.tag}: the {kind.name} is being built", flush=True)
    made = kind.build(layout)
    lines = _differences(kind, image, made, archived)
    yield from (f"{image.tag}: {line}" for line in lines)
    if not lines:
        _keep(kind, image, made, archived)


def _differences(kind: Kind, image: Image, made: Path, archived: _Archived) -> list[str]:
    """The differences of a file's content from pins and lock, as verify.check lists them for Docker, but without the base's Debian packages."""
    try:
        listed = kind.output_of(made, archived.environment, ["python3", "-c", verify.INSPECTION.read_text(encoding="utf-8")])
        content = json.loads(listed.splitlines()[-1])
        user = archived.config["config"].get("User", "").partition(":")[0]
        content["user"] = 0 if user in ("", "0", "root") else 1  # these engines run it as the caller
        history = [{"CreatedBy": step.get("created_by")} for step in archived.config.get("history") or []]
        attributes = {"Config": archived.config["config"]}
        return verify.differences(image, content, None) + verify.traces(attributes, history) + verify.other_pins(image, attributes)
    except verify.UNREADABLE as error:
        return [f"does not say what it holds: {first_line(error)}"]


def _keep(kind: Kind, image: Image, made: Path, archived: _Archived) -> None:
    """Give a file its name, in place of an earlier file of the image."""
    short = archived.id.removeprefix("sha256:")[:12]
    target = kind.folder() / f"{_stem(image)}-{short}.{kind.suffix}"
    made.chmod(0o644)
    about = made.stat()
    stand_in = (archived.config["config"].get("Labels") or {}).get("stand-in") == "true"
    digest = checksums.digest_of(made)
    known = ImageFile(image.tag, archived.id, image.pins_id, stand_in, archived.environment, digest, about.st_size, about.st_mtime_ns)
    for old in kind.folder().glob(f"{_stem(image)}-*"):
        old.unlink()
    made.replace(target)
    write_whole(target.with_suffix(".json"), msgspec.json.encode(known).decode())
    print(f"{image.tag}: {target}, of image {short}…, holds what its pins and its lock say", flush=True)


def _stem(image: Image) -> str:
    return f"{image.backend}-{image.stack}-{image.pins_id}"
