"""Where the time of a run went, in seconds: of each part, the middle run's time; ok rows only.

Older results have no times of their start and their imports.
"""

import math
from collections.abc import Sequence

from scripts.articles import Article
from scripts.report import cells
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks, lines
from scripts.report.view import View
from scripts.results import Record
from scripts.run import cost
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

#: {part of a run: its words}, in the order in which they happen; scripts/run/cost.py has all parts but the calls. Time in no part is the rest.
PARTS = {
    "prepare": "prepare",
    "container": "container",
    "start": "start",
    "import": "import",
    "load": "load",
    "before": "cold and warm-up calls",
    "timed": "timed calls",
    "check": "check",
    "answers": "unseen prompts",
    "longer": "further calls",
    "tokens": "token by token",
    "limits": "limits",
    "judge": "judge",
}

#: What the words of a part do not say by themselves.
MEANINGS = {
    "prepare": "choosing GPUs, checks, and providing weights and the reference answer where they were missing",
    "container": "making and removing it",
    "answers": "one more call with its logits, and two or more calls with new prompts that show whether the engine keeps answers",
    "longer": "calls that last long enough for the energy counter",
    "tokens": "calls that tell when each token came",
    "limits": "probes of the GPU's own speed",
    "judge": "the job that compares the tokens with a reference",
}

SEVERAL = Markdown("With several runs, each number is the middle one of the runs for its own column: the numbers of a line need not add up.")


def columns(group: Group, rows: Sequence[Row]) -> list[Column[Row]]:
    return [
        Column("case", cells.case, words=True),
        Column(cells.devices(group), lambda row: row.count),
        *(_part(name) for name in PARTS if _is_told(name, rows)),
        Column("rest, s", lambda row: cells.decimal(row.middle(rest_s), 1)),
        Column("whole run, s", lambda row: cells.decimal(row.middle(whole_s), 1)),
    ]


def _part(name: str) -> Column[Row]:
    return Column(f"{PARTS[name]}, s", lambda row: cells.decimal(_of_row_s(row, name), 1))


def _of_row_s(row: Row, name: str) -> float | None:
    return row.middle(lambda run: parts_s(run).get(name))


def _is_told(name: str, rows: Sequence[Row]) -> bool:
    return any(_of_row_s(row, name) is not None for row in rows)


def section(group: Group, article: Article | None) -> Markdown:
    rows = [row for row in group.rows if row.status == "ok" and row.middle(whole_s) is not None]
    meanings = [Markdown(f"- *{PARTS[name]}*: {meaning}") for name, meaning in MEANINGS.items() if _is_told(name, rows)]
    several = any(len(row.shown_runs) > 1 for row in rows)
    return blocks(table(columns(group, rows), rows), SEVERAL if several else Markdown(), lines(*meanings))


def parts_s(run: Record) -> dict[str, float]:
    """{part: seconds} of the PARTS that a run tells."""
    calls = run.guest.measurements if run.guest else []
    before_ms = math.fsum(ms for call in calls for ms in (*(call.get("warmup_ms") or []), call.get("cold_ms") or 0))
    timed_ms = math.fsum(ms for call in calls for ms in call["timed_ms"])
    told = cost.beside_calls(run) | {"before": before_ms / 1000, "timed": timed_ms / 1000}
    return {name: told[name] for name in PARTS if name in told}


def rest_s(run: Record) -> float | None:
    """Seconds in no part; None where the whole is not known."""
    run_s = whole_s(run)
    return None if run_s is None else max(0.0, run_s - math.fsum(parts_s(run).values()))


def whole_s(run: Record) -> float | None:
    """A run from its preparation to its verdict; None where that is not known."""
    run_s = cost.whole_s(run)
    return None if run_s is None else run_s + (run.host.get("prepare_s") or 0)


VIEW = View("parts", section, summary="Where the time of a run went")
