"""`lowest`, `below`, `batch_sizes`: one case has the lowest ms/token of all, in every batch size."""

import dataclasses
from typing import ClassVar

from scripts.verdicts.findings import NOT_REPRODUCED, NOT_TESTED, Finding, Rows, barest
from scripts.verdicts.relations import pairs
from scripts.verdicts.relations.base import Relation
from scripts.verdicts.relations.speed import Speed


class Lowest(Relation, frozen=True, kw_only=True):
    """Reproduced where `lowest` takes fewer ms/token than each of `below` in each of `batch_sizes`, by the rule for faster/slower."""

    KEY: ClassVar[str] = "lowest"

    lowest: str
    below: list[str]
    batch_sizes: list[int]

    def cases(self) -> list[str]:
        return [self.lowest, *self.below]

    def rows(self) -> list[tuple[str, int]]:
        return [(case, size) for size in self.batch_sizes for case in self.cases()]

    def finding(self, rows: Rows, new_tokens: int, count: int | None) -> Finding:
        """The pair of cases that decides, or the one that holds most barely."""
        pairs.in_batches(rows, self, new_tokens, count)
        compared = [
            Speed(faster=self.lowest, slower=other, batch_size=size).judge(rows, new_tokens, count) for size in self.batch_sizes for other in self.below
        ]
        for word in (NOT_TESTED, NOT_REPRODUCED):
            against = [pair for pair in compared if pair.word == word]
            if against:
                held = f"{len(compared) - len(against)} of {len(compared)} comparisons hold"
                return dataclasses.replace(against[0], reason=f"{against[0].reason}; {held}")
        return barest(compared)
