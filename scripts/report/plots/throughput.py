"""Items a second over the batch size, a line for each form."""

from collections.abc import Sequence

from scripts import stats
from scripts.articles import Article
from scripts.report.plots import sweeps
from scripts.report.plots.sweeps import Curve
from scripts.verdicts import rates
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group


def draw(group: Group, article: Article | None = None) -> str | None:
    """The picture of a group; None where no form was run in two batch sizes."""
    rows = sorted(rates.rows_of(group, rates.CALL_FORMS), key=lambda row: row.batch_size)
    one_number = len({row.count for row in rows}) == 1
    rated = [(row.case if one_number else f"{row.case} ×{row.count}", row, rate) for row in rows if (rate := rates.items_per_s(row))]
    points: dict[str, dict[int, stats.Estimate]] = {}
    for name, row, rate in rated:
        points.setdefault(name, {})[row.batch_size] = rate
    wrong = {(name, row.batch_size) for name, row, _ in rated if not row.output_is_right}
    curves = [Curve(name, of_name, wrong={size for size in of_name if (name, size) in wrong}) for name, of_name in points.items()]
    return sweeps.plot({"": curves}, _finding(rated), group.heading, "items/s over the batch size, texts a call") if curves else None


def _finding(rated: Sequence[tuple[str, Row, stats.Estimate]]) -> str:
    """Which row with a right output makes most items a second; where no output was found right, which of the unchecked rows."""
    right = [one for one in rated if one[1].output_is_right] or [one for one in rated if not one[1].check]
    if not right:
        return "No row has a right output"
    name, row, rate = max(right, key=lambda one: one[2].value)
    return f"{name} makes most items a second in batch {row.batch_size}: {stats.significant(rate.value)}"
