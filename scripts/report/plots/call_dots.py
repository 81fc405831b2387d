"""A row's raw calls: every timed call of every run as a dot, each run's mean, and the row's mean with its interval over runs."""

import statistics
from collections.abc import Sequence

from scripts import stats
from scripts.report import cells
from scripts.report.plots import scales
from scripts.report.plots.dots import FOOT, ROW, axis
from scripts.report.plots.svg import HEAD, WIDTH, Picture
from scripts.verdicts import run_facts
from scripts.verdicts.row import Row

LEFT, RIGHT = 110.0, WIDTH - 150

#: (number, ms of its timed calls) of each run.
Runs = Sequence[tuple[int, Sequence[float]]]


def plot(row: Row, setting: str) -> str | None:
    """A panel for each number of new tokens, a line per run; None where nothing was timed."""
    panels = {count: [(run.number, run_facts.series(run)[count]) for run in row.runs_of(count)] for count in row.new_tokens}
    shown = [count for count, runs in panels.items() if scales.finite(_calls_ms(runs))]
    if row.status != "ok" or not shown:
        return None
    told = [
        f"{cells.tokens(new_tokens)}, run {number}: {stats.significant(statistics.fmean(timed))} ms"
        for new_tokens in shown
        for number, timed in panels[new_tokens]
    ]
    height = HEAD + sum(ROW * (len(panels[new_tokens]) + 1) + FOOT for new_tokens in shown)
    picture = Picture(height, _finding(row, shown[-1]), setting, told)
    top = HEAD
    for new_tokens in shown:
        top = _panel(picture, row, new_tokens, panels[new_tokens], top)
    return picture.svg()


def _calls_ms(runs: Runs) -> list[float]:
    return [ms for _, timed in runs for ms in timed]


def _panel(picture: Picture, row: Row, new_tokens: int, runs: Runs, top: float) -> float:
    """Draw the calls of so many new tokens; returns where the next panel begins."""
    summary = row.summary(new_tokens)
    reach = scales.finite([*_calls_ms(runs), summary.interval.low, summary.interval.high])
    scale = scales.for_values(reach, LEFT, RIGHT)
    bottom = top + ROW * (len(runs) + 1)
    axis(picture, scale, top, bottom, f"ms per call of {cells.tokens(new_tokens)}" + (", logarithmic" if scale.logarithmic else ""))
    for place, (number, timed) in enumerate(runs):
        y = top + ROW * (place + 0.5)
        picture.text(LEFT - 12, y + 4, f"run {number}", anchor="end")
        for ms in scales.finite(timed):
            picture.dot(scale.at(ms), y, "s0", hollow=True, radius=2.5)
        mean_ms = statistics.fmean(timed)
        picture.line(scale.at(mean_ms), y - 7, scale.at(mean_ms), y + 7, "ink", 2)
        picture.text(RIGHT + 12, y + 4, f"{stats.significant(mean_ms)} ms", "small")
    y = bottom - ROW / 2
    picture.text(LEFT - 12, y + 4, "all", anchor="end")
    if ends := summary.interval.ends:
        picture.interval(scale.at(ends[0]), scale.at(ends[1]), y, "s1")
    picture.dot(scale.at(summary.mean), y, "s1")
    picture.text(RIGHT + 12, y + 4, f"{cells.mean_std(summary)} ms", "small")
    return bottom + FOOT


def _finding(row: Row, new_tokens: int) -> str:
    """How far the means of the runs lie apart, or the calls of a single run."""
    means = row.run_means_ms(new_tokens)
    of_runs = means if len(means) > 1 else row.timed_ms(new_tokens)
    what = f"the means of {len(means)} runs" if len(means) > 1 else f"the {len(of_runs)} calls of one run"
    return f"{row.name} ×{row.count}: {what} lie between {stats.significant(min(of_runs))} and {stats.significant(max(of_runs))} ms"
