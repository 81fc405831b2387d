"""A setting's memory: the peak of each row's fullest GPU as the host's NVML saw it; on a CPU, the peak of the guest's resident set."""

from collections.abc import Sequence

from scripts import stats
from scripts.articles import Article
from scripts.report.plots import dots
from scripts.report.plots.dots import Dot, Panel
from scripts.report.plots.time_dots import named
from scripts.units import GIB
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group


def plot(group: Group, article: Article | None = None) -> str | None:
    """A dot per row; None where no row has a peak."""
    rows = [row for row in group.rows if row.status == "ok" and not row.is_calibration]
    shown = [dot for row in rows if (dot := _dot(row))]
    if not shown:
        return None
    unit = "peak of the guest's resident set, GiB" if group.key.device == "cpu" else "peak of the fullest GPU as the host's NVML saw it, GiB"
    return dots.plot([Panel(unit, shown)], _finding(shown), group.heading)


def _size(dot: Dot) -> float:
    return dot.measured.value


def _dot(row: Row) -> Dot | None:
    size_bytes = row.peak_resident_bytes if row.record.job.device == "cpu" else row.peak_of_a_gpu_bytes
    words = "" if not row.check or row.output_is_right else ", output wrong"
    return Dot(named(row), stats.Estimate(size_bytes / GIB), f"{size_bytes / GIB:.2f} GiB{words}") if size_bytes else None


def _finding(shown: Sequence[Dot]) -> str:
    least, most = min(shown, key=_size), max(shown, key=_size)
    return f"Peak memory: {least.words} ({least.name})" + ("" if least is most else f" to {most.words} ({most.name})")
