"""Items and tokens a second of the rows that answer whole batches or workloads.

An item is one text with its answer. All rates are computed from the raw calls and figures of a row's runs.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from scripts import stats
from scripts.results import Record
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group
from scripts.verdicts.run_facts import series

#: Forms whose calls answer as many items as the batch has.
CALL_FORMS = ("transformers-pipeline", "batch")
#: Forms whose timed calls are the batches of a workload: as many as its texts give.
WORKLOAD_FORMS = ("workload", "continuous", "engine-queue")
#: Of these the forms that time from one writing of answers to the next (bench/forms/kept_answers.py).
WRITING_FORMS = ("continuous", "engine-queue")
#: The articles give the time of this number of items.
ITEMS = 10_000


def rows_of(group: Group, forms: Sequence[str]) -> list[Row]:
    return [row for row in group.rows if row.record.job.form in forms]


def figure(row: Row, name: str) -> Any:
    """One of a row's figures; {} where it has none, or did not come to its end."""
    return (row.figures.get(name) or {}) if row.status == "ok" else {}


def items_per_s(row: Row) -> stats.Estimate | None:
    """Items a second over the mean of the runs' mean calls, with its interval; for a workload, its items over the mean of the runs' times."""
    workloads = _workloads(row)
    if workloads:
        return _per(statistics.fmean(done["items"] for done in workloads), stats.over_runs([done["seconds"] for done in workloads]))
    if not _timed_calls(row):
        return None
    return _per(row.batch_size * 1000, row.summary(row.new_tokens[-1]).interval)


def _timed_calls(row: Row) -> bool:
    """Did it time calls of a batch? The calls of a workload are only its parts."""
    return row.status == "ok" and bool(row.new_tokens) and row.record.job.form not in WORKLOAD_FORMS


def _per(items: float, time: stats.Estimate) -> stats.Estimate:
    """Items over a time, with the interval that follows from the time's; a bound of the time that is missing or not positive gives no bound."""
    low, high = (items / end if end and end > 0 else None for end in (time.high, time.low))
    return stats.Estimate(items / time.value, low, high)


def _workloads(row: Row) -> list[dict[str, Any]]:
    """The workload's figure of each run that counts, oldest first; all runs of a row have the same texts."""
    runs = row.counted_runs if figure(row, "workload") else ()
    return [done for run in runs if (done := run.figures.get("workload"))]


def latency(row: Row) -> dict[str, float]:
    """{name: number} of a row whose items arrived over time: the mean of each number that all its runs tell, without runs that tell a reason instead.

    {} for another row. Such a row's items/s are those of the offered load, and not of the system, so no table of the fastest and no claim uses the row.
    """
    runs = row.counted_runs if figure(row, "latency") else ()
    told = [one for run in runs if (one := run.figures.get("latency"))]
    timed = [one for one in told if not one.get("reason")] or told
    names = [name for name in timed[0] if all(isinstance(one.get(name), int | float) for one in timed)] if timed else []
    return {name: statistics.fmean(one[name] for one in timed) for name in names}


def tokens_per_s(row: Row) -> float | None:
    """New tokens a second, those after an answer's end not counted."""
    workloads = _workloads(row)
    if workloads:
        return math.fsum(float(done["new_tokens"]) for done in workloads) / math.fsum(float(done["seconds"]) for done in workloads)
    if not _timed_calls(row):
        return None
    longest = row.new_tokens[-1]
    runs = row.runs_of(longest)
    made = [made_tokens(run, longest) for run in runs]
    return 1000 * sum(map(sum, made)) / math.fsum(ms for run in runs for ms in series(run)[longest]) if all(made) else None


def made_tokens(run: Record, new_tokens: int) -> Sequence[int]:
    """The new tokens of each timed call of a run; [] where it did not count them."""
    return next((call["timed_tokens"] for call in run.figures.get("calls") or [] if call["new_tokens"] == new_tokens), [])


def hours(rate: float) -> float:
    """How long ITEMS take at a rate in items/s."""
    return ITEMS / rate / 3600


def duration(in_hours: float) -> str:
    """ "14.2 h", below an hour "2.58 min"."""
    return f"{stats.significant(in_hours)} h" if in_hours >= 1 else f"{stats.significant(60 * in_hours, most=4)} min"
