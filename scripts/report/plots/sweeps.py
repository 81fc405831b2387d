"""Numbers over the batch size: a small panel per system, both axes logarithmic and the same for all, each line named at its end."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.report.plots import scales
from scripts.report.plots.svg import HEAD, LETTER, SERIES, WIDTH, Picture, cut

COLUMNS = 2
#: Heights in pixels: a panel, the gap below it, the line at the foot, a name at a curve's end.
PANEL, GAP, FOOT, NAME = 190.0, 40.0, 14.0, 13.0
LONGEST_NAME = 22
MOST_SIZES = 9

#: The mark of a point whose output failed its check or was not checked, and its meaning.
WRONG = "✗"
WRONG_WORDS = "output wrong or not checked"


@dataclass(frozen=True)
class Curve:
    """A line of a panel, `points` {batch size: number}; published numbers are drawn hollow and dotted. Points in a batch size of `wrong` are marked."""

    name: str
    points: Mapping[int, stats.Estimate]
    published: bool = False
    wrong: Collection[int] = ()


def plot(panels: Mapping[str, Sequence[Curve]], title: str, subtitle: str, unit: str) -> str | None:
    """A panel per name; `unit` names both axes; None where no measured curve has two points."""
    curves = [curve for of_panel in panels.values() for curve in of_panel]
    values = scales.finite([number for curve in curves for point in curve.points.values() for number in (point.value, point.low, point.high)])
    if not values or not any(len(curve.points) > 1 for curve in curves if not curve.published):
        return None
    sizes = sorted({size for curve in curves for size in curve.points})
    columns = min(len(panels), COLUMNS)
    picture = Picture(HEAD + math.ceil(len(panels) / columns) * (PANEL + GAP) + FOOT, title, subtitle, _told(panels))
    width = (WIDTH - 20) / columns
    names = LETTER * min(max(len(curve.name) for curve in curves), LONGEST_NAME)
    for place, (name, of_panel) in enumerate(panels.items()):
        left, top = 54 + place % columns * width, HEAD + place // columns * (PANEL + GAP) + 22
        across = scales.for_values(sizes, left + 6, left + width - 60 - names, logarithmic=True, margin=1.02)
        up = scales.for_values(values, top + PANEL - 20, top, logarithmic=True)
        picture.text(left, top - 8, cut(name, 40))
        _axes(picture, across, up, sizes)
        for number, curve in enumerate(of_panel):
            _draw(picture, curve, f"s{number % len(SERIES)}", across, up, sizes)
        _names(picture, of_panel, across, up)
    marked = f"; {WRONG}: {WRONG_WORDS}" if any(curve.wrong for curve in curves) else ""
    picture.text(20, picture.height - 10, f"{unit}; both axes logarithmic{marked}", "muted small")
    return picture.svg()


def _axes(picture: Picture, across: scales.Scale, up: scales.Scale, sizes: Sequence[int]) -> None:
    for tick in up.ticks:
        picture.line(across.start, up.at(tick), across.end, up.at(tick), "grid")
        picture.text(across.start - 8, up.at(tick) + 4, scales.label(tick), "muted small", "end")
    for size in sizes[:: math.ceil(len(sizes) / MOST_SIZES)]:
        picture.text(across.at(size), up.start + 16, size, "muted small", "middle")


def _draw(picture: Picture, curve: Curve, style: str, across: scales.Scale, up: scales.Scale, sizes: Sequence[int]) -> None:
    run: list[tuple[float, float]] = []
    for size in sizes if not curve.published else sorted(curve.points):
        point = curve.points.get(size)
        if point is None:  # a batch size that was not run is a gap, not a line across
            picture.path(run, style)
            run = []
            continue
        x, y = across.at(size), up.at(point.value)
        run.append((x, y))
        if ends := point.ends:
            picture.line(x, up.at(ends[0]), x, up.at(ends[1]), f"{style} stroke", 1.5)
        picture.dot(x, y, style, hollow=curve.published, radius=3)
        if size in curve.wrong:
            picture.text(x, y - 7, WRONG, f"{style} words small", "middle")
    picture.path(run, style, "2 3" if curve.published else "")


def _names(picture: Picture, curves: Sequence[Curve], across: scales.Scale, up: scales.Scale) -> None:
    """Each curve's name at its last point, pushed down where it would lie on another."""
    ends = sorted((up.at(curve.points[max(curve.points)].value), number, curve) for number, curve in enumerate(curves) if curve.points)
    lowest = -math.inf
    for y, number, curve in ends:
        lowest = max(y, lowest + NAME)
        picture.text(across.at(max(curve.points)) + 8, lowest + 4, cut(curve.name, LONGEST_NAME), f"s{number % len(SERIES)} words small")


def _told(panels: Mapping[str, Sequence[Curve]]) -> list[str]:
    return [
        ", ".join(filter(None, (name, curve.name))) + ": " + ", ".join(_point(curve, size) for size in sorted(curve.points))
        for name, curves in panels.items()
        for curve in curves
    ]


def _point(curve: Curve, size: int) -> str:
    return f"{stats.significant(curve.points[size].value)} in batch {size}" + (f" ({WRONG_WORDS})" if size in curve.wrong else "")
