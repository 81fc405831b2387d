"""Items a second of every form and batch size, those that ran out of memory included. An item is one text with its answer."""

import math
from collections.abc import Mapping, Sequence

from scripts import stats
from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.plots import throughput
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.verdicts import rates
from scripts.verdicts.row import Place, Row
from scripts.verdicts.row_groups import Group


def _items_per_s(row: Row) -> str:
    rate = rates.items_per_s(row)
    return stats.in_words(rate) if rate else NONE


def _tokens_per_s(row: Row) -> str:
    tokens = rates.tokens_per_s(row)
    return stats.significant(tokens, most=4) if tokens else NONE


def _duration(row: Row) -> str:
    rate = None if rates.latency(row) else rates.items_per_s(row)  # where items arrive over time, the rate is that of the arrivals
    return rates.duration(rates.hours(rate.value)) if rate else NONE


def rate_columns(tokens_per_s: str) -> list[Column[Row]]:
    """The three columns of a rate: items a second, tokens a second under this header, and how long the article's items take at it."""
    return [Column("items/s (95 % interval over runs)", _items_per_s), Column(tokens_per_s, _tokens_per_s), Column(f"{rates.ITEMS:,} items take", _duration)]


MEMORY: list[Column[Row]] = [
    Column("NVML peak, GiB", lambda row: cells.gib(row.peak_of_a_gpu_bytes)),
    Column("torch peak allocated, GiB", lambda row: cells.gib(row.torch_peak_bytes("peak_allocated_bytes"))),
]


def columns(group: Group, rows: Sequence[Row], published: Mapping[Place, str]) -> list[Column[Row]]:
    return [
        Column("form", cells.case, words=True),
        devices(group, rows),
        Column("status", cells.status, words=True),
        Column("batch size", lambda row: row.batch_size),
        *rate_columns("tokens/s"),
        Column("published", lambda row: published.get(row.place, NONE), when=bool(published)),
        *MEMORY,
    ]


def devices(group: Group, rows: Sequence[Row]) -> Column[Row]:
    """The number of devices of each row, where these differ."""
    return Column(cells.devices(group), lambda row: row.count, when=len({row.count for row in rows}) > 1)


def published_minutes(article: Article | None, case_name: str) -> float | None:
    """How long 10,000 items took in the article."""
    case = article.case(case_name) if article else None
    return case.published_at("minutes_per_10000_items", 0) if case else None


def _beside(rows: Sequence[Row], article: Article | None) -> dict[Place, str]:
    """{a row's place: the article's time} for the row of each case whose time is nearest, because the article names no batch size."""
    rate_of = {row.place: rate.value for row in rows if (rate := rates.items_per_s(row)) and rate.value}
    beside: dict[Place, str] = {}
    for case in dict.fromkeys(row.case for row in rows):
        minutes = published_minutes(article, case)
        apart = {place: abs(math.log(60 * rates.hours(rate) / minutes)) for place, rate in rate_of.items() if minutes and place[0] == case}
        if minutes and apart:
            beside[min(apart, key=apart.__getitem__)] = f"{minutes / 60:g} h" if minutes >= 60 else f"{minutes:g} min"
    return beside


def section(group: Group, article: Article | None) -> Markdown:
    rows = rates.rows_of(group, rates.CALL_FORMS)
    published = _beside(rows, article) if not group.cannot_judge() else {}
    words = "Items a second, timed from texts to texts with tokenizing and decoding, and how long the article's 10,000 items take at that rate"
    words += " (it names no batch size: its time stands beside the nearest):" if published else ":"
    return blocks(Markdown(words), table(columns(group, rows, published), rows)) if rows else Markdown()


VIEW = View("throughput", section, summary="Items a second", plot=throughput.draw, title="Items a second over the batch size")
