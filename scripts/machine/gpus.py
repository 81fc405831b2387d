"""The GPUs of this machine, as the driver's NVML sees them: list, choose and lock, watch their memory.

Everything goes by UUID. Where there is no NVIDIA driver there are no GPUs, and nothing here fails.
"""

import contextlib
import threading
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from scripts.errors import NothingRuns, PreflightError
from scripts.machine import locks
from scripts.units import GIB

#: More memory in use than this means that somebody works on the GPU, even where their process cannot be seen.
IDLE_BYTES = GIB

NO_DRIVER = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)


@dataclass(frozen=True)
class Gpu:
    """One GPU; `index` is NVML's, `memory_used_bytes` is of the moment it was listed, `pci_bus_id` "" where the driver does not tell it."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    memory_used_bytes: int
    compute_capability: str
    pci_bus_id: str = ""


@contextlib.contextmanager
def _nvml() -> Iterator[bool]:
    """NVML for a while; yields whether there is a driver. Any trouble becomes one line."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in NO_DRIVER:
            yield False
            return
        raise _trouble(error) from error
    try:
        yield True
    except pynvml.NVMLError as error:
        raise _trouble(error) from error
    finally:
        pynvml.nvmlShutdown()


def _trouble(error: pynvml.NVMLError) -> NothingRuns:
    said = str(error).rstrip(".")
    return NothingRuns(f"the NVIDIA driver does not answer ({said}); see what `nvidia-smi` says, or type DEVICE=cpu")


def _memory(handle: object) -> tuple[int, int]:
    """(total, used) bytes; as `nvidia-smi` counts, without what the driver keeps for itself, unless it is too old."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return memory.total, memory.used


def _gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    total, used = _memory(handle)
    capability = "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    return Gpu(index, pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle), total, used, capability, _pci_bus_id(handle))


def _pci_bus_id(handle: object) -> str:
    with contextlib.suppress(pynvml.NVMLError):
        told = pynvml.nvmlDeviceGetPciInfo(handle).busId
        return told.decode() if isinstance(told, bytes) else str(told)
    return ""


def list_gpus() -> list[Gpu]:
    """Every GPU; none where there is no driver. Raises PreflightError where there is one that does not answer."""
    with _nvml() as there:
        return [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())] if there else []


def driver() -> dict[str, str] | None:
    """{"driver": "580.65", "cuda_driver": "13.0"}, the second being the newest CUDA it runs; None without a driver."""
    with _nvml() as there:
        if not there:
            return None
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        return {"driver": pynvml.nvmlSystemGetDriverVersion(), "cuda_driver": f"{cuda // 1000}.{cuda % 1000 // 10}"}


@contextlib.contextmanager
def select(count: int | None = None, ids: Sequence[int] | None = None, allow_busy: bool = False) -> Iterator[list[Gpu]]:
    """Hold `count` free GPUs, or exactly those of `ids`, until the end of the block.

    Free is what no other run of this user holds and no foreign process works on; `allow_busy` leaves the second out.
    Raises PreflightError, which names the value, what there is, and what to type.
    """
    wanted = f"GPU_IDS={','.join(map(str, ids))}" if ids else f"GPUS={count}"
    candidates = _candidates(wanted, count, ids)
    needed = len(ids) if ids else count or 1
    with contextlib.ExitStack() as held:
        chosen: list[Gpu] = []
        refused: list[str] = []
        for gpu in candidates:
            if len(chosen) == needed:
                break
            reason = _take(gpu, held, allow_busy)
            if reason:
                refused.append(f"GPU {gpu.index} {reason}")
            else:
                chosen.append(gpu)
        if len(chosen) < needed:
            reasons = "; ".join(refused)
            raise PreflightError(f"{wanted}: {reasons}. Wait, type GPU_IDS= with others, or see `nvidia-smi`")
        yield chosen


def _candidates(wanted: str, count: int | None, ids: Sequence[int] | None) -> list[Gpu]:
    """The GPUs to try in turn."""
    present = list_gpus()
    if not present:
        raise NothingRuns(
            f"{wanted}: this machine shows no NVIDIA GPU; install the driver until `nvidia-smi` lists one, or type make demo, which runs tiny models on the CPU"
        )
    there = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in present)
    if ids:
        by_index = {gpu.index: gpu for gpu in present}
        missing = [index for index in ids if index not in by_index]
        if missing:
            raise PreflightError(f"{wanted}: there is no GPU {missing[0]}, this machine has GPU {there}; try GPU_IDS=0")
        return [by_index[index] for index in ids]
    if count and count > len(present):
        raise PreflightError(f"{wanted}: this machine has {len(present)} ({there}); type GPUS={len(present)} or less")
    return present


def _take(gpu: Gpu, held: contextlib.ExitStack, allow_busy: bool) -> str | None:
    """Lock a GPU, or say why not."""
    path = locks.folder() / f"{gpu.uuid}.lock"
    lock = locks.take(path)
    if lock is None:
        return f"is held by another run of this kit, {locks.holder(path)}"
    reason = None if allow_busy else foreign_use(gpu)
    if reason:
        lock.close()
        return f"{reason} (ALLOW_BUSY=1 measures beside it)"
    held.enter_context(lock)
    return None


def foreign_use(gpu: Gpu) -> str | None:
    """What works on a GPU that no run of ours holds."""
    with _nvml():
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        processes = []
        with contextlib.suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if processes:
            return f"is in use by pid {', '.join(str(process.pid) for process in processes)}"
        used = _memory(handle)[1]
    return f"has {used / GIB:.1f} GiB in use" if used > IDLE_BYTES else None


class MemorySampler:
    """Watch the used memory of GPUs, whoever's it is, from a thread of this process, for as long as a `with` block."""

    def __init__(self, gpus: Sequence[Gpu], interval_s: float = 0.05) -> None:
        self._gpus, self._interval_s = list(gpus), interval_s
        self._times = {gpu.uuid: array("d") for gpu in gpus}
        self._used = {gpu.uuid: array("Q") for gpu in gpus}
        self._errors: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpu-memory", daemon=True)

    def __enter__(self) -> "MemorySampler":
        if self._gpus:
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as error:
                raise _trouble(error) from error
            self._sample()  # the baseline: before anything of the run is on the GPU
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._gpus:
            self._stop.set()
            self._thread.join()
            pynvml.nvmlShutdown()

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._sample()

    def _sample(self) -> None:
        """One sample of each GPU. A driver that fails in mid-run costs samples, never the run."""
        for uuid in self._times:
            try:
                used = _memory(pynvml.nvmlDeviceGetHandleByUUID(uuid))[1]
            except pynvml.NVMLError as error:
                self._errors.setdefault(uuid, str(error))
                continue
            self._times[uuid].append(time.time())
            self._used[uuid].append(used)

    def summary(self, phases: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
        """Per GPU the baseline and the peaks in bytes; `phases` is {name: [began, ended]} in seconds since the epoch.

        A phase without a sample has no peak. `error` is the driver's first complaint, or null.
        """
        return [self._of(gpu, phases) for gpu in self._gpus]

    def _of(self, gpu: Gpu, phases: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        times, used = self._times[gpu.uuid], self._used[gpu.uuid]
        by_phase = {}
        for name, (began, ended) in phases.items():
            within = [value for moment, value in zip(times, used, strict=True) if began <= moment <= ended]
            if within:
                by_phase[name] = max(within)
        return {
            "uuid": gpu.uuid,
            "index": gpu.index,
            "baseline_bytes": used[0] if used else None,
            "peak_used_bytes": max(used, default=None),
            "peak_by_phase": by_phase,
            "samples": len(used),
            "error": self._errors.get(gpu.uuid),
        }
