"""A group of rows as pictures: time of the timed calls, memory a device. SVG text, the same bytes for the same rows.

The pictures have a white ground of their own, so that they read the same on a light and on a dark page.
"""

import io
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, NullFormatter

from scripts import stats
from scripts.articles import Article, Case
from scripts.report import cells
from scripts.report import published as numbers
from scripts.report.text import plain
from scripts.units import GIB
from scripts.verdicts.row_groups import Group, Row

MEASURED, PUBLISHED, INK, GRID = "#2c6fb0", "#b3b3b3", "#222222", "#dddddd"
#: Above this ratio of the longest bar to the shortest the axis is logarithmic.
LOG_ABOVE = 20
BAR_INCH = 0.27
MOST_BARS = 60
WIDTH_INCH = 8.0

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "llm-repro",
    "svg.fonttype": "path",
    "text.parse_math": False,  # a name with two dollars is no formula
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def svg(figure: Figure) -> str:
    """The figure as text, without the day it was drawn."""
    buffer = io.BytesIO()
    # Not figure.savefig, which draws everything a first time to no purpose here.
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    # No trailing blanks, which version control would complain of.
    return "\n".join(line.rstrip() for line in buffer.getvalue().decode("utf-8").splitlines()) + "\n"


def wrapped(title: str) -> str:
    return "\n".join(textwrap.wrap(plain(title), 88))


def panels_of(heights: list[float], title: str) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each height, which is counted in bars."""
    lines = wrapped(title).splitlines()
    # math.fsum: sum() of floats differs in the last digit between Python 3.11 and 3.12, and matplotlib hashes positions.
    inches = BAR_INCH * math.fsum(heights) + 0.5 * len(heights) + 0.2 * len(lines) + 0.45
    figure = Figure(figsize=(WIDTH_INCH, inches), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08), facecolor="white")
    figure.suptitle("\n".join(lines), fontsize=10, x=0.015, ha="left")
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, height in zip(panels, heights, strict=True):
        axes.set_ylim(height - 0.5, -0.7)  # the first bar on top
    return figure, list(panels)


def plain_axes(axes: Axes, unit: str) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(which="both", length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(unit)


def plain_numbers(axis: Axis, number_between: bool = False) -> None:
    """Numbers without powers on a logarithmic axis; `number_between`: also at the marks between the powers."""
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axis.set_major_formatter(plain)
    axis.set_minor_formatter(plain if number_between else NullFormatter())


def _scale(axes: Axes, values: list[float], logarithmic: bool) -> None:
    """Room on the right for the numbers at the ends of the bars."""
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(min(values) / 2, max(values) * (2 * max(values) / min(values)) ** 0.4)
        plain_numbers(axes.xaxis)
    else:
        axes.set_xlim(0, max(values) * 1.4)


def _time_panel(axes: Axes, rows: list[Row], new_tokens: int, published: dict[str, Case], article: Article | None) -> None:
    values, reach, place, ticks = [], [], 0.0, []
    for row in rows:
        case = published.get(row.case)
        summary = row.summary(new_tokens)
        first = place
        if case and article and case.published and numbers.is_published_row(case, row, article):
            values.append(case.published["mean_ms"])
            axes.barh(place, values[-1], height=0.8, color=PUBLISHED)
            _label(axes, values[-1], place, cells.published_mean_std(case.published))
            place += 0.9
        values.append(summary.mean)
        right = bool(row.check and row.check.get("passed"))
        axes.barh(place, summary.mean, height=0.8, color=MEASURED if right else "white", edgecolor=MEASURED, hatch="" if right else "////", linewidth=0.8)
        _whisker(axes, summary.interval, place)
        words = cells.mean_std(summary) + ("" if right else "  (output wrong)" if row.check else "  (output not checked)")
        reach.append(max(summary.mean, summary.interval.high or 0))
        _label(axes, reach[-1], place, words)
        ticks.append(((first + place) / 2, named(row)))
        place += 1.3
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
    plain_axes(axes, "")
    logarithmic = max(values) / min(values) > LOG_ABOVE
    _scale(axes, values + reach, logarithmic)
    axes.set_xlabel(f"ms per call of {new_tokens} new token{'s' * (new_tokens > 1)}{', logarithmic' if logarithmic else ''}")


def named(row: Row) -> str:
    return f"{plain(row.name)} ×{row.count}"


def arms(estimates: Sequence[stats.Estimate]) -> list[tuple[float, ...]]:
    """How far the intervals reach [below the values, above them], as errorbar takes them; 0 where there is no interval."""
    reach = [(value.value - value.low, value.high - value.value) if value.low is not None and value.high is not None else (0.0, 0.0) for value in estimates]
    return list(zip(*reach, strict=True))


def _whisker(axes: Axes, interval: stats.Estimate, place: float) -> None:
    if interval.low is not None and interval.high is not None:
        axes.errorbar(interval.value, place, xerr=arms([interval]), color=INK, capsize=3, linewidth=1.1)


def _label(axes: Axes, value: float, place: float, words: str) -> None:
    axes.annotate(
        words, (value, place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    )


def time_plot(group: Group, article: Article | None) -> str | None:
    """Bars of the mean, with its 95 % interval over runs where there are enough, a panel for each number of new tokens; None where nothing was timed."""
    counts = group.new_tokens
    # Sweeps over batch sizes have a picture of their own, and a batch of a workload is no call that a reader would wait for.
    shown = [row for row in group.rows if row.status == "ok" and "cycles" not in row.figures and not row.is_workload]
    panels = [(count, rows) for count in counts if (rows := [row for row in shown if row.timed_ms(count)])]
    if not panels:
        return None
    published = numbers.by_case(group, article)

    def of_tokens(count: int) -> dict[str, Case]:
        return {name: case for name, case in published.items() if article and numbers.tokens(case, article) == count}

    with matplotlib.rc_context(STYLE):
        heights = [math.fsum(1.3 + 0.9 * (row.case in of_tokens(count)) for row in rows) for count, rows in panels]
        figure, all_axes = panels_of(heights, group.heading)
        for axes, (count, rows) in zip(all_axes, panels, strict=True):
            _time_panel(axes, rows, count, of_tokens(count), article)
        _legend(figure, bool(published))
        return svg(figure)


def _legend(figure: Figure, with_published: bool) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=PUBLISHED, label="published, mean ± std")] if with_published else []
    handles.append(Patch(color=MEASURED, label="measured, mean ± std, with the 95 % interval over runs where there are enough"))
    figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False, fontsize=8)


def memory_plot(group: Group, article: Article | None = None) -> str | None:
    """Bars of the peak of each GPU as the host's NVML saw it, on a CPU of the guest's resident set; None without any.

    Where that were more than MOST_BARS, each row has one bar: of its GPU that held most.
    """
    bars = [bar for row in group.rows if row.status == "ok" for bar in _memory_bars(row)]
    if len(bars) > MOST_BARS:
        bars = [max(of_row, key=lambda bar: bar[1]) for row in group.rows if row.status == "ok" and (of_row := _memory_bars(row))]
    if not bars:
        return None
    unit = "peak of the guest's resident set, GiB" if group.key.device == "cpu" else "peak of a GPU as the host's NVML saw it, GiB"
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = panels_of([len(bars)], group.heading)
        for place, (_, size_gib) in enumerate(bars):
            axes.barh(place, size_gib, height=0.75, color=MEASURED)
            _label(axes, size_gib, place, f"{size_gib:.2f}")
        axes.set_yticks(range(len(bars)), [name for name, _ in bars])
        plain_axes(axes, unit)
        _scale(axes, [size for _, size in bars], False)
        return svg(figure)


def _memory_bars(row: Row) -> list[tuple[str, float]]:
    if row.record.job.device == "cpu":
        resident = row.guest.memory.get("peak_rss_bytes") if row.guest else None
        return [(named(row), resident / GIB)] if resident else []
    peaks = list(row.peak_used_bytes().values())
    return [(f"{named(row)}, GPU {number + 1} of {len(peaks)}", peak / GIB) for number, peak in enumerate(peaks)]
