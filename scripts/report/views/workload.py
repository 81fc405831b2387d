"""How each way through the same uneven texts uses its time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.report.views.rate import MEMORY, devices, rate_columns
from scripts.verdicts import rates
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

WORDS = Markdown(
    "Texts and answers have uneven lengths, and each answer ends at a length drawn for it. The texts of a static batch wait for its longest answer. "
    "Rates are over all runs."
)

OVER_TIME = Markdown(
    "Where requests arrive over time, items/s include the time without requests and do not tell which system is faster. *Latency*: the time from a request's "
    "arrival to the last token of its answer, in a static batch to the end of the batch; over several runs, the mean of each percentile."
)


def _of(cell: Callable[[Mapping[str, Any]], object]) -> Callable[[Row], object]:
    """A cell of a row's figure."""
    return lambda row: cell(rates.figure(row, "workload"))


def missing_share(part: float, whole: float) -> str:
    """Which part of a whole is missing, in %."""
    return f"{100 * (1 - part / whole):.1f}" if whole else NONE


def _latencies(row: Row) -> str:
    """ "3.12 / 6.40 / 7.01"."""
    told = rates.latency(row)
    return cells.beside(*(cells.significant(told[name] / 1000) for name in ("median_ms", "p95_ms", "p99_ms"))) if "median_ms" in told else NONE


def _offered(row: Row) -> str:
    told = rates.latency(row)
    return f"{told['arrivals_per_s']:g}" if told else NONE


def over_time(rows: Sequence[Row]) -> list[Column[Row]]:
    """The columns for requests that arrive over time, shown where any do."""
    any_do = any(map(rates.latency, rows))
    return [Column("requests/s offered", _offered, when=any_do), Column("latency, s: median / p95 / p99", _latencies, when=any_do)]


COLUMNS: list[Column[Row]] = [
    Column("texts at once", lambda row: row.batch_size),
    Column("items", _of(lambda done: f"{done['items']:,}")),
    *rate_columns("answer tokens/s"),
    Column("padding in prompts, %", _of(lambda done: missing_share(done["prompt_tokens"], done["padded_prompt_tokens"]))),
    Column("decoded after an answer's end, %", _of(lambda done: missing_share(done["new_tokens"], done["decode_rows"]))),
    Column("went on after a stop", _of(lambda done: "yes" if done["resumed"] else "no")),
    *MEMORY,
]


def section(group: Group, article: Article | None) -> Markdown:
    rows = [row for row in rates.rows_of(group, rates.WORKLOAD_FORMS) if rates.figure(row, "workload")]
    latencies = over_time(rows)
    columns = [Column[Row]("workload", cells.judged_case, words=True), devices(group, rows), *COLUMNS, *latencies]
    words = OVER_TIME if latencies[0].when else Markdown()
    return blocks(WORDS, table(columns, rows), words) if rows else Markdown()


VIEW = View("workload", section, summary="Workloads of uneven texts")
