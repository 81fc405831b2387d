"""What a job's container may do: compute, write its own folder and /tmp, and nothing else."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import surroundings
from scripts.containers.docker_library import docker
from scripts.errors import PreflightError
from scripts.machine.gpus import Gpu
from scripts.units import GIB

#: The environment variables that every container gets beside its image's own. With GPUs it also gets the machine's settings between GPUs, without them
#: the number of threads (`surroundings`); it inherits nothing else of this process.
ENVIRONMENT = {
    "HOME": "/tmp",
    "USER": "bench",  # libraries ask for the user's name, and an image knows none for a user id of the host
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

#: The size of a job's /tmp.
TMP_BYTES = 4 * GIB

#: The user of a container where root runs the kit.
NOBODY = 10001

#: The restrictions that a container can run without, to measure what each costs; no job that counts runs without one.
LOOSENABLE = ("shm", "seccomp", "memlock")


def settings(machine_bytes: int, memory_bytes: int | None, memlock: bool = False, cores: str = "") -> dict[str, Any]:
    """The settings of every container on a machine with `machine_bytes` of memory.

    Without `memory_bytes` a container gets nearly all memory and no swap: a job that needs more dies, and not its neighbours.
    /tmp allows execution because kernel compilers put their libraries there. `memlock` lets the container lock any amount of memory.
    `cores` are the processor cores that it stays on, "" for all.
    """
    limit = memory_bytes or machine_bytes - max(GIB // 2, machine_bytes // 20)
    unlimited = [docker.types.Ulimit(name="memlock", soft=-1, hard=-1)] if memlock else []
    kept_on = {"cpuset_cpus": cores} if cores else {}
    return kept_on | {
        "read_only": True,
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={TMP_BYTES}"},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "network_mode": "none",
        "ipc_mode": "private",
        "shm_size": min(16 * GIB, machine_bytes // 2),  # ranks exchange data through it
        "pids_limit": 8192,
        "init": True,
        "mem_limit": limit,
        "memswap_limit": limit,
        "ulimits": unlimited,
        "working_dir": "/kit",
        "environment": ENVIRONMENT,
        "use_config_proxy": False,  # a proxy's address may hold a password
        "log_config": docker.types.LogConfig(type="none"),  # the runner reads the output while the job runs
    }


def without(restriction: str) -> dict[str, Any]:
    """The settings that differ in a container without one of `LOOSENABLE`; "" for none."""
    of_job = settings(GIB, None, memlock=True)
    if restriction == "shm":
        return {"ipc_mode": "host", "shm_size": None}  # the machine's own shared memory
    if restriction == "seccomp":
        return {"security_opt": [*of_job["security_opt"], "seccomp=unconfined"]}
    if restriction == "memlock":
        return {"ulimits": of_job["ulimits"]}
    return {}


def for_compose() -> dict[str, Any]:
    """The same settings under Compose's names, without the limits that depend on the machine's memory; /tmp and /dev/shm get their largest size."""
    of_run = settings(32 * GIB, None)
    same = ("read_only", "cap_drop", "security_opt", "network_mode", "shm_size", "pids_limit", "init", "working_dir", "environment")
    return {
        "pull_policy": "never",
        "user": f"{NOBODY}:{NOBODY}",
        **{name: of_run[name] for name in same},
        "ipc": of_run["ipc_mode"],
        "tmpfs": [f"{place}:{options}" for place, options in of_run["tmpfs"].items()],
        "logging": {"driver": of_run["log_config"].type},
    }


@dataclasses.dataclass(frozen=True)
class Folders:
    """The folders of this machine that a job sees.

    work    /run/job, the only one that it may write
    bench   /kit/bench, read-only
    models  /models, read-only
    linked  the targets of links in `models`, read-only at their own paths
    """

    work: Path
    bench: Path
    models: Path | None = None
    linked: Sequence[Path] = ()

    @property
    def read_only(self) -> list[Path]:
        return [folder for folder in (self.bench, self.models, *self.linked) if folder]

    def mounts(self) -> list[docker.types.Mount]:
        models = [_mount("/models", self.models)] if self.models else []
        linked = [_mount(str(folder), folder) for folder in self.linked]
        return [_mount("/run/job", self.work, read_only=False), _mount("/kit/bench", self.bench), *models, *linked]


def _mount(target: str, source: Path, read_only: bool = True) -> docker.types.Mount:
    return docker.types.Mount(target, str(source.resolve()), type="bind", read_only=read_only)


def environment(image_environment: Mapping[str, str], gpus: Sequence[Gpu] = (), driver_libraries: str = "") -> list[str]:
    """The words of `env` before a command, which give it the variables of image and kit, as Docker would, and no others.

    With `gpus`, CUDA takes these alone, and `driver_libraries` is where an engine puts the driver's libraries, "" where programs find them by themselves.
    """
    own = dict(image_environment) | ENVIRONMENT | surroundings.current().inside(on_gpus=bool(gpus))
    if gpus:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
    if gpus and driver_libraries:
        own["LD_LIBRARY_PATH"] = ":".join(filter(None, (own.get("LD_LIBRARY_PATH"), driver_libraries)))
    return ["env", "-i", *(f"{name}={value}" for name, value in own.items())]


def is_rootless(info: Mapping[str, Any]) -> bool:
    """Does an engine report that it runs without root?"""
    return any("rootless" in option for option in info.get("SecurityOptions") or [])


def user(info: Mapping[str, Any], work_dir: Path) -> str:
    """The user of the container: the kit's user, or, where that is root, an unprivileged user, who becomes the owner of the job's folder."""
    if is_rootless(info):
        return "0:0"  # root in a rootless engine is the user who runs the kit
    if os.getuid() != 0:
        return f"{os.getuid()}:{os.getgid()}"
    for path in (work_dir, *work_dir.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return f"{NOBODY}:{NOBODY}"


def refuse_missing(folders: Iterable[Path]) -> None:
    """Raise PreflightError for a folder that is not there: Podman would make it."""
    for folder in folders:
        if not folder.exists():
            raise PreflightError(f"{folder} is not there, and the job reads it; make it, or name another folder")


def refuse_unreadable(user: str, folders: Iterable[Path]) -> None:
    """Raise PreflightError for a folder that root, the kit's user, may read and the container's user may not."""
    for folder in folders:
        if user.startswith(f"{NOBODY}:") and folder.is_dir() and folder.stat().st_mode & 0o005 != 0o005:
            raise PreflightError(f"{folder} cannot be read by user {NOBODY}, the user of containers where root runs the kit; type chmod -R o+rX {folder}")
