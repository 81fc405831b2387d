"""make verify-<backend>: is an image what docker/pins.toml and its lock say, file by file? One line a difference, and exit code 1.

The image is built first unless it is there. Everything is asked of the image itself, in a container without a network.
"""

import hashlib
import json
import re
from typing import Any

import docker
from docker.errors import ImageNotFound

from scripts import paths
from scripts.containers.container import connect
from scripts.images import build, dockerfile
from scripts.pins import Image, requirement_files

#: Runs inside the image.
INSPECTION = paths.ROOT / "docker/inspect_image.py"

#: Settings of a build or of its machine that an image must not carry in its environment or its history.
TELLTALE = re.compile(r"\b\w*(?:PIP_|PROXY|CA_BUNDLE|SSL_CERT|TOKEN|PASSWORD)\w*=\S*", re.IGNORECASE)

BASE_PACKAGES = ["dpkg-query", "--show", "--showformat", "${Package}=${Version}\n"]


def inspect(client: docker.DockerClient, tag: str) -> dict[str, Any]:
    """What an image holds, as docker/inspect_image.py tells it."""
    answer: dict[str, Any] = json.loads(build.output_of(client, tag, ["python3", "-c", INSPECTION.read_text(encoding="utf-8")]).splitlines()[-1])
    return answer


def differences(image: Image, found: dict[str, Any], base_packages: list[str] | None) -> list[str]:
    """Everything that is other in an image than pins and lock say; `base_packages` are the Debian packages of its base, None where unknown."""
    return [
        *build.differences(image, found),
        *_packages(image, found),
        *(f"{name}: {line}" for name, lines in found["altered"].items() for line in lines),
        *_unowned(image, found["unowned"]),
        *_kernels(image, found["kernels"]),
        *(f"torch tells of {arch}, and its libraries hold no code for it" for arch in found["arch_list"] if arch not in found["torch_architectures"]),
        *_compiled_with(image, found["compiled_with"]),
        *_debian(found["debian"], base_packages),
        *(f"{path}: a compiler" for path in found["compilers"]),
        *(f"{path}: left by the build" for path in found["leftovers"]),
        *(["runs as root"] if found["user"] == 0 else []),
    ]


def _packages(image: Image, found: dict[str, Any]) -> list[str]:
    """Packages that no lock names, and archives that are other than those the lock names."""
    blocks = requirement_files.blocks(image.lock_text())
    compiled = image.options.get("compile", {}).get("source")
    lines = [f"{name}: not in the lock" for name in map(requirement_files.normalized, found["packages"]) if name not in blocks]
    noted = {requirement_files.normalized(name): digest for name, digest in found["archives"].items()}
    for name in image.locked():
        if name not in noted:
            lines.append(f"{name}: the image does not say from which file it was installed")
        elif name != compiled and f"sha256:{noted[name]}" not in blocks[name]:
            lines.append(f"{name}: installed from a file with sha256 {noted[name]}, which is not in the lock")
    return lines


def _unowned(image: Image, unowned: dict[str, str]) -> list[str]:
    """Files beside those of the packages: only what pins.toml adds from docker/patches, as it is there."""
    added = {place: image.folder.parents[1] / "patches" / name for place, name in image.options.get("added_files", {}).items()}
    wanted = {place: hashlib.sha256(path.read_bytes()).hexdigest() for place, path in added.items()}
    lines = [f"{place}: belongs to no package, and pins.toml does not add it" for place in unowned if place not in wanted]
    return lines + [f"{place}: is not docker/patches/{added[place].name}" for place, digest in wanted.items() if unowned.get(place) != digest]


def _kernels(image: Image, kernels: dict[str, dict[str, Any]]) -> list[str]:
    """The libraries with GPU code that were compiled for the image: there, for the right architectures, and loadable."""
    listed = image.options.get("compile", {}).get("environment", {}).get("TORCH_CUDA_ARCH_LIST", "")
    wanted = [f"sm_{part.replace('.', '')}" for part in listed.split(";") if part]
    lines = [f"{path}: does not load: {one['loads']}" for path, one in kernels.items() if one["loads"]]
    with_code = {path: one["architectures"] for path, one in kernels.items() if one["architectures"]}
    if wanted and not with_code:
        lines.append(f"kernels: pinned for {' '.join(wanted)}, and the image has no compiled library")
    for path, architectures in with_code.items():
        if architectures != wanted:
            lines.append(f"{path}: pinned for {' '.join(wanted) or 'nothing'}, holds {' '.join(architectures)}")
    return lines


def _compiled_with(image: Image, found: list[str]) -> list[str]:
    """The Debian packages of the compiler, as the build noted them, against pins.toml."""
    pinned = image.options.get("compile", {}).get("compiled_with", {})
    noted = dict(line.split("=", 1) for line in found)
    lines = [f"compiled with {name} {noted.get(name, '(none)')}, pinned {version}" for name, version in pinned.items() if noted.get(name) != version]
    return lines + [f"compiled with {name} {version}, which pins.toml does not name" for name, version in noted.items() if name not in pinned]


def _debian(found: list[str], base_packages: list[str] | None) -> list[str]:
    if base_packages is None:
        return []
    added = sorted(set(found) - set(base_packages))
    return [f"Debian package {one}: not in the base image" for one in added] + [
        f"Debian package {one}: in the base image, and not here" for one in sorted(set(base_packages) - set(found))
    ]


def traces(attributes: dict[str, Any], history: list[dict[str, Any]]) -> list[str]:
    """Settings of the building machine in an image's environment or history; those that the Dockerfile makes for pip are none."""
    ours = " ".join(dockerfile.ARGUMENTS).split()
    said = [(attributes["Config"].get("Env") or [], "environment"), ([str(step.get("CreatedBy")) for step in history], "history")]
    found = {(where, setting) for lines, where in said for line in lines for setting in TELLTALE.findall(line)}
    return [f"{where}: {setting}" for where, setting in sorted(found) if setting not in ours]


def packages_of_base(client: docker.DockerClient, image: Image) -> list[str] | None:
    """The Debian packages of an image's base; None where the base is not on this machine."""
    try:
        client.images.get(image.base)
    except ImageNotFound:
        return None
    return sorted(build.output_of(client, image.base, BASE_PACKAGES).split())


def check(client: docker.DockerClient, image: Image) -> list[str]:
    """Compare all that an image holds with its pins and its lock; it has to be there."""
    found = client.images.get(image.tag)
    return differences(image, inspect(client, image.tag), packages_of_base(client, image)) + traces(found.attrs, found.history())


def verify(image: Image) -> list[str]:
    """Build an image unless it is there, and compare all that it holds with pins and lock."""
    build.build(image)
    return check(connect(), image)
