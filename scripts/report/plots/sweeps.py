"""Numbers over the batch size: a small panel a system, both axes logarithmic and the same for all, each line named at its end."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.report.plots import scales
from scripts.report.plots.svg import HEAD, LETTER, SERIES, WIDTH, Picture, cut

COLUMNS = 2
PANEL = 190.0


@dataclass(frozen=True)
class Curve:
    """A line of a panel: {batch size: number}; what was published is hollow and dotted."""

    name: str
    points: Mapping[int, stats.Estimate]
    published: bool = False


def plot(panels: Mapping[str, Sequence[Curve]], title: str, subtitle: str, across: str, up: str) -> str | None:
    """A panel a name; None where no measured curve has two points."""
    measured = [curve for curves in panels.values() for curve in curves if not curve.published]
    if not any(len(curve.points) > 1 for curve in measured):
        return None
    curves = [curve for of_panel in panels.values() for curve in of_panel]
    values = scales.finite([number for curve in curves for point in curve.points.values() for number in (point.value, point.low, point.high)])
    sizes = sorted({size for curve in curves for size in curve.points})
    lines = math.ceil(len(panels) / COLUMNS)
    picture = Picture(HEAD + lines * (PANEL + 46) + 18, title, f"{subtitle} · {up} over {across}, both logarithmic", _told(panels))
    width = (WIDTH - 20) / COLUMNS
    names = max(len(curve.name) for curve in curves)
    for place, (name, of_panel) in enumerate(panels.items()):
        left, top = 20 + place % COLUMNS * width + 34, HEAD + place // COLUMNS * (PANEL + 46) + 22
        across_scale = scales.for_values(sizes, left, left + width - 70 - LETTER * min(names, 16), logarithmic=True, margin=1.1)
        up_scale = scales.for_values(values, top + PANEL - 20, top, logarithmic=True)
        picture.text(left, top - 8, cut(name, 40))
        for tick in up_scale.ticks:
            picture.line(across_scale.start, up_scale.at(tick), across_scale.end, up_scale.at(tick), "grid")
            picture.text(left - 6, up_scale.at(tick) + 4, scales.label(tick), "muted small", "end")
        for size in sizes[:: math.ceil(len(sizes) / 8)]:
            picture.text(across_scale.at(size), up_scale.start + 16, size, "muted small", "middle")
        for number, curve in enumerate(of_panel):
            _draw(picture, curve, f"s{number % len(SERIES)}", across_scale, up_scale, sizes)
    return picture.svg()


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
        if point.low is not None and point.high is not None:
            picture.line(x, up.at(point.low), x, up.at(point.high), f"{style} stroke", 1.5)
        picture.dot(x, y, style, hollow=curve.published, radius=3)
    picture.path(run, style, "2 3" if curve.published else "")
    last = max(curve.points)
    picture.text(across.at(last) + 7, up.at(curve.points[last].value) + 4, cut(curve.name, 18), f"{style} words small")


def _told(panels: Mapping[str, Sequence[Curve]]) -> list[str]:
    return [
        f"{name}, {curve.name}: " + ", ".join(f"{stats.significant(point.value)} in batch {size}" for size, point in sorted(curve.points.items()))
        for name, curves in panels.items()
        for curve in curves
    ]
