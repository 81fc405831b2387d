"""Pipeline schedules: tokens a second, the share of the time that stages wait, and whether the output is the same."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts import stats
from scripts.articles import Article
from scripts.report.cells import NONE
from scripts.report.plots import dots
from scripts.report.plots.dots import Dot, Panel
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.results import output
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

NOTES = Markdown(
    "*naive*: all sequences as one batch, stage after stage; *in turn*: micro-batches, one in the pipeline at a time; *rolling*: as many as stages. "
    "A stage is idle while it has no work; a step's waiting for the host to start its kernels counts as work."
)


@dataclass(frozen=True)
class Schedule:
    """One schedule of a row's figure."""

    row: Row
    entry: Mapping[str, Any]

    @property
    def sequences(self) -> int:
        return output.sequences_of(self.entry)

    @property
    def is_wrong(self) -> bool:
        return output.schedules_otherwise(self.entry)

    @property
    def identical(self) -> Markdown | str:
        words = f"{self.entry['identical']} of {self.sequences}"
        return Markdown("**output FAILED**: {}").format(words) if self.is_wrong else words

    @property
    def tokens_per_s(self) -> list[float]:
        """Of each run that took time."""
        tokens = self.sequences * (self.row.figures.get("new_tokens") or 0)
        return [tokens / wall_ms * 1000 for wall_ms in self.entry["wall_ms"] if wall_ms > 0]

    @property
    def idle_shares(self) -> list[float]:
        """The share of the wall time in which each stage had no work, over all runs."""
        wall_ms = math.fsum(self.entry["wall_ms"])
        return [max(0.0, 1 - math.fsum(busy_ms) / wall_ms) for busy_ms in zip(*self.entry["busy_ms"], strict=False)] if wall_ms > 0 else []


def _rate(schedule: Schedule) -> str:
    rates = schedule.tokens_per_s
    mean, slowest, fastest = (stats.significant(rate) for rate in (statistics.fmean(rates), min(rates), max(rates)))
    return f"{mean} ({slowest} to {fastest})"


COLUMNS: list[Column[Schedule]] = [
    Column("case", lambda schedule: schedule.row.name, words=True),
    Column("stages", lambda schedule: schedule.entry["stages"]),
    Column("schedule", lambda schedule: schedule.entry["schedule"]),
    Column("micro-batches × sequences", lambda schedule: f"{schedule.entry['micro_batches']} × {schedule.entry['micro_batch_size']}"),
    Column("tokens/s (slowest to fastest call)", _rate),
    Column("idle share of each stage, %", lambda schedule: _idle(schedule)),
    Column("sequences as in turn", lambda schedule: schedule.identical),
]


def _schedules(group: Group) -> Iterator[Schedule]:
    for row, entries in group.figure("schedules"):
        yield from (schedule for entry in entries if (schedule := Schedule(row, entry)).tokens_per_s)


def section(group: Group, article: Article | None) -> Markdown:
    schedules = table(COLUMNS, list(_schedules(group)))
    return blocks(schedules, NOTES) if schedules else Markdown()


def plot(group: Group, article: Article | None) -> str | None:
    """Tokens a second of each schedule, from its slowest to its fastest run, and how long its stages wait."""
    schedules = list(_schedules(group))
    if not schedules:
        return None
    shown = [Dot(_named(schedule), _spread(schedule), _words(schedule), right=not schedule.is_wrong) for schedule in schedules]
    return dots.plot([Panel("tokens/s, from the slowest run to the fastest", shown)], _finding(schedules), group.heading)


def _words(schedule: Schedule) -> str:
    return f"{_rate(schedule)}, idle {_idle(schedule)} %" + (", output wrong" if schedule.is_wrong else "")


def _finding(schedules: Sequence[Schedule]) -> str:
    """Which schedule makes most tokens a second; one whose output is wrong does not count."""
    right = [schedule for schedule in schedules if not schedule.is_wrong]
    if not right:
        return "No schedule has a right output"
    best = max(right, key=lambda schedule: _spread(schedule).value)
    return f"{best.entry['schedule']} makes most tokens a second; its stages wait {_idle(best)} % of the time"


def _named(schedule: Schedule) -> str:
    entry = schedule.entry
    return f"{entry['schedule']}, {entry['stages']} stages, {entry['micro_batches']} × {entry['micro_batch_size']}"


def _spread(schedule: Schedule) -> stats.Estimate:
    rates = schedule.tokens_per_s
    return stats.Estimate(statistics.fmean(rates), min(rates), max(rates))


def _idle(schedule: Schedule) -> str:
    return " / ".join(f"{100 * share:.0f}" for share in schedule.idle_shares) or NONE


VIEW = View("schedules", section, summary="Pipeline schedules", plot=plot, title="Tokens a second of pipeline schedules", folded=True)
