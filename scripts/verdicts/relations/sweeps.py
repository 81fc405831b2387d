"""The rows of a case over batch sizes, and the ratio of their items/s."""

from scripts import stats
from scripts.verdicts import rates
from scripts.verdicts.findings import Rows
from scripts.verdicts.row_groups import Row


def right_rows(rows: Rows, case: str) -> list[Row]:
    """The rows of a case where the output is right, from the smallest batch up."""
    named = [row for name, row in rows.items() if isinstance(name, str) and isinstance(row, Row)]
    by_size = {row.batch_size: row for row in named if row.case == case and not row.unusable()}
    return [row for _, row in sorted(by_size.items())]


def timed_rows(rows: Rows, case: str) -> list[Row]:
    """Of those the rows whose calls carry an interval.

    A batch that was called a time or two, to see whether it fits, neither speaks for a claim nor against it.
    """
    return [row for row in right_rows(rows, case) if stats.carry_interval(rates.timed_ms(row))]


def rate_ratio(above: Row, below: Row) -> stats.Estimate:
    """items/s of one row over another's, with its interval."""
    return stats.scaled(stats.ratio(rates.timed_ms(below), rates.timed_ms(above)), above.batch_size / below.batch_size)


def items_per_s(row: Row) -> float:
    """Of a row whose calls were timed."""
    rate = rates.items_per_s(row)
    return rate.value if rate else 0.0
