"""The three memories, each the most that any one device held, and the output check."""

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.plots import memory_dots
from scripts.report.tables import Column, table
from scripts.report.text import Markdown
from scripts.report.view import View
from scripts.results.output import check_of
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group


def columns(group: Group) -> list[Column[Row]]:
    return [
        Column("case", cells.case, words=True),
        Column(cells.devices(group), lambda row: row.count),
        Column("NVML peak of a GPU, GiB", lambda row: cells.gib(row.peak_of_a_gpu_bytes)),
        Column("torch peak of a GPU, allocated / reserved, GiB", _torch_peaks),
        Column("peak RSS of all measured processes, GiB", lambda row: cells.gib(row.peak_resident_bytes)),
        Column("logits' relative error (allowed), %", _error),
        Column("greedy tokens equal to the reference's before the first difference", _common_tokens),
        Column("regret of the timed tokens, standard deviations of the logits: p90 / largest (allowed)", _regret, when=any(_judged(row) for row in group.rows)),
        Column("output", _output),
    ]


def section(group: Group, article: Article | None) -> Markdown:
    return table(columns(group), [row for row in group.rows if row.guest and row.status != "unsupported" and not row.is_calibration])


def _torch_peaks(row: Row) -> str:
    return cells.beside(*(cells.gib(row.torch_peak_bytes(name)) for name in ("peak_allocated_bytes", "peak_reserved_bytes")))


def _error(row: Row) -> str:
    error, allowed = ((row.check or {}).get(name) for name in ("logits_relative_error", "tolerance"))
    return cells.percent(error) + (f" ({cells.percent(allowed)})" if error is not None and allowed is not None else "")


def _common_tokens(row: Row) -> str:
    prefix = (row.check or {}).get("greedy_common_prefix_tokens")
    return NONE if not row.check or prefix is None else f"{prefix} of {row.check.get('greedy_tokens')}"


def _judged(row: Row) -> Sequence[Mapping[str, Any]]:
    """What the judge read of each run that it judged."""
    checks = [check for run in row.ok_runs if (check := check_of(run))]
    return [judged for check in checks if (judged := check.get("judged") or {}).get("regret") and judged.get("allowed")]


def _regret(row: Row) -> str:
    """How far the timed tokens lie below float32's best choice, in standard deviations of a step's logits: the most of any run that was judged."""
    judged = _judged(row)
    if not judged:
        return NONE
    p90, most = (max(one["regret"][name] for one in judged) for name in ("p90", "max"))
    allowed = judged[-1]["allowed"]
    of_runs = f", {len(judged)} of {len(row.ok_runs)} runs" if len(judged) < len(row.ok_runs) else ""
    return f"{p90:.3f} / {most:.3f} ({allowed['regret_p90']:.3f} / {allowed['regret_max']:.3f}){of_runs}"


def _output(row: Row) -> Markdown:
    if row.check and row.output_is_right:
        return Markdown("ok" if row.status == "ok" else "not judged to the end")
    return Markdown("**FAILED**" if row.check else "not checked")


VIEW = View("memory", section, summary="Memory and output check", plot=memory_dots.plot, title="Peak memory", folded=True)
