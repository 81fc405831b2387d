"""What a command would run: each row, its stored runs, the runs to go, and their expected time. Nothing is started.

The expected time of a run comes from the time stamps of earlier runs of the same row. The plan takes the first of these that has a run, and names a substitute:
the same model of GPU (or a CPU); as many GPUs of other models, because a machine without GPUs can plan too; the nearest batch size of the case, because
timed calls are only a small part of a run; random weights in place of real ones, which take as long because they have the same size.
"""

import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.job import Job
from scripts import results
from scripts.articles import batch_sweep
from scripts.machine import gpus
from scripts.machine.steps import duration
from scripts.run import cost, host_facts, jobs, plan, runner
from scripts.run.options import Options
from scripts.run.runner import Planned
from scripts.units import counted

#: The expected time of a run is the median of this number of stored runs.
RUNS_OF_ESTIMATE = 5


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    run_s           seconds of one run, from earlier runs; None without any
    elsewhere       the GPU models of these earlier runs, where they differ from this machine's
    as_batch        their batch size, where it differs from the row's
    as_random       whether they had random weights in place of the model's own
    open_ended      whether an unknown number of larger batches follows, until memory runs out
    elsewhere_done  how many runs do not count because they were made on other kinds of machines
    """

    planned: Planned
    devices: str
    done: int
    repeats: int
    run_s: float | None
    elsewhere: tuple[str, ...] = ()
    as_batch: int | None = None
    open_ended: bool = False
    elsewhere_done: int = 0
    as_random: bool = False

    @property
    def to_go(self) -> int:
        return self.repeats - self.done


def rows_of(planned: list[Planned], asked: Options) -> Iterator[Row]:
    """The rows of these cases, one for each batch size, in the order of the list. Raises KitError where the driver does not answer."""
    present = _devices(asked)
    for case in planned:
        yield from _rows_of_case(case, asked, host_facts.devices(present[: runner.device_count(case, asked)]))


def _devices(asked: Options) -> list[gpus.Gpu]:
    """The GPUs in the order in which a run takes them; [] where this machine has none."""
    if asked.device == "cpu":
        return []
    present = gpus.given()
    by_index = {gpu.index: gpu for gpu in present}
    return [by_index[index] for index in asked.gpu_ids if index in by_index] if asked.gpu_ids else present


def _rows_of_case(planned: Planned, asked: Options, seen: Mapping[str, Any]) -> list[Row]:
    """The rows in the order in which a run would measure them; a sweep until memory runs out ends with its first row without a result."""
    sizes, in_batches_of = plan.sizes_and_sized(planned, asked)
    until_oom = isinstance(sizes, Mapping)
    rows: list[Row] = []

    def status_of(batch_size: int) -> str | None:
        row, status = _row(in_batches_of(batch_size), asked, seen)
        missing = not status and until_oom
        rows.append(dataclasses.replace(row, open_ended=missing))
        return None if missing else status or "ok"

    batch_sweep.walk(sizes, status_of)
    return rows


def _row(planned: Planned, asked: Options, seen: Mapping[str, Any]) -> tuple[Row, str]:
    """(the row, the status that its latest run ended with; "" where it has none)."""
    job, prefix = runner.question(planned, asked, seen)
    ended = [] if asked.force else [run for run in results.ended(prefix, asked.runs, jobs.prefix_of) if runner.counts(run, asked)]
    status = ended[0].status if ended else ""
    # What ran out of memory or is unsupported is not repeated.
    done = asked.repeats if status not in ("", "ok") else min(len(ended), asked.repeats)
    count = runner.device_count(planned, asked)
    devices = f"{count} x CPU" if asked.device == "cpu" else counted(count, "GPU")
    run_s, elsewhere = _run_s(job, prefix, asked.runs)
    elsewhere_done = 0 if asked.force or done == asked.repeats else _done_elsewhere(planned, asked, prefix)
    row = Row(planned, devices, done, asked.repeats, run_s, elsewhere, elsewhere_done=elsewhere_done)
    return row if run_s is not None or done == asked.repeats else _as_another(row, asked, seen), status


def _done_elsewhere(planned: Planned, asked: Options, prefix: str) -> int:
    """How many stored runs asked the very same on other kinds of machines."""
    counting = (run for run in results.ended_like(_on_any_model(prefix), asked.runs) if runner.counts(run, asked))
    return sum(jobs.prefix_of(run) != prefix and jobs.prefix_of(run) == runner.question(planned, asked, run.host)[1] for run in counting)


def _as_another(row: Row, asked: Options, seen: Mapping[str, Any]) -> Row:
    """The row with the time of the nearest batch size, else of random weights in its own or the nearest size; unchanged where none of these has a run."""
    row = _as_nearest_batch(row, asked, seen)
    if row.run_s is not None or asked.weights == "random":
        return row
    random = dataclasses.replace(asked, weights="random", model_path=None)
    run_s, elsewhere = _run_s(*runner.question(row.planned, random, seen), asked.runs)
    timed = dataclasses.replace(row, run_s=run_s, elsewhere=elsewhere) if run_s is not None else _as_nearest_batch(row, random, seen)
    return timed if timed.run_s is None else dataclasses.replace(timed, as_random=True)


def _as_nearest_batch(row: Row, asked: Options, seen: Mapping[str, Any]) -> Row:
    """The row with the time of its case's nearest batch size that has a run, by the ratio of sizes; unchanged where none has a run."""
    planned = row.planned
    sizes, own = planned.article.batch_sizes_of(planned.case, planned.variant), planned.batch_size
    others = [] if own is None or isinstance(sizes, Mapping) else sorted({*sizes} - {own}, key=lambda size: abs(math.log(size / own)))
    for size in others:
        run_s, elsewhere = _run_s(*runner.question(dataclasses.replace(planned, batch_size=size), asked, seen), asked.runs)
        if run_s is not None:
            return dataclasses.replace(row, run_s=run_s, elsewhere=elsewhere, as_batch=size)
    return row


def _run_s(job: Job, prefix: str, runs: Path) -> tuple[float | None, tuple[str, ...]]:
    """(the median seconds of some stored runs of this row, under any pins, in the folder of results and in the kit's own; the runs' other GPU models)."""
    if here := _timed(job, _on_this_model(prefix), runs):
        return statistics.median(run_s for _, run_s in here), ()
    elsewhere = _timed(job, _on_any_model(prefix), runs) if job.device == "cuda" else []
    if not elsewhere:
        return None, ()
    models = sorted({gpu["name"] for record, _ in elsewhere for gpu in record.host.get("gpus") or []})
    return statistics.median(run_s for _, run_s in elsewhere), tuple(models)


def _on_this_model(prefix: str) -> str:
    """The beginning of a row's ids under any pins, on the same model of device: its prefix without the hash."""
    return prefix.rpartition(".")[0]


def _on_any_model(prefix: str) -> str:
    return _on_this_model(prefix).rpartition(".")[0]


def _timed(job: Job, readable: str, runs: Path) -> list[tuple[results.Record, float]]:
    """Some stored runs of a job under this prefix, each with its seconds."""
    folders = dict.fromkeys((runs, *(results.runs_for(job.model["scale"], job.device, engine) for engine in ("docker", "host"))))
    alike = (record for folder in folders for record in results.ended_like(readable, folder) if _asks_the_same(record.job, job))
    timed = ((record, run_s) for record in alike if (run_s := cost.whole_s(record)) is not None)
    return list(itertools.islice(timed, RUNS_OF_ESTIMATE))


def _asks_the_same(earlier: Job, job: Job) -> bool:
    """Do two jobs of a row make the same calls, equally often?"""
    names = ("form", "runs", "warmup_runs", "timed_runs", "options")
    return all(getattr(earlier, name) == getattr(job, name) for name in names)


def summary(rows: list[Row]) -> str:
    """The runs and the time of all rows, in one line."""
    total, done = sum(row.repeats for row in rows), sum(row.done for row in rows)
    to_go, unknown = total - done, sum(row.to_go for row in rows if row.run_s is None)
    more = " or more, until memory runs out" if any(row.open_ended for row in rows) else ""
    parts = [f"{counted(total, 'run')}{more}: {done} {'is' if done == 1 else 'are'} there, {to_go} to go"]
    if to_go > unknown:
        parts.append(_time_to_go([row for row in rows if row.to_go and row.run_s is not None]))
    if unknown:
        runs = f"{unknown} more" if unknown < to_go else unknown
        parts.append(f"the time of {runs} is unknown: no run of the same row, with as many timed calls on as many devices, is stored")
    return ", ".join(parts)


def _time_to_go(rows: list[Row]) -> str:
    """The expected time of the runs that these rows lack, and which stored runs it comes from."""
    elsewhere = sorted({model for row in rows for model in row.elsewhere})
    partly = "" if all(row.elsewhere for row in rows) else "partly "
    by = f", {partly}by runs on {' and '.join(elsewhere)}" if elsewhere else ""
    near = ", for some rows by their nearest batch size" if any(row.as_batch for row in rows) else ""
    random = ", without the download of the weights" if any(row.as_random for row in rows) else ""
    return f"about {duration(sum(row.to_go * (row.run_s or 0) for row in rows))}{by}{near}{random}"


def lines(planned: list[Planned], asked: Options) -> Iterator[str]:
    """The table of PLAN=1: the rows that a claim rests on, the other rows, the sum; in aligned columns."""
    titles = ("rows that a claim rests on, which run first", "other rows")
    every: list[Row] = []
    for group in plan.groups(planned):
        rows = list(rows_of(group, asked))
        every += rows
        yield titles[not group[0].article.claims_rest_on(group[0].case)] + ":"
        yield from _table(rows)
    yield summary(every)


def _table(rows: list[Row]) -> Iterator[str]:
    cells = [(row.planned.title, row.devices, _done_of(row), _time_of(row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    pad = functools.partial(map, str.ljust)
    return ("  " + "  ".join(pad(row, widths)).rstrip() for row in cells)


def _done_of(row: Row) -> str:
    there = f"{row.done} of {row.repeats} runs are there"
    return there + (f" ({row.elsewhere_done} of other kinds of machines do not count here)" if row.elsewhere_done else "")


def _time_of(row: Row) -> str:
    near = (f", as in batch {row.as_batch}" if row.as_batch else "") + (", as with random weights" if row.as_random else "")
    words = "time unknown" if row.run_s is None else f"{row.run_s:.0f} s a run{near}" + (f" on {' and '.join(row.elsewhere)}" if row.elsewhere else "")
    return words + (", then larger batches until memory runs out" if row.open_ended else "")
