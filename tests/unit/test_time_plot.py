"""The plot of times shows every error bar whole, however noisy the calls were."""

from scripts import articles
from scripts.report.plots import bars
from scripts.verdicts import row_groups
from tests.synthetic import job, record


def test_an_error_bar_far_above_its_mean_stays_within_the_axis(monkeypatch):
    figures = []
    monkeypatch.setattr(bars, "svg", lambda figure: figures.append(figure) or "")
    noisy = record(job("int8"), 50.0, spread=3.0)
    (group,) = row_groups.build([noisy], articles.load_all())
    bars.time_plot(group, None)
    (axes,) = figures[0].axes
    highest = max(line.get_xdata().max() for line in axes.lines)
    assert highest > 50 * 1.4, "the bar reaches beyond what room the means alone leave"
    assert highest < axes.get_xlim()[1]
