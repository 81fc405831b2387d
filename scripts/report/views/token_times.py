"""When tokens come: the time to the first token and between tokens, from calls apart from the timed ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts import stats
from scripts.articles import Article
from scripts.report import cells
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.verdicts import token_times
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group


@dataclass(frozen=True)
class Stamped:
    """The stamped calls of a row: `told` has a figure of each run that counts and tells when each token came."""

    row: Row
    told: Sequence[Mapping[str, Any]]

    @property
    def new_tokens(self) -> int:
        return int(self.told[0]["new_tokens"])

    @property
    def first_ms(self) -> list[float]:
        return [ms for figure in self.told for ms in figure["first_ms"]]

    @property
    def between_ms(self) -> Sequence[float]:
        """Made on demand, so that memory holds one row's times at a time."""
        return token_times.between_ms(self.told)


def stamped(row: Row) -> Stamped | None:
    """None for a row without stamped tokens."""
    told = [one for run in row.counted_runs if (one := run.figures.get("token_times")) and one.get("first_ms")]
    return Stamped(row, told) if told else None


def percentiles(samples: Sequence[float]) -> str:
    """ "11.8 / 12.4 / 13.0": median, 95th and 99th percentile."""
    return cells.beside(*(cells.significant(stats.percentile(samples, percent) if samples else None) for percent in (50, 95, 99)))


def section(group: Group, article: Article | None) -> Markdown:
    rows = [one for row in group.rows if row.status == "ok" and (one := stamped(row))]
    columns = [
        Column[Stamped]("case", lambda one: cells.judged_case(one.row), words=True),
        Column[Stamped](cells.devices(group), lambda one: one.row.count),
        Column[Stamped]("new tokens", lambda one: one.new_tokens),
        Column[Stamped]("calls", lambda one: len(one.first_ms)),
        Column[Stamped]("to the first token, ms: median / p95 / p99", lambda one: percentiles(one.first_ms)),
        Column[Stamped]("between tokens, ms: median / p95 / p99", lambda one: percentiles(one.between_ms)),
    ]
    return blocks(Markdown("When tokens come:"), table(columns, rows)) if rows else Markdown()


VIEW = View("token_times", section, summary="When tokens come: the first, and between two")
