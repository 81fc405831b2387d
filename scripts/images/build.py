"""make build-<backend>: build an image from its generated Dockerfile, then compare its content with the lock."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts import pins, surroundings
from scripts.containers.container import connect
from scripts.containers.docker_library import docker
from scripts.errors import KitError, PreflightError, UsageError
from scripts.images import dockerfile, inventory, render
from scripts.machine import locks
from scripts.pins import Image, Pins, requirement_files, resolve

PINS_LABEL = "org.llm-repro.pins-id"

#: The program that runs inside the image and prints its versions. It runs without a GPU, where torch.cuda.get_arch_list() is empty.
QUESTION = """
import json, platform
from importlib.metadata import distributions
try:
    import torch
    cuda, flags = torch.version.cuda, torch._C._cuda_getArchFlags()
except ImportError:
    cuda = flags = None
print(json.dumps({
    "python": platform.python_version(),
    "cuda": cuda or "",
    "arch_list": (flags or "").split(),
    "packages": {d.metadata["Name"]: d.version for d in distributions()},
}))
"""


def build(image: Image, wheels: Path | None = None) -> bool:
    """Build the image unless its tag exists; True when it was built. Raises KitError where the build fails or holds other versions.

    An image gets its tag only after this check, so an image with a tag is a checked one.
    """
    client = connect()
    if exists(client, image.tag):
        return False
    _refuse_stale(image)
    with locks.held(locks.folder() / f"build-{image.pins_id}.lock", locks.FOR_THIS_USER, why=f"another process builds {image.tag}"):
        if exists(client, image.tag):
            return False
        _build(client, image, wheels)
    return True


def _build(client: docker.DockerClient, image: Image, wheels: Path | None) -> None:
    unchecked = f"{image.tag}{inventory.UNCHECKED}{os.getuid()}"  # the lock is that of one user
    run_buildx(image, unchecked, wheels=wheels)
    try:
        lines = differences(image, ask(client, unchecked))
        if lines:
            listed = "\n  ".join(lines)
            raise KitError(f"{image.tag} does not hold what its lock says, so it was removed:\n  {listed}\nType `make lock render` and build again.")
        client.images.get(unchecked).tag(image.tag)
    finally:
        client.images.remove(unchecked, force=True)


def exists(client: docker.DockerClient, tag: str) -> bool:
    try:
        client.images.get(tag)
    except docker.errors.ImageNotFound:
        return False
    return True


def image_facts(client: docker.DockerClient, image: Image) -> dict[str, Any]:
    """The facts of an image that a result stores. `digest` is "" unless the image came from a registry; `stand_in`: its base is a stand-in."""
    try:
        built = client.images.get(image.tag)
    except docker.errors.ImageNotFound as error:
        raise KitError(f"no image {image.tag}: type `make build-{image.backend} STACK={image.stack}`") from error
    digests = built.attrs.get("RepoDigests") or [""]
    return {
        "tag": image.tag,
        "id": built.id,
        "digest": digests[0].rpartition("@")[2],
        "pins_id": image.pins_id,
        "stand_in": inventory.is_stand_in(built),
    }


def _refuse_stale(image: Image) -> None:
    """Raise KitError where the image's generated files do not follow from pins.toml, or a patch is missing."""
    root = image.folder.parents[2]
    stale = resolve.differing(render.image_files(pins.load(root), image))
    if stale:
        raise KitError(f"{stale[0].relative_to(root)} is not what docker/pins.toml gives: type `make lock render`")
    missing = render.missing_patches([image])
    if missing:
        raise KitError(missing[0])


def buildx_command(image: Image, tag: str, *options: str, kit: Path | None = None) -> list[str]:
    """The command line of a build. `kit` is the folder of scripts that every Dockerfile runs, by default docker/build."""
    command = ["docker", "buildx", "build", "--load", "--progress=plain", f"--tag={tag}", f"--label={PINS_LABEL}={image.pins_id}"]
    # The description of the image holds the date too. Attestations would add the building machine and the hour.
    command += [f"--build-arg=SOURCE_DATE_EPOCH={dockerfile.SOURCE_DATE_EPOCH}", "--provenance=false", f"--build-context=kit={kit or image.build_scripts}"]
    command += secrets(kit)
    if image.patches:
        command.append(f"--build-context=patches={image.patches_folder}")
    return [*command, *options, str(image.folder)]


def secrets(kit: Path | None = None) -> list[str]:
    """Options for secrets that a build may read and no image keeps: certificates and pip settings, where this machine has its own."""
    around = surroundings.current()
    certificates = around.certificates or around.text("SSL_CERT_FILE")
    settings = kit / "pip.conf" if kit else around.text("PIP_CONFIG_FILE")
    named = (("ca_bundle", certificates), ("pip_conf", settings))
    return [f"--secret=id={name},src={path}" for name, path in named if path and Path(path).is_file()]


def refuse_no_wheels(wheels: Path, stack: str) -> None:
    """Raise UsageError where WHEELS is an empty folder, or none."""
    if not any(wheels.glob("*")):
        raise UsageError(f"WHEELS is {str(wheels)!r}, which holds no files; try WHEELS=archives/wheels/{stack}")


@contextlib.contextmanager
def with_wheels(image: Image, wheels: Path) -> Iterator[Path]:
    """A copy of docker/build with the files of `wheels`, and pip settings that allow only these files: for a build without an index."""
    refuse_no_wheels(wheels, image.stack)
    with tempfile.TemporaryDirectory(prefix=".wheels-", dir=wheels.parent) as name:
        kit = Path(name)
        shutil.copytree(image.build_scripts, kit, dirs_exist_ok=True)
        shutil.copytree(wheels, kit / "wheels", copy_function=_link_or_copy)
        (kit / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /run/kit/wheels\n", encoding="utf-8")
        yield kit


def _link_or_copy(source: str, target: str) -> None:
    """A link costs no room and no time; a stick with FAT has none, and nobody may link another user's files."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def require_docker() -> None:
    """Raise PreflightError where the `docker` command is missing; an engine may answer without it."""
    if not shutil.which("docker"):
        raise PreflightError("the `docker` command is missing: install Docker's command line and its buildx plugin")


def require_buildx() -> None:
    """Raise PreflightError where `docker` or its buildx plugin is missing."""
    require_docker()
    if subprocess.run(["docker", "buildx", "version"], capture_output=True).returncode != 0:
        raise PreflightError("`docker buildx` is missing: install the package docker-buildx-plugin (on Debian docker-buildx)")


def run_buildx(image: Image, tag: str, *options: str, wheels: Path | None = None) -> None:
    """Build an image with more options of buildx; with `wheels` from the files of that folder, without a package index."""
    require_buildx()
    if not wheels:
        return _stream(image, buildx_command(image, tag, *options))
    with with_wheels(image, wheels) as kit:
        return _stream(image, buildx_command(image, tag, *options, kit=kit))


def _stream(image: Image, command: list[str]) -> None:
    """Run a build and print its output; raises KitError with its last 20 lines where it fails."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    last: collections.deque[str] = collections.deque(maxlen=20)
    disk_full = quoting = False
    try:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            quoting = quoting or line.startswith("Dockerfile:")  # from this line on buildx only quotes the Dockerfile
            if not quoting:
                last.append(line.rstrip())
            disk_full = disk_full or "no space left on device" in line.lower()
    finally:
        if process.poll() is None and sys.exc_info()[0]:
            process.terminate()
        process.wait()
    if process.returncode != 0 and disk_full:
        raise KitError(f"{image.tag} was not built: the disk of the Docker engine is full; `docker system df` shows what fills it")
    if process.returncode != 0:
        raise KitError(f"{image.tag} was not built, the last lines were:\n  " + "\n  ".join(last))


def ask(client: docker.DockerClient, tag: str) -> dict[str, Any]:
    """The versions in an image, from the image itself: {python, cuda, arch_list, packages}."""
    answer: dict[str, Any] = json.loads(output_of(client, tag, ["python3", "-c", QUESTION]).splitlines()[-1])
    return answer


def output_of(client: docker.DockerClient, tag: str, command: list[str]) -> str:
    """The output of a command in a container of an image, without a network; raises KitError with its errors where it fails."""
    container = client.containers.create(tag, command, network_mode="none", init=True)
    try:
        container.start()
        exit_code = container.wait(timeout=300)["StatusCode"]
        output = container.logs(stdout=True, stderr=False).decode(errors="replace")
        if exit_code != 0:
            raise KitError(f"{tag} cannot list what it holds:\n{container.logs(stdout=False).decode(errors='replace')[-2000:]}")
    finally:
        container.remove(force=True)
    return output


def differences(image: Image, answer: dict[str, Any]) -> list[str]:
    """One line per difference between an answer of `ask` and the lock; a local version label such as +cu117 is ignored."""
    installed = {requirement_files.normalized(name): version for name, version in answer["packages"].items()}
    lines = []
    for name, version in image.locked().items():
        if installed.get(name, "").partition("+")[0] != version.partition("+")[0]:
            lines.append(f"{name}: locked {version}, found {installed.get(name, 'none')}")
    if answer["python"].rpartition(".")[0] != image.python:
        lines.append(f"python: pinned {image.python}, found {answer['python']}")
    if answer["cuda"] != image.cuda:
        lines.append(f"cuda of torch: pinned {image.cuda}, found {answer['cuda'] or 'none'}")
    if answer["arch_list"] != list(image.arch_list):
        lines.append(f"architectures of torch: pinned {' '.join(image.arch_list)}, found {' '.join(answer['arch_list']) or 'none'}")
    return lines


def images_of(loaded: Pins, backend: str, stack: str, typed: str = "") -> list[Image]:
    """The images of a backend on a stack; "all" means every backend, and "article" with it every stack. `typed` is the value of STACK. Raises UsageError."""
    if backend == "all":
        if stack not in ("article", *loaded.stacks):
            loaded.image(next(iter(loaded.backends)), stack)  # raises UsageError with the known stacks
        images = loaded.images(None if stack == "article" else stack)
    else:
        images = [image for image in [loaded.image(backend, stack, typed)] if image.engine == "docker"]
    if not images:
        raise UsageError(f"the stack {stack!r} needs no image: it runs on this machine; type `make demo`")
    return images
