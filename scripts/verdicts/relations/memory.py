"""`peak_memory_below_bytes`: a case fits into less memory than this on each GPU."""

from typing import ClassVar

from scripts.results import Record
from scripts.results.marks import ran_out_by_itself
from scripts.units import GIB, MIB
from scripts.verdicts import lookup
from scripts.verdicts.lookup import Rows
from scripts.verdicts.parts import REFUTED, NotTested, Part
from scripts.verdicts.relations.base import Relation, checked
from scripts.verdicts.run_facts import peak_used_bytes


class Memory(Relation, frozen=True, kw_only=True):
    """In every run each GPU of the case held less, by the host's NVML; a run that ran out of memory on GPUs with at least so much refutes the claim."""

    KEY: ClassVar[str] = "peak_memory_below_bytes"

    case: str
    peak_memory_below_bytes: int

    def __post_init__(self) -> None:
        if self.peak_memory_below_bytes < MIB:
            meant = self.peak_memory_below_bytes * GIB
            raise ValueError(f"`peak_memory_below_bytes` is {self.peak_memory_below_bytes}, allowed are bytes; {self.peak_memory_below_bytes} GiB are {meant}")

    def names(self) -> list[str]:
        return [f"fits {self.peak_memory_below_bytes / GIB:g} GiB"]

    def parts(self, rows: Rows) -> list[Part]:
        limit_bytes, row = self.peak_memory_below_bytes, rows.of(self.case)
        if lookup.weights_can_judge(row) and any(_ran_out(run, limit_bytes) for run in row.runs):
            words = f"{self.case} ran out of memory on a GPU of at least {limit_bytes / GIB:.1f} GiB"
            return [Part("", REFUTED, "out of memory", words)]
        row = rows.usable(self.case)
        peaks_bytes = [peak_used_bytes(run).values() for run in row.counted_runs]
        if any(len(peaks) < row.count for peaks in peaks_bytes):
            raise NotTested(f"the memory of {self.case}'s GPUs was not sampled")
        peak_bytes = max(map(max, peaks_bytes))
        words = f"{self.case} held at most {peak_bytes / GIB:.2f} GiB on a GPU, the bound is {limit_bytes / GIB:.2f} GiB"
        return checked(row, peak_bytes < limit_bytes, words, f"{peak_bytes / GIB:.2f} GiB")


def _ran_out(run: Record, limit_bytes: int) -> bool:
    """Was the memory of large enough GPUs too small for a run?"""
    gpus = run.host.get("gpus") or []
    return ran_out_by_itself(run) and bool(gpus) and all(gpu["memory_total_bytes"] >= limit_bytes for gpu in gpus)
