"""The rows of a report as compact tables on the terminal; below them how many agree with plain transformers, the verdicts, and skipped files."""

import collections
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.text import plain
from scripts.report.views import around
from scripts.results import Skipped
from scripts.units import counted
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

#: The mark before the time of a row whose machine was busy in every run.
DISTURBED = "~"


def show(groups: Sequence[Group], skipped: Sequence[Skipped], verdicts: Sequence[str]) -> None:
    console = Console()
    for group in groups:
        console.print(_table(group))
    summary = _summary([row for group in groups for row in group.rows]) if groups else []
    for line in [*summary, *verdicts]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for skip in skipped:
        console.print(plain(f"skipped {skip.path}: {skip.reason}"), markup=False, highlight=False, soft_wrap=True)


def _table(group: Group) -> Table:
    grid = Table(title=Text(plain(f"{group.key.article}: {group.heading}")), title_justify="left")
    for header in ("case", "n", "status", "ms (new tokens)", "ms/token"):
        grid.add_column(header, justify="left" if header in ("case", "status") else "right", no_wrap=True)
    for row in group.rows:
        ok = row.status == "ok"
        fewest = row.new_tokens[0] if ok and row.new_tokens else 0
        mark = DISTURBED if _is_disturbed(row) else ""
        times = f"{mark}{cells.mean_std(row.summary(fewest))} ({fewest})" if fewest else NONE
        further = around.further_token(row).partition(" (")[0] if ok else NONE
        further = further if further == NONE else mark + further
        grid.add_row(Text(plain(row.name)), str(row.count), _status(row), times, further)
    return grid


def _summary(rows: Sequence[Row]) -> list[str]:
    checked = sum(row.status == "ok" and row.output_is_right for row in rows)
    ended = collections.Counter(_without_agreement(row) for row in rows)
    others = "".join(f", {count} {words}" for words, count in sorted(ended.items()) if words)
    disturbed = sum(map(_is_disturbed, rows))
    of_disturbed = f"{DISTURBED}: {counted(disturbed, 'row')} timed on a busy machine: the outputs count, the times judge nothing"
    return [
        "n: devices; ms: mean ± std over the runs, of one run over its calls; ms/token: each token after those",
        f"{checked} of {len(rows)} rows agree with plain transformers{others}",
        *([of_disturbed] if disturbed else []),
    ]


def _without_agreement(row: Row) -> str:
    """ "with a wrong output": how the summary counts a row whose output is not known to be right; "" for other rows."""
    if row.status != "ok":
        return row.status
    if not row.check:
        return "without an output check"
    return "" if row.output_is_right else "with a wrong output"


def _is_disturbed(row: Row) -> bool:
    """Was the machine disturbed in every good run of a row with a time?"""
    return row.status == "ok" and bool(row.new_tokens) and not row.undisturbed()


def _status(row: Row) -> str:
    return str(cells.status(row)).replace("*", "")
