"""A setting's times: each row's mean call with its interval over runs, beside the published mean."""

from collections.abc import Iterable, Mapping, Sequence

from scripts import stats
from scripts.articles import Article, Case
from scripts.report import cells, published
from scripts.report.plots import dots
from scripts.report.plots.dots import Dot, Panel
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group


def named(row: Row) -> str:
    return f"{row.name} ×{row.count}"


def legend(counts: Iterable[int], device: str) -> str:
    """ "; ×4: on 4 GPUs", for the largest of these numbers of devices; "" where that is 1."""
    most = max(counts, default=1)
    return f"; ×{most}: on {most} {device}s" if most > 1 else ""


def plot(group: Group, article: Article | None) -> str | None:
    """A panel for each number of new tokens, the fastest row on top; None where nothing was timed."""
    # Sweeps over batch sizes have a picture of their own, and a batch of a workload is no call that a reader would wait for.
    shown = [row for row in group.rows if row.status == "ok" and "cycles" not in row.figures and not row.is_workload]
    by_count = {count: sorted((row for row in shown if row.timed_ms(count)), key=lambda row: row.summary(count).mean) for count in group.new_tokens}
    panels = {count: rows for count, rows in by_count.items() if rows}
    if not panels:
        return None
    cases = published.by_case(group, article)
    longest = max(panels)
    beside = legend((row.count for row in shown), "device")
    drawn = [Panel(f"ms per call of {cells.tokens(count)}{beside}", [_dot(row, count, cases, article) for row in rows]) for count, rows in panels.items()]
    return dots.plot(drawn, _finding(panels[longest], longest), group.heading)


def _dot(row: Row, new_tokens: int, cases: Mapping[str, Case], article: Article | None) -> Dot:
    summary = row.summary(new_tokens)
    words = f"{cells.mean_std(summary)} ms" + ("" if row.output_is_right else ", output wrong" if row.check else ", output not checked")
    return Dot(named(row), summary.interval, words, published.mean_ms(published.of_calls(cases, row, new_tokens, article)), row.output_is_right)


def _finding(rows: Sequence[Row], new_tokens: int) -> str:
    """What the panel of the longest calls shows; rows of several batch sizes or models get no ratio, because they answer no common question."""
    right = [row for row in rows if row.output_is_right] or [row for row in rows if not row.check]
    if not right:
        return "No row has a right output"
    first, last = right[0], right[-1]
    least_ms, most_ms = (row.summary(new_tokens).mean for row in (first, last))
    if len(right) == 1:
        return f"{named(first)} takes {stats.significant(least_ms)} ms"
    if len({(row.batch_size, row.shape) for row in right}) > 1 or not least_ms:
        return f"A call takes {stats.significant(least_ms)} ms ({named(first)}) to {stats.significant(most_ms)} ms ({named(last)})"
    times = most_ms / least_ms
    longer = stats.significant(times, most=1 if times >= 1.1 else 2)  # "1.0 times" would say that they are alike
    return f"Lowest mean: {named(first)}, {stats.significant(least_ms)} ms; {named(last)} takes {longer} times as long"
