"""Which GPUs, loading, the cold call, the time of one further token, how fast the host was and how steady the samples are; ok rows only."""

import functools
import statistics
import string
from collections.abc import Sequence

from scripts import stats
from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.results import Record
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group
from scripts.verdicts.run_facts import gpu_uuids_of, series

WAITING = Markdown("On several GPUs *GPU busy* is no measure of work: a kernel that waits for another GPU counts, and a copy between GPUs may count.")


def gpu_letters(group: Group) -> dict[str, str]:
    """{GPU UUID: "A", "B", …} in the order in which the rows name them; {} where the group has no GPU."""
    every = dict.fromkeys(uuid for row in group.rows for run in row.runs for uuid in gpu_uuids_of(run))
    return {uuid: string.ascii_uppercase[place % 26] + str(place // 26 or "") for place, uuid in enumerate(every)}


def columns(group: Group) -> list[Column[Row]]:
    letters = gpu_letters(group)
    return [
        Column("case", cells.judged_case, words=True),
        Column(cells.devices(group), lambda row: row.count),
        Column("which GPUs", lambda row: which_gpus(row, letters), when=bool(letters)),
        Column("load, s", lambda row: cells.decimal(row.load_s, 1)),
        Column("cold call, ms", lambda row: cells.significant(row.cold_ms)),
        Column("further token, ms (95 % interval)", further_token),
        Column("operator launch on the host, µs: before / after the calls", launch, when=any(launch(row) != NONE for row in group.rows)),
        Column("GPU busy, % of the time", kernel_runs, when=any(row.busy_shares(count) for row in group.rows for count in row.new_tokens)),
        Column("timed calls", lambda row: of_calls(row, " + ".join(str(len(row.timed_ms(count))) for count in row.new_tokens))),
        Column("outliers", lambda row: of_calls(row, " + ".join(str(stats.outliers(row.timed_ms(count))) for count in row.new_tokens))),
        Column("drift, %", lambda row: of_calls(row, " and ".join(drift(row.timed_ms(count)) for count in row.new_tokens))),
        Column("means of the runs, shortest calls, ms", lambda row: of_calls(row, run_to_run(row))),
    ]


def of_calls(row: Row, words: str) -> str:
    """`words` about a row's timed calls; a dash for a workload, whose calls are only its parts, some larger than others."""
    return NONE if row.is_workload else words


def which_gpus(row: Row, letters: dict[str, str]) -> str:
    """ "A B": the GPUs of a row; "A B; C D" where its runs that count had different ones."""
    sets = dict.fromkeys(" ".join(letters[uuid] for uuid in gpu_uuids_of(run)) for run in row.counted_runs)
    return "; ".join(sets)


def section(group: Group, article: Article | None) -> Markdown:
    rows = [row for row in group.rows if row.status == "ok" and not row.measured_without_calls]
    several = any(row.count > 1 and row.busy_shares(count) for row in rows for count in row.new_tokens)
    return blocks(table(columns(group), rows), WAITING if several else Markdown())


def launch(row: Row) -> str:
    """ "5.2 / 5.4": µs in which the row's host started one small operator, before the first call and after the last."""
    times_us = [time_us for when in ("before", "after") if (time_us := row.middle(functools.partial(_launch_of_run_us, when=when)))]
    return " / ".join(stats.significant(time_us) for time_us in times_us) if len(times_us) == 2 else NONE


def _launch_of_run_us(run: Record, when: str) -> float | None:
    return (run.guest.launch_us or {}).get(when) if run.guest else None


def kernel_runs(row: Row) -> str:
    """ "18 and 71": per cent of the calls' time in which a kernel ran on each GPU, for each number of new tokens; a code where that is not known."""
    shares = [[share if isinstance(share, str) else cells.decimal(100 * share, 0) for share in row.busy_shares(count)] for count in row.new_tokens]
    return " and ".join(", ".join(of_gpus) or NONE for of_gpus in shares)


def further_token(row: Row) -> str:
    """ms of one further token over the runs, from their shortest and longest calls; fewer than five runs have no interval."""
    if len(row.new_tokens) < 2:
        return NONE
    short, long = row.new_tokens[0], row.new_tokens[-1]
    calls = [series(run) for run in row.runs_of(long) if series(run).get(short)]
    short_ms, long_ms = ([statistics.fmean(of_run[count]) for of_run in calls] for count in (short, long))
    estimate = stats.per_token_over_runs(short_ms, long_ms, long - short)
    if estimate.value <= 0:
        return "within noise"  # the longer calls were not slower
    return stats.in_words(estimate)


def drift(samples: Sequence[float]) -> str:
    """ "+1.2": by how many per cent the second half of the calls took longer."""
    share = stats.drift(samples)
    return NONE if share is None else f"{100 * share:+.1f}"


def run_to_run(row: Row) -> str:
    """ "117.1 to 118.0 in 3 runs", of the row's shortest calls; a single run has no spread."""
    means = row.run_means_ms(row.new_tokens[0])
    if len(means) < 2:
        return NONE
    places = stats.decimals(max(means) - min(means))
    return f"{stats.number(min(means), places)} to {stats.number(max(means), places)} in {len(means)} runs"


VIEW = View("around", section, summary="Around the calls: GPUs, loading, cold call, further token, steadiness")
