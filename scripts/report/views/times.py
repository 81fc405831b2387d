"""Mean and spread of each row, with the interval over its runs where there are enough, beside the published mean; rows without a time or a right output."""

from collections.abc import Iterator
from dataclasses import dataclass

from scripts import stats
from scripts.articles import Article, Case
from scripts.report import cells, published
from scripts.report.cells import NONE
from scripts.report.plots import bars
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, anchor, blocks, lines
from scripts.report.view import View
from scripts.verdicts.row_groups import Group, Row, gpus, wrong_output


@dataclass(frozen=True)
class Timed:
    """A row's calls of so many new tokens, 0 for a row without a time; `case` where the article's number is about the same calls."""

    row: Row
    new_tokens: int
    case: Case | None
    anchor: Markdown

    @property
    def summary(self) -> stats.Summary | None:
        return self.row.summary(self.new_tokens) if self.new_tokens else None

    def number(self, name: str) -> str:
        """One of the summary's numbers, with as many decimals as its spread carries."""
        return stats.number(getattr(self.summary, name), stats.decimals_of(self.summary)) if self.summary else NONE

    @property
    def mean_std(self) -> str:
        return cells.mean_std(self.summary) if self.summary else NONE

    @property
    def interval(self) -> str:
        low_ms, high_ms = (self.summary.interval.low, self.summary.interval.high) if self.summary else (None, None)
        if self.summary is None or low_ms is None or high_ms is None:
            return NONE
        places = stats.decimals_of(self.summary)
        return f"{stats.number(low_ms, places)} to {stats.number(high_ms, places)}"

    @property
    def published(self) -> str:
        return cells.published_mean_std(self.case.published) if self.case and self.case.published else NONE

    @property
    def over_published(self) -> str:
        mean_ms = published.mean_ms(self.case)
        return f"{self.summary.mean / mean_ms:.2f}" if mean_ms and self.summary else NONE


def columns(group: Group, with_published: bool) -> list[Column[Timed]]:
    return [
        Column("case", lambda timed: timed.anchor + cells.case(timed.row), words=True),
        Column("status", lambda timed: cells.status(timed.row), words=True),
        Column("dtype", lambda timed: timed.row.dtype or NONE, words=True),
        Column(cells.devices(group), lambda timed: timed.row.count),
        Column("new tokens", lambda timed: timed.new_tokens or NONE),
        Column("published mean ± std, ms", lambda timed: timed.published, when=with_published),
        Column("measured mean ± std, ms", lambda timed: timed.mean_std),
        Column("runs", lambda timed: len(timed.row.run_means_ms(timed.new_tokens)) or NONE),
        Column("95 % interval over runs, ms", lambda timed: timed.interval, when=any(len(row.ok_runs) >= stats.LEAST_RUNS for row in group.rows)),
        Column("p95, ms", lambda timed: timed.number("p95")),
        Column("measured / published", lambda timed: timed.over_published, when=with_published),
    ]


def _timed(group: Group, article: Article | None, cases: dict[str, Case]) -> Iterator[Timed]:
    for row in group.rows:
        if row.measured_without_calls or row.is_workload:
            continue
        place = anchor(_place(group, row))
        for new_tokens in (row.new_tokens if row.status == "ok" else []) or [0]:
            case = cases.get(row.case)
            comparable = case and article and published.is_published_row(case, row, article) and new_tokens in (0, published.tokens(case, article))
            yield Timed(row, new_tokens, case if comparable else None, place)
            place = Markdown()


def _place(group: Group, row: Row) -> str:
    return f"{group.slug}--{row.case}-{row.count}" + (f"-b{row.batch_size}" if row.batch_size != 1 else "")


def section(group: Group, article: Article | None) -> Markdown:
    cases = published.by_case(group, article)
    return blocks(table(columns(group, bool(cases)), list(_timed(group, article, cases))), remarks(group))


def remarks(group: Group) -> Markdown:
    """Why rows have no time or no right output, or used fewer GPUs than they had, one line each."""
    notes = [Markdown("- {}: {} — {}").format(cells.on(row), row.status, row.record.reason) for row in group.rows if row.status != "ok"]
    for row in group.rows:
        if row.status == "ok" and row.check and not row.check.get("passed"):
            notes.append(Markdown("- {}: **output FAILED** — {}; its numbers support no claim").format(cells.on(row), wrong_output(row.check)))
        if row.empty_devices:
            held = gpus(row.count - row.empty_devices)
            notes.append(Markdown("- {}: its library put the whole model on {} and left {} empty").format(cells.on(row), held, row.empty_devices))
    return lines(*notes)


VIEW = View("time", section, plot=bars.time_plot, title="Time of the timed calls")
