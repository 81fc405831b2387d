"""Items a second over the batch size, a line for each form, both axes logarithmic. SVG text, the same bytes for the same rows."""

import matplotlib
import matplotlib.ticker
from matplotlib.figure import Figure

from scripts import batches, plots
from scripts.groups import Group, Row

COLOURS = ("#2c6fb0", "#c2571a", "#3b8f4b", "#7d5ba6", "#8a6d3b", "#666666")


def draw(group: Group) -> str | None:
    """The picture of a group; None where no form was run in two batch sizes."""
    lines = _lines(group, batches.CALL_FORMS)
    if not any(len(rows) > 1 for rows in lines.values()):
        return None
    with matplotlib.rc_context(plots.STYLE):
        figure = Figure(figsize=(plots.WIDTH_INCH, 4.2), layout="constrained", facecolor="white")
        figure.suptitle(plots.wrapped(group.heading), fontsize=10, x=0.015, ha="left")
        axes = figure.subplots()
        for (case, rows), colour in zip(lines.items(), COLOURS, strict=False):
            rates = [batches.items_per_s(row).value for row in rows]
            axes.plot([row.batch_size for row in rows], rates, marker="o", markersize=4, linewidth=1.3, color=colour, label=case)
        for (case, rows), colour in zip(_lines(group, batches.WORKLOAD_FORMS).items(), reversed(COLOURS), strict=False):
            axes.axhline(batches.items_per_s(rows[-1]).value, linewidth=1.0, linestyle="--", color=colour, label=f"{case}, whole")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(color=plots.GRID, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("batch size, texts a call")
        axes.set_ylabel("items/s")
        axes.legend(frameon=False, fontsize=8)
        return plots.svg(figure)


def _lines(group: Group, forms: tuple[str, ...]) -> dict[str, list[Row]]:
    """{case: its rows with a rate, from the smallest batch up}"""
    lines: dict[str, list[Row]] = {}
    for row in sorted(batches.rows_of(group, forms), key=lambda one: one.batch_size):
        if batches.items_per_s(row):
            lines.setdefault(row.case, []).append(row)
    return lines
