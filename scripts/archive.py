"""make archive, make restore: keep the built images and the files of their locks, and bring the images back without a network.

In the folder ARCHIVES (./archives unless one is named):

    <stack>.oci.tar    the stack's images and its base image as one OCI archive, in which what they share is kept once
    wheels/<stack>/    every file that the stack's locks name, for a build without a package index: WHEELS=archives/wheels/<stack>
    SHA256SUMS         a checksum of each of them, as `sha256sum --check` reads it
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import docker

from scripts import build, pins
from scripts.container import connect
from scripts.errors import KitError, UsageError, run_command
from scripts.pins import Image, Pins

SUMS = "SHA256SUMS"


def folder() -> Path:
    return Path(os.environ.get("ARCHIVES") or "archives")


def digest_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
    files = sorted(path for path in where.rglob("*") if path.is_file() and path.name != SUMS and not path.name.startswith("."))
    lines = [f"{digest_of(path)}  {path.relative_to(where)}\n" for path in files]
    (where / SUMS).write_text("".join(lines), encoding="utf-8")


def read_sums(where: Path) -> dict[str, str]:
    """{name: sha256} of an archive folder; KitError where it is none."""
    try:
        lines = (where / SUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise KitError(f"{where / SUMS} is missing: {where} holds no archive; type make archive, or ARCHIVES=/path/to/it") from error
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def damaged(where: Path, sums: dict[str, str]) -> list[str]:
    """Files of an archive that are missing or have another checksum."""
    lines = []
    for name, digest in sums.items():
        if not (where / name).exists():
            lines.append(f"{name}: is missing")
        elif digest_of(where / name) != digest:
            lines.append(f"{name}: has another checksum than {SUMS} says")
    return lines


def chosen(loaded: Pins) -> dict[str, list[Image]]:
    """{stack: images} that STACK and BACKEND mean; every image without them."""
    stack, backend = os.environ.get("STACK") or "article", os.environ.get("BACKEND") or "all"
    grouped: dict[str, list[Image]] = {}
    for image in build.wanted(loaded, backend, stack):
        grouped.setdefault(image.stack, []).append(image)
    return grouped


def parts() -> tuple[str, ...]:
    """What ONLY names, or both."""
    only = os.environ.get("ONLY") or ""
    if only not in ("", "images", "wheels"):
        raise UsageError(f"ONLY is {only!r}, allowed are images, wheels; type for example ONLY=images")
    return (only,) if only else ("images", "wheels")


def archive() -> None:
    loaded, client, where, wanted = pins.load(), connect(), folder(), parts()
    where.mkdir(parents=True, exist_ok=True)
    missing = []
    for stack, images in chosen(loaded).items():
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
    print(f"{where / SUMS}: written")
    if missing:
        listed = ", ".join(f"{image.backend}:{image.stack}" for image in missing)
        raise KitError(f"not in the archive, for they are not built: {listed}; type make build-all, or STACK= or BACKEND= for fewer")


def restore() -> None:
    where = folder()
    sums = read_sums(where)
    found = damaged(where, sums)
    if found:
        raise KitError(f"{where} is damaged, so nothing was restored:\n  " + "\n  ".join(found))
    connect()
    for name in sorted(sums):
        if name.endswith(".oci.tar"):
            done = subprocess.run(["docker", "load", "--input", str(where / name)], capture_output=True, text=True)
            if done.returncode != 0:
                raise KitError(f"docker load of {where / name} failed: {done.stderr.strip()}")
            print(done.stdout, end="", flush=True)


def main() -> None:
    verbs = {"archive": archive, "restore": restore}
    if len(sys.argv) != 2 or sys.argv[1] not in verbs:
        raise UsageError("type make archive, or make restore")
    verbs[sys.argv[1]]()


if __name__ == "__main__":
    run_command(main)
