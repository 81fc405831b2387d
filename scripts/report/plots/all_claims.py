"""All claims in one picture: published ratios beside measured ones, the verdict as colour and shape. SVG text, the same bytes for the same verdicts."""

import dataclasses
import math
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from scripts import stats
from scripts.report.plots import bars
from scripts.report.text import plain
from scripts.verdicts.parts import HOLDS, IN_PART, NOT_TESTED, REFUTED, UNDECIDED

#: {verdict: (colour, marker)}: the shape alone tells the verdicts apart too.
MARKS = {HOLDS: ("#1a7f37", "o"), IN_PART: ("#9a6700", "D"), UNDECIDED: ("#6e7781", "s"), REFUTED: ("#cf222e", "X"), NOT_TESTED: ("#8c959f", "v")}
LONGEST = 58


@dataclasses.dataclass(frozen=True)
class Line:
    """A claim with its verdict; `published` and `measured` are ratios, None where the claim has none or nothing measured it."""

    title: str
    word: str
    published: float | None = None
    measured: stats.Estimate | None = None


def plot(lines: Sequence[Line]) -> str | None:
    """A line a claim, on one logarithmic axis of ratios; None where no claim has a ratio."""
    numbers = [number for line in lines for number in _numbers(line)]
    if not numbers:
        return None
    with matplotlib.rc_context(bars.STYLE):
        figure, (axes,) = bars.panels_of([len(lines)], "Every claim: the published ratio and the measured one with its 95 % interval")
        for place, line in enumerate(lines):
            _line(axes, place, line)
        axes.set_yticks(range(len(lines)), [_short(line.title) for line in lines])
        bars.plain_axes(axes, "times as fast, or other ratio of the claim; logarithmic")
        axes.set_xscale("log")
        axes.set_xlim(min(numbers) / 1.3, max(numbers) * 1.5)
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        bars.plain_numbers(axes.xaxis)
        axes.axvline(1, color=bars.INK, linewidth=0.8)
        handles = [Line2D([], [], color=bars.PUBLISHED, marker="|", markersize=11, markeredgewidth=2.5, linestyle="", label="published")]
        handles += [Line2D([], [], color=color, marker=marker, linestyle="", label=word) for word, (color, marker) in MARKS.items()]
        figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False, fontsize=8)
        return bars.svg(figure)


def _numbers(line: Line) -> list[float]:
    measured = [line.measured.value, line.measured.low, line.measured.high] if line.measured else []
    return [number for number in [line.published, *measured] if number is not None and math.isfinite(number) and number > 0]


def _line(axes: Axes, place: int, line: Line) -> None:
    color, marker = MARKS[line.word]
    if line.published is not None:
        axes.plot(line.published, place, color=bars.PUBLISHED, marker="|", markersize=13, markeredgewidth=2.5)
    if line.measured:
        axes.errorbar(line.measured.value, place, xerr=bars.arms([line.measured]), color=color, marker=marker, markersize=6, capsize=3, linewidth=1.4)
    axes.annotate(line.word, (1, place), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points", va="center", color=color, fontsize=8)


def _short(title: str) -> str:
    words = plain(title)
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1].rstrip()}…"
