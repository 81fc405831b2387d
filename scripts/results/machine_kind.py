"""The kind of machine that a run was measured on. Runs of two kinds are never one row of the report, and neither stands for the other."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from scripts.units import GIB


@dataclasses.dataclass(frozen=True, order=True)
class MachineKind:
    """`facts` tells devices of one name apart: memory in GiB, compute capability, the processor around GPUs; on a CPU its number of cores.

    `host` is the machine around GPUs, "64-core host": short calls wait for its processor, so it decides as much as the GPU does.
    """

    model: str
    facts: str
    host: str

    @classmethod
    def of(cls, seen: Mapping[str, Any], device: str) -> Self:
        """The kind of a machine by the keys `machine` and `gpus` of a record's host; `device` is cuda or cpu."""
        machine = seen.get("machine") or {}
        if device == "cpu":
            return cls(machine.get("cpu") or "unknown CPU", f"{machine.get('cpu_count') or '?'} cores", "")
        kinds = {(gpu["name"], round(gpu["memory_total_bytes"] / GIB), gpu["compute_capability"]) for gpu in seen.get("gpus") or []}
        names = " + ".join(sorted({name for name, _, _ in kinds})) or "no GPU seen"
        facts = [f"{gib} GiB, compute capability {capability}" for _, gib, capability in sorted(kinds)]
        return cls(names, ", ".join([*facts, *([machine["cpu"]] if machine.get("cpu") else [])]), f"{machine.get('cpu_count') or '?'}-core host")
