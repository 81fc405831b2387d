"""Milliseconds per token over batch sizes, in the shape of the article's table: a line per case, a column per batch size.

Every cell is a number, or says why there is none.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.articles import Article, Case
from scripts.report import cells, published, rerun_command
from scripts.report.cells import NONE
from scripts.report.plots import token_curves
from scripts.report.plots.sweeps import WRONG
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks, code, lines
from scripts.report.view import View
from scripts.results import Record
from scripts.verdicts import token_times
from scripts.verdicts.row import Row, gpus
from scripts.verdicts.row_groups import Group
from scripts.verdicts.run_facts import cold_ms_of, cycles_of
from scripts.verdicts.token_times import METRIC

NOT_RUN = "not run"

NOTES = Markdown(
    "Numbers follow the article's formula. It counts the padding after an end token, and a token of ZeRO once for every GPU that made the same one; lines "
    '"each token once" count such a token once.'
)
CORRECTED_NOTE = Markdown(" *Corrected* counts the tokens that were really made, once.")
WRONG_NOTE = Markdown(f" {WRONG}: the output failed its check, was not checked, or is another one when padded.")
TO_FILL_IN = Markdown("These commands measure what was not run. They skip stored runs of this kind of machine; `FORCE=1` repeats them:")


@dataclass(frozen=True)
class Line:
    """A case on a number of devices: a cell for each batch size."""

    name: str
    devices: object
    cells: Sequence[object]


def columns(group: Group, sizes: Sequence[int]) -> list[Column[Line]]:
    def in_place(place: int) -> Callable[[Line], object]:
        return lambda line: line.cells[place]

    return [
        Column("ms/token in batches of", lambda line: line.name, words=True),
        Column(cells.devices(group), lambda line: line.devices),
        *(Column(size, in_place(place)) for place, size in enumerate(sizes)),
    ]


def without_row(rows: Sequence[Row], batch_size: int) -> str:
    """Why one case on one number of devices has no row of a batch size."""
    smaller = [row.batch_size for row in rows if row.status == "oom" and row.batch_size < batch_size]
    return f"oom at {min(smaller)}" if smaller else NOT_RUN


def cell(rows: Sequence[Row], batch_size: int, formula: token_times.Formula) -> str:
    """The number of one case on one number of devices in a batch size, or why there is none."""
    row = next((row for row in rows if row.batch_size == batch_size), None)
    if row is None:
        return without_row(rows, batch_size)
    if row.status != "ok":
        return cells.status(row)
    estimate = token_times.ms_per_token(row, formula)
    if estimate is None:
        return "tokens not counted"
    return stats.significant(estimate.value) + ("" if token_times.is_right(row) else f" {WRONG}")


def _table_lines(rows: Sequence[Row], cases: dict[str, Case], sizes: Sequence[int]) -> Iterator[Line]:
    """The article's numbers, ours by the article's formula, and ours corrected."""
    for name, case in cases.items():
        numbers = [case.published_at(METRIC, size) for size in sizes]
        yield Line(f"{name}, published", case.gpus, [cells.decimal(number, 2) for number in numbers])
        if case.options.get("tokens_times_ranks"):
            once = [NONE if number is None else f"{number * case.times_counted:.4g}" for number in numbers]
            yield Line(f"{name}, published, each token once", case.gpus, once)
        yield from _measured(rows, name, sizes)
    for name in dict.fromkeys(row.case for row in rows if row.case not in cases):
        yield from _measured(rows, name, sizes)


def _measured(rows: Sequence[Row], name: str, sizes: Sequence[int]) -> Iterator[Line]:
    """The lines of one case: measured, and corrected where that is another number, for each number of devices in the rows' order.

    A case without any row has a line nevertheless.
    """
    for count in dict.fromkeys(row.count for row in rows if row.case == name) or [NONE]:
        of_case = [row for row in rows if (row.case, row.count) == (name, count)]
        measured, corrected = ([cell(of_case, size, formula) for size in sizes] for formula in token_times.IN_TABLE)
        empty = max((row.empty_devices for row in of_case), default=0)
        devices = f"{count} ({empty} of them without a part of it)" if empty else count
        yield Line(f"{name}, measured", devices, measured)
        if corrected != measured:
            yield Line(f"{name}, corrected", devices, corrected)


def section(group: Group, article: Article | None) -> Markdown:
    rows, cases = token_times.rows_of(group, article), published.by_case(group, article, METRIC)
    if not rows:
        return Markdown()
    sizes = token_times.sizes_of(rows, list(cases.values()))
    per_token = table(columns(group, sizes), list(_table_lines(rows, cases, sizes)))
    corrected = any(token_times.tokens_of_a_call(row, "corrected") != token_times.tokens_of_a_call(row, "article") for row in rows)
    wrong = any(row.status == "ok" and not token_times.is_right(row) for row in rows)
    notes = Markdown().join([NOTES, *([CORRECTED_NOTE] if corrected else []), *([WRONG_NOTE] if wrong else [])])
    missing = to_fill_in(rows, article, list(cases.values())) if article and cases else Markdown()
    around = table(around_columns(group), [row for row in rows if row.status == "ok"])
    return blocks(per_token, notes, missing, around)


def to_fill_in(rows: Sequence[Row], article: Article, cases: Sequence[Case]) -> Markdown:
    """For each number of GPUs with cells "not run", also the article's own, the command that measures those cells.

    A case without published numbers has cells only for numbers of GPUs where it has rows.
    """
    commands = []
    for count in sorted({row.count for row in rows} | {case.gpus for case in cases}):
        here = [row for row in rows if row.count == count]
        others = [case for name in dict.fromkeys(row.case for row in here) if (case := article.case(name)) and case not in cases]
        names = [case.name for case in [*cases, *others] if _is_open([row for row in here if row.case == case.name], article, case)]
        if names:
            commands.append(Markdown("- on {}: {}").format(gpus(count), code(rerun_command.rest_of_table(rows[0].record, article, names, count))))
    return blocks(TO_FILL_IN, lines(*commands)) if commands else Markdown()


def _is_open(rows: Sequence[Row], article: Article, case: Case) -> bool:
    """Was a batch size of the article not run?"""
    asked = article.batch_sizes_of(case, "published")
    missing = set() if isinstance(asked, dict) else set(asked) - {row.batch_size for row in rows}
    return any(without_row(rows, size) == NOT_RUN for size in missing)


def around_columns(group: Group) -> list[Column[Row]]:
    """Start to ready, the first call, both together, and torch's memory of the first process before and after, as the scripts' logs tell them."""
    return [
        Column("case", lambda row: row.name, words=True),
        Column(cells.devices(group), lambda row: row.count),
        Column("start to ready, s", lambda row: cells.decimal(row.load_s, 2)),
        Column("first call, s", lambda row: cells.decimal(_first_s(row), 2)),
        Column("start to finish, s", lambda row: cells.decimal(row.middle(_finish_s), 2)),
        Column("tokens of a call: counted / real", lambda row: " / ".join(str(token_times.tokens_of_a_call(row, formula)) for formula in token_times.IN_TABLE)),
        Column("allocated before / after / peak of a GPU, GiB", lambda row: _memory(row, ALLOCATED)),
        Column("reserved after / peak, GiB", lambda row: _memory(row, RESERVED)),
        Column("logits of the first sentence, padded against alone: error, %", lambda row: cells.percent(token_times.padding_error(row))),
    ]


def _first_s(row: Row) -> float | None:
    return None if row.cold_ms is None else row.cold_ms / 1000


def _finish_s(run: Record) -> float | None:
    ready_s, first_ms = run.guest.load_s if run.guest else None, cold_ms_of(run)
    return None if ready_s is None or first_ms is None else ready_s + first_ms / 1000


ALLOCATED = (("before", "allocated_bytes"), ("after", "allocated_bytes"), ("after", "peak_allocated_bytes"))
RESERVED = (("after", "reserved_bytes"), ("after", "peak_reserved_bytes"))


def _memory(row: Row, numbers: Sequence[tuple[str, str]]) -> str:
    """The most that a GPU held at each of these moments, of the middle run."""
    return cells.beside(*(cells.gib(row.middle(functools.partial(_held_bytes, when=when, name=name))) for when, name in numbers))


def _held_bytes(run: Record, when: str, name: str) -> int | None:
    memory = cycles_of(run).get("memory") or {}
    seen = [device for device in memory.get(when) or [] if device.get("peak_allocated_bytes")]  # without a peak: the engine works in other processes
    return max((device[name] for device in seen if isinstance(device.get(name), int)), default=None)


VIEW = View(
    "tokens", section, summary="Milliseconds per token over batch sizes", plot=token_curves.batch_plot, title="Milliseconds per token over the batch size"
)
