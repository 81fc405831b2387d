"""Tensor parallelism: latency and efficiency over numbers of devices, for cases that cut each layer and ran on several such numbers."""

from collections.abc import Iterator
from dataclasses import dataclass

from scripts import stats
from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.verdicts.row import Row, apart
from scripts.verdicts.row_groups import Group

#: Backends that cut each layer over their devices.
CUTTING = ("deepspeed", "tensor-parallel", "vllm")

NOTES = Markdown("Efficiency: how many times as fast, over how many times as many devices. A row with a wrong output has no line.")


@dataclass(frozen=True)
class Scaled:
    """A row's calls of `new_tokens` tokens, and the row with the same calls on the fewest devices."""

    row: Row
    fewest: Row
    new_tokens: int

    @property
    def ratio(self) -> stats.Estimate:
        return stats.ratio_over_runs(self.fewest.run_means_ms(self.new_tokens), self.row.run_means_ms(self.new_tokens))

    @property
    def times_as_fast(self) -> str:
        if self.row is self.fewest:
            return NONE
        disturbed = any(not row.undisturbed(self.new_tokens) for row in (self.row, self.fewest))
        notes = [words for words, holds in (("different GPUs", apart(self.row, self.fewest)), (cells.DISTURBED, disturbed)) if holds]
        return ", ".join([stats.in_words(self.ratio, least=2), *notes])

    @property
    def efficiency(self) -> str:
        return f"{100 * self.ratio.value * self.fewest.count / self.row.count:.0f}"


def columns(group: Group) -> list[Column[Scaled]]:
    return [
        Column("case", lambda scaled: scaled.row.case, words=True),
        Column("batch", lambda scaled: scaled.row.batch_size),
        Column("new tokens", lambda scaled: scaled.new_tokens),
        Column(cells.devices(group), lambda scaled: scaled.row.count),
        Column("mean, ms", lambda scaled: cells.mean_std(scaled.row.summary(scaled.new_tokens))),
        Column("times as fast as on the fewest (95 % interval over runs)", lambda scaled: scaled.times_as_fast),
        Column("efficiency, %", lambda scaled: scaled.efficiency),
    ]


def _scaled(group: Group) -> Iterator[Scaled]:
    by_question: dict[tuple[str, int, int], list[Row]] = {}
    for row in group.rows:
        if row.status == "ok" and not row.wrong_runs and row.new_tokens and row.record.job.backend in CUTTING:
            by_question.setdefault((row.case, row.batch_size, row.new_tokens[-1]), []).append(row)
    for (_, _, new_tokens), rows in by_question.items():
        fewest, *others = sorted(rows, key=lambda row: row.count)
        yield from (Scaled(row, fewest, new_tokens) for row in ([fewest, *others] if others else []))


def section(group: Group, article: Article | None) -> Markdown:
    if article is None or not any(case.form == "padded-sentences" for case in article.cases):
        return Markdown()
    scaled = table(columns(group), list(_scaled(group)))
    return blocks(scaled, NOTES) if scaled else Markdown()


VIEW = View("scaling", section, summary="Tensor parallelism over numbers of devices")
