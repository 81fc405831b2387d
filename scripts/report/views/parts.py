"""Where the time of a run went, in seconds, of each part the middle run; ok rows only.

Older results tell neither when they were asked for nor of their imports.
"""

from scripts.articles import Article
from scripts.report import cells
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.results import Record
from scripts.verdicts.row_groups import Group, Row

#: The parts of a run in their order; what no part claims is the last column but one.
PARTS = ("prepare", "start", "import", "load", "cold and warm-up calls", "timed calls", "check")


NOTE = Markdown("Of a row with several runs each number is that of the middle run, each by itself: the numbers of a line need not add up.")


def _part(name: str) -> Column[Row]:
    return Column(f"{name}, s", lambda row: cells.decimal(row.middle(lambda run: parts_s(run)[name]), 1))


def columns(group: Group) -> list[Column[Row]]:
    return [
        Column("case", cells.case, words=True),
        Column(cells.devices(group), lambda row: row.count),
        *(_part(name) for name in PARTS),
        Column("rest, s", lambda row: cells.decimal(row.middle(rest_s), 1)),
        Column("whole run, s", lambda row: cells.decimal(row.middle(whole_s), 1)),
    ]


def section(group: Group, article: Article | None) -> Markdown:
    rows = [row for row in group.rows if row.status == "ok" and row.middle(whole_s) is not None]
    return blocks(table(columns(group), rows), NOTE if any(len(row.shown_runs) > 1 for row in rows) else Markdown())


def parts_s(run: Record) -> dict[str, float | None]:
    """Seconds of each of PARTS, None where the result does not tell: "start" is from the process or container to the guest's first line."""
    phases, began = (run.guest.phases if run.guest else None) or {}, run.host.get("began")
    spans = {name: phases[name][1] - phases[name][0] for name in ("import", "load", "check") if len(phases.get(name) or []) == 2}
    calls = run.guest.measurements if run.guest else []
    before_ms = sum(sum(call.get("warmup_ms") or []) + (call.get("cold_ms") or 0) for call in calls)
    seconds = {
        "prepare": run.host.get("prepare_s"),
        "start": phases["import"][0] - began if began is not None and "import" in spans else None,
        "cold and warm-up calls": before_ms / 1000,
        "timed calls": sum(sum(call["timed_ms"]) for call in calls) / 1000,
        **spans,
    }
    return {part: seconds.get(part) for part in PARTS}


def rest_s(run: Record) -> float | None:
    """What no part claims of the time of the process or container; None where that is not known."""
    claimed_s = sum(value for name, value in parts_s(run).items() if value is not None and name != "prepare")
    wall_s: float | None = run.host.get("wall_s")
    return None if wall_s is None else max(0.0, wall_s - claimed_s)


def whole_s(run: Record) -> float | None:
    """A run from its preparation to its end; None where that is not known."""
    wall_s: float | None = run.host.get("wall_s")
    return None if wall_s is None else wall_s + (run.host.get("prepare_s") or 0)


VIEW = View("parts", section, summary="Where the time of a run went")
