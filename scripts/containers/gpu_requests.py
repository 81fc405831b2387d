"""Ask Docker for GPUs, by CDI device name or through the NVIDIA Container Toolkit, or Podman, which knows CDI names alone.

GPU_MODE is `auto` (the default: CDI where a spec of this machine names the chosen GPUs, else the toolkit), `cdi`, or
`nvidia` (the toolkit).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts.containers import podman
from scripts.containers.docker_library import docker
from scripts.errors import PreflightError
from scripts.machine import allocation
from scripts.machine.gpus import Gpu

KIND = "nvidia.com/gpu"

#: Where Podman reads CDI specs. Its API does not report them.
FOLDERS_OF_PODMAN = ("/etc/cdi", "/var/run/cdi")

GENERATE = "type `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"


def requests(client: docker.DockerClient, gpus: Sequence[Gpu], mode: str = "auto") -> list[docker.types.DeviceRequest]:
    """The device requests that show a container exactly these GPUs; [] without GPUs. Raises PreflightError."""
    if not gpus:
        return []
    of_podman = podman.version(client)
    if of_podman:
        return [_request_to_podman(of_podman, gpus)]
    named = cdi_names(cdi_devices(client.info()), gpus)
    if mode == "cdi" and not named:
        raise PreflightError(f"GPU_MODE=cdi: no CDI spec names GPU {', '.join(str(gpu.index) for gpu in gpus)}; {GENERATE}, or GPU_MODE=nvidia")
    if named and mode != "nvidia":
        return [docker.types.DeviceRequest(driver="cdi", device_ids=named)]
    return [docker.types.DeviceRequest(device_ids=[gpu.uuid for gpu in gpus], capabilities=[["gpu"]])]


def _request_to_podman(version: tuple[int, ...], gpus: Sequence[Gpu]) -> docker.types.DeviceRequest:
    """A request by CDI names, because Podman ignores one in the form of the toolkit, and starts the container without GPUs."""
    if version < podman.FIRST_WITH_GPUS:
        shown = ".".join(map(str, version))
        raise PreflightError(f"Podman {shown} ignores requests for GPUs; update it to 5.4 or newer, or type ENGINE=apptainer or DEVICE=cpu")
    named = cdi_names(cdi_devices({"CDISpecDirs": FOLDERS_OF_PODMAN}), gpus)
    if not named:
        indices = ", ".join(str(gpu.index) for gpu in gpus)
        raise PreflightError(f"no CDI spec in {' or '.join(FOLDERS_OF_PODMAN)} names GPU {indices}, and Podman takes GPUs by CDI names alone; {GENERATE}")
    return docker.types.DeviceRequest(driver="cdi", device_ids=named)


def cdi_names(known: set[str], gpus: Sequence[Gpu]) -> list[str]:
    """The CDI names of all these GPUs, by UUID where the spec has it, else by index; [] where a GPU has no name.

    An index that is valid only in this process may name another GPU to Docker, and the index of a MIG instance names its whole GPU.
    """

    def names_of(gpu: Gpu) -> list[str]:
        only_uuid = gpu.uuid.startswith(allocation.MIG) or allocation.may_be_renumbered()
        return [gpu.uuid] if only_uuid else [gpu.uuid, str(gpu.index)]

    names = [next((name for name in names_of(gpu) if name in known), None) for gpu in gpus]
    return [] if None in names else [f"{KIND}={name}" for name in names]


def cdi_devices(info: Mapping[str, Any]) -> set[str]:
    """The device names that Docker can inject: those it reports, and those in the spec folders that it reads."""
    reported = [device["ID"].partition("=") for device in info.get("DiscoveredDevices") or []]
    specs = [spec for spec in _specs(info.get("CDISpecDirs") or []) if spec.get("kind") == KIND]
    return {name for kind, _, name in reported if kind == KIND} | {str(device.get("name")) for spec in specs for device in spec.get("devices") or []}


def _specs(folders: Iterable[str]) -> list[dict[str, Any]]:
    """The CDI specs in these folders; Docker skips a file that cannot be read, and so does the kit."""
    specs = []
    paths = [path for folder in folders for path in Path(folder).glob("*") if path.suffix in (".yaml", ".yml", ".json")]
    for path in paths:
        try:
            specs.append(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, yaml.YAMLError):
            continue
    return [spec for spec in specs if isinstance(spec, dict)]
