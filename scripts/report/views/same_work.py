"""The same work, years later: each article's systems and today's on the same prompts, lengths and batch sizes, fastest first."""

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scripts import articles, pins
from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks, link
from scripts.verdicts import limits, lookup, rates
from scripts.verdicts.row_groups import Group, Row

NOTE = Markdown(
    "Rows with the right output on the GPU of today's systems, in the batch sizes that both have; of several groups one with weights on which "
    "verdicts rest, and of these the one with the most runs. Only int8's times may depend on the recipe of random weights; with recipe 1 the output "
    "check sees less. *ms a token*: one step of the whole batch. *Items*: a sequence with its answer."
)


@functools.cache
def of_today() -> frozenset[str]:
    """The backends that a reader may choose now and no article could: no article's stack has an image of them."""
    stacks = {article.stack for article in articles.load_all().values() if article.claims}
    return frozenset(name for name, backend in pins.load().backends.items() if not stacks & set(backend["stacks"]))


@dataclass(frozen=True)
class Line:
    group: Group
    row: Row
    article: Article

    @property
    def today(self) -> bool:
        return self.row.record.job.backend in of_today()

    @property
    def new_tokens(self) -> int:
        return self.row.new_tokens[-1]

    @property
    def ms(self) -> float:
        """A step of the whole batch."""
        step = limits.steps(self.row)
        return step.ms if step else statistics.fmean(self.row.timed_ms(self.new_tokens)) / self.new_tokens

    @property
    def items_per_s(self) -> float:
        return 1000 * self.row.batch_size / statistics.fmean(self.row.timed_ms(self.new_tokens))

    @property
    def published(self) -> str:
        """The article's number of this case: a step's ms, else items a second."""
        case = self.article.case(self.row.case)
        if not case:
            return NONE
        per_token, minutes = case.published_at("ms_per_token", self.row.batch_size), case.published_at("minutes_per_10000_items", 0)
        mean_ms = case.published_at("mean_ms", 0) if self.new_tokens > 1 and self._as_published else None
        if per_token:
            return f"{cells.significant(per_token * self.row.batch_size)} ms"
        if mean_ms:
            return f"{cells.significant(mean_ms / self.new_tokens)} ms"
        return f"{cells.significant(rates.ITEMS / (60 * minutes))} items/s" if minutes else NONE

    @property
    def weight(self) -> tuple[bool, int]:
        """Of two lines of one system the one with more of it stands in the table."""
        return self.row.recipe >= lookup.LEAST_RECIPE, len(self.row.ok_runs)

    @property
    def _as_published(self) -> bool:
        return self.row.record.job.variant == "published"


def lines(groups: Sequence[Group], article: Article) -> list[Line]:
    """One for each case, number of GPUs and batch size in which a system of today ran the same work; [] without a row of today."""
    usable = [Line(group, row, article) for group in groups for row in group.rows if _usable(group, row)]
    today = [line for line in usable if line.today]
    work = {_work(line) for line in today}
    best: dict[tuple[object, ...], Line] = {}
    for line in usable:
        if _work(line) in work:
            key = (_work(line), line.row.case, line.row.count, line.group.key.stack)
            if key not in best or line.weight > best[key].weight:
                best[key] = line
    return sorted(best.values(), key=lambda line: (line.row.record.job.model.get("shape") or "", line.group.key.variant, line.row.batch_size, line.ms))


def _usable(group: Group, row: Row) -> bool:
    return not group.cannot_judge() and row.status == "ok" and not row.is_workload and bool(row.new_tokens) and not row.unusable(row.new_tokens[-1])


def _work(line: Line) -> tuple[object, ...]:
    """What two rows share that did the same work on the same kind of GPU."""
    key, job = line.group.key, line.row.record.job
    return key.model, job.model.get("weights"), key.variant, job.form, job.model.get("shape"), line.row.batch_size, line.new_tokens


def section(groups: Sequence[Group], article: Article) -> Markdown:
    found = lines(groups, article)
    columns = [
        Column[Line]("system", lambda line: link(line.row.case, f"#{line.group.slug}"), words=True),
        Column[Line]("", lambda line: "today" if line.today else "the article's", words=True),
        Column[Line]("stack", lambda line: line.group.key.stack, words=True),
        Column[Line]("variant", lambda line: line.group.key.variant, words=True),
        Column[Line]("weights", lambda line: line.group.key.weights, words=True),
        Column[Line]("dtype", lambda line: line.row.dtype, words=True),
        Column[Line]("GPUs", lambda line: line.row.count),
        Column[Line]("batch size", lambda line: line.row.batch_size),
        Column[Line]("new tokens", lambda line: line.new_tokens),
        Column[Line]("published", lambda line: line.published),
        Column[Line]("ms a token", lambda line: cells.significant(line.ms)),
        Column[Line]("items/s", lambda line: cells.significant(line.items_per_s)),
        Column[Line]("NVML peak of a GPU, GiB", lambda line: cells.gib(line.row.peak_of_a_gpu_bytes)),
    ]
    return blocks(NOTE, table(columns, found)) if found else Markdown()
