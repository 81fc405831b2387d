"""The plot of times shows every error bar whole, however noisy the calls were."""

import numpy
import pytest

from scripts import articles, stats
from scripts.report.plots import bars
from scripts.verdicts import row_groups
from tests import synthetic
from tests.synthetic import job, record


def test_an_error_bar_far_above_its_mean_stays_within_the_axis(monkeypatch):
    figures = []
    monkeypatch.setattr(bars, "svg", lambda figure: figures.append(figure) or "")
    (group,) = row_groups.build(synthetic.repeated(record(job("int8"), 50.0), scatter=1.2), articles.load_all())
    bars.time_plot(group, None)
    (axes,) = figures[0].axes
    highest = max(line.get_xdata().max() for line in axes.lines)
    assert highest > 50 * 1.4, "the bar reaches beyond what room the means alone leave"
    assert highest < axes.get_xlim()[1]


def test_a_row_of_five_runs_has_the_interval_over_runs_and_a_row_of_one_has_none():
    runs = synthetic.repeated(record(job("int8"), 50.0), scatter=0.2)
    (group,) = row_groups.build(runs, articles.load_all())
    means = group.rows[0].run_means_ms(1)
    summary = group.rows[0].summary(1)
    assert len(means) == 5 and summary.interval == stats.over_runs(means)
    assert summary.mean == pytest.approx(sum(means) / 5) and summary.std == pytest.approx(float(numpy.std(means)))
    assert summary.p95 > max(means), "the 95th percentile is that of all calls"
    (single,) = row_groups.build(runs[:4], articles.load_all())
    few = single.rows[0].summary(1)
    assert few.interval.low is None and few.mean == pytest.approx(sum(single.rows[0].timed_ms(1)) / len(single.rows[0].timed_ms(1)))
