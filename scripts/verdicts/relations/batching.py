"""`single`, `batched`: batching makes more items/s, by so much."""

import dataclasses
import statistics
from typing import ClassVar

from scripts.verdicts import parts, rates
from scripts.verdicts.lookup import Rows
from scripts.verdicts.parts import Part
from scripts.verdicts.relations import pairs
from scripts.verdicts.relations.base import PublishedRatio, Relation
from scripts.verdicts.row import Row


class Batching(Relation, frozen=True, kw_only=True):
    """items/s of the best batch size of `batched` over those of `single`: above 1, and, where the claim states a `size`, near it."""

    KEY: ClassVar[str] = "batched"

    single: str
    batched: str
    size: float | None = None

    def published(self, part: Part) -> PublishedRatio | None:
        return PublishedRatio(self.size, self.single) if self.size else None

    def names(self) -> list[str]:
        return ["faster in batches"] + ([f"{self.size:g} times"] if self.size is not None else [])

    def parts(self, rows: Rows) -> list[Part]:
        single, best = rows.usable(self.single), self._best(rows)
        pairs.must_answer_the_same([single, best])
        pair = pairs.of_batches(best, single, rows.new_tokens)
        ranges = [parts.ABOVE_ONE] + ([parts.size(self.size)] if self.size is not None else [])
        value, beside = pairs.ratio_in_words(pair, self.size, parts.ends(ranges))
        alone, together = (rates.duration(rates.hours(_items_per_s(row, rows.new_tokens))) for row in (single, best))
        words = f"{best.name} makes {value} times the items/s of {single.name}{beside}: {rates.ITEMS:,} items take {together} instead of {alone}"
        return [dataclasses.replace(pair.part(where, words), cases=(best.name, single.name)) for where in ranges]

    def _best(self, rows: Rows) -> Row:
        """The batch size that makes most items/s, of those that may judge; of all where none may."""
        right = rows.over_batches(self.batched) or [rows.usable(self.batched)]
        return max(rows.able(right) or right, key=lambda row: _items_per_s(row, rows.new_tokens))


def _items_per_s(row: Row, new_tokens: int) -> float:
    """Over the mean of the runs' mean calls."""
    means_ms = row.run_means_ms(new_tokens)
    return 1000 * row.batch_size / statistics.fmean(means_ms)
