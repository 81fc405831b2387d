"""`peak_memory_below_bytes`: a case fits."""

from typing import ClassVar

from scripts.units import GIB
from scripts.verdicts.findings import NOT_REPRODUCED, Finding, NotTested, Rows, tested, usable
from scripts.verdicts.relations.base import Relation
from scripts.verdicts.row_groups import Row


class Memory(Relation, frozen=True, kw_only=True):
    """Reproduced where no GPU of the case ever held as much, by the host's NVML."""

    KEY: ClassVar[str] = "peak_memory_below_bytes"

    case: str
    peak_memory_below_bytes: int

    def cases(self) -> list[str]:
        return [self.case]

    def finding(self, rows: Rows, new_tokens: int, count: int | None) -> Finding:
        limit_bytes, ran = self.peak_memory_below_bytes, rows.get(self.case)
        if isinstance(ran, Row) and ran.status == "oom" and _all_hold(ran, limit_bytes):
            return Finding(NOT_REPRODUCED, f"{self.case} ran out of memory on a GPU of at least {limit_bytes / GIB:.1f} GiB")
        peak_bytes = usable(rows, self.case).peak_of_a_gpu_bytes
        if peak_bytes is None:
            raise NotTested(f"the memory of {self.case}'s GPUs was not sampled")
        words = f"{self.case} held at most {peak_bytes / GIB:.2f} GiB on a GPU, the bound is {limit_bytes / GIB:.2f} GiB"
        return tested(peak_bytes < limit_bytes, words)


def _all_hold(row: Row, limit_bytes: int) -> bool:
    gpus = row.record.host.get("gpus") or []
    return bool(gpus) and all(gpu["memory_total_bytes"] >= limit_bytes for gpu in gpus)
