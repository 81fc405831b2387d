"""Thousands of texts at once, and requests that arrive over time: every row of such a workload on a GPU, in one table of its article."""

import dataclasses
from collections.abc import Iterator, Sequence

from scripts import stats
from scripts.report import cells
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks, link
from scripts.report.views import rate, workload
from scripts.verdicts import lookup, rates
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

WORDS = Markdown(
    "The texts have uneven lengths, and each answer ends at a length drawn for it; *Its rows* below describes each row. Compare rows of one model, GPU "
    f"and number of *texts at once*: with {stats.LEAST_RUNS} runs each they compare systems, with fewer they show an order of magnitude."
)


@dataclasses.dataclass(frozen=True)
class _Line:
    group: Group
    row: Row


def section(groups: Sequence[Group]) -> Markdown:
    """Empty where no such row of a full model with weights of today's recipe ran on a GPU."""
    found = sorted((line for group in groups if not group.cannot_judge() for line in _lines(group)), key=_order)
    latencies = workload.over_time([line.row for line in found])
    columns = [
        Column[_Line]("system", lambda line: link(line.row.name, f"#{line.group.slug}"), words=True),
        Column[_Line]("stack", lambda line: line.group.key.stack, words=True),
        Column[_Line]("model", lambda line: line.row.shape, words=True),
        Column[_Line]("GPU", lambda line: line.group.key.model, words=True),
        Column[_Line]("texts at once", lambda line: line.row.batch_size),
        Column[_Line]("texts", lambda line: f"{rates.figure(line.row, 'workload')['items']:,}"),
        Column[_Line]("runs", lambda line: cells.runs(f"{len(line.row.counted_runs)}", line.row)),
        *(_of_row(column) for column in [*rate.rate_columns("answer tokens/s"), *latencies]),
    ]
    shown, notes = table(columns, found), workload.OVER_TIME if latencies[0].when else Markdown()
    return blocks(WORDS, shown, notes, cells.DISTURBED_NOTE if cells.DISTURBED in shown else Markdown()) if found else Markdown()


def pointer(groups: Sequence[Group]) -> Markdown:
    """The index's links to these tables; empty where no article has such rows."""
    slugs = dict.fromkeys(group.key.article for group in groups if not group.cannot_judge() and any(_lines(group)))
    found = Markdown(", ").join(link(slug, f"#many-texts-{slug}") for slug in slugs)
    return Markdown("Throughput of thousands of texts, latency of requests over time: {}.").format(found) if slugs else Markdown()


def _lines(group: Group) -> Iterator[_Line]:
    for row in rates.rows_of(group, rates.WORKLOAD_FORMS):
        if rates.figure(row, "workload") and row.status == "ok" and not row.output_is_wrong and lookup.weights_can_judge(row):
            yield _Line(group, row)


def _order(line: _Line) -> tuple[object, ...]:
    """The sort key of lines: all texts at once before requests over time, then by model and GPU, most items a second first."""
    told, rate_of = rates.latency(line.row), rates.items_per_s(line.row)
    return bool(told), told.get("arrivals_per_s", 0), line.row.shape, line.group.key.model, -(rate_of.value if rate_of else 0)


def _of_row(column: Column[Row]) -> Column[_Line]:
    return Column[_Line](column.header, lambda line: column.cell(line.row), column.when, column.words)
