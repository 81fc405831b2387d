"""The offloaded key-value cache: how many sequences of a context fit with each cache, and what a further token costs in the largest batch that fits without."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scripts import stats
from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown
from scripts.report.view import View
from scripts.verdicts.row_groups import Group, Row


@dataclass(frozen=True)
class Cache:
    """One cache of a row's figure."""

    row: Row
    figure: Mapping[str, Any]
    entry: Mapping[str, Any]

    @property
    def further_token(self) -> str:
        first_ms, all_ms, new_tokens = (self.entry.get(name) for name in ("first_ms", "all_ms", "new_tokens"))
        if not first_ms or not all_ms or not new_tokens or new_tokens < 2:
            return NONE
        return stats.in_words(stats.per_token(first_ms, all_ms, new_tokens - 1))

    @property
    def identical(self) -> str:
        return NONE if self.entry.get("identical") is None else f"{self.entry['identical']} of {self.entry.get('batch_size')}"


COLUMNS: list[Column[Cache]] = [
    Column("case", lambda cache: cache.row.name, words=True),
    Column("cache", lambda cache: cache.entry["cache"], words=True),
    Column("GPU memory allowed, GiB", lambda cache: cells.gib(cache.figure.get("memory_limit_bytes"), 0)),
    Column("context, tokens", lambda cache: cache.figure["context_tokens"]),
    Column("most sequences", lambda cache: f"{cache.entry['most_sequences']}" + (" or more" if cache.entry["searched_to_the_end"] else "")),
    Column("sequences × context", lambda cache: cache.entry["most_sequences"] * cache.figure["context_tokens"]),
    Column("timed with sequences", lambda cache: NONE if cache.entry.get("batch_size") is None else cache.entry["batch_size"]),
    Column("further token, ms (95 % interval)", lambda cache: cache.further_token),
    Column("sequences as with the default", lambda cache: cache.identical),
]


def section(group: Group, article: Article | None) -> Markdown:
    return table(COLUMNS, [Cache(row, figure, entry) for row, figure in group.figure("kv_offload") for entry in figure["caches"]])


VIEW = View("kv_cache", section, summary="Key-value cache in host memory")
