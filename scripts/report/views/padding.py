"""Batched answers against each text's alone, by the side of the padding."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.articles import Article
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.verdicts import rates
from scripts.verdicts.row_groups import Group, Row

WORDS = Markdown("Greedy answers of one batch of uneven texts against the same texts one at a time; the longest text has no padding:")


@dataclass(frozen=True)
class Side:
    """The texts of a row padded on one side; `places`: where each answer first differs, None where it never does."""

    name: str
    row: Row
    new_tokens: int
    places: Sequence[int | None]
    errors: Sequence[float]

    @property
    def differing(self) -> list[int]:
        return [place for place in self.places if place is not None]

    @property
    def same_percent(self) -> str:
        return f"{100 * (len(self.places) - len(self.differing)) / len(self.places):.0f}"

    @property
    def first_other(self) -> str:
        return f"{min(self.differing) + 1} / {statistics.median(self.differing) + 1:g}" if self.differing else NONE

    @property
    def error(self) -> str:
        allowed = self.row.record.job.tolerance
        words = f"{stats.percent(statistics.median(self.errors))} / {stats.percent(max(self.errors))}"
        return words + (f" ({stats.percent(allowed)})" if allowed else "")


COLUMNS: list[Column[Side]] = [
    Column("padding", lambda side: side.name, words=True),
    Column("dtype", lambda side: side.row.dtype, words=True),
    Column("texts", lambda side: len(side.places)),
    Column("new tokens", lambda side: side.new_tokens),
    Column("same answer as alone, %", lambda side: side.same_percent),
    Column("first other token of the rest: first / median", lambda side: side.first_other),
    Column("error of the first token's logits, %: median / largest (allowed)", lambda side: side.error),
]


def section(group: Group, article: Article | None) -> Markdown:
    figures = [(row, figure) for row in rates.rows_of(group, ("padding",)) if (figure := rates.figure(row, "padding"))]
    sides = [
        Side(name, row, figure["new_tokens"], figure[name]["first_different_token"], figure[name]["logits_relative_error"])
        for row, figure in figures
        for name in ("left", "right")
    ]
    return blocks(WORDS, table(COLUMNS, sides)) if sides else Markdown()


VIEW = View("padding", section, summary="Padding: batched answers against each text alone")
