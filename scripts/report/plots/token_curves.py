"""ms/token over the batch size as a picture: both axes logarithmic, measured lines beside the published points."""

import math
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from scripts.articles import Article
from scripts.report import published
from scripts.report.plots import log_axes
from scripts.report.plots.bars import STYLE, WIDTH_INCH, svg
from scripts.report.text import plain
from scripts.verdicts import token_times
from scripts.verdicts.row_groups import Group

#: Colours that also the colour-blind can tell apart (Okabe and Ito), one a case.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P")

#: One a number of devices, from the smallest: the line and the filled half of its points, for a point may stand without a line.
#: Dots and empty points are what was published.
LOOKS = (("-", "full"), ("--", "left"), ("-.", "bottom"), ((0, (6, 1, 1, 1, 1, 1)), "right"), ((0, (9, 2)), "top"))


def measured_points(group: Group, article: Article | None) -> dict[tuple[str, int], list[tuple[int, float]]]:
    """{(case, devices): [(batch size, ms/token by the article's formula)]} of the rows that have a number."""
    points: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for row in token_times.rows_of(group, article):
        estimate = token_times.ms_per_token(row, "article")
        if estimate:
            points.setdefault((row.case, row.count), []).append((row.batch_size, estimate.value))
    return {key: sorted(points) for key, points in points.items()}


def batch_plot(group: Group, article: Article | None) -> str | None:
    """SVG text; None where no case was measured in more than one batch size."""
    measured, cases = measured_points(group, article), published.by_case(group, article, token_times.METRIC)
    if max((len(points) for points in measured.values()), default=0) < 2:
        return None
    names = list(dict.fromkeys([*cases, *(case for case, _ in measured)]))
    style = {name: (COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]) for place, name in enumerate(names)}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_INCH, 4.6), layout="constrained", facecolor="white")
        figure.suptitle(plain(group.heading), fontsize=10, x=0.015, ha="left", wrap=True)
        axes = figure.subplots()
        for name, case in cases.items():
            points = sorted((int(size), value) for size, value in (case.published or {})[token_times.METRIC].items())
            colour, marker = style[name]
            label = f"{name} ×{case.gpus}, published"
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markerfacecolor="white", linestyle=":", linewidth=1, label=label)
        counts = sorted({count for _, count in measured})
        sizes = token_times.sizes_of(token_times.rows_of(group, article), list(cases.values()))
        for (name, count), points in measured.items():
            values = dict(points)
            colour, marker = style[name]
            dashes, filled = LOOKS[counts.index(count) % len(LOOKS)]
            halves: dict[str, Any] = {"marker": marker, "fillstyle": filled, "markerfacecoloralt": "white", "markersize": 7}
            # A batch size that was not run is a gap, not a line across.
            per_size = [values.get(size, math.nan) for size in sizes]
            axes.plot(sizes, per_size, color=colour, linestyle=dashes, linewidth=1.4, label=f"{plain(name)} ×{count}, measured", **halves)
        log_axes.style(axes, "batch size, sequences (logarithmic)", "ms/token by the article's formula (logarithmic)")
        axes.xaxis.set_major_locator(FixedLocator(sizes))
        axes.xaxis.set_minor_locator(NullLocator())
        figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=8)
        return svg(figure)
