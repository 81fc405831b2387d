"""What the devices did during one call: the report's section on profiles, from the runs of kind "profile"."""

from collections.abc import Mapping
from typing import Any

from scripts import stats
from scripts.articles import Article
from scripts.report import rerun_command
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.results import Record
from scripts.verdicts.row import gpus
from scripts.verdicts.row_groups import key_of

#: How many of the kernels that took longest are shown.
SHOWN = 10


def section(record: Record, article: Article | None) -> Markdown:
    """A profile: how busy the devices were, which kernels took longest and how to take it again."""
    key, job = key_of(record), record.job
    devices = "CPU" if job.device == "cpu" else gpus(job.device_count)
    where = f"{key.in_host(key.model)}, {key.stack}, {devices}, batch {job.batch_size}"
    title = Markdown("## {}: {}, {} ({})").format(job.article, job.case, job.variant, where)
    again = rerun_command.shown(record, article)
    return blocks(title, _profile(record), Markdown("To profile it again: ") + again if again else Markdown())


def _profile(record: Record) -> Markdown:
    profile = record.figures.get("profile")
    if record.status != "ok" or not profile:
        return Markdown("{}: {}").format(record.status, record.reason)
    times = Markdown("{} new tokens: {:.2f} ms without a profiler, {:.2f} ms under {}. ").format(
        *(profile[name] for name in ("new_tokens", "wall_ms", "profiled_wall_ms", "profiler"))
    )
    if profile["profiler"] == "nsys":
        return times + Markdown("Nsight Systems' own report lies beside the result as `profile.nsys-rep` and is not committed.")
    trace = Markdown("The trace (Chrome format) lies beside the result as `trace.json.gz` and is not committed.")
    return blocks(times + trace, _busy(profile) if record.job.device != "cpu" else Markdown(), _longest(record.job.device, profile))


def _busy(profile: Mapping[str, Any]) -> Markdown:
    """How busy each GPU was."""
    wall_ms = profile["wall_ms"]
    columns = [
        Column[tuple[str, Any]]("GPU", lambda device: device[0], words=True),
        Column[tuple[str, Any]]("kernels", lambda device: device[1].get("kernels", NONE)),
        Column[tuple[str, Any]]("busy, ms", lambda device: f"{device[1]['busy_ms']:.2f}"),
        Column[tuple[str, Any]](
            "busy share of the unprofiled wall time, %", lambda device: f"{100 * device[1]['busy_ms'] / wall_ms:.0f}" if wall_ms > 0 else NONE
        ),
    ]
    devices = sorted((profile.get("devices") or {}).items())
    return table(columns, [(name, busy) for name, busy in devices if isinstance(busy, dict) and isinstance(busy.get("busy_ms"), (int, float))])


def _longest(device: str, profile: Mapping[str, Any]) -> Markdown:
    """The kernels or operators that took longest."""
    columns = [
        Column[Mapping[str, Any]]("kernel" if device != "cpu" else "operator, with those it calls", lambda entry: entry["name"], words=True),
        Column[Mapping[str, Any]]("calls", lambda entry: entry["count"]),
        Column[Mapping[str, Any]]("together, ms", lambda entry: stats.significant(entry["ms"])),
    ]
    return table(columns, (profile.get("top") or [])[:SHOWN])
