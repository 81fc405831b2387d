"""ms/token over the batch size, each token counted once, a panel per system: a measured line for each number of devices, beside published points."""

from scripts import stats
from scripts.articles import Article, Case
from scripts.report import published
from scripts.report.plots import sweeps
from scripts.report.plots.sweeps import Curve
from scripts.report.plots.time_dots import legend
from scripts.verdicts import token_times
from scripts.verdicts.row_groups import Group


def measured_points(group: Group, article: Article | None) -> dict[tuple[str, int], dict[int, stats.Estimate]]:
    """{(case, devices): {batch size: ms/token, each token counted once}} of the rows that have a number."""
    points: dict[tuple[str, int], dict[int, stats.Estimate]] = {}
    for row in token_times.rows_of(group, article):
        estimate = token_times.ms_per_token(row, "once")
        if estimate:
            points.setdefault((row.case, row.count), {})[row.batch_size] = estimate
    return points


def batch_plot(group: Group, article: Article | None) -> str | None:
    """SVG text; None where no case was measured in more than one batch size."""
    measured, cases = measured_points(group, article), published.by_case(group, article, token_times.METRIC)
    if not measured:
        return None
    # A panel of published points alone would show a system that did not run here.
    ran = {name for name, _ in measured}
    panels = {name: [_published(case)] for name, case in cases.items() if name in ran}
    wrong = {(row.case, row.count, row.batch_size) for row in token_times.rows_of(group, article) if not token_times.is_right(row)}
    for (name, count), points in sorted(measured.items()):
        panels.setdefault(name, []).append(Curve(f"×{count}", points, wrong={size for size in points if (name, count, size) in wrong}))
    title = _finding(group, article)
    beside = legend([*(count for _, count in measured), *(case.gpus for name, case in cases.items() if name in ran)], "GPU")
    return sweeps.plot(panels, title, group.heading, f"ms/token over the batch size, each token counted once{beside}")


def _finding(group: Group, article: Article | None) -> str:
    """Which row with a right output takes least time a token."""
    right = [row for row in token_times.rows_of(group, article) if token_times.is_right(row)]
    timed = [(estimate.value, row) for row in right if (estimate := token_times.ms_per_token(row, "once"))]
    if not timed:
        return "No row has a right output"
    least, row = min(timed, key=lambda pair: pair[0])
    return f"{row.case} ×{row.count} takes least: {stats.significant(least)} ms/token in batch {row.batch_size}"


def _published(case: Case) -> Curve:
    numbers = (case.published or {})[token_times.METRIC]
    return Curve(f"published ×{case.gpus}", {int(size): stats.Estimate(value * case.times_counted) for size, value in numbers.items()}, published=True)
