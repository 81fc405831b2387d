"""Items and tokens a second of the rows that answer whole batches or workloads.

An item is one text with its answer. All rates are computed from a result's raw calls and figures.
"""

from collections.abc import Sequence
from typing import Any

from scripts import stats
from scripts.verdicts.row_groups import Group, Row

#: Forms whose calls are as many items as the batch has.
CALL_FORMS = ("transformers-pipeline", "batch")
WORKLOAD_FORMS = ("workload", "continuous", "engine-queue")
#: The articles give the time of this number of items.
ITEMS = 10_000


def rows_of(group: Group, forms: Sequence[str]) -> list[Row]:
    return [row for row in group.rows if row.record.job.form in forms]


def figure(row: Row, name: str) -> Any:
    """One of a row's figures; {} where it has none, or did not come to its end."""
    return (row.figures.get(name) or {}) if row.status == "ok" else {}


def timed_ms(row: Row) -> list[float]:
    """The calls of a row's longest run."""
    return row.timed_ms(row.new_tokens[-1]) if row.status == "ok" else []


def items_per_s(row: Row) -> stats.Estimate | None:
    """Items a second with the interval of the mean call; of a workload the items of all its batches over their time."""
    done = figure(row, "workload")
    if done:
        return stats.Estimate(done["items"] / done["seconds"])
    calls = timed_ms(row)
    if not calls:
        return None
    mean = stats.summarise(calls).interval
    items = row.batch_size * 1000
    low, high = (items / ms if ms else None for ms in (mean.high, mean.low))
    return stats.Estimate(items / mean.value, low, high)


def tokens_per_s(row: Row) -> float | None:
    """New tokens a second, those after an answer's end not counted."""
    done = figure(row, "workload")
    if done:
        return float(done["new_tokens"] / done["seconds"])
    calls = timed_ms(row)
    made = next((call["timed_tokens"] for call in figure(row, "calls") or [] if call["new_tokens"] == row.new_tokens[-1]), None) if calls else None
    return 1000 * sum(made) / sum(calls) if made else None


def hours(rate: float) -> float:
    """How long ITEMS take at a rate in items/s."""
    return ITEMS / rate / 3600


def duration(in_hours: float) -> str:
    """ "14.2 h", below an hour "2.58 min"."""
    return f"{stats.significant(in_hours)} h" if in_hours >= 1 else f"{stats.significant(60 * in_hours, most=4)} min"
