"""Items a second over the batch size, a line for each form, both axes logarithmic. SVG text, the same bytes for the same rows."""

import matplotlib
from matplotlib.figure import Figure

from scripts.articles import Article
from scripts.report.plots import bars, log_axes
from scripts.report.text import plain
from scripts.verdicts import rates
from scripts.verdicts.row_groups import Group, Row

COLOURS = ("#c2571a", "#3b8f4b", bars.MEASURED)


def draw(group: Group, article: Article | None = None) -> str | None:
    """The picture of a group; None where no form was run in two batch sizes."""
    lines = _lines(group)
    if not any(len(rows) > 1 for rows in lines.values()):
        return None
    with matplotlib.rc_context(bars.STYLE):
        figure = Figure(figsize=(bars.WIDTH_INCH, 4.2), layout="constrained", facecolor="white")
        figure.suptitle(bars.wrapped(group.heading), fontsize=10, x=0.015, ha="left")
        axes = figure.subplots()
        every = [rates.items_per_s(row).value for rows in lines.values() for row in rows]
        for (case, rows), colour in zip(lines.items(), COLOURS, strict=False):
            found = [rates.items_per_s(row) for row in rows]
            sizes, values = [row.batch_size for row in rows], [rate.value for rate in found]
            axes.errorbar(sizes, values, yerr=bars.arms(found), marker="o", markersize=4, linewidth=1.3, capsize=3, color=colour, label=plain(case))
        log_axes.style(axes, "batch size, texts a call", "items/s", base=2, number_between=max(every) / min(every) < 10)
        axes.legend(frameon=False, fontsize=8)
        return bars.svg(figure)


def _lines(group: Group) -> dict[str, list[Row]]:
    """{case: its rows with a rate, from the smallest batch up}"""
    lines: dict[str, list[Row]] = {}
    for row in sorted(rates.rows_of(group, rates.CALL_FORMS), key=lambda one: one.batch_size):
        if rates.items_per_s(row):
            lines.setdefault(row.case, []).append(row)
    return lines
