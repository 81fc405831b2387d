"""Podman's service, which speaks Docker's API: where it listens, and which version it is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts import surroundings
from scripts.containers import restrictions
from scripts.containers.docker_library import docker
from scripts.errors import NothingRuns, PreflightError

#: The first version whose API heeds a request for a GPU by its CDI name; earlier versions ignore the request without an error.
FIRST_WITH_GPUS = (5, 4)

START = "start its service with `systemctl --user start podman.socket`, or set CONTAINER_HOST to the address of its service"


def connect() -> docker.DockerClient:
    """A client of the Podman at CONTAINER_HOST, DOCKER_HOST or its usual sockets, in this order.

    Raises NothingRuns where none answers, PreflightError where another engine does.
    """
    host = _address(surroundings.current().variables)
    try:
        client = docker.DockerClient(base_url=host, version="auto", timeout=60)
        is_podman = bool(version(client))
    except (docker.errors.DockerException, OSError, ValueError) as error:  # ValueError for a malformed address
        raise NothingRuns(f"no Podman answers at {host}; {START}") from error
    if not is_podman:
        raise PreflightError(f"the engine at {host} is Docker and not Podman; type ENGINE=docker, or {START}")
    return client


def version(client: docker.DockerClient) -> tuple[int, ...]:
    """The version of the Podman behind a client, for example (5, 8, 6); () where the engine is another."""
    listed = [part for part in client.version().get("Components") or [] if isinstance(part, Mapping)]
    of_podman = [str(part.get("Version")) for part in listed if part.get("Name") == "Podman Engine"]
    return tuple(int(number) for number in re.findall(r"\d{1,6}", of_podman[0])[:3]) if of_podman else ()


def refuse(client: docker.DockerClient) -> None:
    """Raise PreflightError where Docker was asked for and Podman answers."""
    if version(client):
        raise PreflightError("the engine that answers is Podman and not Docker; type ENGINE=podman, or set DOCKER_HOST to Docker's socket")


def sets_limits(info: Mapping[str, Any]) -> bool:
    """Do the limits of memory and cores hold? Without root Podman sets none where the kernel has cgroups of version 1, and does not say so."""
    return info.get("CgroupVersion") != "1" or not restrictions.is_rootless(info)


def chooses_cores(info: Mapping[str, Any], cgroups: Path = Path("/sys/fs/cgroup")) -> bool:
    """May a container be kept on cores? Podman without root, with cgroups of version 2, refuses unless the controller cpuset is delegated to the user."""
    if info.get("CgroupVersion") == "1" or not restrictions.is_rootless(info):
        return True
    user = os.getuid()
    try:
        return "cpuset" in (cgroups / f"user.slice/user-{user}.slice/user@{user}.service/cgroup.controllers").read_text(encoding="utf-8").split()
    except OSError:
        return False


def _address(variables: Mapping[str, str]) -> str:
    """The first address that is set, else the user's socket; root's socket where root runs the kit and has no user's socket."""
    for name in ("CONTAINER_HOST", "DOCKER_HOST"):
        if variables.get(name):
            return variables[name]
    of_user = Path(variables.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}") / "podman/podman.sock"
    of_root = Path("/run/podman/podman.sock")
    return f"unix://{of_user if of_user.exists() or os.getuid() != 0 else of_root}"
