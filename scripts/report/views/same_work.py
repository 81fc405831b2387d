"""The same work, years later: each article's systems and today's on the same prompts, lengths and batch sizes, most items a second first."""

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scripts import pins
from scripts.articles import Article
from scripts.report import cells, text
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks, link
from scripts.report.views import matrix
from scripts.units import counted
from scripts.verdicts import limits, lookup, rates
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

NOTE = Markdown(
    "Each table holds rows with the right output on one GPU model and in one batch size that both a system of today and an earlier one ran. "
    "Of a system with several settings it shows one: weights of recipe 2 go first, then the host of today's systems, then the most runs. "
    "The host alone may change a time by as much as half; the recipe of random weights should change no time but int8's, as measured with plain transformers. "
    "With recipe 1 the output check sees less.\n\n"
    "- *origin*: *today* is a system that the article could not choose, a *baseline* a row of the kit that the article does not have.\n"
    "- *published*: on the article's own GPUs, as many as the row's unless the cell names their number.\n"
    "- *ms a step*: the time of a token of every sequence of the batch; *with the prompt*: the time of a whole call over its steps.\n"
    "- *items/s*: an item is a sequence with its answer.\n"
    "- *allocated*: torch's peak on a GPU, with the cache that vLLM allocates ahead; *held*: what the GPU held, where torch's number is missing."
)


@functools.cache
def later_than(stack: str) -> frozenset[str]:
    """The backends that an article on this stack could not choose, because every image of theirs has later packages; a reader can choose them now."""
    images = pins.load().images()
    as_old = {image.backend for image in images if image.exclude_newer <= pins.load().stacks[stack]["exclude_newer"]}
    return frozenset(image.backend for image in images) - as_old


@dataclass(frozen=True)
class Line:
    group: Group
    row: Row
    article: Article

    @property
    def today(self) -> bool:
        return self.row.record.job.backend in later_than(self.article.stack)

    @property
    def kind(self) -> str:
        """Whose system it is; "baseline" for one that the article does not measure."""
        case = self.article.case(self.row.case)
        return "today" if self.today else "the article's" if case and case.published else "baseline"

    @property
    def new_tokens(self) -> int:
        return self.row.new_tokens[-1]

    @property
    def ms(self) -> float:
        """A step of the whole batch, the mean of the runs."""
        return statistics.fmean(step.ms for step in self._steps) if self._steps else self._call_ms / self.new_tokens

    @property
    def runs(self) -> int:
        return len(self.row.runs_of(self.new_tokens))

    @property
    def _call_ms(self) -> float:
        return self.row.summary(self.new_tokens).mean

    @functools.cached_property
    def _steps(self) -> Sequence[limits.Distance]:
        """The steps of all runs; () where some stamp no token: times of the other runs would stand beside items/s of all."""
        found = limits.steps_of_runs(self.row)
        return found if len(found) == self.runs else ()

    @property
    def has_prompt(self) -> bool:
        """Does the time of a step include a part of the prompt, because it is the time of a call over all its tokens?"""
        return not (self._steps and self._steps[0].further)

    def in_words(self, told_above: bool) -> str:
        """ "4.46", or "7.25 with the prompt" where the column's head does not say so."""
        return cells.significant(self.ms) + (" with the prompt" if self.has_prompt and not told_above else "")

    @property
    def memory(self) -> str:
        """ "13.39", or "9.68 held" where no process tells torch's peak: memory held includes what torch has freed and keeps."""
        in_use_bytes = self.row.torch_peak_bytes("peak_allocated_bytes")
        held = self.row.peak_of_a_gpu_bytes
        return cells.gib(in_use_bytes) if in_use_bytes or not held else f"{cells.gib(held)} held"

    @property
    def items_per_s(self) -> float:
        return 1000 * self.row.batch_size / self._call_ms

    @property
    def published(self) -> str:
        """ "19.3 ms, 8 GPUs": the article's number of this case in the published variant, with its number of GPUs where the row has another."""
        case = self.article.case(self.row.case)
        number = self._published_number
        return number if number == NONE or case is None or case.gpus == self.row.count else f"{number}, {counted(case.gpus, 'GPU')}"

    @property
    def _published_number(self) -> str:
        """A step's ms, else items a second."""
        case = self.article.case(self.row.case)
        if not case or self.row.record.job.variant != "published":
            return NONE
        per_token, minutes = case.published_at("ms_per_token", self.row.batch_size), case.published_at("minutes_per_10000_items", 0)
        is_of_its_batch = self.row.batch_size == self.article.prompt_of(case)["batch_size"]
        mean_ms = case.published_at("mean_ms", 0) if self.new_tokens > 1 and is_of_its_batch else None
        if per_token:
            return f"{cells.significant(per_token * self.row.batch_size * case.times_counted)} ms"
        if mean_ms:
            return f"{cells.significant(mean_ms / self.new_tokens)} ms"
        return f"{cells.significant(rates.ITEMS / (60 * minutes))} items/s" if minutes else NONE


def lines(groups: Sequence[Group], article: Article) -> list[Line]:
    """A line for each case, number of GPUs and stack, of each work that a system of today and another one ran."""
    usable = [Line(group, row, article) for group in groups for row in group.rows if _usable(group, row)]
    today = [line for line in usable if line.today]
    work = {_work(line) for line in today} & {_work(line) for line in usable if not line.today}
    hosts = {(_work(line), line.group.key.host) for line in today}
    of_system: dict[tuple[object, ...], list[Line]] = {}
    for line in usable:
        if _work(line) in work:
            of_system.setdefault((_work(line), line.row.case, line.row.count, line.group.key.stack), []).append(line)

    def rank(line: Line) -> tuple[bool, bool, int]:
        return lookup.weights_can_judge(line.row), (_work(line), line.group.key.host) in hosts, line.runs

    best = [max(same, key=rank) for same in of_system.values()]
    return sorted(best, key=_order)


def _order(line: Line) -> tuple[str, str, str, int, int, float]:
    """Work by work, each with most items a second first, and not by a step's ms, which may be of other calls than the timed ones."""
    key = line.group.key
    return line.row.shape, key.variant, key.model, line.row.batch_size, line.new_tokens, -line.items_per_s


def left_out(groups: Sequence[Group], article: Article, shown: Sequence[Line]) -> list[Line]:
    """The rows of the shown work whose output is wrong: a reader who would choose such a system has to know."""
    work = set(map(_work, shown))
    wrong = [Line(group, row, article) for group in groups for row in group.rows if _timed(group, row) and row.wrong_runs]
    return sorted((line for line in wrong if _work(line) in work), key=_order)


def _timed(group: Group, row: Row) -> bool:
    return row.status == "ok" and not row.is_workload and bool(row.new_tokens) and not group.cannot_judge()


def _usable(group: Group, row: Row) -> bool:
    return _timed(group, row) and not row.unusable(row.new_tokens[-1])


def _work(line: Line) -> tuple[object, ...]:
    """What two rows share if they did the same work on the same model of GPU."""
    key, job = line.group.key, line.row.record.job
    return key.model, job.model.get("weights"), key.variant, job.form, line.row.shape, line.row.batch_size, line.new_tokens


#: What rows often share: a column where they differ, else a word above the tables.
SHARED: dict[str, Callable[[Line], str]] = {
    "variant": lambda line: line.group.key.variant,
    "weights": lambda line: line.group.key.weights,
    "host": lambda line: (line.group.key.host or NONE).removesuffix(" host"),
    "in": lambda line: matrix.engine(line.group),
}


def section(groups: Sequence[Group], article: Article) -> Markdown:
    found = lines(groups, article)
    values = {name: sorted({of(line) for line in found}) for name, of in SHARED.items()}
    prompts = all(line.has_prompt for line in found)
    columns = [
        Column[Line]("system", lambda line: link(line.row.case, f"#{line.group.slug}"), words=True),
        Column[Line]("origin", lambda line: line.kind, words=True),
        Column[Line]("stack", lambda line: line.group.key.stack, words=True),
        *(Column[Line](name, of, words=True, when=len(values[name]) > 1) for name, of in SHARED.items()),
        Column[Line]("dtype", lambda line: line.row.dtype, words=True),
        Column[Line]("GPUs", lambda line: line.row.count),
        Column[Line]("published", lambda line: line.published),
        Column[Line]("runs", lambda line: cells.runs(f"{line.runs}", line.row, line.new_tokens)),
        Column[Line]("ms a step with the prompt" if prompts else "ms a step", lambda line: line.in_words(prompts)),
        Column[Line]("items/s", lambda line: cells.significant(line.items_per_s)),
        Column[Line]("allocated, GiB", lambda line: line.memory),
    ]
    shared = "; ".join(f"{name} {of_all[0]}" for name, of_all in values.items() if len(of_all) == 1)
    above = Markdown("All rows: {}.").format(shared) if shared else Markdown()
    tables: dict[Markdown, list[Line]] = {}
    for line in found:
        tables.setdefault(_title(line), []).append(line)
    told = (part for title, of_table in tables.items() for part in (title, table(columns, of_table)))
    disturbed = [cells.DISTURBED_NOTE] if any(not line.row.undisturbed(line.new_tokens) for line in found) else []
    return blocks(NOTE, above, *told, text.lines(*disturbed, *map(_wrong, left_out(groups, article, found)))) if found else Markdown()


def _wrong(line: Line) -> Markdown:
    """ "- left out, as its output is wrong: vllm-fp16 b32 on 2 × NVIDIA H200, 64-core host (1 of 2 runs)"."""
    row, key = line.row, line.group.key
    where = ", ".join(filter(None, (f"{row.count} × {key.model}", key.host)))
    runs = f"{len(row.wrong_runs)} of {counted(len(row.ok_runs), 'run')}"
    return Markdown("- left out, as its output is wrong: {} on {} ({})").format(link(row.name, f"#{line.group.slug}"), where, runs)


def _title(line: Line) -> Markdown:
    """ "bloom-7b1 on NVIDIA H200, batch 32, 100 new tokens:": lines of other work compare no systems."""
    words = Markdown("{} on {}, batch {}, {}:")
    return words.format(line.row.shape, line.group.key.model, line.row.batch_size, counted(line.new_tokens, "new token"))
