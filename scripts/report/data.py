"""Every row of the report as data: results.csv and results.json, a line for each number of new tokens that a row timed.

COLUMNS is the data dictionary; results.json carries it. Numbers have six significant digits: the last digits of an interval differ between processors.
"""

import csv
import functools
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.articles import Article
from scripts.report import pages, published
from scripts.report.text import plain
from scripts.verdicts import rates
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

CSV, JSON = "results.csv", "results.json"
DIGITS = 6

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Line:
    """A row's calls of `new_tokens` tokens; 0 for a row that timed none."""

    group: Group
    row: Row
    new_tokens: int
    article: Article | None

    @functools.cached_property
    def summary(self) -> stats.Summary | None:
        return self.row.summary(self.new_tokens) if self.new_tokens else None

    @property
    def interval(self) -> stats.Estimate:
        return self.summary.interval if self.summary else stats.Estimate(0.0)

    @property
    def published_ms(self) -> float | None:
        cases = published.by_case(self.group, self.article)
        return published.mean_ms(published.of_calls(cases, self.row, self.new_tokens, self.article)) if self.new_tokens else None

    @property
    def items_per_s(self) -> stats.Estimate | None:
        longest = self.new_tokens == (self.row.new_tokens or [0])[-1]
        return rates.items_per_s(self.row) if longest and self.row.record.job.form in (*rates.CALL_FORMS, *rates.WORKLOAD_FORMS) else None

    @property
    def latency(self) -> Mapping[str, float]:
        return rates.latency(self.row)

    def check(self, name: str) -> Value:
        value = (self.row.check or {}).get(name)
        return value if isinstance(value, (bool, int, float, str)) else None


def _output_right(line: Line) -> Value:
    passed = line.check("passed")
    return None if passed and line.row.status != "ok" else passed


@dataclass(frozen=True)
class Column:
    """A name with its unit, its meaning, and the function that gives its value for a line: None where there is none."""

    name: str
    meaning: str
    value: Callable[[Line], Value]


def _busy_share(line: Line) -> float | None:
    shares = line.row.busy_shares(line.new_tokens)
    known = sorted(share for share in shares if not isinstance(share, str))
    return known[line.row.empty_devices] if len(known) == len(shares) == line.row.count else None


COLUMNS = (
    Column("article", "the article whose case was run", lambda line: line.group.key.article),
    Column("case", "the row of the article's table", lambda line: line.row.case),
    Column("backend", "what loaded the model", lambda line: line.row.record.job.backend),
    Column("form", "how the model was called", lambda line: line.row.record.job.form),
    Column("variant", "published: the article's arguments; controlled: one dtype, token ids and lengths for every row", lambda line: line.group.key.variant),
    Column("stack", "the pinned versions", lambda line: line.group.key.stack),
    Column(
        "engine", "docker, podman, apptainer, pyxis: containers of the pinned images; host: an interpreter of the machine", lambda line: line.group.key.engine
    ),
    Column("device", "the model of the GPU, or of the CPU where no GPU was used", lambda line: line.group.key.model),
    Column("host", "the kind of machine around the GPUs", lambda line: line.group.key.host),
    Column("device_count", "on how many devices the row ran", lambda line: line.row.count),
    Column("model", "the model's shape", lambda line: line.row.record.job.model.get("shape")),
    Column("weights", "hub: real weights; random: seeded ones, with their recipe", lambda line: line.group.key.weights),
    Column("scale", "full: the model's own shape; tiny: a few small layers", lambda line: line.group.key.scale),
    Column("dtype", "the dtype of the loaded model", lambda line: line.row.dtype),
    Column("batch_size", "texts a call", lambda line: line.row.batch_size),
    Column("sequences", "answers a call: one to each text, or several to one", lambda line: line.row.sequences),
    Column("new_tokens", "new tokens of each sequence of a timed call; empty where none was timed", lambda line: line.new_tokens or None),
    Column("status", "ok, or why the row has no time", lambda line: line.row.status),
    Column("output_right", "whether the output check passed; empty where nothing was checked, or where the run did not end well", _output_right),
    Column(
        "logits_relative_error",
        "error of the logits at the last prompt position, against plain transformers in float32",
        lambda line: line.check("logits_relative_error"),
    ),
    Column(
        "runs",
        "how many runs timed such calls and count: the undisturbed ones, or all where each was disturbed",
        lambda line: len(line.row.run_means_ms(line.new_tokens)) if line.new_tokens else 0,
    ),
    Column("mean_ms", "mean call: over the runs; of one run over its calls", lambda line: _of(line.summary, "mean")),
    Column("std_ms", "population standard deviation of the same values", lambda line: _of(line.summary, "std")),
    Column("p95_ms", "linear 95th percentile of the calls", lambda line: _of(line.summary, "p95")),
    Column("low_ms", "lower end of the 95 % interval over runs; empty for fewer than five runs", lambda line: line.interval.low),
    Column("high_ms", "upper end of the same interval", lambda line: line.interval.high),
    Column("published_mean_ms", "the article's mean, where it is of the same calls on as many GPUs", lambda line: line.published_ms),
    Column(
        "items_per_s",
        "texts with their answers a second, of forms that answer batches; where offered_per_s is given, the rate of that load and not the system's own",
        lambda line: line.items_per_s.value if line.items_per_s else None,
    ),
    Column("offered_per_s", "requests that arrive a second, of workloads whose texts arrive over time", lambda line: line.latency.get("arrivals_per_s")),
    Column(
        "latency_median_ms",
        "median time from a request's arrival to its whole answer, of requests that arrive over time; the mean over runs",
        lambda line: line.latency.get("median_ms"),
    ),
    Column("latency_p95_ms", "the linear 95th percentile of the same", lambda line: line.latency.get("p95_ms")),
    Column("latency_p99_ms", "the linear 99th percentile of the same", lambda line: line.latency.get("p99_ms")),
    Column("load_s", "loading the model; the middle run", lambda line: line.row.load_s),
    Column("cold_ms", "the first call after loading; the middle run", lambda line: line.row.cold_ms),
    Column("gpu_busy_share", "share of the calls' time in which a kernel ran, by NVML; for the least busy GPU with weights; the middle run", _busy_share),
    Column("gpu_peak_bytes", "the most that a GPU held, as the host's NVML saw it; the middle run", lambda line: line.row.peak_of_a_gpu_bytes),
    Column(
        "torch_peak_allocated_bytes",
        "torch's peak of allocated memory on the fullest GPU; the middle run",
        lambda line: line.row.torch_peak_bytes("peak_allocated_bytes"),
    ),
    Column("pins_id", "the id of the pinned environment", lambda line: line.row.record.host.get("pins_id")),
    Column("run", "whose output the line shows: a folder among the runs of this report", lambda line: line.row.output_run.id),
    Column("page", "the page of its setting", lambda line: pages.of_setting(line.group)),
)


def _of(summary: stats.Summary | None, name: str) -> float | None:
    return getattr(summary, name) if summary else None


def files(groups: Sequence[Group], known: Mapping[str, Article]) -> dict[str, str]:
    """{file name: text} of both files."""
    rows = [{column.name: _rounded(column.value(line)) for column in COLUMNS} for group in groups for line in lines_of(group, known.get(group.key.article))]
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(column.name for column in COLUMNS)
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return {CSV: table.getvalue(), JSON: _document(rows)}


def _document(rows: Sequence[Mapping[str, Value]]) -> str:
    """JSON with a line for each column and each row, so that a change of one row is a change of one line."""

    def lines(values: Sequence[str]) -> str:
        return ",\n".join(values)

    columns = [f"{json.dumps(column.name)}: {json.dumps(column.meaning)}" for column in COLUMNS]
    written = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    return f'{{"columns": {{\n{lines(columns)}\n}}, "rows": [\n{lines(written)}\n]}}\n'


def lines_of(group: Group, article: Article | None) -> Iterator[Line]:
    """The lines of a setting's rows."""
    for row in group.rows:
        yield from lines_of_row(group, row, article)


def lines_of_row(group: Group, row: Row, article: Article | None) -> Iterator[Line]:
    return (Line(group, row, new_tokens, article) for new_tokens in row.shown_tokens)


def shown(value: Value) -> str:
    """A value as words."""
    rounded = _rounded(value)
    return f"{rounded:g}" if isinstance(rounded, float) else str(rounded)


def _rounded(value: Value) -> Value:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if abs(value) < float("inf") else None
    return plain(value) if isinstance(value, str) else value


def _cell(value: Value) -> Value:
    """A value for CSV: an apostrophe keeps a spreadsheet from taking a word for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
