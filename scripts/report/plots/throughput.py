"""Items a second over the batch size, a line for each form."""

from scripts import stats
from scripts.articles import Article
from scripts.report.plots import sweeps
from scripts.report.plots.sweeps import Curve
from scripts.verdicts import rates
from scripts.verdicts.row_groups import Group


def draw(group: Group, article: Article | None = None) -> str | None:
    """The picture of a group; None where no form was run in two batch sizes."""
    points = _points(group)
    if not points:
        return None
    case, size, most = max(((case, size, rate.value) for case, of_case in points.items() for size, rate in of_case.items()), key=lambda one: one[2])
    title = f"{case} makes most items a second in batch {size}: {stats.significant(most)}"
    curves = [Curve(case, of_case) for case, of_case in points.items()]
    return sweeps.plot({"": curves}, title, group.heading, "items/s over the batch size, texts a call")


def _points(group: Group) -> dict[str, dict[int, stats.Estimate]]:
    """{case, with its number of devices where these differ: {batch size: items/s}}, from the smallest batch up."""
    rows = sorted(rates.rows_of(group, rates.CALL_FORMS), key=lambda row: row.batch_size)
    one_number = len({row.count for row in rows}) == 1
    points: dict[str, dict[int, stats.Estimate]] = {}
    for row in rows:
        if rate := rates.items_per_s(row):
            points.setdefault(row.case if one_number else f"{row.case} ×{row.count}", {})[row.batch_size] = rate
    return points
