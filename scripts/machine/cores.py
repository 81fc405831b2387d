"""The cores of this machine that are near a GPU, and how a process is kept on them.

A machine of several sockets reaches a GPU from one of them sooner than from the others; the kernel's own files say which cores these
are. Lists of cores have the kernel's format too (number_ranges.py).
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.machine import number_ranges
from scripts.machine.gpus import Gpu

DEVICES = Path("/sys/bus/pci/devices")


def near(gpus: Sequence[Gpu], devices: Path = DEVICES) -> str:
    """The cores near any of these GPUs that this process may use; "" where that is not known, or is all of them."""
    allowed = os.sched_getaffinity(0)
    local: set[int] = set()
    for gpu in gpus:
        try:
            local |= number_ranges.parsed((devices / _folder(gpu) / "local_cpulist").read_text())
        except (OSError, ValueError):
            return ""
    chosen = local & allowed
    return number_ranges.text(chosen) if chosen and chosen != allowed else ""


def own() -> str:
    """The cores that this process is kept on, which a container does not inherit; "" where that is every core of the machine."""
    allowed = os.sched_getaffinity(0)
    return number_ranges.text(allowed) if len(allowed) < (os.cpu_count() or 1) else ""


def _folder(gpu: Gpu) -> str:
    """`00000000:3B:00.0`, as NVML says it, is the folder `0000:3b:00.0`. Raises ValueError where NVML said nothing."""
    domain, bus, place = gpu.pci_bus_id.lower().split(":")
    return f"{domain[-4:]}:{bus}:{place}"


@contextlib.contextmanager
def kept_on(cores: str) -> Iterator[None]:
    """A process that this thread starts within the block stays on these cores; nothing for ""."""
    before = os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, number_ranges.parsed(cores))
    try:
        yield
    finally:
        if cores:
            os.sched_setaffinity(0, before)
