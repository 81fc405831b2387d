"""What Docker says when something goes wrong, as one line with the next thing to type."""

import re

import requests
from docker.errors import APIError, DockerException, ImageNotFound

from scripts.errors import KitError, NothingRuns, PreflightError

TAG = re.compile(r"llm-repro/(?P<backend>[^:]+):(?P<stack>.+)-[0-9a-f]{12}")

#: What shows that Docker itself is gone, or its answer did not come.
SILENCE = (requests.exceptions.ConnectionError, requests.exceptions.Timeout, requests.exceptions.ChunkedEncodingError)

#: (words in Docker's message, what to say); the first that matches counts, {said} is Docker's own message.
KNOWN = (
    (
        'could not select device driver "cdi"',
        "this Docker gives no GPUs by CDI; update it to 25 or newer and set features.cdi in its daemon.json, or type GPU_MODE=nvidia",
    ),
    (
        "could not select device driver",
        "Docker cannot give GPUs to containers: install the NVIDIA Container Toolkit, "
        "type `sudo nvidia-ctk runtime configure --runtime=docker`, and restart Docker; or type DEVICE=cpu",
    ),
    (
        "CDI device injection failed",
        "Docker does not find the GPU ({said}); type `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, or GPU_MODE=nvidia",
    ),
    ("nvidia-container-cli", "the NVIDIA Container Toolkit failed ({said}); see what `nvidia-smi` says"),
    ("error setting rlimit", "this Docker may not raise limits; leave KIT_MEMLOCK out"),
    ("no space left on device", "Docker's disk is full; make room, for example with `docker builder prune`"),
)


def explain(error: APIError, image_tag: str) -> KitError:
    """An error of Docker's API while a container of this image was made or started."""
    said = " ".join(str(error.explanation or error).split())
    if isinstance(error, ImageNotFound):
        known = TAG.fullmatch(image_tag)
        make = "make build-{backend} STACK={stack}"
        what = make.format(**known.groupdict()) if known else f"docker build -t {image_tag} …"
        return PreflightError(f"the image {image_tag} is not built; type {what}")
    for words, meaning in KNOWN:
        if words in said:
            return PreflightError(meaning.format(said=said))
    return KitError(f"Docker refused to run {image_tag}: {said}")


def unreachable(error: DockerException | OSError, host: str) -> NothingRuns:
    """Why nothing answers at a Docker address."""
    said = str(error)
    if "Permission denied" in said:
        return NothingRuns(f"Docker at {host} is not open to this user; type `sudo usermod -aG docker $USER` and log in again")
    return NothingRuns(
        f"no Docker answers at {host}; install Docker Engine 25 or newer, start it with `sudo systemctl start docker`, "
        "or set DOCKER_HOST if it listens elsewhere"
    )


def gone(run_id: str) -> KitError:
    """Docker stopped answering while a container ran."""
    return KitError(f"Docker stopped answering during {run_id}; nothing was stored. Start it again and type the same command")


def not_removed(container: str, why: str) -> KitError:
    """A container outlived its run."""
    return KitError(f"the container {container} cannot be removed ({why}); type docker rm -f {container}")
