"""Batched answers against each text's alone, by the side of the padding."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.articles import Article
from scripts.report.cells import NONE
from scripts.report.plots import dots
from scripts.report.plots.dots import Dot, Panel
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.verdicts import rates
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

WORDS = Markdown("Greedy answers to uneven texts in one batch, compared with each text alone. The longest text has no padding.")


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
    Column("first different token of the other answers: earliest / median", lambda side: side.first_other),
    Column("error of the first token's logits, %: median / largest (allowed)", lambda side: side.error),
]


def _sides(group: Group) -> list[Side]:
    figures = [(row, figure) for row in rates.rows_of(group, ("padding",)) if (figure := rates.figure(row, "padding"))]
    return [
        Side(name, row, figure["new_tokens"], figure[name]["first_different_token"], figure[name]["logits_relative_error"])
        for row, figure in figures
        for name in ("left", "right")
    ]


def section(group: Group, article: Article | None) -> Markdown:
    sides = _sides(group)
    return blocks(WORDS, table(COLUMNS, sides)) if sides else Markdown()


def plot(group: Group, article: Article | None) -> str | None:
    """How far the logits are off on each side of the padding: the median text, between the nearest and the farthest."""
    sides = [side for side in _sides(group) if side.errors]
    errors = [stats.Estimate(*(100 * pick(side.errors) for pick in (statistics.median, min, max))) for side in sides]
    shown = [Dot(f"{side.name}, {side.row.dtype}", error, f"{side.same_percent} % of the answers as alone") for side, error in zip(sides, errors, strict=True)]
    title = ", by ".join(f"{stats.significant(error.value)} % padded on the {side.name}" for side, error in zip(sides, errors, strict=True))
    unit = "error of the first token's logits, %: the median text, from the nearest to the farthest"
    return dots.plot([Panel(unit, shown)], f"The logits are off by {title}", group.heading) if shown else None


VIEW = View(
    "padding",
    section,
    summary="Padding: batched answers against each text alone",
    plot=plot,
    title="Error of the logits by the side of the padding",
    folded=True,
)
