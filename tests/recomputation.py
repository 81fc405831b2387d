"""The numbers of the report, computed a second time from the raw samples: with json, csv, numpy and scipy, and without any code of the kit.

Each rule is typed anew from docs/method.md and docs/verdict-rules.md. Intervals come from scipy's own tests. A mistake of the kit's statistics, of
its choice of runs or of its tables shows as a difference.
"""

import csv
import functools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import scipy

#: Of a row with an interval.
LEAST_RUNS = 5

#: results.csv has six significant digits.
CSV_ACCURACY = 5.1e-6

#: Names of forms in results of schema 1: {earlier: present}.
EARLIER_FORMS = {"cycles": "padded-sentences", "pipeline-schedule": "pipeline-parallel", "pipeline": "transformers-pipeline"}

#: Forms with a rate: calls of a batch, and streams of texts.
OF_CALLS, OF_STREAMS = ("transformers-pipeline", "batch"), ("workload", "continuous", "engine-queue")

#: Layers times the width of a layer's keys, by the models' published configurations.
LAYERS_AND_KEYS = {"bloom-7b1": 30 * 4096, "bloomz-7b1": 30 * 4096, "gpt-j-6B": 28 * 4096, "llama-3-8B": 32 * 8 * 128}

#: The head of the column with the ratios of a claim.
BEHIND_CLAIMS = "parts of the claim, measured numbers"

SPEED = re.compile(
    r"(?P<faster>[a-z0-9-]+) on (?P<faster_count>\d+) GPUs? in (?P<faster_dtype>\w+) is (?P<ratio>[0-9.]+) times as fast as "
    r"(?P<slower>[a-z0-9-]+) on (?P<slower_count>\d+) GPUs? in (?P<slower_dtype>\w+)"
    r"(?: \((?:95 % interval (?P<low>[0-9.]+) to (?P<high>[0-9.]+))?(?:; )?[^)]*\))?(?:, batch (?P<batch>\d+))?"
)
ITEMS = re.compile(
    r"batch (?:b|size )(?P<large>\d+) makes (?P<ratio>[0-9.]+) times the items/s of (?:(?P<case>single)|batch size (?P<small>\d+))"
    r"(?: \((?:95 % interval (?P<low>[0-9.]+) to (?P<high>[0-9.]+))?)?"
)

Raw = dict[str, Any]


@dataclass(frozen=True)
class Compared:
    """A number of the report, and the same number recomputed; `accuracy` is how far they may lie apart."""

    place: str
    said: float | None
    recomputed: float | None
    accuracy: float

    @property
    def differs(self) -> bool:
        if self.said is None or self.recomputed is None:
            return self.said is not self.recomputed
        return not abs(self.said - self.recomputed) <= self.accuracy


class Reports:
    """A folder of reports: the lines of results.csv, the raw results in runs/, and the pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with (folder / "results.csv").open(newline="", encoding="utf-8") as stream:
            self.lines = list(csv.DictReader(stream))
        paths = sorted(folder.glob("runs/*/result.json"))
        self.raw = {raw["id"]: raw for raw in (json.loads(path.read_text(encoding="utf-8")) for path in paths) if raw["job"]["kind"] == "measure"}

    @functools.cached_property
    def by_question(self) -> dict[str, list[Raw]]:
        """All runs of the same question, oldest first."""
        groups: dict[str, list[Raw]] = {}
        for raw in sorted(self.raw.values(), key=lambda raw: raw["host"]["started_at"]):
            groups.setdefault(question(raw), []).append(raw)
        return groups

    def runs_of(self, line: Mapping[str, str]) -> list[Raw]:
        """All runs of a line's row, oldest first."""
        return self.by_question[question(self.raw[line["run"]])]

    def line_of(self, page: str, case: str, count: int, batch_size: int, new_tokens: int | None = None) -> Mapping[str, str] | None:
        """The line of a row, by default that of its longest calls; None without."""
        asked = {"page": page, "case": case, "device_count": str(count), "batch_size": str(batch_size)}
        asked |= {"new_tokens": str(new_tokens)} if new_tokens else {}
        fitting = [line for line in self.lines if asked.items() <= line.items()]
        return max(fitting, key=lambda line: int(line["new_tokens"] or 0), default=None)


def question(raw: Raw) -> str:
    """What was asked, of what, on which kind of machine: runs with equal words are runs of one row."""
    job = {name: value for name, value in raw["job"].items() if name not in ("id", "reference", "schema")}
    job["model"] = {name: value for name, value in job["model"].items() if name != "path"}
    job["form"] = EARLIER_FORMS.get(job.get("form") or "", job.get("form") or "generate")
    job["options"] = job.get("options") or {}
    host = raw["host"]
    gpus = sorted({(gpu["name"], round(gpu["memory_total_bytes"] / 2**30), gpu["compute_capability"]) for gpu in host.get("gpus") or []})
    machine = host.get("machine") or {}
    return json.dumps([job, host.get("pins_id"), host["engine"], gpus, machine.get("cpu"), machine.get("cpu_count")], sort_keys=True)


def calls_ms(raw: Raw, new_tokens: int) -> list[float]:
    """The timed calls of so many new tokens."""
    measurements = (raw["guest"] or {}).get("measurements") or []
    return next((some["timed_ms"] for some in measurements if some["new_tokens"] == new_tokens and some["timed_ms"]), [])


def timed_tokens(raw: Raw) -> list[int]:
    """The numbers of new tokens that a run timed, rising."""
    return sorted({some["new_tokens"] for some in (raw["guest"] or {}).get("measurements") or [] if some["timed_ms"]})


def timed_runs(runs: Sequence[Raw], new_tokens: int) -> list[Raw]:
    return quiet([raw for raw in runs if raw["status"] == "ok" and calls_ms(raw, new_tokens)])


def quiet(runs: Sequence[Raw]) -> list[Raw]:
    """The runs on an undisturbed machine, or all where each machine was disturbed."""
    return [raw for raw in runs if not (raw["host"].get("conditions") or {}).get("disturbed") and not raw["host"].get("shared_with")] or [*runs]


def run_that_counts(runs: Sequence[Raw]) -> Raw:
    """The median of the runs on quiet machines by the mean of its longest calls; of an even number the later of the two in the middle. The latest
    that did not fail, where it has no time; the latest where all failed."""
    timed = [raw for raw in runs if raw["status"] == "ok" and timed_tokens(raw)]
    latest = ([raw for raw in runs if raw["status"] != "failed"] or runs)[-1]
    if latest not in timed:
        return latest
    order = sorted(quiet(timed), key=lambda raw: numpy.mean(calls_ms(raw, timed_tokens(raw)[-1])))
    half = len(order) // 2
    middle = [order[half]] if len(order) % 2 else order[half - 1 : half + 1]
    return max(middle, key=lambda raw: raw["host"]["started_at"])


def times_ms(runs: Sequence[Raw], new_tokens: int) -> dict[str, float | None]:
    """Mean and spread over the runs, of one run over its calls; 95th percentile of all calls; interval over enough runs."""
    means = [float(numpy.mean(calls_ms(raw, new_tokens))) for raw in timed_runs(runs, new_tokens)]
    calls = [call for raw in timed_runs(runs, new_tokens) for call in calls_ms(raw, new_tokens)]
    counted = means if len(means) > 1 else calls
    interval = scipy.stats.ttest_1samp(means, 0.0).confidence_interval(0.95) if len(means) >= LEAST_RUNS else (None, None)
    deciding = {"mean_ms": numpy.mean(counted), "std_ms": numpy.std(counted), "p95_ms": numpy.percentile(calls, 95)}
    return {name: float(value) for name, value in deciding.items()} | {"low_ms": interval[0], "high_ms": interval[1]}


def ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The ratio of geometric means over runs, with Welch's interval on the logarithms where both rows have enough runs."""
    logs = numpy.log(above), numpy.log(below)
    value = math.exp(float(numpy.mean(logs[0]) - numpy.mean(logs[1])))
    if min(len(above), len(below)) < LEAST_RUNS:
        return value, None, None
    low, high = scipy.stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    return value, math.exp(low), math.exp(high)


def tokens_of_a_call(raw: Raw, corrected: bool = False) -> int:
    """The tokens that ms/token counts: by the article's formula those of every rank where it counted them so, corrected the real ones; 0 without."""
    counted = ((raw["guest"] or {}).get("figures") or {}).get("cycles") or {}
    if corrected:
        return int(counted.get("real_tokens") or 0)
    of_ranks = int(counted.get("ranks") or 1) if (raw["job"].get("options") or {}).get("tokens_times_ranks") else 1
    return int(counted.get("counted_tokens") or 0) * of_ranks


def rates(runs: Sequence[Raw]) -> tuple[float | None, float | None]:
    """(items/s, tokens/s) of the longest calls of a row's runs, or of their streams of texts."""
    raw = run_that_counts(runs)
    form = raw["job"].get("form") or "generate"
    if raw["status"] != "ok" or EARLIER_FORMS.get(form, form) not in OF_CALLS + OF_STREAMS:
        return None, None
    longest = (timed_tokens(raw) or [0])[-1]
    timed = timed_runs(runs, longest)
    if not timed:
        return None, None
    streams = [stream for one in timed if (stream := (one["guest"].get("figures") or {}).get("workload"))]
    if streams:
        seconds, items, tokens = ([stream[name] for stream in streams] for name in ("seconds", "items", "new_tokens"))
        return float(numpy.mean(items)) / float(numpy.mean(seconds)), sum(tokens) / sum(seconds)
    mean_ms = float(numpy.mean([numpy.mean(calls_ms(one, longest)) for one in timed]))
    made = [some["timed_tokens"] for one in timed for some in one["guest"]["figures"].get("calls") or [] if some["new_tokens"] == longest]
    total_ms = sum(sum(calls_ms(one, longest)) for one in timed)
    tokens_per_s = 1000 * sum(map(sum, made)) / total_ms if len(made) == len(timed) else None
    return 1000 * raw["job"]["prompt"]["batch_size"] / mean_ms, tokens_per_s


def middles(runs: Sequence[Raw], new_tokens: int) -> dict[str, float | None]:
    """The most that a GPU held, as NVML saw it and as torch counted it, loading, the first call and the share of the least busy GPU that
    a part of the model lies on: the lower median over the runs that count."""
    ok = [raw for raw in runs if raw["status"] == "ok"]
    shown = run_that_counts(runs)
    counted = quiet(ok) if shown["status"] == "ok" else [shown]
    found: dict[str, float | None] = {}
    readings = {"gpu_peak_bytes": seen_peak, "torch_peak_allocated_bytes": counted_peak, "load_s": load_s, "cold_ms": first_call_ms}
    for name, read in readings.items():
        found[name] = lower_median(value for raw in counted if (value := read(raw)) is not None)
    of_gpus = list(zip(*(shares for raw in counted if (shares := busy_shares(raw, new_tokens))), strict=True))
    middle = [lower_median(share for share in of_gpu if share is not None) for of_gpu in of_gpus]
    empty = gpus_left_empty(shown)
    found["gpu_busy_share"] = sorted(share for share in middle if share is not None)[empty] if middle and None not in middle else None
    return found


def gpus_left_empty(raw: Raw) -> int:
    """How many of a run's GPUs hold no parameter of the model, as far as the guest says."""
    held = [name for name in ((raw["guest"] or {}).get("used") or {}).get("parameters_per_device") or {} if name[:4] == "cuda"]
    return max(0, raw["job"]["device_count"] - len(held)) if held and raw["job"]["device"] == "cuda" else 0


def lower_median(values: Iterable[float]) -> float | None:
    told = sorted(values)
    return told[(len(told) - 1) // 2] if told else None


def load_s(raw: Raw) -> float | None:
    return (raw["guest"] or {}).get("load_s")


def first_call_ms(raw: Raw) -> float | None:
    return next((some["cold_ms"] for some in (raw["guest"] or {}).get("measurements") or [] if some.get("cold_ms") is not None), None)


def busy_shares(raw: Raw, new_tokens: int) -> list[float | None]:
    """Of each GPU the share of the time in which it ran a kernel; None where the result gives a reason instead."""
    told = [one["gpus"] for one in raw["host"].get("busy") or [] if one["new_tokens"] == new_tokens]
    return [gpu.get("share") if gpu["code"] == "ok" else None for gpu in (told or [[]])[0]]


def seen_peak(raw: Raw) -> float | None:
    return max((gpu["peak_used_bytes"] for gpu in raw["host"].get("gpu_memory") or [] if gpu.get("peak_used_bytes") is not None), default=None)


def counted_peak(raw: Raw) -> float | None:
    return max((device["peak_allocated_bytes"] for device in ((raw["guest"] or {}).get("memory") or {}).get("devices") or []), default=None)


def other_answers(raw: Raw) -> bool:
    """Did another cache than the default one, or a pipeline under the rolling schedule, give another answer?"""
    figures = (raw["guest"] or {}).get("figures", {})
    for one in figures.get("schedules") or []:
        if one["schedule"] == "rolling" and one["identical"] < one["micro_batches"] * one["micro_batch_size"]:
            return True
    caches = (figures.get("kv_offload") or {}).get("caches") or []
    return any(cache.get("identical") is not None and cache["identical"] != cache["batch_size"] for cache in caches)


def of_line(reports: Reports, line: Mapping[str, str]) -> Iterator[Compared]:
    """Every number of a line of results.csv."""
    runs, new_tokens = reports.runs_of(line), int(line["new_tokens"] or 0)
    counts = run_that_counts(runs)
    place = f"results.csv, {line['page']}: {line['case']} b{line['batch_size']} on {line['device_count']}, {new_tokens} new tokens"
    wrong = [raw for raw in runs if raw["status"] == "ok" and (not ((raw["guest"] or {}).get("check") or {}).get("passed", True) or other_answers(raw))]
    shown = min(wrong, key=lambda raw: raw["host"]["started_at"], default=counts)
    yield Compared(f"{place}, run whose output is told is {shown['id']}", 1.0, float(line["run"] == shown["id"]), 0.0)
    yield Compared(f"{place}, output is wrong", float(line["output_right"] == "False"), float(bool(wrong)), 0.0)
    longest = new_tokens == (timed_tokens(counts) or [0])[-1]
    values: dict[str, float | None] = {"runs": float(len(timed_runs(runs, new_tokens))) if new_tokens else 0.0}
    values |= times_ms(runs, new_tokens) if new_tokens else dict.fromkeys(("mean_ms", "std_ms", "p95_ms", "low_ms", "high_ms"))
    values |= {"items_per_s": rates(runs)[0] if longest else None, **middles(runs, new_tokens)}
    for name, value in values.items():
        said = float(line[name]) if line[name] else None
        yield Compared(f"{place}, {name}", said, value, CSV_ACCURACY * abs(value or 0.0))


def tables(page: Path) -> Iterator[tuple[list[str], list[list[str]]]]:
    """(heads, rows) of a page's tables."""
    for block in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.M):
        lines = [[cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in block.splitlines()]
        yield lines[0], lines[2:]


def printed(cell: str) -> tuple[float, float] | None:
    """(number, half of the last printed digit) at the beginning of a cell; None without. Zeros at the end of a whole number may be rounded."""
    found = re.match(r"[0-9,]+(\.[0-9]+)?", cell)
    if not found:
        return None
    digits = found[0].replace(",", "")
    last = 10.0 ** -len(digits.partition(".")[2]) if "." in digits else 10.0 ** (len(digits) - len(digits.rstrip("0")))
    return float(digits), 0.5000001 * last


def of_tables(reports: Reports, page: Path) -> Iterator[Compared]:
    """ms/token over batch sizes, the further token, the cache of a step, and tokens/s of a setting's page."""
    for heads, rows in tables(page):
        for cells in rows:
            name = re.sub(r"<[^>]*>| †|, \*\*output FAILED\*\*|\*", "", cells[0]).strip()
            if heads[0] == "ms/token in batches of" and name.endswith((", measured", ", corrected")):
                yield from _ms_per_token(reports, page, name, dict(zip(heads, cells, strict=True)))
            elif "tokens/s" in heads or "answer tokens/s" in heads:
                yield from _tokens_per_s(reports, page, name, dict(zip(heads, cells, strict=True)))
            elif "weights + cache to read, GB" in heads:
                yield from _cache(reports, page, name, dict(zip(heads, cells, strict=True)))
            elif "cold call, ms" in heads:
                yield from _further_token(reports, page, name, dict(zip(heads, cells, strict=True)))


def _ms_per_token(reports: Reports, page: Path, name: str, cells: Mapping[str, str]) -> Iterator[Compared]:
    case, _, formula = name.partition(", ")
    for batch_size, cell in cells.items():
        said = printed(cell) if batch_size.isdigit() else None
        line = reports.line_of(page.name, case, int(cells["GPUs"].split()[0]), int(batch_size)) if said else None
        if said and line:
            longest = timed_tokens(reports.raw[line["run"]])[-1]
            timed = timed_runs(reports.runs_of(line), longest)
            value = float(numpy.mean([numpy.mean(calls_ms(raw, longest)) / tokens_of_a_call(raw, formula == "corrected") for raw in timed]))
            yield Compared(f"{page.name}, ms/token: {name} b{batch_size}", said[0], value, said[1])


def _case_and_batch(name: str) -> tuple[str, int]:
    """("batch", 64) of "batch b64"."""
    case, _, batch_size = name.partition(" b")
    return case, int(batch_size or 1)


def _tokens_per_s(reports: Reports, page: Path, name: str, cells: Mapping[str, str]) -> Iterator[Compared]:
    case, batch_size = _case_and_batch(name)
    line = reports.line_of(page.name, case, int(cells.get("GPUs", "1")), batch_size)
    said = printed(cells.get("tokens/s") or cells.get("answer tokens/s") or "")
    if said and line:
        yield Compared(f"{page.name}, tokens/s: {name}", said[0], rates(reports.runs_of(line))[1], said[1])


def _cache(reports: Reports, page: Path, name: str, cells: Mapping[str, str]) -> Iterator[Compared]:
    """Keys and values of all sequences in the middle of the steps that are timed: those after the first token where calls of one token or stamps
    tell them, else all of a call."""
    case, batch_size = _case_and_batch(name)
    line = reports.line_of(page.name, case, int(cells.get("GPUs", "1")), batch_size)
    said = printed(cells["weights + cache to read, GB"].partition(" + ")[2])
    if said and line:
        raw = reports.raw[line["run"]]
        guest, shortest, longest = raw["guest"], timed_tokens(raw)[0], timed_tokens(raw)[-1]
        figures = guest.get("figures") or {}
        padded = figures.get("padded_prompt_tokens")
        prompt = padded // batch_size if padded else guest["prompt_tokens"]
        stamped = (figures.get("token_times") or {}).get("new_tokens") == longest
        middle = (1 + longest) / 2 if stamped or shortest == 1 else longest / 2
        sequences = (figures.get("pipeline") or {}).get("sequences") or batch_size
        values = 2 * LAYERS_AND_KEYS[raw["job"]["model"]["shape"]] * sequences * (prompt + middle)
        value_bytes = 4 if line["dtype"] == "float32" else 2
        yield Compared(f"{page.name}, cache: {name} on {line['device_count']}", said[0], values * value_bytes / 1e9, said[1])


def _further_token(reports: Reports, page: Path, name: str, cells: Mapping[str, str]) -> Iterator[Compared]:
    case, batch_size = _case_and_batch(name)
    line = reports.line_of(page.name, case, int(cells.get("GPUs", "1")), batch_size)
    said = printed(cells["further token, ms (95 % interval)"])
    if said and line:
        short, *_, long = timed_tokens(reports.raw[line["run"]])
        runs = [raw for raw in timed_runs(reports.runs_of(line), long) if calls_ms(raw, short)]
        value = float(numpy.mean([(numpy.mean(calls_ms(raw, long)) - numpy.mean(calls_ms(raw, short))) / (long - short) for raw in runs]))
        yield Compared(f"{page.name}, further token: {name} on {line['device_count']}", said[0], value, said[1])


def of_ratios(reports: Reports, page: Path) -> Iterator[Compared]:
    """The ratios behind the claims of a setting's or an article's page, with their intervals."""
    for heads, rows in tables(page):
        for cells in rows if BEHIND_CLAIMS in heads else ():
            # A setting's page names the calls in `for`; an article's page links to the setting and names them behind the link.
            asked = re.search(
                r"(?:\((?P<page>[^)]*\.md)[^)]*\), )?(?P<tokens>\d+) new tokens?", cells[heads.index("calls of" if "calls of" in heads else "measured on")]
            )
            if asked:
                yield from _of_sentences(reports, asked["page"] or page.name, cells[heads.index(BEHIND_CLAIMS)], int(asked["tokens"]))


def _of_sentences(reports: Reports, page: str, text: str, new_tokens: int) -> Iterator[Compared]:
    for found in SPEED.finditer(text):
        sides = [(found[side], int(found[f"{side}_count"]), int(found["batch"] or 1)) for side in ("slower", "faster")]
        yield from _ratio(reports, page, found, sides, new_tokens, items=False)
    for found in ITEMS.finditer(text):
        sides = [(found["case"] or "batch", 1, int(found["small"] or 1)), ("batch", 1, int(found["large"]))]
        yield from _ratio(reports, page, found, sides, new_tokens, items=True)


def _ratio(reports: Reports, page: str, found: re.Match[str], sides: Sequence[tuple[str, int, int]], new_tokens: int, items: bool) -> Iterator[Compared]:
    """The ratio of two rows' times: of a call, of a token where both count them, or of an item."""
    lines = [reports.line_of(page, *side, new_tokens) for side in sides]
    if not all(lines):
        yield Compared(f"{page}: {found[0]}: there is no such row", 1.0, None, 0.0)
        return
    runs = [timed_runs(reports.runs_of(line), new_tokens) for line in lines if line]
    by_token = all(tokens_of_a_call(raw) for of_row in runs for raw in of_row)
    units = [[side[2] if items else tokens_of_a_call(raw) if by_token else 1 for raw in of_row] for side, of_row in zip(sides, runs, strict=True)]
    times = [
        [float(numpy.mean(calls_ms(raw, new_tokens))) / unit for raw, unit in zip(of_row, of_units, strict=True)]
        for of_row, of_units in zip(runs, units, strict=True)
    ]
    for name, value in zip(("ratio", "low", "high"), ratio(*times), strict=True):
        said = printed(found[name] or "")
        yield Compared(f"{page}, {name}: {found[0]}", said[0] if said else None, value, said[1] if said else 0.0)


def everything(folder: Path) -> dict[str, list[Compared]]:
    """{kind of number: each number of the report beside its recomputation}."""
    reports = Reports(folder)
    pages = [folder / name for name in sorted({line["page"] for line in reports.lines})]
    return {
        "rows": [number for line in reports.lines for number in of_line(reports, line)],
        "tables": [number for page in pages for number in of_tables(reports, page)],
        "ratios": [number for page in [*pages, *sorted(folder.glob("article-*.md"))] for number in of_ratios(reports, page)],
    }
