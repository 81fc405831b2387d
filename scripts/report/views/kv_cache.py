"""The offloaded key-value cache: how many sequences of a context fit with each cache, and what a further token costs in the largest batch that fits without."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scripts import stats
from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.plots import dots
from scripts.report.plots.dots import Dot, Panel
from scripts.report.tables import Column, table
from scripts.report.text import Markdown
from scripts.report.view import View
from scripts.results import output
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group


@dataclass(frozen=True)
class Cache:
    """One cache of a row's figure."""

    row: Row
    figure: Mapping[str, Any]
    entry: Mapping[str, Any]

    @property
    def ms(self) -> stats.Estimate | None:
        """Of a further token; None where that was not timed."""
        first_ms, all_ms, new_tokens = (self.entry.get(name) for name in ("first_ms", "all_ms", "new_tokens"))
        if not first_ms or not all_ms or not new_tokens or new_tokens < 2:
            return None
        return stats.per_token(first_ms, all_ms, new_tokens - 1)

    @property
    def further_token(self) -> str:
        return stats.in_words(self.ms) if self.ms else NONE

    @property
    def most(self) -> str:
        """ "30", "128 or more"."""
        return f"{self.entry['most_sequences']}" + (" or more" if self.entry["searched_to_the_end"] else "")

    @property
    def is_wrong(self) -> bool:
        return output.answers_otherwise(self.entry)

    @property
    def identical(self) -> Markdown | str:
        if self.entry.get("identical") is None:
            return NONE
        words = f"{self.entry['identical']} of {self.entry.get('batch_size')}"
        return Markdown("**output FAILED**: {}").format(words) if self.is_wrong else words

    @property
    def mark(self) -> str:
        """What a picture writes after the numbers."""
        return ", output wrong" if self.is_wrong else ""


COLUMNS: list[Column[Cache]] = [
    Column("case", lambda cache: cache.row.name, words=True),
    Column("cache", lambda cache: cache.entry["cache"], words=True),
    Column("GPU memory allowed, GiB", lambda cache: cells.gib(cache.figure.get("memory_limit_bytes"), 0)),
    Column("context, tokens", lambda cache: cache.figure["context_tokens"]),
    Column("most sequences", lambda cache: cache.most),
    Column("sequences × context", lambda cache: cache.entry["most_sequences"] * cache.figure["context_tokens"]),
    Column("timed with sequences", lambda cache: NONE if cache.entry.get("batch_size") is None else cache.entry["batch_size"]),
    Column("further token, ms (95 % interval over calls)", lambda cache: cache.further_token),
    Column("sequences as with the default", lambda cache: cache.identical),
]


def section(group: Group, article: Article | None) -> Markdown:
    return table(COLUMNS, _caches(group))


def _caches(group: Group) -> list[Cache]:
    return [Cache(row, figure, entry) for row, figure in group.figure("kv_offload") for entry in figure["caches"]]


def plot(group: Group, article: Article | None) -> str | None:
    """What a further token costs with each cache, and how many sequences fit."""
    caches = [cache for cache in _caches(group) if cache.ms]
    shown = [Dot(cache.entry["cache"], cache.ms, f"{cache.further_token} ms, {cache.most} fit{cache.mark}") for cache in caches if cache.ms]
    title = "; ".join(f"{cache.entry['cache']}: {cache.most} sequences fit{cache.mark}" for cache in caches)
    return dots.plot([Panel("ms of a further token", shown)], title, group.heading) if shown else None


VIEW = View("kv_cache", section, summary="Key-value cache in host memory", plot=plot, title="Cost of the cache in host memory", folded=True)
