"""Rows as dots on one axis: the measured number with its interval, the published one beside it, and in words what both are."""

from collections.abc import Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.report.plots import scales
from scripts.report.plots.scales import Scale
from scripts.report.plots.svg import HEAD, LETTER, WIDTH, Picture, cut

ROW = 22.0
#: Pixels below the last row of a panel, for the axis's numbers and its unit.
FOOT = 46.0
LEGEND = 20.0
LONGEST_NAME = 44


@dataclass(frozen=True)
class Dot:
    """A line of a panel.

    words      stand at its right end
    right      whether its output is right: otherwise its dot is hollow
    """

    name: str
    measured: stats.Estimate
    words: str
    published: float | None = None
    right: bool = True


@dataclass(frozen=True)
class Panel:
    """Dots that share an axis, and its unit."""

    unit: str
    dots: Sequence[Dot]


def plot(panels: Sequence[Panel], title: str, subtitle: str) -> str | None:
    """Panels below each other; None without a number that an axis can show."""
    shown = [panel for panel in panels if _numbers(panel)]
    if not shown:
        return None
    every = [dot for panel in shown for dot in panel.dots]
    left = 24 + LETTER * min(max(len(dot.name) for dot in every), LONGEST_NAME)
    right = WIDTH - 22 - LETTER * min(max(len(dot.words) for dot in every), LONGEST_NAME)
    picture = Picture(
        HEAD + sum(ROW * len(panel.dots) + FOOT for panel in shown) + LEGEND * any(dot.published for dot in every),
        title,
        subtitle,
        [f"{dot.name}: {dot.words}" + (f", published {dot.published:g}" if dot.published else "") for dot in every],
    )
    top = HEAD
    for panel in shown:
        scale = scales.for_values(_numbers(panel), left, right)
        bottom = top + ROW * len(panel.dots)
        axis(picture, scale, top, bottom, panel.unit + (", logarithmic" if scale.logarithmic else ""))
        for place, dot in enumerate(panel.dots):
            _draw(picture, scale, top + ROW * (place + 0.5), dot, left, right)
        top = bottom + FOOT
    if any(dot.published for dot in every):
        y = picture.height - 12
        picture.line(20, y - 10, 20, y + 2, "ink", 2)
        picture.text(28, y, "published", "small")
        picture.dot(100, y - 4, "s0")
        picture.text(110, y, "measured, with its 95 % interval where there is one; hollow: output wrong or not checked", "small")
    return picture.svg()


def axis(picture: Picture, scale: Scale, top: float, bottom: float, unit: str) -> None:
    """Upright lines at the numbers of an axis, the numbers and the unit below."""
    for tick in scale.ticks:
        x = scale.at(tick)
        picture.line(x, top, x, bottom, "grid")
        picture.text(x, bottom + 14, scales.label(tick), "muted small", "middle")
    picture.text(scale.start, bottom + 30, unit, "muted small")


def _numbers(panel: Panel) -> list[float]:
    return scales.finite([number for dot in panel.dots for number in (dot.measured.value, dot.measured.low, dot.measured.high, dot.published)])


def _draw(picture: Picture, scale: Scale, y: float, dot: Dot, left: float, right: float) -> None:
    picture.text(left - 10, y + 4, cut(dot.name, LONGEST_NAME), anchor="end")
    if ends := dot.measured.ends:
        picture.interval(scale.at(ends[0]), scale.at(ends[1]), y, "s0")
    if dot.published is not None:
        picture.line(scale.at(dot.published), y - 6, scale.at(dot.published), y + 6, "ink", 2)
    picture.dot(scale.at(dot.measured.value), y, "s0", hollow=not dot.right)
    picture.text(right + 12, y + 4, cut(dot.words, LONGEST_NAME), "small")
