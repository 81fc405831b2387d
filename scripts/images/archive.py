"""make archive: keep the built images and the files of their locks; scripts/images/restoring.py brings the images back without a network.

In the folder ARCHIVES (./archives unless one is named):

    <stack>.oci.tar    the stack's images and its base image as one OCI archive, in which what they share is kept once
    wheels/<stack>/    every file that the stack's locks name, for a build without a package index: WHEELS=archives/wheels/<stack>
    SHA256SUMS         a checksum of each of them, as `sha256sum --check` reads it
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import docker

from scripts import pins
from scripts.containers.container import connect
from scripts.errors import KitError
from scripts.images import build
from scripts.machine import checksums
from scripts.pins import Image, Pins

#: What an archive may hold.
PARTS = ("images", "wheels")


def save_images(client: docker.DockerClient, images: list[Image], path: Path) -> None:
    """Write images and their bases as one OCI archive; whole or not at all."""
    bases = sorted({image.base for image in images if build.exists(client, image.base)})
    partial = path.with_name(f".partial-{path.name}")
    try:
        with partial.open("wb") as stream:
            done = subprocess.run(["docker", "save", *bases, *(image.tag for image in images)], stdout=stream, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise KitError(f"docker save failed: {done.stderr.strip()}")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


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
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise KitError(f"the files of the stack {stack} could not be fetched:\n  " + "\n  ".join(done.stdout.splitlines()[-15:]))


def write_sums(where: Path) -> None:
    """One line for each file of an archive folder, sorted by name."""
    files = sorted(path for path in where.rglob("*") if path.is_file() and path.name != checksums.NAME and not path.name.startswith("."))
    digests = {path.relative_to(where).as_posix(): checksums.digest_of(path) for path in files}
    (where / checksums.NAME).write_text(checksums.text(digests), encoding="utf-8")


def read_sums(where: Path) -> dict[str, str]:
    """{name: sha256} of an archive folder; KitError where it is none."""
    path = where / checksums.NAME
    try:
        return checksums.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise KitError(f"{path} is missing: {where} holds no archive; type make archive, or ARCHIVES=/path/to/it") from error
    except ValueError as error:
        raise KitError(f"{path} is damaged: {error}") from error


def damaged(where: Path, sums: dict[str, str]) -> list[str]:
    """Files of an archive that are missing or have another checksum."""
    missing, changed = checksums.compare(where, sums)
    return [f"{name}: is missing" for name in missing] + [f"{name}: has another checksum than {checksums.NAME} says" for name in changed]


def archive(where: Path, chosen: list[Image], wanted: Sequence[str] = PARTS) -> None:
    """Keep images, and the files of their locks, in a folder; KitError names the images that are not built."""
    loaded, client = pins.load(), connect()
    where.mkdir(parents=True, exist_ok=True)
    by_stack: dict[str, list[Image]] = {}
    for image in chosen:
        by_stack.setdefault(image.stack, []).append(image)
    missing = []
    for stack, images in by_stack.items():
        there = [image for image in images if build.exists(client, image.tag)]
        missing += [image for image in images if image not in there] if "images" in wanted else []
        if there and "images" in wanted:
            path = where / f"{stack}.oci.tar"
            save_images(client, there, path)
            print(f"{path}: {len(there)} images, {path.stat().st_size / 1e9:.1f} GB", flush=True)
        if "wheels" in wanted:
            wheels = where / "wheels" / stack
            fetch_wheels(loaded, stack, wheels)
            print(f"{wheels}: {len(list(wheels.iterdir()))} files", flush=True)
    write_sums(where)
    print(f"{where / checksums.NAME}: written")
    if missing:
        listed = ", ".join(f"{image.backend}:{image.stack}" for image in missing)
        raise KitError(f"not in the archive, for they are not built: {listed}; type make build-all, or STACK= or BACKEND= for fewer")
