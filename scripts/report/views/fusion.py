"""Fused operators: each region in each batch size, in PyTorch's operators and in another way, beside the article's speed-up."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from scripts import stats
from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.plots import dots
from scripts.report.plots.dots import Dot, Panel
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.verdicts.row_groups import Group

REGION_NAMES = {
    "layernorm_qkv_bias": "LayerNorm + QKV + bias",
    "attention": "attention",
    "bias_residual": "bias + residual",
    "layernorm_ff_gelu": "LayerNorm + FF + GELU",
}

NOTES = Markdown(
    "One new token of one layer. Times of one call among many that follow one another, so with the host's part; *GPU busy* is the kernels alone. "
    "The article names a batch size for none of its numbers; they stand beside a batch of one."
)

#: The first torch whose profiler tells nanoseconds: https://github.com/pytorch/pytorch/pull/123650, merged in April 2024. Torch 2.1.2 gave whole microseconds.
NANOSECONDS = (2, 4)


@dataclass(frozen=True)
class Fused:
    """A region in a batch size, fused by an implementation, beside PyTorch's operators; `eager` is None where only one of the two was timed.

    `busy_is_least`: the profiler dropped fractions of the kernels' times.
    """

    entry: Mapping[str, Any]
    eager: Mapping[str, Any] | None
    published: float | None
    busy_is_least: bool

    @property
    def place(self) -> tuple[int, str, int]:
        names = list(REGION_NAMES)
        region = self.entry["region"]
        return names.index(region) if region in names else len(names), self.entry["implementation"], self.entry["batch_size"]

    @property
    def busy_us(self) -> str:
        if not self.eager:
            return NONE
        sign = "≥ " if self.busy_is_least else ""
        told = (entry.get("device_us") for entry in (self.eager, self.entry))
        return cells.beside(*(NONE if us is None else f"{sign}{cells.significant(us)}" for us in told))

    @property
    def error(self) -> str:
        error = self.entry.get("relative_error")
        return NONE if not self.eager else "not finite" if error is None else stats.percent(error)


def _mean(samples: list[float]) -> str:
    return stats.significant(statistics.fmean(samples))


COLUMNS: list[Column[Fused]] = [
    Column("region", lambda fused: REGION_NAMES.get(fused.entry["region"], fused.entry["region"]), words=True),
    Column("fused by", lambda fused: fused.entry["implementation"], words=True),
    Column("batch", lambda fused: fused.entry["batch_size"]),
    Column("PyTorch, µs", lambda fused: _mean(fused.eager["us"]) if fused.eager else NONE),
    Column("fused, µs", lambda fused: _mean(fused.entry["us"]) if fused.eager else fused.entry["reason"] or NONE),
    Column(
        "times as fast (95 % interval over calls)", lambda fused: stats.in_words(stats.ratio(fused.eager["us"], fused.entry["us"]), 2) if fused.eager else NONE
    ),
    Column("published", lambda fused: NONE if fused.published is None else f"{fused.published:g}"),
    Column("GPU busy: PyTorch / fused, µs", lambda fused: fused.busy_us),
    Column("error of fused against float32, %", lambda fused: fused.error),
]


def _fused(group: Group, article: Article | None) -> Iterator[Fused]:
    for row, entries in group.figure("fusion"):
        case, is_least = article.case(row.case) if article else None, _is_before_nanoseconds(row.version("torch"))
        eager = {(entry["region"], entry["batch_size"]): entry for entry in entries if entry["implementation"] == "eager" and entry["us"]}
        for entry in entries:
            if entry["implementation"] != "eager":
                published = case.published_at(f"speed_up_{entry['region']}", entry["batch_size"]) if case and not group.cannot_judge() else None
                yield Fused(entry, eager.get((entry["region"], entry["batch_size"])) if entry["us"] else None, published, is_least)


def section(group: Group, article: Article | None) -> Markdown:
    fused = table(COLUMNS, sorted(_fused(group, article), key=lambda fused: fused.place))
    return blocks(fused, NOTES, _whole_microseconds(group)) if fused else Markdown()


def _whole_microseconds(group: Group) -> Markdown:
    """What *GPU busy* is where torch's profiler drops a kernel's fraction of a microsecond; "" where it does not."""
    versions = dict.fromkeys(version for row, _ in group.figure("fusion") if _is_before_nanoseconds(version := row.version("torch")))
    words = (
        "The profiler of torch {} drops the fraction of a microsecond of each kernel: its *GPU busy* are lower bounds, "
        "by up to 1 µs for each of a region's kernels."
    )
    return Markdown(words).format(", ".join(versions)) if versions else Markdown()


def _is_before_nanoseconds(version: str) -> bool:
    try:
        return Version(version).release < NANOSECONDS
    except InvalidVersion:
        return False


def plot(group: Group, article: Article | None) -> str | None:
    """How many times as fast each fused region is, beside the article's speed-up."""
    fused = [one for one in sorted(_fused(group, article), key=lambda fused: fused.place) if one.eager]
    if not fused:
        return None
    ratios = [stats.ratio(one.eager["us"], one.entry["us"]) for one in fused if one.eager]
    shown = [Dot(_named(one), ratio, stats.in_words(ratio, 2), one.published) for one, ratio in zip(fused, ratios, strict=True)]
    least, most = (stats.significant(pick(ratio.value for ratio in ratios), most=2) for pick in (min, max))
    return dots.plot([Panel("times as fast as PyTorch's operators", shown)], f"Fused regions are {least} to {most} times as fast", group.heading)


def _named(fused: Fused) -> str:
    region = fused.entry["region"]
    return f"{REGION_NAMES.get(region, region)}, batch {fused.entry['batch_size']}, {fused.entry['implementation']}"


VIEW = View("fusion", section, summary="Fused operators", plot=plot, title="Speed-up of fused operators", folded=True)
