"""Can this machine do it? Asked before a gigabyte moves; every problem at once, each with the next command."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from bench.job import Job
from scripts.errors import PreflightError
from scripts.gpus import Gpu
from scripts.pins import Image

GIB = 1 << 30

BYTES_OF = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}

#: GPU memory beyond the weights: CUDA context, workspace, activations, cache of the articles' short prompts.
OVERHEAD_BYTES = int(2.5 * GIB)

#: Of an installed image, unpacked, with the cache of its build.
IMAGE_BYTES = 14 * GIB


@dataclass(frozen=True)
class Machine:
    """The facts that decide: recorded ones in the tests, this machine's in use."""

    gpus: list[Gpu]
    cuda_driver: str
    memory_available_bytes: int
    models_free_bytes: int
    runs_free_bytes: int


def runs_on(capability: str, arch_list: tuple[str, ...]) -> bool:
    """Does a GPU of this compute capability run code for one of these architectures?

    Machine code runs on the same major version at the same or a higher minor one; "compute_NN" is PTX, which the
    driver compiles for anything newer (CUDA C++ Programming Guide, "Application Compatibility").
    """
    major, minor = (int(part) for part in capability.split("."))
    for arch in arch_list:
        kind, digits = arch.split("_")
        digits = digits.rstrip("af")
        code = (int(digits[:-1]), int(digits[-1]))
        if kind == "sm" and code[0] == major and code[1] <= minor:
            return True
        if kind == "compute" and code <= (major, minor):
            return True
    return False


def gpu_need_bytes(job: Job, parameters: int) -> int:
    """What one GPU has to hold of a full-size model: its share of the weights, and the rest."""
    if "memory_limit_bytes" in job.load:
        return job.load["memory_limit_bytes"] + OVERHEAD_BYTES
    return parameters * BYTES_OF[job.load["dtype"]] // job.device_count + OVERHEAD_BYTES


def problems(job: Job, image: Image, parameters: int, machine: Machine, weights_bytes: int, docker: bool, built: bool) -> list[str]:
    """Everything that stands in the way, one line each, with what to type; empty when nothing does."""
    found = []
    for gpu in machine.gpus:
        if not runs_on(gpu.compute_capability, image.arch_list):
            sm = "sm_" + gpu.compute_capability.replace(".", "")
            torch = image.pins["torch"].version
            others = "STACK=current, or STACK=hopper for Hopper" if image.stack != "current" else "GPU_IDS= of another GPU"
            found.append(
                f"{gpu.name} is {sm}, but torch {torch} of the stack {image.stack} holds code for {', '.join(image.arch_list)} only; "
                f"type {others}"
            )
            break
    if machine.gpus and image.cuda and machine.cuda_driver and int(machine.cuda_driver.split(".")[0]) < int(image.cuda.split(".")[0]):
        found.append(
            f"the driver runs CUDA up to {machine.cuda_driver}, the stack {image.stack} needs CUDA {image.cuda}; update the driver or type STACK=2023-02"
        )
    if job.model["scale"] == "full":
        need = gpu_need_bytes(job, parameters)
        for gpu in machine.gpus:
            if gpu.memory_total_bytes < need:
                found.append(
                    f"GPU {gpu.index} has {gpu.memory_total_bytes / GIB:.0f} GiB, {job.case} needs about {need / GIB:.0f} GiB on each of "
                    f"{job.device_count}; type GPUS={job.device_count + 1} or SCALE=tiny"
                )
                break
        if machine.memory_available_bytes < weights_bytes:
            found.append(
                f"{machine.memory_available_bytes / GIB:.0f} GiB of host memory are available, loading needs about {weights_bytes / GIB:.0f} GiB; "
                "close other programs or type SCALE=tiny"
            )
    needed = weights_bytes + (IMAGE_BYTES if docker and not built else 0)
    if machine.models_free_bytes < needed:
        found.append(
            f"{machine.models_free_bytes / GIB:.0f} GiB of disk are free, about {needed / GIB:.0f} GiB are needed; type MODELS=/another/disk or `make clean`"
        )
    if machine.runs_free_bytes < 64 << 20:
        found.append(f"{machine.runs_free_bytes >> 20} MiB are free where the results go; free at least 64 MiB there, or type RUNS=/another/folder")
    return found


def this_machine(gpus: list[Gpu], cuda_driver: str, models: Path, runs: Path) -> Machine:
    import psutil

    def free(path: Path) -> int:
        while not path.exists():
            path = path.parent
        return shutil.disk_usage(path).free

    return Machine(gpus, cuda_driver, psutil.virtual_memory().available, free(models), free(runs))


def check(found: list[str]) -> None:
    """Raise PreflightError with all problems, unless there are none."""
    if found:
        raise PreflightError("\n       ".join(found))
