"""A setting's memory: the peak of each GPU as the host's NVML saw it, on a CPU of the guest's resident set."""

from collections.abc import Sequence

from scripts import stats
from scripts.articles import Article
from scripts.report.plots import dots
from scripts.report.plots.dots import Dot, Panel
from scripts.report.plots.time_dots import named
from scripts.units import GIB
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

MOST_DOTS = 60


def plot(group: Group, article: Article | None = None) -> str | None:
    """A dot a GPU; where that were more than MOST_DOTS, each row has one dot: its GPU that held most. None without any."""
    rows = [row for row in group.rows if row.status == "ok" and not row.is_calibration]
    shown = [dot for row in rows for dot in _dots(row)]
    if len(shown) > MOST_DOTS:
        shown = [max(of_row, key=_size) for row in rows if (of_row := _dots(row))]
    if not shown:
        return None
    unit = "peak of the guest's resident set, GiB" if group.key.device == "cpu" else "peak of a GPU as the host's NVML saw it, GiB"
    return dots.plot([Panel(unit, shown)], _finding(shown), group.heading)


def _size(dot: Dot) -> float:
    return dot.measured.value


def _dots(row: Row) -> list[Dot]:
    if row.record.job.device == "cpu":
        return [_dot(named(row), row.peak_resident_bytes)] if row.peak_resident_bytes else []
    peaks = row.peaks_of_gpus_bytes()
    return [_dot(f"{named(row)}, {_place(number, len(peaks))}" if len(peaks) > 1 else named(row), peak) for number, peak in enumerate(peaks)]


def _place(number: int, count: int) -> str:
    """ "fullest of 4 GPUs", "fullest of 4 GPUs but 1", …"""
    return f"fullest of {count} GPUs" + (f" but {number}" if number else "")


def _dot(name: str, size_bytes: int) -> Dot:
    return Dot(name, stats.Estimate(size_bytes / GIB), f"{size_bytes / GIB:.2f} GiB")


def _finding(shown: Sequence[Dot]) -> str:
    least, most = min(shown, key=_size), max(shown, key=_size)
    return f"Peak memory: {least.words} ({least.name})" + ("" if least is most else f" to {most.words} ({most.name})")
