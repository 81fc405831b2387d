"""A group of rows as Markdown tables: time, what surrounds it, memory and output.

Units stand in every header. Tables are cut so that each fits a page; "—" is a number that does not exist.
"""

import re
import string
from collections.abc import Iterable, Sequence

from scripts import stats
from scripts.articles import Article, Case
from scripts.verdicts.row_groups import GIB, Group, Row, gpus, run_means_ms, wrong_output

NONE = "—"
MARK = "†"
LONGEST_REASON = 450


def text(value: object) -> str:
    """Any string as one line of Markdown that means nothing but itself."""
    line = " ".join(str(value).split())
    line = line if len(line) <= LONGEST_REASON else line[:LONGEST_REASON] + " …"
    return re.sub(r"([\\`*_\[\]|<>~])", r"\\\1", line)


def prose(words: str) -> str:
    """Markdown of the kit's own, as the articles' files hold it, on one line and fit for a table."""
    return " ".join(words.split()).replace("|", "\\|")


def anchor(name: str) -> str:
    return f'<a id="{name}"></a>'


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """The lines of a table: the first `left` columns are words, the others numbers."""
    marks = [":--" if column < left else "--:" for column in range(len(headers))]
    return _lines([headers, marks, *rows])


def _lines(rows: Iterable[Sequence[str]]) -> list[str]:
    return [*("| " + " | ".join(cells) + " |" for cells in rows), ""]


def aligned(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table of words whose columns stand under each other on a terminal too; the last column is left as it is."""
    widths = [max(len(cells[column]) for cells in [headers, *rows]) for column in range(len(headers) - 1)]
    marks = [":".ljust(width, "-") for width in [*widths, 3]]
    return _lines([cell.ljust(width) for cell, width in zip(cells, [*widths, 0], strict=True)] for cells in [headers, marks, *rows])


def gib(size_bytes: int | None) -> str:
    return NONE if size_bytes is None else f"{size_bytes / GIB:.2f}"


def mean_std(summary: stats.Summary) -> str:
    places = stats.decimals_of(summary)
    return stats.number(summary.mean, places) + (f" ± {stats.number(summary.std, places)}" if summary.n > 1 else "")


def published_mean_std(published: dict) -> str:
    """The article's own digits: both numbers with as many decimals as the longer of them has."""
    numbers = [published[name] for name in ("mean_ms", "std_ms") if name in published]
    places = max(len(str(value).partition(".")[2]) for value in numbers)
    return " ± ".join(f"{value:.{places}f}" for value in numbers)


def row_anchor(group: Group, row: Row) -> str:
    return f"{group.slug}--{row.case}-{row.count}" + (f"-b{row.batch_size}" if row.batch_size != 1 else "")


def devices_word(group: Group) -> str:
    return "CPU devices" if group.key.device == "cpu" else "GPUs"


def status(row: Row) -> str:
    if row.status != "ok":
        return f"**{row.status}**"
    if not row.check:
        return "ok" if row.measured_without_calls else "ok, output not checked"
    return "ok" if row.check.get("passed") else "ok, **output FAILED**"


def case_name(row: Row) -> str:
    """The case, marked where its environment deviates from the pins: the note below the group's tables says where it is listed."""
    return text(row.name) + (f" {MARK}" if row.deviations() else "")


def published_by_case(group: Group, article: Article | None, metric: str = "mean_ms") -> dict[str, Case]:
    """The cases whose published numbers of a metric may stand beside this group's: run as published, on a GPU, at full size."""
    if article is None or group.key.variant != "published" or group.cannot_judge():
        return {}
    return {case.name: case for case in article.cases if metric in (case.published or {})}


def is_published_row(case: Case, row: Row, article: Article) -> bool:
    """Is this row the article's own: on as many GPUs, in its batch size?"""
    return (row.count, row.batch_size) == (case.gpus, article.prompt_of(case)["batch_size"])


def published_tokens(case: Case, article: Article) -> int:
    """Of how many new tokens the article's one number for a case is."""
    return article.runs_of(case, "published")[0]["new_tokens"]


def time_table(group: Group, article: Article | None) -> list[str]:
    """Mean, spread and interval of every row, beside the published mean where there is one."""
    published = published_by_case(group, article)
    headers = ["case", "status", "dtype", devices_word(group), "new tokens"]
    headers += ["published mean ± std, ms"] if published else []
    headers += ["measured mean ± std, ms", "95 % interval of the mean, ms", "p95, ms"]
    headers += ["measured / published"] if published else []
    rows = []
    for row in group.rows:
        if row.measured_without_calls or row.is_workload:
            continue
        head = [anchor(row_anchor(group, row)) + case_name(row), status(row), text(row.dtype) or NONE, str(row.count)]
        for new_tokens in (row.new_tokens if row.status == "ok" else []) or [0]:
            comparable = published.get(row.case)
            if comparable and not (is_published_row(comparable, row, article) and new_tokens in (0, published_tokens(comparable, article))):
                comparable = None
            rows.append(head + _time_cells(row, new_tokens, comparable, bool(published)))
            head = [case_name(row), *head[1:]]
    return table(headers, rows, left=3) if rows else []


def _time_cells(row: Row, new_tokens: int, case: Case | None, with_published: bool) -> list[str]:
    """The cells from "new tokens" on; `new_tokens` 0 is a row without a time."""
    before = [published_mean_std(case.published) if case else NONE] if with_published else []
    if not new_tokens:
        return [NONE, *before, NONE, NONE, NONE] + ([NONE] if with_published else [])
    summary = stats.summarise(row.timed_ms(new_tokens))
    places = stats.decimals_of(summary)
    low, high = summary.interval.low, summary.interval.high
    interval = NONE if low is None or high is None else f"{stats.number(low, places)} to {stats.number(high, places)}"
    ratio = [f"{summary.mean / case.published['mean_ms']:.2f}" if case else NONE] if with_published else []
    return [str(new_tokens), *before, mean_std(summary), interval, stats.number(summary.p95, places), *ratio]


def gpu_letters(group: Group) -> dict[str, str]:
    """{GPU UUID: "A", "B", …} in the order in which the rows name them; {} where the group has no GPU."""
    every = dict.fromkeys(uuid for row in group.rows for uuid in row.gpu_uuids)
    return {uuid: string.ascii_uppercase[place % 26] + str(place // 26 or "") for place, uuid in enumerate(every)}


def around_table(group: Group) -> list[str]:
    """Which GPUs, loading, the cold call, the time of one further token, how fast the host was and how steady the samples are; ok rows only."""
    letters = gpu_letters(group)
    headers = ["case", devices_word(group), *(["which GPUs"] if letters else []), "load, s", "cold call, ms", "further token, ms (95 % interval)"]
    told = any(row.guest and row.guest.launch_us for row in group.rows)
    headers += ["the host starts an operator in, µs: before / after"] if told else []
    headers += ["timed calls", "outliers", "drift, %", "means of repeated runs, ms"]
    rows = []
    for row in group.rows:
        if row.status != "ok" or not row.guest or row.measured_without_calls:
            continue
        summaries = [stats.summarise(row.timed_ms(count)) for count in row.new_tokens]
        cold = next((one["cold_ms"] for one in row.guest.measurements if one.get("cold_ms") is not None), None)
        rows.append(
            [
                case_name(row),
                str(row.count),
                *([" ".join(letters[uuid] for uuid in row.gpu_uuids)] if letters else []),
                NONE if row.guest.load_s is None else f"{row.guest.load_s:.1f}",
                NONE if cold is None else stats.significant(cold),
                further_token(row),
                *([launch(row)] if told else []),
                " + ".join(str(one.n) for one in summaries),
                " + ".join(str(one.outliers) for one in summaries),
                " and ".join(drift(row.timed_ms(count)) for count in row.new_tokens),
                run_to_run(row),
            ]
        )
    return table(headers, rows) if rows else []


#: The parts of a run in their order, and what each is; what no part claims is the last column.
PARTS = ("prepare", "start", "import", "load", "cold and warm-up calls", "timed calls", "check")


def parts_table(group: Group) -> list[str]:
    """Where the time of each run went, in seconds; ok rows only. Older results tell neither when they were asked for nor of their imports."""
    headers = ["case", devices_word(group), *(f"{part}, s" for part in PARTS), "rest, s", "whole run, s"]
    rows = []
    for row in group.rows:
        wall_s, prepare_s = row.record.host.get("wall_s"), row.record.host.get("prepare_s")
        if row.status != "ok" or not row.guest or wall_s is None:
            continue
        parts = parts_s(row)
        rest_s = wall_s - sum(value for name, value in parts.items() if value is not None and name != "prepare")
        cells = [NONE if value is None else f"{value:.1f}" for value in (*parts.values(), max(0.0, rest_s), wall_s + (prepare_s or 0))]
        rows.append([case_name(row), str(row.count), *cells])
    return table(headers, rows) if rows else []


def parts_s(row: Row) -> dict[str, float | None]:
    """Seconds of each of PARTS, None where the result does not tell: "start" is from the process or container to the guest's first line."""
    phases, began = row.guest.phases or {}, row.record.host.get("began")
    spans = {name: phases[name][1] - phases[name][0] for name in ("import", "load", "check") if len(phases.get(name) or []) == 2}
    calls = row.guest.measurements
    before_ms = sum(sum(one.get("warmup_ms") or []) + (one.get("cold_ms") or 0) for one in calls)
    found = {
        "prepare": row.record.host.get("prepare_s"),
        "start": phases["import"][0] - began if began is not None and "import" in spans else None,
        "cold and warm-up calls": before_ms / 1000,
        "timed calls": sum(sum(one["timed_ms"]) for one in calls) / 1000,
        **spans,
    }
    return {part: found.get(part) for part in PARTS}


def launch(row: Row) -> str:
    """ "5.2 / 5.4": µs in which the row's host started one small operator, before the first call and after the last."""
    found = row.guest.launch_us if row.guest else {}
    times = [found.get(when) for when in ("before", "after")]
    return " / ".join(stats.significant(us) for us in times) if all(times) else NONE


def further_token(row: Row) -> str:
    """ms of one further token with its interval, from the row's shortest and longest calls."""
    if len(row.new_tokens) < 2:
        return NONE
    short, long = row.new_tokens[0], row.new_tokens[-1]
    estimate = stats.per_token(row.timed_ms(short), row.timed_ms(long), long - short)
    if estimate.value <= 0:
        return "within noise"  # the longer calls were not slower
    return stats.in_words(estimate)


def drift(samples: Sequence[float]) -> str:
    """ "+1.2": by how many per cent the second half of the calls took longer."""
    share = stats.drift(samples)
    return NONE if share is None else f"{100 * share:+.1f}"


def run_to_run(row: Row) -> str:
    """ "117.1 to 118.0 in 3 runs", of the row's shortest calls; a single run has no spread."""
    means = run_means_ms(row, row.new_tokens[0])
    if len(means) < 2:
        return NONE
    places = stats.decimals(max(means) - min(means))
    return f"{stats.number(min(means), places)} to {stats.number(max(means), places)} in {len(means)} runs"


def memory_table(group: Group) -> list[str]:
    """The three memories, each the most that any one device held, and the output check."""
    headers = ["case", devices_word(group), "NVML peak of a GPU, GiB", "torch peak of a GPU, allocated / reserved, GiB"]
    headers += ["peak RSS of the measured process, GiB", "logits' relative error (allowed), %", "greedy tokens in common", "output"]
    rows = []
    for row in group.rows:
        if not row.guest or row.status == "unsupported":
            continue
        torch_peaks = [gib(row.torch_peak_bytes(name)) for name in ("peak_allocated_bytes", "peak_reserved_bytes")]
        rows.append(
            [
                case_name(row),
                str(row.count),
                gib(max(row.peak_used_bytes().values(), default=None)),
                NONE if torch_peaks == [NONE, NONE] else " / ".join(torch_peaks),
                gib(row.guest.memory.get("peak_rss_bytes")),
                *_check_cells(row.check),
            ]
        )
    return table(headers, rows) if rows else []


def _check_cells(check: dict | None) -> list[str]:
    if not check:
        return [NONE, NONE, "not checked"]
    error, allowed = check.get("logits_relative_error"), check.get("tolerance")
    shown = NONE if error is None else stats.percent(error)
    if error is not None and allowed is not None:
        shown += f" ({stats.percent(allowed)})"
    prefix, asked = check.get("greedy_common_prefix_tokens"), check.get("greedy_tokens")
    common = NONE if prefix is None else f"{prefix} of {asked}"
    return [shown, common, "ok" if check.get("passed") else "**FAILED**"]


def remarks(group: Group) -> list[str]:
    """Why rows have no time or no right output, or used fewer GPUs than they had, one line each."""
    lines = [f"- {text(row.name)} on {row.count}: {row.status} — {text(row.record.reason)}" for row in group.rows if row.status != "ok"]
    for row in group.rows:
        if row.status == "ok" and row.check and not row.check.get("passed"):
            lines.append(f"- {text(row.name)} on {row.count}: **output FAILED** — {text(wrong_output(row.check))}; its numbers support no claim")
        if row.empty_devices:
            held = gpus(row.count - row.empty_devices)
            lines.append(f"- {text(row.name)} on {row.count}: its library put the whole model on {held} and left {row.empty_devices} empty")
    return [*lines, ""] if lines else []


def tokens_of(group: Group) -> list[int]:
    return sorted({count for row in group.rows if row.status == "ok" for count in row.new_tokens})
