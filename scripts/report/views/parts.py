"""Where the time of each run went, in seconds; ok rows only. Older results tell neither when they were asked for nor of their imports."""

from scripts.articles import Article
from scripts.report import cells
from scripts.report.tables import Column, table
from scripts.report.text import Markdown
from scripts.report.view import View
from scripts.verdicts.row_groups import Group, Row

#: The parts of a run in their order; what no part claims is the last column but one.
PARTS = ("prepare", "start", "import", "load", "cold and warm-up calls", "timed calls", "check")


def _part(name: str) -> Column[Row]:
    return Column(f"{name}, s", lambda row: cells.decimal(parts_s(row)[name], 1))


def columns(group: Group) -> list[Column[Row]]:
    return [
        Column("case", cells.case, words=True),
        Column(cells.devices(group), lambda row: row.count),
        *(_part(name) for name in PARTS),
        Column("rest, s", lambda row: f"{rest_s(row):.1f}"),
        Column("whole run, s", lambda row: f"{row.record.host['wall_s'] + (row.record.host.get('prepare_s') or 0):.1f}"),
    ]


def section(group: Group, article: Article | None) -> Markdown:
    return table(columns(group), [row for row in group.rows if row.status == "ok" and row.record.host.get("wall_s") is not None])


def parts_s(row: Row) -> dict[str, float | None]:
    """Seconds of each of PARTS, None where the result does not tell: "start" is from the process or container to the guest's first line."""
    phases, began = (row.guest.phases if row.guest else None) or {}, row.record.host.get("began")
    spans = {name: phases[name][1] - phases[name][0] for name in ("import", "load", "check") if len(phases.get(name) or []) == 2}
    calls = row.guest.measurements if row.guest else []
    before_ms = sum(sum(call.get("warmup_ms") or []) + (call.get("cold_ms") or 0) for call in calls)
    seconds = {
        "prepare": row.record.host.get("prepare_s"),
        "start": phases["import"][0] - began if began is not None and "import" in spans else None,
        "cold and warm-up calls": before_ms / 1000,
        "timed calls": sum(sum(call["timed_ms"]) for call in calls) / 1000,
        **spans,
    }
    return {part: seconds.get(part) for part in PARTS}


def rest_s(row: Row) -> float:
    """What no part claims of the time of the process or container."""
    claimed_s = sum(value for name, value in parts_s(row).items() if value is not None and name != "prepare")
    wall_s: float = row.record.host["wall_s"]
    return max(0.0, wall_s - claimed_s)


VIEW = View("parts", section, summary="Where the time of each run went")
