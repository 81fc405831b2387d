"""Pairs of rows: the ratio of their times, what stands behind it in words, and the rows of batch sizes.

Where batch sizes are named, all relations of a claim are judged on one number of GPUs: that on which most of the rows that it names carry
an interval, of several that on which most of them ran, then the largest. So a look with a call or two on more GPUs undoes no verdict.
ms/token are the article's (scripts/verdicts/token_times.py).
"""

import collections
from collections.abc import Sequence

from scripts import stats
from scripts.verdicts import token_times
from scripts.verdicts.findings import NotTested, Rows
from scripts.verdicts.relations.base import Relation
from scripts.verdicts.row_groups import Row, apart, gpus, run_means_ms


def common_count(rows: Rows, relations: Sequence[Relation], new_tokens: int) -> int | None:
    """The number of devices on which most of the rows that the relations name carry an interval, of several that on which most of them ran,
    then the largest; None where none of their cases ran."""
    named = {pair for relation in relations for pair in relation.rows()}
    cases = {case for case, _ in named}
    ran: collections.Counter[int] = collections.Counter()
    timed: collections.Counter[int] = collections.Counter()
    for key, row in rows.items():
        if isinstance(key, tuple) and isinstance(row, Row) and row.case in cases:
            is_named = (row.case, row.batch_size) in named
            ran[row.count] += is_named
            timed[row.count] += is_named and stats.carry_interval(row.timed_ms(new_tokens))
    return max(ran, key=lambda count: (timed[count], ran[count], count), default=None)


def in_batches(rows: Rows, relation: Relation, new_tokens: int, count: int | None) -> dict[tuple[str, int], Row]:
    """{(case, batch size): its row} on so many devices; raises NotTested where one is missing or supports nothing."""
    ran = {key[0] for key in rows if isinstance(key, tuple)}
    missing = [case for case in dict.fromkeys(case for case, _ in relation.rows()) if case not in ran]
    if missing:
        raise NotTested(f"{' and '.join(missing)} {'was' if len(missing) == 1 else 'were'} not run here")
    return {(case, batch_size): _in_batch(rows, case, batch_size, new_tokens, count) for case, batch_size in relation.rows()}


def _in_batch(rows: Rows, case: str, batch_size: int, new_tokens: int, count: int | None) -> Row:
    row = rows.get((case, batch_size, count)) if count is not None else None
    if not isinstance(row, Row):
        raise NotTested(f"{case} b{batch_size} was not run on {gpus(count or 0)} here")
    if reason := row.unusable(new_tokens):
        raise NotTested(reason)
    if token_times.wrong_when_padded(row):
        raise NotTested(f"{row.name}'s output is another one when padded: its numbers do not count")
    return row


def per_token_ratio(above: Row, below: Row, new_tokens: int) -> tuple[stats.Estimate, list[float]]:
    """(ms/token of one row over ms/token of another by the article's formula, its extremes over pairs of repeated runs)."""
    counted = [token_times.tokens_of_a_call(row, "article") for row in (above, below)]
    factor = counted[1] / counted[0] if all(counted) else 1.0  # rows that tell no tokens are compared by the call
    ratio = stats.scaled(stats.ratio(above.timed_ms(new_tokens), below.timed_ms(new_tokens)), factor)
    return ratio, [extreme * factor for extreme in ratios_over_runs(below, above, new_tokens)]


def ratios_over_runs(faster: Row, slower: Row, new_tokens: int) -> list[float]:
    """The smallest and the largest ratio of a run's mean of one row to a run's mean of the other; empty unless one of them was repeated."""
    above, below = run_means_ms(slower, new_tokens), run_means_ms(faster, new_tokens)
    return [min(above) / max(below), max(above) / min(below)] if len(above) * len(below) > 1 else []


def on(row: Row) -> str:
    """ "deepspeed (2 GPUs, float16)"."""
    return f"{row.case} ({gpus(row.count)}, {row.dtype})"


def in_digits(ratio: stats.Estimate, over_runs: Sequence[float], published: float | None, pair: tuple[Row, Row]) -> tuple[str, str]:
    """A ratio in digits, and in brackets what stands behind it: its interval, its extremes over repeated runs, what was published."""
    value, interval = stats.with_interval(ratio, least=2)
    beside = [f"95 % interval {interval}"] if interval else []
    if over_runs:
        beside.append(f"{min(over_runs):.2f} to {max(over_runs):.2f} over repeated runs")
    if published is not None:
        beside.append(f"published {published:.2f}")
    if apart(*pair):
        beside.append("on different GPUs")
    return value, f" ({'; '.join(beside)})" if beside else ""
