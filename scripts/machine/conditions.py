"""What decides a time beside the software: governor, load and GPU clocks while a run lasts, and marks for what disturbed it.

governors            of the cores, each once; [] where the kernel tells none
cores                that the job was kept on (scripts/machine/cores.py); null for all
load_average_after   of one minute
busy_cores_before    how many cores computed for others, just before the job began and just after it ended
busy_cores_after
pressure             of memory and cpu: the share of the calls' time in which some task waited for it (scripts/machine/pressure.py)
gpus                 for each GPU: {uuid, samples, error, throttled: {reason: samples within the calls}} and, of temperature_c, power_w,
                     sm_clock_mhz and memory_clock_mhz, {before, after} and {least, most} within the calls; null where it cannot be read.
                     power_limit_w: {enforced, default}; persistence_mode; ecc_uncorrected: errors of memory since the driver was loaded,
                     {before, after}; foreign_pids: processes of others that computed on it while the job ran
marks                a line for each thing that makes the times doubtful
disturbed            the marks for which the run judges nothing (docs/verdict-rules.md); results from before version 3 of the rules have none
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pynvml

from scripts.errors import NothingRuns
from scripts.machine import busy, energy, gpus, pressure, signals
from scripts.machine.gpus import Gpu
from scripts.machine.windows import Window
from scripts.units import counted

#: Seconds over which busy cores are counted: long for the kernel's clock of 10 ms, short beside a run.
LOOK_S = 0.1

#: Seconds between two samples; a sample costs the driver some 10 µs.
INTERVAL_S = 0.2

#: Others compute where more cores than one plus this share of all are busy while the job does not run.
SHARE_OF_CORES = 0.05

#: A GPU's processes are listed only at every so many samples, because the driver takes longer for a list than for a sample.
LOOKS_BETWEEN_LISTS = 5

#: Memory is short where some task waited for it in more than this share of the calls' time.
SHARE_OF_WAITS = 0.01

#: The machine's clock may be set forward or back by so many seconds during a run.
CLOCK_S = 1.0

#: NVML's reasons for a clock below the highest, without that of an idle GPU. Clocks that a user set are the user's choice.
REASONS = {
    "applications_clocks_setting": pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting,
    "sw_power_cap": pynvml.nvmlClocksThrottleReasonSwPowerCap,
    "hw_slowdown": pynvml.nvmlClocksThrottleReasonHwSlowdown,
    "sw_thermal_slowdown": pynvml.nvmlClocksThrottleReasonSwThermalSlowdown,
    "hw_thermal_slowdown": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "hw_power_brake": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
}
CHOSEN = ("applications_clocks_setting",)

#: A GPU that reaches its own default limit of power runs as it was built; the run is marked, but still judges.
OWN_LIMIT = "sw_power_cap"

#: {name: how NVML is asked}
READINGS: dict[str, Callable[[Any], float]] = {
    "temperature_c": lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
    "power_w": lambda handle: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "sm_clock_mhz": lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
    "memory_clock_mhz": lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
}


#: {name: how NVML is asked} for values that stay the same during a run.
SETTINGS: dict[str, Callable[[Any], float]] = {
    "enforced": lambda handle: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
    "default": lambda handle: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
    "persistence_mode": pynvml.nvmlDeviceGetPersistenceMode,
}


@dataclass(frozen=True)
class Mark:
    """A thing that makes a run's times doubtful, in words; the run judges nothing where it `disturbs`."""

    words: str
    disturbs: bool = True


@dataclass(frozen=True)
class Sample:
    """One look at a GPU, in seconds since the epoch and by the monotonic clock; `reasons` are NVML's bits. None where the driver does not give a value."""

    moment: float
    monotonic_s: float
    values: dict[str, float | None]
    reasons: int | None
    millijoules: int | None = None
    busy_percent: float | None = None


class Watch(gpus.Sampler):
    """Watches this machine during a `with` block in which a job runs on `watched` GPUs, kept on `cores`.

    `owns` tells whether a process on a GPU is the job's; None where that is unknown. `shared_with` other jobs of the kit may run beside it.
    """

    def __init__(
        self,
        watched: Sequence[Gpu],
        cores: str = "",
        interval_s: float = INTERVAL_S,
        look_s: float = LOOK_S,
        owns: Callable[[int], bool | None] = lambda pid: None,
        shared_with: int = 0,
    ) -> None:
        super().__init__(watched, interval_s, "conditions")
        self._cores, self._look_s, self._owns, self._shared_with = cores, look_s, owns, shared_with
        self._samples: dict[str, list[Sample]] = {gpu.uuid: [] for gpu in watched}
        self._settings: dict[str, dict[str, float | None]] = {gpu.uuid: {} for gpu in watched}
        self._ecc_errors: dict[str, list[float | None]] = {gpu.uuid: [] for gpu in watched}
        self._pids: dict[str, dict[int, bool | None]] = {gpu.uuid: {} for gpu in watched}
        self._in_use: list[int] = []
        self._before = self._after = self._entered = self._left = 0.0
        self._pressure = pressure.Watch(interval_s=interval_s)

    def __enter__(self) -> Self:
        self._in_use = [gpu.index for gpu in self._gpus if _used_by_others(gpu)]
        self._before = busy_cores(self._look_s)
        self._entered = time.time()
        super().__enter__()
        self._pressure.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        with signals.held_back():  # the job has ended, and its measurement needs the complete look
            self._pressure.__exit__(*raised)
            super().__exit__(*raised)
            self._left = time.time()
            self._after = busy_cores(self._look_s)

    def _watch(self) -> None:
        super()._watch()
        self._look()  # once more after the job
        for gpu in self._gpus:
            with contextlib.suppress(pynvml.NVMLError):
                self._ecc_errors[gpu.uuid].append(_reading(_ecc_uncorrected, gpus.handle_of(gpu)))

    def _keep(self, uuid: str, handle: Any) -> None:
        taken = len(self._samples[uuid])
        if not taken:
            self._settings[uuid] = {name: _reading(read, handle) for name, read in SETTINGS.items()}
            self._ecc_errors[uuid].append(_reading(_ecc_uncorrected, handle))
        elif taken % LOOKS_BETWEEN_LISTS == 0:
            self._list_processes(uuid, handle)
        values = {name: _reading(read, handle) for name, read in READINGS.items()}
        reasons = _reading(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        millijoules = _reading(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        busy_percent = _reading(lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu, handle)
        told = None if reasons is None else int(reasons), None if millijoules is None else int(millijoules)
        self._samples[uuid].append(Sample(time.time(), time.monotonic(), values, *told, busy_percent))

    def _list_processes(self, uuid: str, handle: Any) -> None:
        """Keep for each process that computes on a GPU whether it is the job's."""
        with contextlib.suppress(pynvml.NVMLError):
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                if self._pids[uuid].get(process.pid) is None:
                    self._pids[uuid][process.pid] = self._owns(process.pid)

    def _foreign_pids(self, uuid: str) -> list[int]:
        """The pids of others on a GPU; none where no process on any GPU is known to be the job's: then the driver's pids are not those of this machine."""
        if not any(owned for of_gpu in self._pids.values() for owned in of_gpu.values()):
            return []
        return sorted(pid for pid, owned in self._pids[uuid].items() if owned is False)

    def energy(self, asked: Iterable[Window]) -> list[dict[str, Any]]:
        """[{new_tokens, calls, gpus: [what scripts/machine/energy.py gives]}] of the windows; a window of the timed calls has no `calls`."""
        return [window.facts | {"gpus": [self._energy_of(gpu, window) for gpu in self._gpus]} for window in asked if self._gpus]

    def _energy_of(self, gpu: Gpu, window: Window) -> dict[str, Any]:
        readings = [energy.Reading(sample.moment, sample.monotonic_s, sample.millijoules, sample.values["power_w"]) for sample in self._samples[gpu.uuid]]
        return {"uuid": gpu.uuid, **energy.of_window(readings, window.began, window.ended)}

    def busy(self, asked: Iterable[Window]) -> list[dict[str, Any]]:
        """The same list with what scripts/machine/busy.py gives."""
        return [window.facts | {"gpus": [self._busy_of(gpu, window) for gpu in self._gpus]} for window in asked if self._gpus]

    def _busy_of(self, gpu: Gpu, window: Window) -> dict[str, Any]:
        readings = [(sample.moment, sample.busy_percent) for sample in self._samples[gpu.uuid]]
        return {"uuid": gpu.uuid, **busy.of_window(readings, window.began, window.ended)}

    def summary(self, calls: Sequence[float] | None) -> dict[str, Any]:
        """The facts that the module's text lists; `calls` is [began, ended] of the timed calls in seconds since the epoch, None for the whole run."""
        if calls and not self._entered - CLOCK_S <= calls[0] <= calls[1] <= self._left + CLOCK_S:
            calls = None  # so that a guest cannot hide a mark by naming another time
        of_gpus, waits = [self._of(gpu, calls) for gpu in self._gpus], self._pressure.shares(calls)
        marks = [*self._load_marks(), *self._throttle_marks(of_gpus), *self._state_marks(of_gpus), *_pressure_marks(waits["memory"])]
        return {
            "governors": governors(),
            "cores": self._cores or None,
            "load_average_after": round(os.getloadavg()[0], 2),
            "busy_cores_before": round(self._before, 2),
            "busy_cores_after": round(self._after, 2),
            "pressure": waits,
            "gpus": of_gpus,
            "marks": [mark.words for mark in marks],
            "disturbed": [mark.words for mark in marks if mark.disturbs],
        }

    def _of(self, gpu: Gpu, calls: Sequence[float] | None) -> dict[str, Any]:
        samples = self._samples[gpu.uuid]
        within = [sample for sample in samples if calls is None or calls[0] <= sample.moment <= calls[1]]
        counts = {name: sum(bool((sample.reasons or 0) & bit) for sample in within) for name, bit in REASONS.items()}
        throttled = {name: count for name, count in counts.items() if count}
        ranges = {name: _range([sample.values[name] for sample in samples], [sample.values[name] for sample in within]) for name in READINGS}
        settings, errors = self._settings[gpu.uuid], self._ecc_errors[gpu.uuid]
        mode = settings.get("persistence_mode")
        state = {
            "power_limit_w": {name: settings.get(name) for name in ("enforced", "default")},
            "persistence_mode": None if mode is None else bool(mode),
            "ecc_uncorrected": None if None in errors or len(errors) < 2 else {"before": errors[0], "after": errors[-1]},
            "foreign_pids": self._foreign_pids(gpu.uuid),
        }
        return {"uuid": gpu.uuid, "samples": len(within), "error": self._errors.get(gpu.uuid), "throttled": throttled, **state, **ranges}

    def _load_marks(self) -> Iterable[Mark]:
        if self._shared_with:
            yield Mark(f"shared machine: up to {counted(self._shared_with, 'other job')} of the same command ran beside it (JOBS)")
        most = 1 + SHARE_OF_CORES * (os.cpu_count() or 1)
        for when, cores in (("before it began", self._before), ("after it ended", self._after)):
            if cores > most:
                yield Mark(f"foreign load: {cores:.1f} of {os.cpu_count()} cores computed just {when}")
        yield from (Mark(f"foreign load: others used GPU {index} when it began") for index in self._in_use)

    def _throttle_marks(self, of_gpus: list[dict[str, Any]]) -> Iterable[Mark]:
        for gpu, summary in zip(self._gpus, of_gpus, strict=True):
            for name, count in summary["throttled"].items():
                if name not in CHOSEN:
                    yield Mark(f"throttled: GPU {gpu.index} lowered its clock in {count} of {summary['samples']} samples ({name})", disturbs=name != OWN_LIMIT)

    def _state_marks(self, of_gpus: list[dict[str, Any]]) -> Iterable[Mark]:
        for gpu, summary in zip(self._gpus, of_gpus, strict=True):
            enforced, default = summary["power_limit_w"]["enforced"], summary["power_limit_w"]["default"]
            if enforced and default and enforced < default:
                yield Mark(f"power limit: GPU {gpu.index} is held to {enforced:g} W, its default is {default:g} W")
            errors = summary["ecc_uncorrected"]
            if errors and errors["after"] > errors["before"]:
                yield Mark(f"ECC: GPU {gpu.index} had {errors['after'] - errors['before']:g} uncorrected errors of memory during the run")
            if pids := summary["foreign_pids"]:
                yield Mark(f"foreign load: others computed on GPU {gpu.index} during the run (pid {', '.join(map(str, pids))})")


def _pressure_marks(share: float | None) -> Iterable[Mark]:
    if share is not None and share > SHARE_OF_WAITS:
        yield Mark(f"memory pressure: tasks of this machine waited for memory in {100 * share:.1f} % of the calls' time")


def _ecc_uncorrected(handle: Any) -> float:
    """Uncorrected errors of memory since the driver was loaded."""
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC))


def _used_by_others(gpu: Gpu) -> bool:
    with contextlib.suppress(NothingRuns):  # a driver that does not answer now may cost a mark, never the run
        return gpus.foreign_use(gpu) is not None
    return False


def _reading(read: Callable[[Any], float], handle: object) -> float | None:
    """A reading of a GPU; None where this driver or this GPU does not give it."""
    with contextlib.suppress(pynvml.NVMLError):
        return read(handle)
    return None


def _range(every: list[float | None], within: list[float | None]) -> dict[str, float | None] | None:
    """{before, least, most, after} of a reading; None where the driver never gave it."""
    if all(value is None for value in every):
        return None
    known = [value for value in within if value is not None]
    return {"before": every[0], "least": min(known, default=None), "most": max(known, default=None), "after": every[-1]}


def busy_cores(seconds: float) -> float:
    """How many cores of this machine compute, on average over so many seconds; 0 where the kernel does not tell."""
    import psutil

    with contextlib.suppress(OSError, ValueError):
        return psutil.cpu_percent(seconds) / 100 * (os.cpu_count() or 1)
    return 0.0


def governors(cpus: Path = Path("/sys/devices/system/cpu")) -> list[str]:
    """The kernel's governors of the cores' clocks, each once."""
    names = set()
    for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor"):
        with contextlib.suppress(OSError):
            names.add(path.read_text().strip())
    return sorted(names)
