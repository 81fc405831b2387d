"""`single`, `batched`, `item_ratio_at_least`: what batching gains."""

from typing import ClassVar

from scripts import stats
from scripts.verdicts import rates
from scripts.verdicts.findings import NOT_REPRODUCED, REPRODUCED, Finding, NotTested, Rows, bounds, question, usable
from scripts.verdicts.relations import sweeps
from scripts.verdicts.relations.base import Relation
from scripts.verdicts.row_groups import Row, apart


class ItemRatio(Relation, frozen=True, kw_only=True):
    """Reproduced where the whole 95 % interval of items/s of the best batch size over those of the case `single` is at or above the bound;
    not tested where it is below, as long as no batch size ran out of memory."""

    KEY: ClassVar[str] = "item_ratio_at_least"

    single: str
    batched: str
    item_ratio_at_least: float

    def cases(self) -> list[str]:
        return [self.single, self.batched]

    def published(self) -> tuple[float, str] | None:
        return self.item_ratio_at_least, self.single

    def finding(self, rows: Rows, new_tokens: int, count: int | None) -> Finding:
        single, best = self._single(rows), self._best(rows)
        if question(single)[0] != question(best)[0]:
            raise NotTested(f"{single.name} and {best.name} ran different models")
        ratio = sweeps.rate_ratio(best, single)
        alone, together = (rates.duration(rates.hours(sweeps.items_per_s(row))) for row in (single, best))
        words = f"{best.name} makes {stats.in_words(ratio, least=2)} times the items/s of {single.name}"
        words += f": {rates.ITEMS:,} items take {together} instead of {alone}" + (", on different GPUs" if apart(single, best) else "")
        if bounds(ratio, words)[0] >= self.item_ratio_at_least:
            return Finding(REPRODUCED, words, ratio)
        if not self._memory_ran_out(rows):
            raise NotTested(f"{words}, but no batch size was so large that memory ran out", ratio)
        return Finding(NOT_REPRODUCED, words, ratio)

    def _single(self, rows: Rows) -> Row:
        row = usable(rows, self.single)
        if not stats.carry_interval(rates.timed_ms(row)):
            raise NotTested(_few(self.single))
        return row

    def _best(self, rows: Rows) -> Row:
        """The batch size that makes most items/s."""
        timed = sweeps.timed_rows(rows, self.batched)
        if not timed:
            usable(rows, self.batched)
            raise NotTested(_few(self.batched))
        return max(timed, key=sweeps.items_per_s)

    def _memory_ran_out(self, rows: Rows) -> bool:
        """Was a batch size of the case too large for the memory? Until then a larger one may make more items/s."""
        return any(isinstance(row, Row) and row.case == self.batched and row.status == "oom" for row in rows.values())


def _few(case: str) -> str:
    return f"{case} has no row of {stats.LEAST_SAMPLES} timed calls, fewer carry no interval"
