"""The main table of a setting: every row with its time, sorted by it; below it the rows without a time or a right output, by name and reason."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.articles import Article, Case
from scripts.report import cells, published
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, anchor, blocks, lines
from scripts.results.marks import disturbed_by, marks_of
from scripts.verdicts import token_times
from scripts.verdicts.parts import listed
from scripts.verdicts.row import Row, gpus
from scripts.verdicts.row_groups import Group
from scripts.verdicts.run_facts import busy_shares_of, wrong_output

NOTE = Markdown(
    "*Call*: over the runs; with one run, over its calls. *Held*: the peak of a GPU's sampled memory, which includes the freed memory that torch caches and "
    "may fill the GPU. *Allocated*: torch's peak, nearer to what a system needs. Memory of several runs is that of the middle one, of two the lower."
)
PUBLISHED_NOTE = Markdown(" *Measured ÷ published*: only where the article tells the same calls on as many GPUs.")
KERNEL_NOTE = Markdown(
    " *GPU busy*: the share of the calls' time in which a kernel ran, from the smallest to the largest of the runs and GPUs. The rest is mostly waits for the "
    "host, so rows with a small share compare hosts."
)


@dataclass(frozen=True)
class Timed:
    """A row's calls of `new_tokens` tokens, 0 for a row without a time; `case` is set where the article's number is about the same calls.

    published_per_token_ms  the article's number for such a row, None where it gives none
    """

    row: Row
    new_tokens: int
    case: Case | None
    first: bool
    published_per_token_ms: float | None

    @functools.cached_property
    def summary(self) -> stats.Summary | None:
        return self.row.summary(self.new_tokens) if self.new_tokens else None

    @property
    def order(self) -> tuple[bool, int, int, float]:
        return self.summary is None, self.new_tokens, self.row.batch_size, self.summary.mean if self.summary else 0.0

    @property
    def mean_std(self) -> str:
        return cells.mean_std(self.summary) if self.summary else NONE

    @functools.cached_property
    def per_token_ms(self) -> float | None:
        """By the article's formula."""
        estimate = token_times.ms_per_token(self.row, "article")
        return estimate.value if estimate else None

    @functools.cached_property
    def kernel_percent(self) -> str:
        """ "29", "42 to 53" of several runs or GPUs."""
        told = (share for run in self.row.shown_runs for share in busy_shares_of(run, self.new_tokens))
        known = sorted(round(100 * share) for share in told if not isinstance(share, str))
        return " to ".join(map(str, dict.fromkeys((known[0], known[-1])))) if known else NONE

    @property
    def over_published(self) -> str:
        if self.published_per_token_ms and self.per_token_ms:
            return f"{self.per_token_ms / self.published_per_token_ms:.2f}"
        published_ms = published.mean_ms(self.case)
        return f"{self.summary.mean / published_ms:.2f}" if published_ms and self.summary else NONE


def timed_of(group: Group, article: Article | None) -> Iterator[Timed]:
    """A Timed for each number of new tokens of each row, in the group's order, without workloads and rows measured without calls."""
    cases, of_tokens = published.by_case(group, article), published.by_case(group, article, token_times.METRIC)
    for row in group.rows:
        if row.measured_without_calls or row.is_workload:
            continue
        for place, new_tokens in enumerate(row.shown_tokens):
            of_calls, per_token = published.of_calls(cases, row, new_tokens, article), published.ms_per_token(of_tokens, row, article)
            yield Timed(row, new_tokens, of_calls, place == 0, per_token)


def main_table(group: Group, article: Article | None) -> Markdown:
    """The table without anchors, which only one page may hold."""
    return _table(group, list(timed_of(group, article)), with_places=False)


def _table(group: Group, rows: Sequence[Timed], with_places: bool) -> Markdown:
    """Sorted by new tokens, batch size and time, rows without a time at the end. `with_places`: each row has its anchor."""
    timed = sorted(rows, key=lambda one: one.order)

    def case(one: Timed) -> Markdown:
        return (anchor(place_of(group, one.row)) if one.first and with_places else Markdown()) + cells.case(one.row)

    columns = [
        Column[Timed]("system", case, words=True),
        Column[Timed](cells.devices(group), lambda one: one.row.count, when=len({one.row.count for one in timed}) > 1),
        Column[Timed]("dtype", lambda one: one.row.dtype or NONE, words=True),
        Column[Timed]("new tokens", lambda one: one.new_tokens or NONE, when=len({one.new_tokens for one in timed if one.new_tokens}) > 1),
        Column[Timed]("runs", lambda one: len(one.row.run_means_ms(one.new_tokens)) or NONE),
        Column[Timed]("call, ms (mean ± std)", lambda one: one.mean_std),
        Column[Timed]("ms/token", lambda one: cells.significant(one.per_token_ms), when=any(one.per_token_ms for one in timed)),
        Column[Timed]("GPU busy, %", lambda one: one.kernel_percent, when=any(one.kernel_percent != NONE for one in timed)),
        Column[Timed]("measured ÷ published", lambda one: one.over_published, when=_has_published(timed)),
        Column[Timed]("held, GiB", lambda one: _gib(one.row, one.row.peak_of_a_gpu_bytes)),
        Column[Timed](
            "allocated, GiB", lambda one: _gib(one.row, one.row.torch_peak_bytes("peak_allocated_bytes")), when=any(_torch_told(one.row) for one in timed)
        ),
        Column[Timed]("output check", lambda one: cells.status(one.row), words=True),
    ]
    return table(columns, timed)


def _has_published(timed: Sequence[Timed]) -> bool:
    """Has the table the column “measured ÷ published”?"""
    return any(one.case or one.published_per_token_ms for one in timed)


def _torch_told(row: Row) -> bool:
    return row.torch_peak_bytes("peak_allocated_bytes") is not None


def _gib(row: Row, size_bytes: int | None) -> str:
    return NONE if row.status == "unsupported" else cells.gib(size_bytes)


def place_of(group: Group, row: Row) -> str:
    """The anchor of a row."""
    return f"{group.slug}--{row.case}-{row.count}" + (f"-b{row.batch_size}" if row.batch_size != 1 else "")


def section(group: Group, article: Article | None) -> Markdown:
    timed = list(timed_of(group, article))
    note = NOTE
    if any(one.kernel_percent != NONE for one in timed):
        note += KERNEL_NOTE
    if _has_published(timed):
        note += PUBLISHED_NOTE
    return blocks(_table(group, timed, with_places=True), note, remarks(group, article))


def remarks(group: Group, article: Article | None) -> Markdown:
    """Why rows have no time or no right output, used fewer GPUs than they had, or answer another question than their case does now."""
    notes = [Markdown("- {}: {} — {}").format(cells.on(row), row.status, row.record.reason) for row in group.rows if row.status != "ok"]
    for row in group.rows:
        if row.status == "ok" and row.check and not row.output_is_right:
            wrong, runs = len(row.wrong_runs), len(row.ok_runs)
            where = f"{cells.on(row)} in {wrong} of {runs} runs" if wrong < runs else cells.on(row)
            notes.append(Markdown("- {}: **output FAILED** — {}; its numbers support no claim").format(where, wrong_output(row.check)))
    return lines(*notes, *_spread_over_fewer(group), *_loaded_otherwise(group, article), *_failed_beside(group), *_marked(group), *_uncommitted(group))


def _spread_over_fewer(group: Group) -> Iterator[Markdown]:
    """Rows whose model lies on fewer GPUs than they had, one line for those that are alike."""
    told = (((row.count - row.empty_devices, row.empty_devices), row) for row in group.rows if row.empty_devices)
    for (held, empty), rows in cells.alike(told).items():
        yield Markdown("- {}: the library put the whole model on {} and no part of it on {}").format(listed(rows), gpus(held), empty)


def _loaded_otherwise(group: Group, article: Article | None) -> Iterator[Markdown]:
    """Rows whose case's loading arguments have changed since, one line for those that are alike; new runs of the case make a row of their own."""
    for told, rows in cells.alike((article.loaded_otherwise(row.record.job), row) for row in group.rows if article).items():
        yield Markdown("- {}: {}").format(listed(rows), told)


def _failed_beside(group: Group) -> Iterator[Markdown]:
    """Rows of which some runs failed, but not all: how many, and the reason of the latest failure."""
    for row in group.rows:
        if row.status != "failed" and (failed := row.failed_runs):
            reason = failed[-1].reason
            count = "does not count" if len(failed) == 1 else "do not count, the latest of these"
            yield Markdown("- {}: {} of {} runs failed and {} — {}").format(cells.on(row), len(failed), len(row.runs), count, reason)


def _marked(group: Group) -> Iterator[Markdown]:
    """Rows with runs on a disturbed machine, and with marks that change no verdict: how many, and the first mark."""
    for row in group.rows:
        disturbed = [run for run in row.ok_runs if disturbed_by(run)]
        marked = [run for run in row.ok_runs if marks_of(run) and not disturbed_by(run)]
        counting = "would count with a right output" if row.output_is_wrong else "count"
        for runs, mark_of, what in ((disturbed, disturbed_by, "judge nothing"), (marked, marks_of, counting)):
            if runs:
                yield Markdown("- {}: {} of {} runs are marked and {}{}: {}").format(
                    cells.on(row), len(runs), len(row.ok_runs), what, ", the first" if len(runs) > 1 else "", mark_of(runs[0])[0]
                )


def _uncommitted(group: Group) -> Iterator[Markdown]:
    """The rows with runs of uncommitted code."""
    runs = [run for row in group.rows for run in row.ok_runs]
    of_rows = [(row, sum(bool(run.host.get("dirty")) for run in row.ok_runs)) for row in group.rows]
    if not any(count for _, count in of_rows):
        return
    told = Markdown("; ").join(Markdown("{}, {} of {} runs").format(cells.on(row), count, len(row.ok_runs)) for row, count in of_rows if count)
    all_of_them = sum(count for _, count in of_rows) == len(runs)
    yield Markdown("- the kit had uncommitted changes, so the commit is not all of the code: {}").format("all runs" if all_of_them else told)
