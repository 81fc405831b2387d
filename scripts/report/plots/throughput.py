"""Items a second over the batch size, a line for each form, both axes logarithmic. SVG text, the same bytes for the same rows."""

import matplotlib
from matplotlib.figure import Figure

from scripts import stats
from scripts.articles import Article
from scripts.report.plots import bars, log_axes
from scripts.report.text import plain
from scripts.verdicts import rates
from scripts.verdicts.row_groups import Group

COLOURS = ("#c2571a", "#3b8f4b", bars.MEASURED)


def draw(group: Group, article: Article | None = None) -> str | None:
    """The picture of a group; None where no form was run in two batch sizes."""
    lines = _lines(group)
    if not any(len(points) > 1 for points in lines.values()):
        return None
    with matplotlib.rc_context(bars.STYLE):
        figure = Figure(figsize=(bars.WIDTH_INCH, 4.2), layout="constrained", facecolor="white")
        figure.suptitle(bars.wrapped(group.heading), fontsize=10, x=0.015, ha="left")
        axes = figure.subplots()
        for (case, points), colour in zip(lines.items(), COLOURS, strict=False):
            sizes, estimates = [size for size, _ in points], [rate for _, rate in points]
            values = [rate.value for rate in estimates]
            axes.errorbar(sizes, values, yerr=bars.arms(estimates), marker="o", markersize=4, linewidth=1.3, capsize=3, color=colour, label=plain(case))
        every = [rate.value for points in lines.values() for _, rate in points]
        log_axes.style(axes, "batch size, texts a call", "items/s", base=2, number_between=max(every) / min(every) < 10)
        axes.legend(frameon=False, fontsize=8)
        return bars.svg(figure)


def _lines(group: Group) -> dict[str, list[tuple[int, stats.Estimate]]]:
    """{case: [(batch size, items/s)]}, from the smallest batch up"""
    lines: dict[str, list[tuple[int, stats.Estimate]]] = {}
    for row in sorted(rates.rows_of(group, rates.CALL_FORMS), key=lambda row: row.batch_size):
        if rate := rates.items_per_s(row):
            lines.setdefault(row.case, []).append((row.batch_size, rate))
    return lines
