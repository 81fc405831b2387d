"""The third article's rows in their own shape: items and tokens a second over batch sizes, workloads, padding.

An item is one text with its answer. All rates are computed here from a result's raw calls and figures.
"""

import math
import statistics
from collections.abc import Sequence

from scripts import stats
from scripts.articles import Article
from scripts.report import tables
from scripts.report.tables import NONE, gib, text
from scripts.verdicts.row_groups import Group, Row

#: Forms whose calls are as many items as the batch has.
CALL_FORMS = ("pipeline", "batch")
WORKLOAD_FORMS = ("workload", "continuous")
#: The articles tell the time of so many items.
ITEMS = 10_000


def rows_of(group: Group, forms: Sequence[str]) -> list[Row]:
    return [row for row in group.rows if row.record.job.form in forms]


def figure(row: Row, name: str) -> dict:
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
    rate, low, high = (row.batch_size * 1000 / ms if ms else None for ms in (mean.value, mean.high, mean.low))
    return stats.Estimate(rate, low, high)


def tokens_per_s(row: Row) -> float | None:
    """New tokens a second, those after an answer's end not counted."""
    done = figure(row, "workload")
    if done:
        return done["new_tokens"] / done["seconds"]
    calls = timed_ms(row)
    made = next((one["timed_tokens"] for one in figure(row, "calls") or [] if one["new_tokens"] == row.new_tokens[-1]), None) if calls else None
    return 1000 * sum(made) / sum(calls) if made else None


def hours(rate: float) -> float:
    """How long ITEMS take at a rate in items/s."""
    return ITEMS / rate / 3600


def duration(in_hours: float) -> str:
    """ "14.2 h", below an hour "2.58 min"."""
    return f"{stats.significant(in_hours)} h" if in_hours >= 1 else f"{stats.significant(60 * in_hours, most=4)} min"


def share(part: float, whole: float) -> str:
    """Which part of a whole is missing, in %."""
    return f"{100 * (1 - part / whole):.1f}" if whole else NONE


def _rate_cells(row: Row) -> list[str]:
    rate, tokens = items_per_s(row), tokens_per_s(row)
    if rate is None:
        return [NONE, NONE, NONE]
    return [stats.in_words(rate), stats.significant(tokens, most=4) if tokens else NONE, duration(hours(rate.value))]


def published_minutes(article: Article | None, case_name: str) -> float | None:
    """How long ITEMS took in the article."""
    case = article.case(case_name) if article else None
    return case.published_at("minutes_per_10000_items", 0) if case else None


def _beside(rows: Sequence[Row], article: Article | None) -> dict[int, str]:
    """{a row's place: the article's time} for the row of each case that comes nearest to it, for the article names no batch size."""
    rates = {place: rate.value for place, row in enumerate(rows) if (rate := items_per_s(row)) and rate.value}
    found = {}
    for case in dict.fromkeys(row.case for row in rows):
        minutes = published_minutes(article, case)
        apart = {place: abs(math.log(60 * hours(rate) / minutes)) for place, rate in rates.items() if minutes and rows[place].case == case}
        if apart:
            found[min(apart, key=apart.__getitem__)] = f"{minutes / 60:g} h" if minutes >= 60 else f"{minutes:g} min"
    return found


def _memory_cells(row: Row) -> list[str]:
    return [gib(max(row.peak_used_bytes().values(), default=None)), gib(row.torch_peak_bytes("peak_allocated_bytes"))]


MEMORY = ["NVML peak, GiB", "torch peak allocated, GiB"]


def rate_table(group: Group, article: Article | None) -> list[str]:
    """Every form and batch size, those that ran out of memory included."""
    shown = rows_of(group, CALL_FORMS)
    published = _beside(shown, article) if not group.cannot_judge() else {}
    headers = ["form", "status", "batch size", "items/s (95 % interval)", "tokens/s", f"{ITEMS:,} items take"]
    headers += ["published"] if published else []
    rows = []
    for place, row in enumerate(shown):
        head = [tables.case_name(row), tables.status(row), str(row.batch_size), *_rate_cells(row)]
        rows.append([*head, *([published.get(place, NONE)] if published else []), *_memory_cells(row)])
    words = "Items a second, timed from texts to texts with tokenizing and decoding, and how long the article's 10,000 items take at that rate"
    words += " (it names no batch size: its time stands beside the nearest):" if published else ":"
    return [words, "", *tables.table(headers + MEMORY, rows, left=2)] if rows else []


def workload_table(group: Group) -> list[str]:
    """What each way through the same uneven texts makes of its time."""
    headers = ["workload", "texts at once", "items", "items/s", "wanted tokens/s", f"{ITEMS:,} items take"]
    headers += ["padding in prompts, %", "decoded beyond an answer's end, %", "went on after a stop"]
    rows = []
    for row in rows_of(group, WORKLOAD_FORMS):
        done = figure(row, "workload")
        if not done:
            continue
        rows.append(
            [
                tables.case_name(row),
                str(row.batch_size),
                f"{done['items']:,}",
                *_rate_cells(row),
                share(done["prompt_tokens"], done["padded_prompt_tokens"]),
                share(done["new_tokens"], done["decode_rows"]),
                "yes" if done["resumed"] else "no",
                *_memory_cells(row),
            ]
        )
    words = "One workload of uneven texts and answers, each answer ended at the length drawn for it; texts of a static batch wait for its longest answer:"
    return [words, "", *tables.table(headers + MEMORY, rows)] if rows else []


def padding_table(group: Group) -> list[str]:
    """Batched answers against each text's alone, by the side of the padding."""
    headers = ["padding", "dtype", "texts", "new tokens", "same answer as alone, %", "first other token of the rest: first / median"]
    headers += ["error of the first token's logits, %: median / largest (allowed)"]
    rows = []
    for row in rows_of(group, ("padding",)):
        found = figure(row, "padding")
        for side in ("left", "right") if found else ():
            places, errors = found[side]["first_different_token"], found[side]["logits_relative_error"]
            other = [place for place in places if place is not None]
            where = f"{min(other) + 1} / {statistics.median(other) + 1:g}" if other else NONE
            allowed = f" ({stats.percent(row.record.job.tolerance)})" if row.record.job.tolerance else ""
            error = f"{stats.percent(statistics.median(errors))} / {stats.percent(max(errors))}{allowed}"
            same = f"{100 * (len(places) - len(other)) / len(places):.0f}"
            rows.append([side, text(row.dtype), str(len(places)), str(found["new_tokens"]), same, where, error])
    words = "Greedy answers of one batch of uneven texts against the same texts one at a time; the longest text has no padding:"
    return [words, "", *tables.table(headers, rows, left=2)] if rows else []


def section(group: Group, article: Article | None) -> list[str]:
    """The tables of a group, where it has rows of these forms."""
    return rate_table(group, article) + workload_table(group) + padding_table(group)
