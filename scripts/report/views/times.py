"""Every number of each row's timed calls, beside the published mean: spread, 95th percentile, and the interval over runs where there are enough."""

from scripts import stats
from scripts.articles import Article
from scripts.report import cells, published
from scripts.report.cells import NONE
from scripts.report.plots import time_dots
from scripts.report.tables import Column, table
from scripts.report.text import Markdown
from scripts.report.view import View
from scripts.report.views.systems import Timed, timed_of
from scripts.verdicts.row_groups import Group


def _p95(timed: Timed) -> str:
    """With as many decimals as the spread carries, as the interval."""
    return stats.number(timed.summary.p95, stats.decimals_of(timed.summary)) if timed.summary else NONE


def _interval(timed: Timed) -> str:
    if not timed.summary or not timed.summary.interval.ends:
        return NONE
    places = stats.decimals_of(timed.summary)
    return " to ".join(stats.number(end, places) for end in timed.summary.interval.ends)


def _published(timed: Timed) -> str:
    return cells.published_mean_std(timed.case.published) if timed.case and timed.case.published else NONE


def columns(group: Group, with_published: bool) -> list[Column[Timed]]:
    return [
        Column("case", lambda timed: cells.case(timed.row), words=True),
        Column("status", lambda timed: cells.status(timed.row), words=True),
        Column("dtype", lambda timed: timed.row.dtype or NONE, words=True),
        Column(cells.devices(group), lambda timed: timed.row.count),
        Column("new tokens", lambda timed: timed.new_tokens or NONE),
        Column("published mean ± std, ms", _published, when=with_published),
        Column("measured mean ± std, ms", lambda timed: timed.mean_std),
        Column("runs", lambda timed: len(timed.row.run_means_ms(timed.new_tokens)) or NONE),
        Column("95 % interval over runs, ms", _interval, when=any(len(row.ok_runs) >= stats.LEAST_RUNS for row in group.rows)),
        Column("p95, ms", _p95),
        Column("measured / published", lambda timed: timed.over_published, when=with_published),
    ]


def section(group: Group, article: Article | None) -> Markdown:
    return table(columns(group, bool(published.by_case(group, article))), list(timed_of(group, article)))


VIEW = View("time", section, summary="Times: published, measured, spread and intervals", plot=time_dots.plot, title="Time of the timed calls")
