"""What the devices did during one call: the report's section on profiles, from the runs of kind "profile"."""

from collections.abc import Mapping, Sequence

from scripts import stats
from scripts.articles import Article
from scripts.report import rerun_command, tables
from scripts.report.tables import NONE, text
from scripts.results import Record
from scripts.verdicts.row_groups import gpus, key_of

#: So many of the kernels that took longest are shown.
SHOWN = 10


def section(records: Sequence[Record], known: Mapping[str, Article]) -> list[str]:
    """A heading, and for each profile how busy the devices were, which kernels took longest and how to take it again; [] without any."""
    mine = [record for record in records if record.job.kind == "profile"]
    if not mine:
        return []
    lines = [tables.anchor("profiles"), "", "## Profiles", ""]
    for record in sorted(mine, key=lambda one: one.id):
        lines += _one(record)
        again = rerun_command.shown(record, known.get(record.job.article))
        lines += [f"To profile it again: {again}", ""] if again else []
    return lines


def _one(record: Record) -> list[str]:
    key, job = key_of(record), record.job
    batch = job.prompt.get("batch_size") or 1
    devices = "CPU" if job.device == "cpu" else gpus(job.device_count)
    where = f"{key.device_words}, {key.stack}, {devices}, batch {batch}"
    title = f"### {text(job.article)}: {text(job.case)}, {text(job.variant)} ({text(where)})"
    found = (record.guest.figures or {}).get("profile") if record.guest else None
    if record.status != "ok" or not found:
        return [title, "", f"{text(record.status)}: {text(record.reason)}", ""]
    profiled = f"{found['profiled_wall_ms']:.2f} ms under {text(found['profiler'])}"
    times = f"{found['new_tokens']} new tokens: {found['wall_ms']:.2f} ms without a profiler, {profiled}."
    if found["profiler"] == "nsys":
        return [title, "", f"{times} Nsight Systems' own report lies beside the result as `profile.nsys-rep` and is not committed.", ""]
    return [title, "", f"{times} The trace (Chrome format) lies beside the result as `trace.json.gz` and is not committed.", "", *_tables(job.device, found)]


def _tables(device: str, found: dict) -> list[str]:
    wall_ms = found["wall_ms"]
    lines = []
    if device != "cpu":
        rows = []
        for name, one in sorted((found.get("devices") or {}).items()):
            if not isinstance(one, dict) or not isinstance(one.get("busy_ms"), (int, float)):
                continue
            share = f"{100 * one['busy_ms'] / wall_ms:.0f}" if wall_ms > 0 else NONE
            rows.append([text(name), str(one.get("kernels", NONE)), f"{one['busy_ms']:.2f}", share])
        lines += tables.table(["GPU", "kernels", "busy, ms", "busy share of the unprofiled wall time, %"], rows) if rows else []
    head = "kernel" if device != "cpu" else "operator, with those it calls"
    longest = (found.get("top") or [])[:SHOWN]
    top = [[text(one["name"]), str(one["count"]), stats.significant(one["ms"])] for one in longest]
    return lines + (tables.table([head, "calls", "together, ms"], top) if top else [])
