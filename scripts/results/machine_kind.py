"""The kind of machine that a run was measured on. Runs of two kinds are never one row of the report, and neither stands for the other."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from scripts.units import GIB


@dataclasses.dataclass(frozen=True)
class MachineKind:
    """A model of GPU in a kind of host, or a model of CPU.

    device_facts   what tells devices of one model apart: memory in GiB and compute capability; of a CPU its number of cores
    processor, host   the machine around GPUs, "64-core host": short calls wait for its processor, so it decides as much as the GPU does; "" on a CPU
    """

    model: str
    device_facts: str
    processor: str
    host: str

    @classmethod
    def of(cls, seen: Mapping[str, Any], device: str) -> Self:
        """The kind of a machine by the keys `machine` and `gpus` of a record's host; `device` is cuda or cpu."""
        machine = seen.get("machine") or {}
        processor, cores = machine.get("cpu") or "", machine.get("cpu_count") or "?"
        if device == "cpu":
            return cls(processor or "unknown CPU", f"{cores} cores", "", "")
        kinds = {(gpu["name"], round(gpu["memory_total_bytes"] / GIB), gpu["compute_capability"]) for gpu in seen.get("gpus") or []}
        names = " + ".join(sorted({name for name, _, _ in kinds})) or "no GPU seen"
        facts = ", ".join(f"{gib} GiB, compute capability {capability}" for _, gib, capability in sorted(kinds))
        return cls(names, facts, processor, f"{cores}-core host")

    @property
    def facts(self) -> str:
        """What tells machines of one model apart, beside the number of cores around GPUs."""
        return ", ".join(filter(None, (self.device_facts, self.processor)))
