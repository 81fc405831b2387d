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
from scripts.verdicts import rates
from scripts.verdicts.row_groups import Group, Row


def share(part: float, whole: float) -> str:
    """Which part of a whole is missing, in %."""
    return f"{100 * (1 - part / whole):.1f}" if whole else NONE


def _rate_cells(row: Row) -> list[str]:
    rate, tokens = rates.items_per_s(row), rates.tokens_per_s(row)
    if rate is None:
        return [NONE, NONE, NONE]
    return [stats.in_words(rate), stats.significant(tokens, most=4) if tokens else NONE, rates.duration(rates.hours(rate.value))]


def published_minutes(article: Article | None, case_name: str) -> float | None:
    """How long 10,000 items took in the article."""
    case = article.case(case_name) if article else None
    return case.published_at("minutes_per_10000_items", 0) if case else None


def _beside(rows: Sequence[Row], article: Article | None) -> dict[int, str]:
    """{a row's place: the article's time} for the row of each case that comes nearest to it, for the article names no batch size."""
    rate_of = {place: rate.value for place, row in enumerate(rows) if (rate := rates.items_per_s(row)) and rate.value}
    found = {}
    for case in dict.fromkeys(row.case for row in rows):
        minutes = published_minutes(article, case)
        apart = {place: abs(math.log(60 * rates.hours(rate) / minutes)) for place, rate in rate_of.items() if minutes and rows[place].case == case}
        if apart:
            found[min(apart, key=apart.__getitem__)] = f"{minutes / 60:g} h" if minutes >= 60 else f"{minutes:g} min"
    return found


def _memory_cells(row: Row) -> list[str]:
    return [gib(max(row.peak_used_bytes().values(), default=None)), gib(row.torch_peak_bytes("peak_allocated_bytes"))]


MEMORY = ["NVML peak, GiB", "torch peak allocated, GiB"]


def rate_table(group: Group, article: Article | None) -> list[str]:
    """Every form and batch size, those that ran out of memory included."""
    shown = rates.rows_of(group, rates.CALL_FORMS)
    published = _beside(shown, article) if not group.cannot_judge() else {}
    headers = ["form", "status", "batch size", "items/s (95 % interval)", "tokens/s", f"{rates.ITEMS:,} items take"]
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
    headers = ["workload", "texts at once", "items", "items/s", "wanted tokens/s", f"{rates.ITEMS:,} items take"]
    headers += ["padding in prompts, %", "decoded beyond an answer's end, %", "went on after a stop"]
    rows = []
    for row in rates.rows_of(group, rates.WORKLOAD_FORMS):
        done = rates.figure(row, "workload")
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
    for row in rates.rows_of(group, ("padding",)):
        found = rates.figure(row, "padding")
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
