"""Can this machine run a job? The kit asks before any large download, and lists every problem at once, each with the next command."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import backends, compat, forms
from bench.job import Job
from bench.measuring import work
from scripts import pins
from scripts.errors import PreflightError
from scripts.machine.gpus import Gpu
from scripts.pins import Image
from scripts.results import answers
from scripts.units import GIB

#: GPU memory beyond the weights: CUDA context, workspace, activations, cache of the articles' short prompts.
OVERHEAD_BYTES = int(2.5 * GIB)

#: Disk space for an unpacked image and the cache of its build.
IMAGE_BYTES = 14 * GIB

#: Disk space for results, logs and traces.
RESULTS_BYTES = 64 << 20


@dataclass(frozen=True)
class Machine:
    """The facts that decide: this machine's, or recorded ones in the tests."""

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


def driver_runs(cuda_driver: str, cuda: str) -> bool:
    """Does a driver that runs CUDA up to `cuda_driver` ("" where it does not say) run a torch of this CUDA ("" for none)? Minor versions are compatible."""
    return not cuda or not cuda_driver or int(cuda_driver.split(".")[0]) >= int(cuda.split(".")[0])


def gpu_need_bytes(job: Job, parameters: int) -> int:
    """The memory that one GPU needs for a full-size model: its share of the weights, and OVERHEAD_BYTES."""
    if "memory_limit_bytes" in job.load:
        return int(job.load["memory_limit_bytes"]) + OVERHEAD_BYTES
    return share_bytes(parameters * work.VALUE_BYTES[job.load["dtype"]], 1 if _is_on_one_gpu(job) else job.device_count)


def _is_on_one_gpu(job: Job) -> bool:
    return backends.is_on_one_gpu(backends.find(job.backend))


def share_bytes(weights_bytes: int, count: int) -> int:
    """The memory that each of `count` GPUs needs: its share of the weights, and OVERHEAD_BYTES."""
    return weights_bytes // count + OVERHEAD_BYTES


def loading_bytes(job: Job, image: Image, parameters: int) -> int:
    """The host memory that loading a full-size model takes: two bytes a parameter, for the mapped pages of its file.

    Each process of a float32 model first holds the whole model in host memory, unless the weights go from their file straight onto the GPU.
    """
    if job.load.get("dtype") != "float32" or not forms.loads(forms.find(job.form)) or _goes_past_host_memory(job, image):
        return parameters * 2
    return parameters * work.VALUE_BYTES["float32"] * (job.device_count if answers.has_ranks(job) else 1)


def _goes_past_host_memory(job: Job, image: Image) -> bool:
    """Do the weights of a job's backend go from their file straight onto the GPU? Two backends need a newer library for that (bench/models/pretrained.py)."""
    by_library = job.backend in ("transformers", "compiled") and compat.loads_straight(image.pins["transformers"].version)
    return job.device == "cuda" and (job.backend == "layer-parallel" or by_library)


def problems(job: Job, image: Image, parameters: int, machine: Machine, new_bytes: int) -> list[str]:
    """Everything that stands in the way, one line each, with what to type; empty when nothing does.

    `new_bytes` is what the disk still has to take: weights, and the image.
    """
    room = _memory_problems(job, parameters, machine, loading_bytes(job, image, parameters)) if job.model["scale"] == "full" else []
    return [*_torch_problems(image, machine), *room, *disk_problems(machine, new_bytes)]


def _torch_problems(image: Image, machine: Machine) -> Iterator[str]:
    """GPUs for which the image's torch or its kernels hold no code, and a driver that does not run the image's CUDA."""
    foreign = _foreign(machine, image.arch_list)
    if foreign:
        holds = f"torch {image.pins['torch'].version} of the stack {image.stack} holds code for {', '.join(image.arch_list)} only"
        yield f"{foreign.name} is {_sm(foreign)}, but {holds}; type {_stacks_for(machine, image) or 'GPU_IDS= of another GPU'}"
    elif image.kernels_arch_list and (foreign := _foreign(machine, image.kernels_arch_list)):
        holds = f"the kernels of {image.backend} on the stack {image.stack} are compiled for {', '.join(image.kernels_arch_list)} only"
        yield f"{foreign.name} is {_sm(foreign)}, but {holds}; type {_stacks_for(machine, image) or 'another backend'}"
    if machine.gpus and not driver_runs(machine.cuda_driver, image.cuda):
        able = _stacks_for(machine, image)
        needs = f"the driver runs CUDA up to {machine.cuda_driver}, the stack {image.stack} needs CUDA {image.cuda}"
        yield f"{needs}; update the driver{f', or type {able}' if able else ''}"


def _foreign(machine: Machine, arch_list: tuple[str, ...]) -> Gpu | None:
    """The first GPU that runs no code for these architectures."""
    return next((gpu for gpu in machine.gpus if not runs_on(gpu.compute_capability, arch_list)), None)


def _sm(gpu: Gpu) -> str:
    return "sm_" + gpu.compute_capability.replace(".", "")


def _stacks_for(machine: Machine, instead_of: Image) -> str:
    """What to type in place of a stack that the GPUs or their driver do not run, the stack's port for newer GPUs first; "" where they run no stack of the
    backend."""
    loaded = pins.load()
    images = (image for image in loaded.images() if image.backend == instead_of.backend and driver_runs(machine.cuda_driver, image.cuda))
    able = [image.stack for image in images if not any(_foreign(machine, archs) for archs in (image.arch_list, image.kernels_arch_list) if archs)]
    able.sort(key=lambda stack: loaded.stacks[stack].get("port_of") != instead_of.stack)
    return f"STACK={' or '.join(able)}" if able else ""


def _memory_problems(job: Job, parameters: int, machine: Machine, loaded_bytes: int) -> Iterator[str]:
    need, on_one = gpu_need_bytes(job, parameters), _is_on_one_gpu(job)
    small = next((gpu for gpu in machine.gpus[: 1 if on_one else None] if gpu.memory_total_bytes < need), None)
    if small:
        where, more = ("one", "GPU_IDS= of a larger GPU") if on_one else (f"each of {job.device_count}", f"GPUS={job.device_count + 1}")
        has = f"GPU {small.index} has {small.memory_total_bytes / GIB:.0f} GiB"
        yield f"{has}, {job.case} needs about {need / GIB:.0f} GiB on {where}; type {more} or SCALE=tiny"
    if machine.memory_available_bytes < loaded_bytes:
        yield (
            f"{machine.memory_available_bytes / GIB:.0f} GiB of host memory are available, loading needs about {loaded_bytes / GIB:.0f} GiB; "
            "close other programs or type SCALE=tiny"
        )


def disk_problems(machine: Machine, needed_bytes: int) -> Iterator[str]:
    """Disks that lack room: for `needed_bytes` where the models lie, or for results."""
    if machine.models_free_bytes < needed_bytes:
        free = f"{machine.models_free_bytes / GIB:.0f} GiB of disk are free"
        yield f"{free}, about {needed_bytes / GIB:.0f} GiB are needed; type MODELS=/another/disk or `make clean`"
    if machine.runs_free_bytes < RESULTS_BYTES:
        yield (
            f"{machine.runs_free_bytes >> 20} MiB are free where the results go; free at least {RESULTS_BYTES >> 20} MiB there, or type RUNS=/another/folder"
        )


def this_machine(gpus: list[Gpu], cuda_driver: str, models: Path, runs: Path) -> Machine:
    import psutil

    def free(path: Path) -> int:
        while not path.exists():
            path = path.parent
        return shutil.disk_usage(path).free

    return Machine(gpus, cuda_driver, psutil.virtual_memory().available, free(models), free(runs))


def check(lines: list[str]) -> None:
    """Raise PreflightError with all problems, unless there are none."""
    if lines:
        raise PreflightError("\n       ".join(lines))
