"""make archive: keep the built images and the files of their locks; scripts/images/restoring.py brings the images back without a network.

In the folder ARCHIVES (./archives unless one is named):

    <stack>.oci.tar.zst  the stack's images and its base image as one OCI archive, in which what they share is kept once; with
                         PIECES=64MB in files of at most so many bytes (scripts/images/pieces.py)
    wheels/<stack>/      every file that the stack's locks name, for a build without a package index: WHEELS=archives/wheels/<stack>
    tools/, kit.tar      the tools and the kit for a machine without a network (scripts/images/offline.py)
    SHA256SUMS           a checksum of each of them, as `sha256sum --check` reads it
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

import zstandard

from bench.job import write_whole
from scripts import pins
from scripts.containers.container import connect
from scripts.containers.docker_library import docker
from scripts.errors import KitError, UsageError
from scripts.images import build, offline, pieces
from scripts.machine import checksums
from scripts.pins import Image, Pins
from scripts.units import counted

#: What an archive may hold.
PARTS = ("images", "wheels", "tools", "kit")

#: How the name of an archive of images ends.
SUFFIX = ".oci.tar.zst"

#: A line has some hundred bytes, and an archive a few thousand files.
LARGEST_SUMS_BYTES = 16 << 20

#: The level of zstd: the images of a stack with torch shrink to less than half, in about a minute for 5 GB on two cores.
LEVEL = 6


def save_images(client: docker.DockerClient, images: list[Image], where: Path, name: str, piece_bytes: int | None = None) -> list[Path]:
    """Write images and their bases as one compressed OCI archive in `where`, whole or not at all; returns its files. Raises KitError."""
    bases = sorted({image.base for image in images if build.exists(client, image.base)})
    build.require_docker()
    command = ["docker", "save", *bases, *(image.tag for image in images)]
    with tempfile.TemporaryFile() as complaints, pieces.writing(where, name, piece_bytes) as writer:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints)
        assert process.stdout is not None
        try:
            zstandard.ZstdCompressor(level=LEVEL, threads=-1).copy_stream(process.stdout, cast(IO[bytes], writer))  # it only writes
        except BaseException:
            process.kill()
            raise
        finally:
            process.stdout.close()
            exit_code = process.wait()
        if exit_code != 0:
            complaints.seek(0)
            reason = complaints.read().decode(errors="replace").strip() or f"exit code {exit_code}"
            raise KitError(f"docker save failed: {reason}; `make images` shows what Docker holds")
        return writer.finish()


def fetch_wheels(loaded: Pins, stack: str, target: Path) -> None:
    """Fetch every file of a stack's locks with the pip of its base image; needs the network."""
    build.require_buildx()
    target.mkdir(parents=True, exist_ok=True)
    image = loaded.images(stack)[0]
    command = [
        *("docker", "buildx", "build", "--progress=plain", f"--output=type=local,dest={target}"),
        *(f"--build-arg=BASE_IMAGE={image.base}", f"--build-arg=STACK={stack}", f"--build-context=kit={image.build_scripts}"),
        *(*build.secrets(), f"--file={loaded.root / 'docker/wheelhouse.Dockerfile'}", str(loaded.root / "docker")),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise KitError(f"the files of the stack {stack} could not be fetched:\n  " + "\n  ".join(done.stdout.splitlines()[-15:]))


def is_foreign(name: str, stacks: Collection[str]) -> bool:
    """Is this, as SHA256SUMS names it, a file that `make archive` does not write?"""
    parts, whole = PurePosixPath(name).parts, pieces.name_of(name)
    is_images = len(parts) == 1 and whole.endswith(SUFFIX) and whole.removesuffix(SUFFIX) in stacks
    is_wheel = len(parts) == 3 and parts[0] == "wheels" and parts[1] in stacks
    is_for_the_kit = name == offline.KIT or (len(parts) == 2 and parts[0] == offline.TOOLS)
    return not (is_images or is_wheel or is_for_the_kit)


def write_sums(where: Path) -> None:
    """One line for each file of an archive, sorted by name; other files of the folder, such as those of a USB stick, are no part of it."""
    stacks = {image.stack for image in pins.load().images()}
    names = sorted(path.relative_to(where).as_posix() for path in where.rglob("*") if path.is_file() and not path.name.startswith("."))
    digests = {name: checksums.digest_of(where / name) for name in names if not is_foreign(name, stacks)}
    write_whole(where / checksums.NAME, checksums.text(digests))  # half a list would look like that of a smaller archive


def read_sums(where: Path) -> dict[str, str]:
    """{name: sha256} of an archive folder; raises UsageError for any other folder, KitError where the list is damaged."""
    path = where / checksums.NAME
    if not path.is_file():
        raise UsageError(f"{path} is missing: {where} holds no archive; type make archive, or ARCHIVES=/path/to/it")
    try:
        with path.open("rb") as stream:
            return checksums.parse(stream.read(LARGEST_SUMS_BYTES).decode())
    except (OSError, ValueError) as error:
        raise KitError(f"{path} is damaged: {error}; copy the folder again, or type ARCHIVES=/path/to/another") from error


def damaged(where: Path, sums: dict[str, str]) -> list[str]:
    """Files of an archive that are missing or have another checksum."""
    missing, changed = checksums.compare(where, sums)
    return [f"{name}: is missing" for name in missing] + [f"{name}: has another checksum than {checksums.NAME} says" for name in changed]


def archive(where: Path, chosen: list[Image], parts: Sequence[str] = PARTS, piece_bytes: int | None = None, pythons: Sequence[str] = ()) -> None:
    """Keep images, the files of their locks, the tools and the kit in a folder; KitError names the images that are not built.

    `pythons` are the versions of Python that the tools are kept for: this one where none is named.
    """
    loaded = pins.load()
    client = connect() if "images" in parts else None
    where.mkdir(parents=True, exist_ok=True)
    by_stack: dict[str, list[Image]] = {}
    for image in chosen:
        by_stack.setdefault(image.stack, []).append(image)
    missing: list[str] = []
    for stack, images in by_stack.items():
        if client:
            missing += _keep_images(client, images, where / (stack + SUFFIX), piece_bytes)
        if "wheels" in parts:
            wheels = where / "wheels" / stack
            fetch_wheels(loaded, stack, wheels)
            print(f"{wheels}: {len(list(wheels.iterdir()))} files", flush=True)
    if "tools" in parts:
        tools = offline.keep_tools(loaded, where, pythons)
        print(f"{tools}: {len(list(tools.iterdir()))} files", flush=True)
    if "kit" in parts:
        print(f"{offline.keep_kit(where)}: the kit", flush=True)
    write_sums(where)
    print(f"{where / checksums.NAME}: written")
    if missing:
        raise KitError(f"not in the archive, because not built: {', '.join(missing)}; type make build-all, or STACK= or BACKEND= for fewer")


def _keep_images(client: docker.DockerClient, images: Sequence[Image], path: Path, piece_bytes: int | None) -> list[str]:
    """Save those of a stack's images that are built; the names of the others."""
    built = [image for image in images if build.exists(client, image.tag)]
    if built:
        files = save_images(client, built, path.parent, path.name, piece_bytes)
        size = sum(file.stat().st_size for file in files) / 1e9
        print(f"{path}: {len(built)} images, {size:.1f} GB in {counted(len(files), 'file')}", flush=True)
    return [image.name for image in images if image not in built]
