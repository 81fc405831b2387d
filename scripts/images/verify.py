"""make verify-<backend>: compare an image with docker/pins.toml and its lock, file by file. One line per difference, and exit code 1.

A missing image is built first. All answers come from the image itself, in a container without a network.
"""

from __future__ import annotations

import json
import re
from typing import Any

from bench.reasons import first_line
from scripts import paths
from scripts.containers import docker_errors
from scripts.containers.container import connect
from scripts.containers.docker_library import docker
from scripts.errors import KitError
from scripts.images import build, dockerfile
from scripts.machine import checksums
from scripts.pins import Image, requirement_files

#: The program that runs inside the image and lists its content.
INSPECTION = paths.ROOT / "docker/inspect_image.py"

#: Settings of a build or of its machine that an image must not carry in its environment or its history.
TELLTALE = re.compile(r"\b\w*(?:PIP_|PROXY|CA_BUNDLE|SSL_CERT|TOKEN|PASSWORD)\w*=\S*", re.IGNORECASE)

#: The errors that reading an answer may raise where docker/inspect_image.py did not make it.
UNREADABLE = (KitError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)

BASE_PACKAGES = ["dpkg-query", "--show", "--showformat", "${Package}=${Version}\n"]


def inspect(client: docker.DockerClient, tag: str) -> dict[str, Any]:
    """The content of an image, as docker/inspect_image.py lists it."""
    answer: dict[str, Any] = json.loads(build.output_of(client, tag, ["python3", "-c", INSPECTION.read_text(encoding="utf-8")]).splitlines()[-1])
    return answer


def differences(image: Image, content: dict[str, Any], base_packages: list[str] | None) -> list[str]:
    """Every difference between an image's content and its pins and lock; `base_packages` are the Debian packages of its base, None where unknown."""
    return [
        *build.differences(image, content),
        *_packages(image, content),
        *(f"{name}: {line}" for name, lines in content["altered"].items() for line in lines),
        *_unowned(image, content["unowned"]),
        *_kernels(image, content["kernels"]),
        *(f"torch lists {arch}, and its libraries hold no code for it" for arch in content["arch_list"] if arch not in content["torch_architectures"]),
        *_compiled_with(image, content["compiled_with"]),
        *_debian_pins(image, content["debian"]),
        *_debian(content["debian"], base_packages, content["debian_added"] if image.debian_pins else []),
        *(f"{path}: a compiler" for path in content["compilers"] if not image.debian_pins),
        *(f"{path}: left by the build" for path in content["leftovers"]),
        *(["runs as root"] if content["user"] == 0 else []),
    ]


def noted_archives(content: dict[str, Any]) -> dict[str, str]:
    """{package, as locks write its name: the sha256 of the file that it was installed from}, where the image says it."""
    return {requirement_files.normalized(name): digest for name, digest in content["archives"].items()}


def _packages(image: Image, content: dict[str, Any]) -> list[str]:
    """Packages that are not in the lock, and packages that were installed from another file than the lock's."""
    blocks = requirement_files.blocks(image.lock_text())
    compiled = image.options.get("compile", {}).get("source")
    lines = [f"{name}: not in the lock" for name in map(requirement_files.normalized, content["packages"]) if name not in blocks]
    noted = noted_archives(content)
    for name in image.locked():
        if name not in noted:
            lines.append(f"{name}: the image does not say from which file it was installed")
        elif name != compiled and f"sha256:{noted[name]}" not in blocks[name]:
            lines.append(f"{name}: installed from a file with sha256 {noted[name]}, which is not in the lock")
    return lines


def _unowned(image: Image, unowned: dict[str, str]) -> list[str]:
    """Files that belong to no package: allowed are those that pins.toml adds from docker/patches, with the same content."""
    added = {place: image.patches_folder / name for place, name in image.options.get("added_files", {}).items()}
    digests = {place: checksums.digest_of(path) for place, path in added.items()}
    lines = [f"{place}: belongs to no package, and pins.toml does not add it" for place in unowned if place not in digests]
    return lines + [f"{place}: is not docker/patches/{added[place].name}" for place, digest in digests.items() if unowned.get(place) != digest]


def _kernels(image: Image, kernels: dict[str, dict[str, Any]]) -> list[str]:
    """The libraries with GPU code that were compiled for the image: present, for the right architectures, and loadable."""
    pinned = list(image.kernels_arch_list)
    lines = [f"{path}: does not load: {library['loads']}" for path, library in kernels.items() if library["loads"]]
    with_code = {path: library["architectures"] for path, library in kernels.items() if library["architectures"]}
    if pinned and not with_code:
        lines.append(f"kernels: pinned for {' '.join(pinned)}, and the image has no compiled library")
    for path, architectures in with_code.items():
        if architectures != pinned:
            lines.append(f"{path}: pinned for {' '.join(pinned) or 'nothing'}, holds {' '.join(architectures)}")
    return lines


def _compiled_with(image: Image, packages: list[str]) -> list[str]:
    """Differences between the Debian packages of the compiler, as the build noted them, and pins.toml."""
    pinned = image.options.get("compile", {}).get("compiled_with", {})
    noted = dict(line.split("=", 1) for line in packages)
    lines = [f"compiled with {name} {noted.get(name, '(none)')}, pinned {version}" for name, version in pinned.items() if noted.get(name) != version]
    return lines + [f"compiled with {name} {version}, which pins.toml does not name" for name, version in noted.items() if name not in pinned]


def _debian_pins(image: Image, packages: list[str]) -> list[str]:
    """Pinned Debian packages that are missing or have another version."""
    versions = dict(line.split("=", 1) for line in packages)
    pinned = image.debian_pins.values()
    return [f"Debian package {pin.name}: {versions.get(pin.name, '(none)')}, pinned {pin.version}" for pin in pinned if versions.get(pin.name) != pin.version]


def _debian(packages: list[str], base_packages: list[str] | None, noted: list[str]) -> list[str]:
    """Debian packages that are neither in the base nor noted as installed with the pinned ones, and packages of the base that are missing."""
    if base_packages is None:
        return []
    added = sorted(set(packages) - set(base_packages) - set(noted))
    return [f"Debian package {package}: not in the base image" for package in added] + [
        f"Debian package {package}: in the base image, and not here" for package in sorted(set(base_packages) - set(packages))
    ]


def traces(attributes: dict[str, Any], history: list[dict[str, Any]]) -> list[str]:
    """Settings of the building machine in an image's environment or history, without those that the Dockerfile makes for pip."""
    from_dockerfile = " ".join(dockerfile.ARGUMENTS).split()
    listed = [(attributes["Config"].get("Env") or [], "environment"), ([str(step.get("CreatedBy")) for step in history], "history")]
    settings = {(where, setting) for lines, where in listed for line in lines for setting in TELLTALE.findall(line)}
    return [f"{where}: {setting}" for where, setting in sorted(settings) if setting not in from_dockerfile]


def other_pins(image: Image, attributes: dict[str, Any]) -> list[str]:
    """The pins of which an image says that it was built, if they are others. What is compiled or set from a patch or a Dockerfile shows nowhere else."""
    named = (attributes["Config"].get("Labels") or {}).get(build.PINS_LABEL, "(none)")
    return [] if named == image.pins_id else [f"label {build.PINS_LABEL}: pinned {image.pins_id}, found {named}"]


def packages_of_base(client: docker.DockerClient, image: Image) -> list[str] | None:
    """The Debian packages of an image's base; None where this machine does not have the base."""
    try:
        client.images.get(image.base)
    except docker.errors.ImageNotFound:
        return None
    return sorted(build.output_of(client, image.base, BASE_PACKAGES).split())


def check(client: docker.DockerClient, image: Image, name: str = "") -> list[str]:
    """Compare the whole content of a built image with its pins and its lock; returns one line per difference. `name` is its tag unless another is given."""
    name = name or image.tag
    built = client.images.get(name)
    return differences(image, inspect(client, name), packages_of_base(client, image)) + traces(built.attrs, built.history()) + other_pins(image, built.attrs)


def check_foreign(client: docker.DockerClient, image: Image, name: str = "") -> list[str]:
    """As `check`, for an image that another machine made: an image that cannot be asked counts as different."""
    try:
        return check(client, image, name)
    except (*UNREADABLE, docker.errors.DockerException, *docker_errors.silence()) as error:
        return [f"does not say what it holds: {first_line(error)}"]


def verify(image: Image) -> list[str]:
    """Build a missing image, then compare its whole content with its pins and lock."""
    build.build(image)
    return check(connect(), image)
