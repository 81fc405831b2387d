"""Milliseconds per token over batch sizes, in the shape of the article's table: a line a case, a column a batch size.

Every cell is a number, or says why there is none.
"""

from collections.abc import Sequence

from scripts import stats
from scripts.articles import Article, Case
from scripts.report import rerun_command, tables
from scripts.report.tables import NONE, text
from scripts.verdicts import token_times
from scripts.verdicts.row_groups import GIB, Group, Row, gpus

METRIC = "ms_per_token"
WRONG = "✗"
NOT_RUN = "not run"


def rows_of(group: Group, article: Article | None) -> list[Row]:
    """The rows that belong in such a table: of cases with the form `cycles`."""
    mine = {case.name for case in article.cases if case.form == "cycles"} if article else set()
    return [row for row in group.rows if row.case in mine or "cycles" in row.figures]


def sizes_of(rows: Sequence[Row], cases: Sequence[Case]) -> list[int]:
    """All batch sizes of the rows and of the published numbers."""
    return sorted({row.batch_size for row in rows} | {int(size) for case in cases for size in case.published[METRIC]})


def without_row(rows: Sequence[Row], batch_size: int) -> str:
    """Why no row of one case on one number of devices is of a batch size."""
    smaller = [one.batch_size for one in rows if one.status == "oom" and one.batch_size < batch_size]
    return f"oom at {min(smaller)}" if smaller else NOT_RUN


def cell(rows: Sequence[Row], batch_size: int, formula: str) -> str:
    """The number of one case on one number of devices in a batch size, or why there is none."""
    row = next((one for one in rows if one.batch_size == batch_size), None)
    if row is None:
        return without_row(rows, batch_size)
    if row.status != "ok":
        return f"**{row.status}**"
    estimate = token_times.ms_per_token(row, formula)
    if estimate is None:
        return "no tokens told"
    wrong = "" if is_right(row) else f" {WRONG}"
    return stats.significant(estimate.value) + wrong


def is_right(row: Row) -> bool:
    """Did the output pass its check, and does padding leave it as it is?"""
    return bool(row.check and row.check.get("passed")) and not token_times.wrong_when_padded(row)


def table(group: Group, article: Article | None) -> list[str]:
    """The article's numbers, ours by the article's formula, and ours corrected, line by line."""
    rows, cases = rows_of(group, article), tables.published_by_case(group, article, METRIC)
    if not rows:
        return []
    sizes = sizes_of(rows, list(cases.values()))
    lines = []
    for name, case in cases.items():
        told = [case.published_at(METRIC, size) for size in sizes]
        lines.append([f"{text(name)}, published", str(case.gpus), *[NONE if value is None else f"{value:.2f}" for value in told]])
        if case.options.get("tokens_times_ranks"):
            once = [NONE if value is None else stats.significant(value * case.gpus) for value in told]
            lines.append([f"{text(name)}, published, each token once", str(case.gpus), *once])
        lines += _measured(rows, name, sizes)
    for name in dict.fromkeys(row.case for row in rows if row.case not in cases):
        lines += _measured(rows, name, sizes)
    headers = ["ms/token in batches of", tables.devices_word(group), *[str(size) for size in sizes]]
    notes = "By the article's formula. It counts padding behind an end token, and each of ZeRO's tokens once for every GPU that made the same one; *corrected* "
    notes += "counts the tokens that were really made, once, and has a line where that is another number."
    if any(row.status == "ok" and not is_right(row) for row in rows):
        notes += f" {WRONG}: the output failed its check, was not checked, or is another one when padded."
    missing = to_fill_in(rows, article, list(cases.values())) if cases else []
    return ["#### Milliseconds per token over batch sizes", "", *tables.table(headers, lines), notes, "", *missing, *around(group, rows)]


def to_fill_in(rows: Sequence[Row], article: Article, cases: Sequence[Case]) -> list[str]:
    """For each number of GPUs that has cells "not run", the article's own among them, the command that measures those."""
    lines = []
    for count in sorted({row.count for row in rows} | {case.gpus for case in cases}):
        here = [row for row in rows if row.count == count]
        names = [case.name for case in cases if _is_open([row for row in here if row.case == case.name], article, case)]
        if names:
            lines.append(f"- on {gpus(count)}: `{rerun_command.rest_of_table(rows[0].record, article, names, count)}`")
    told = "To measure what was not run (what is there, on this or another host with such GPUs, is measured again with `FORCE=1` only):"
    return [told, "", *lines, ""] if lines else []


def _is_open(mine: Sequence[Row], article: Article, case: Case) -> bool:
    """Was a batch size of the article not run?"""
    missing = set(article.batch_sizes_of(case, "published")) - {row.batch_size for row in mine}
    return any(without_row(mine, size) == NOT_RUN for size in missing)


def _measured(rows: Sequence[Row], name: str, sizes: Sequence[int]) -> list[list[str]]:
    """The lines of one case: measured, and corrected where that is another number, for each number of devices in the rows' order.

    A case without any row has a line nevertheless.
    """
    lines = []
    for count in dict.fromkeys(row.count for row in rows if row.case == name) or [NONE]:
        mine = [row for row in rows if (row.case, row.count) == (name, count)]
        measured, corrected = ([cell(mine, size, formula) for size in sizes] for formula in token_times.FORMULAS)
        empty = max((row.empty_devices for row in mine), default=0)
        devices = f"{count} ({empty} of them empty)" if empty else str(count)
        lines.append([f"{text(name)}, measured", devices, *measured])
        if corrected != measured:
            lines.append([f"{text(name)}, corrected", devices, *corrected])
    return lines


def around(group: Group, rows: Sequence[Row]) -> list[str]:
    """Start to ready, the first call, both together, and torch's memory of the first process before and after, as the scripts' logs tell them."""
    headers = ["case", tables.devices_word(group), "start to ready, s", "first call, s", "start to finish, s"]
    headers += ["tokens of a call: counted / real", "allocated before / after / peak of a GPU, GiB", "reserved after / peak, GiB"]
    headers += ["logits of the first sentence, padded against alone: error, %"]
    lines = []
    for row in rows:
        if row.status != "ok" or not row.guest:
            continue
        ready = row.guest.load_s
        first = next((one["cold_ms"] / 1000 for one in row.guest.measurements if one.get("cold_ms") is not None), None)
        both = ready + first if ready is not None and first is not None else None
        counted = " / ".join(str(token_times.tokens_of_a_call(row, formula)) for formula in token_times.FORMULAS)
        seconds = [NONE if value is None else f"{value:.2f}" for value in (ready, first, both)]
        error = token_times.padding_error(row)
        lines.append([text(row.name), str(row.count), *seconds, counted, *_memory(row), NONE if error is None else stats.percent(error)])
    return tables.table(headers, lines) if lines else []


def _memory(row: Row) -> list[str]:
    memory = (row.figures.get("cycles") or {}).get("memory") or {}

    def most(when: str, name: str) -> str:
        found = [one[name] for one in memory.get(when) or [] if isinstance(one.get(name), int)]
        return f"{max(found) / GIB:.2f}" if found else NONE

    allocated = [most("before", "allocated_bytes"), most("after", "allocated_bytes"), most("after", "peak_allocated_bytes")]
    reserved = [most("after", "reserved_bytes"), most("after", "peak_reserved_bytes")]
    return [NONE if set(cells) == {NONE} else " / ".join(cells) for cells in (allocated, reserved)]
