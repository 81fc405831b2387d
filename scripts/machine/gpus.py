"""The GPUs of this machine, as the driver's NVML sees them: list, choose and lock, watch their memory.

GPUs are identified by UUID. A machine without an NVIDIA driver has no GPUs here; that is not an error.
"""

import contextlib
import dataclasses
import functools
import sys
import threading
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pynvml

from scripts.errors import NothingRuns, PreflightError
from scripts.machine import allocation, locks
from scripts.units import GIB

#: A GPU with more memory in use is busy, even where the process that uses it cannot be seen.
IDLE_BYTES = GIB

#: The only remedies for a GPU that the driver has lost (Xid 79).
WHEN_LOST = "see what `nvidia-smi` says, reset it (`sudo nvidia-smi --gpu-reset -i {}`) or reboot the machine"

NO_DRIVER = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)


@dataclass(frozen=True)
class Gpu:
    """One GPU. `index` is NVML's; `pci_bus_id` is "" where the driver does not give it.

    `memory_bytes_per_s` is the nominal rate of its memory, `nvlinks` how many of its NVLinks are up; None where the driver does not tell it.
    """

    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    compute_capability: str
    pci_bus_id: str = ""
    memory_bytes_per_s: int | None = None
    nvlinks: int | None = None


@contextlib.contextmanager
def _nvml() -> Iterator[bool]:
    """NVML within the block; yields whether this machine has a driver. An NVML error becomes one line."""
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
    message = str(error).rstrip(".")
    return NothingRuns(f"the NVIDIA driver does not answer ({message}); see what `nvidia-smi` says, or type DEVICE=cpu")


def _memory(handle: object) -> tuple[int, int]:
    """(total, used) bytes as `nvidia-smi` counts them; an old driver counts its own reserve as used."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return memory.total, memory.used


def _gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    total = _memory(handle)[0]
    capability = "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    facts = _pci_bus_id(handle), _memory_bytes_per_s(handle), _nvlinks(handle)
    return Gpu(index, pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle), total, capability, *facts)


def _nvlinks(handle: object) -> int | None:
    """How many NVLinks are up; None for a GPU without NVLink or with an old driver. A GPU with fewer links than the maximum refuses the other numbers."""
    states = []
    with contextlib.suppress(pynvml.NVMLError):
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            states.append(pynvml.nvmlDeviceGetNvLinkState(handle, link))
    return sum(state == pynvml.NVML_FEATURE_ENABLED for state in states) if states else None


def _memory_bytes_per_s(handle: object) -> int | None:
    """Bus width times highest clock times two, because NVML's cycle has two transfers for every kind of memory."""
    with contextlib.suppress(pynvml.NVMLError):
        bits, mhz = pynvml.nvmlDeviceGetMemoryBusWidth(handle), pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)
        return int(bits) // 8 * 2 * int(mhz) * 10**6 or None
    return None


def _pci_bus_id(handle: object) -> str:
    with contextlib.suppress(pynvml.NVMLError):
        bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
        return bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)
    return ""


def list_gpus() -> list[Gpu]:
    """Every GPU that is not lost; none without a driver. Raises PreflightError where the driver does not answer, or has lost all GPUs."""
    with _nvml() as has_driver:
        found = {index: _unless_lost(index) for index in range(pynvml.nvmlDeviceGetCount())} if has_driver else {}
    present, lost = [gpu for gpu in found.values() if gpu], [index for index, gpu in found.items() if not gpu]
    if lost and not present:
        raise NothingRuns(f"the driver has lost GPU {', '.join(map(str, lost))}, and there is no other; {WHEN_LOST.format(lost[0])}, or type DEVICE=cpu")
    for index in lost:
        _tell_of_lost(index)
    return present


def _lost(present: Sequence[Gpu]) -> list[int]:
    """The numbers of the GPUs that are not among those present."""
    with _nvml() as has_driver:
        return sorted(set(range(pynvml.nvmlDeviceGetCount())) - {gpu.index for gpu in present}) if has_driver else []


def _unless_lost(index: int) -> Gpu | None:
    try:
        return _gpu(index)
    except pynvml.NVMLError_GpuIsLost:
        return None


@functools.cache
def _tell_of_lost(index: int) -> None:
    print(f"note: the driver has lost GPU {index}, so no run takes it; {WHEN_LOST.format(index)}", file=sys.stderr, flush=True)


def handle_of(gpu: Gpu) -> Any:
    """NVML's handle of a GPU. Where another GPU is lost, NVML finds no GPU by its UUID, so the index is used. Raises NVMLError."""
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    except pynvml.NVMLError_GpuIsLost:
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        if pynvml.nvmlDeviceGetUUID(handle) != gpu.uuid:
            raise
        return handle


def _mig_instance(uuid: str) -> Gpu | None:
    """A MIG instance by its whole UUID, with its own name and memory, its GPU's index, and neither memory rate nor links, which the whole GPU has.

    None where this machine has no such instance.
    """
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        parent = _gpu(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)))
    except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
        return None
    name, total = pynvml.nvmlDeviceGetName(handle), _memory(handle)[0]
    return dataclasses.replace(parent, uuid=uuid, name=name, memory_total_bytes=total, memory_bytes_per_s=None, nvlinks=None)


def given() -> list[Gpu]:
    """The GPUs that this process may use: those of its allocation (scripts/machine/allocation.py), all without an allocation.

    Raises PreflightError where the allocation names a GPU that is not there, and where the driver does not answer.
    """
    present = list_gpus()
    if not present:
        return []
    with _nvml():
        instances = [_mig_instance(word) for word in allocation.words() if word.startswith(allocation.MIG)]
    chosen = allocation.of([*present, *filter(None, instances)], _lost(present))
    return chosen if allocation.typed() else present


def limits() -> str:
    """What limits the kit to some of this machine's GPUs, in words; "" where nothing does."""
    count, ours = len(list_gpus()), given()
    if not count or not allocation.typed() or (len(ours) == count and not any(gpu.uuid.startswith(allocation.MIG) for gpu in ours)):
        return ""
    return f"{allocation.typed()} gives {len(ours)} of this machine's {count} GPUs ({_listed(ours)}); the kit takes no other"


def _listed(gpus: Sequence[Gpu]) -> str:
    return ", ".join(f"{gpu.index} ({gpu.name})" for gpu in gpus) or "none"


def driver() -> dict[str, str] | None:
    """{"driver": "580.65", "cuda_driver": "13.0"}; `cuda_driver` is the newest CUDA that the driver runs. None without a driver."""
    with _nvml() as has_driver:
        if not has_driver:
            return None
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        return {"driver": pynvml.nvmlSystemGetDriverVersion(), "cuda_driver": f"{cuda // 1000}.{cuda % 1000 // 10}"}


@contextlib.contextmanager
def select(count: int | None = None, ids: Sequence[int] | None = None, allow_busy: bool = False, instead: str = "make demo") -> Iterator[list[Gpu]]:
    """Hold `count` free GPUs, or exactly those of `ids`, until the end of the block.

    A GPU is free where no other run of the kit holds it, whoever runs it, and no foreign process works on it; `allow_busy` skips the second condition.
    Raises PreflightError, which names the value, the GPUs of this machine, and the next command: `instead` on a machine without any.
    """
    typed = f"GPU_IDS={','.join(map(str, ids))}" if ids else f"GPUS={count}"
    candidates = _candidates(typed, count, ids, instead)
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
            raise PreflightError(f"{typed}: {reasons}. Wait, type GPU_IDS= with others, or see `nvidia-smi`")
        yield chosen


def _candidates(typed: str, count: int | None, ids: Sequence[int] | None, instead: str) -> list[Gpu]:
    """The GPUs to try in turn; `typed` is what the user typed, for the messages."""
    present = list_gpus()
    if not present:
        raise NothingRuns(
            f"{typed}: this machine shows no NVIDIA GPU; install its driver, so that `nvidia-smi` lists the GPU"
            + (f", or type {instead}, for tiny models on the CPU" if instead else "")
        )
    ours = given()
    if not ours:
        raise allocation.refuse_none(typed)
    having = f"{allocation.typed()} gives" if allocation.typed() else "this machine has"
    if ids:
        lost = set(_lost(present))
        gone = [index for index in ids if index in lost]
        if gone:
            others = f"type GPU_IDS= with others of GPU {_listed(ours)}"
            raise PreflightError(f"{typed}: the driver has lost GPU {gone[0]}; {WHEN_LOST.format(gone[0])}, or {others}")
        by_index = {gpu.index: gpu for gpu in ours}
        missing = [index for index in ids if index not in by_index]
        if missing:
            raise PreflightError(f"{typed}: there is no GPU {missing[0]}, {having} GPU {_listed(ours)}; try GPU_IDS={ours[0].index}")
        return [by_index[index] for index in ids]
    if count and count > len(ours):
        raise PreflightError(f"{typed}: {having} {len(ours)} ({_listed(ours)}); type GPUS={len(ours)} or less")
    return ours


def _take(gpu: Gpu, held: contextlib.ExitStack, allow_busy: bool) -> str | None:
    """Lock a GPU until `held` closes; returns why that is impossible, or None."""
    path = locks.gpu_folder() / f"{gpu.uuid}.lock"
    try:
        lock = locks.take(path, locks.FOR_EVERYBODY)
    except OSError as error:  # what another user put there, or a full disk
        return f"cannot be locked ({path}: {error.strerror}; remove it, or type KIT_LOCKS=/another/folder)"
    if lock is None:
        return f"is held by another run of this kit, {locks.holder(path)}"
    reason = None if allow_busy else foreign_use(gpu)
    if reason:
        lock.close()
        return f"{reason} (ALLOW_BUSY=1 measures beside it)"
    held.enter_context(lock)
    return None


def foreign_use(gpu: Gpu) -> str | None:
    """Who uses a GPU that no run of the kit holds, in words; None where it is idle."""
    with _nvml():
        handle = handle_of(gpu)
        processes = []
        with contextlib.suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if processes:
            return f"is in use by pid {', '.join(str(process.pid) for process in processes)}"
        used = _memory(handle)[1]
    return f"has {used / GIB:.1f} GiB in use" if used > IDLE_BYTES else None


class Sampler:
    """Look at GPUs every `interval_s` seconds, from a thread of this process, within a `with` block; a subclass keeps what it sees.

    A driver that fails during a run costs samples, never the run: `_errors` has its first complaint about each GPU.
    """

    def __init__(self, gpus: Sequence[Gpu], interval_s: float, name: str) -> None:
        self._gpus, self._interval_s = list(gpus), interval_s
        self._errors: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def __enter__(self) -> Self:
        if self._gpus:
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as error:
                raise _trouble(error) from error
            self._look()  # before the run uses the GPU
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._gpus:
            self._stop.set()
            self._thread.join()
            pynvml.nvmlShutdown()

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._look()

    def _look(self) -> None:
        for gpu in self._gpus:
            try:
                self._keep(gpu.uuid, handle_of(gpu))
            except pynvml.NVMLError as error:
                self._errors.setdefault(gpu.uuid, str(error))

    def _keep(self, uuid: str, handle: Any) -> None:
        """Read and keep one sample of a GPU; may raise NVMLError."""
        raise NotImplementedError


class MemorySampler(Sampler):
    """Sample the used memory of GPUs, of all processes together; the first sample is the baseline."""

    def __init__(self, gpus: Sequence[Gpu], interval_s: float = 0.05) -> None:
        super().__init__(gpus, interval_s, "gpu-memory")
        self._times = {gpu.uuid: array("d") for gpu in gpus}
        self._used = {gpu.uuid: array("Q") for gpu in gpus}

    def _keep(self, uuid: str, handle: Any) -> None:
        used = _memory(handle)[1]
        self._times[uuid].append(time.time())
        self._used[uuid].append(used)

    def summary(self, phases: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
        """The baseline and the peaks of each GPU in bytes; `phases` is {name: [began, ended]} in seconds since the epoch.

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
