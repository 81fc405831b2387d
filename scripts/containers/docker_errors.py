"""Docker's errors, each as one line with the next command."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from scripts.containers.docker_library import docker
from scripts.errors import KitError, NothingRuns, PreflightError

TAG = re.compile(r"llm-repro/(?P<backend>[^:]+):(?P<stack>.+)-[0-9a-f]{12}")

NO_TOOLKIT = (
    "Docker cannot give GPUs to containers: install the NVIDIA Container Toolkit, "
    "type `sudo nvidia-ctk runtime configure --runtime=docker`, and restart Docker; or type DEVICE=cpu"
)

#: (words in Docker's message, the kit's message); the first match counts, {message} is Docker's own message.
KNOWN = (
    (
        'could not select device driver "cdi"',
        "this Docker gives no GPUs by CDI; update it to 25 or newer and set features.cdi in its daemon.json, or type GPU_MODE=nvidia",
    ),
    (
        "could not select device driver",
        NO_TOOLKIT,
    ),
    (
        "CDI device injection failed",
        "Docker does not find the GPU ({message}); type `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, or GPU_MODE=nvidia",
    ),
    ("nvidia-container-cli", "the NVIDIA Container Toolkit failed ({message}); see what `nvidia-smi` says"),
    ("error setting rlimit", "this Docker may not raise limits; leave KIT_MEMLOCK out"),
    ("no space left on device", "Docker's disk is full; make room, for example with `docker builder prune`"),
)


def silence() -> tuple[type[Exception], type[Exception], type[Exception], type[Exception], type[Exception]]:
    """The errors which show that Docker itself is gone or does not answer; while Docker's client reads line by line, it lets urllib3's own errors through."""
    from requests import exceptions  # imported when it is used, as docker is
    from urllib3.exceptions import HTTPError

    return exceptions.ConnectionError, exceptions.Timeout, exceptions.ChunkedEncodingError, HTTPError, docker.errors.StreamParseError


def explain(error: docker.errors.APIError, image_tag: str) -> KitError:
    """The kit's error for an error of Docker's API while a container of this image was created or started."""
    message = " ".join(str(error.explanation or error).split())
    if isinstance(error, docker.errors.ImageNotFound):
        tag = TAG.fullmatch(image_tag)
        command = f"make build-{tag['backend']} STACK={tag['stack']}" if tag else f"docker build -t {image_tag} …"
        return PreflightError(f"the image {image_tag} is not built; type {command}")
    for words, kit_message in KNOWN:
        if words in message:
            return PreflightError(kit_message.format(message=message))
    return KitError(f"the container engine refused to run {image_tag}: {message}")


def unreachable(error: docker.errors.DockerException | OSError | ValueError, host: str) -> NothingRuns:
    """The error for a Docker address where no Docker answers."""
    if "Permission denied" in str(error):
        return NothingRuns(f"Docker at {host} is not open to this user; type `sudo usermod -aG docker $USER` and log in again")
    return NothingRuns(
        f"no Docker answers at {host}; install Docker Engine 25 or newer, start it with `sudo systemctl start docker`, "
        "or set DOCKER_HOST if it listens elsewhere"
    )


def follow(lines: Iterable[Mapping[str, Any]]) -> None:
    """Read to its end what Docker reports line by line; raises DockerException for a line that tells an error."""
    for line in lines:
        if "error" in line:
            raise docker.errors.DockerException(str(line["error"]).strip())


@contextlib.contextmanager
def answering(doing: str, lost: str = "; nothing was stored") -> Iterator[None]:
    """Within the block an error or the silence of Docker becomes one KitError; `doing` names what Docker was asked for, `lost` what that cost."""
    try:
        yield
    except silence() as error:
        raise gone(doing, lost) from error
    except docker.errors.APIError as error:
        raise KitError(f"Docker failed during {doing}: {' '.join(str(error.explanation or error).split())}; type the same again, or see its log") from error


def gone(doing: str, lost: str = "; nothing was stored") -> KitError:
    """The error for an engine that stopped answering, by default while a container ran."""
    return KitError(f"the container engine stopped answering during {doing}{lost}. Start it again and type the same command")


def not_removed(container: str, why: str) -> KitError:
    """The error for a container that outlived its run."""
    return KitError(f"the container {container} cannot be removed ({why}); type `docker rm -f {container}`, or podman in place of docker")
