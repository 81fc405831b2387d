"""A guest's answer, read through the door and checked against its job: a guest that is wrong, or lies, gives no row."""

import math
import signal
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import backends, forms
from bench.job import InvalidDocument, Job, Result, result_of
from scripts.results import door, shapes

#: What a guest wrote and the host refused stays beside the run's result under this name.
REJECTED = "result.rejected.json"


@dataclass(frozen=True)
class Seen:
    """What the host saw of a guest's process: seconds from its start to its end, and the memory in bytes of each GPU that it had.

    `resumed` tells whether the host gave the process the answers of an earlier one to go on from.
    """

    exit_code: int
    wall_s: float
    gpu_memory_bytes: Sequence[int] = ()
    resumed: bool = False


def read(path: Path) -> Result:
    """A guest's result.json; raises InvalidDocument (door.Refused is one), FileNotFoundError or OSError."""
    fields = door.parse(door.read(path), path.name)
    shapes.check(fields, shapes.Guest, path.name)
    result = result_of(fields)
    result.reason = one_line(result.reason)
    if result.status != "ok" and not result.reason:
        raise InvalidDocument(f"its status is {result.status} and its reason is empty")
    if result.check:
        result.check.pop("judged", None)  # only the judge may write it
        if result.check.get("reason"):
            result.check["reason"] = one_line(result.check["reason"])
    return result


def one_line(words: str) -> str:
    """A guest's words as a terminal and a table can show them: one line, without control characters, at most 2,000 characters."""
    spaced = " ".join(words.split())
    return "".join(character if character.isprintable() else "?" for character in spaced)[:2000]


def keep_rejected(work: Path, folder: Path) -> bool:
    """Keep the answer that was refused, or came too late, beside the run's result; False where there is none, or the door does not let it in."""
    try:
        return door.keep(work / "result.json", folder / REJECTED)
    except (InvalidDocument, OSError):
        return False


def disagreement(job: Job, result: Result, seen: Seen) -> str:
    """Where an answer contradicts its job, itself, or what the host saw, in words; "" where it does not."""
    faults = [] if result.id == job.id else [f"its id is {result.id[:80]!r}, the job's is {job.id!r}"]
    if result.status == "ok":
        faults += [] if seen.exit_code == 0 else [f"it says ok, and its process then ended with {exit_words(seen.exit_code)}"]
        faults += [_too_long(job, result, seen), contradiction(job, result), *_of_kind(job, result, seen)]
    return "; ".join(fault for fault in faults if fault)


def contradiction(job: Job, result: Result) -> str:
    """How parts of the answer to a job contradict each other, in words; "" where they agree."""
    figures = result.figures
    faults = [
        _of_calls(job, result),
        _of_pipeline(job, result),
        _of_cycles(job, figures.get("cycles")),
        _of_padding(figures.get("padding")),
        _of_workload_seconds(job, result),
        _of_latency(job, figures.get("latency"), figures.get("workload")),
        *map(_of_schedule, figures.get("schedules") or []),
    ]
    faults += [*(_of_window(job, calls) for calls in result.measurements), _of_token_times(figures.get("token_times") or {}), *_of_longer(result)]
    return "; ".join(fault for fault in faults if fault)


def _of_calls(job: Job, result: Result) -> str:
    """Rates divide by these counts, so they must be of the timed calls, and no row of a call may have more tokens than were asked for."""
    figure = result.figures.get("calls")
    if figure is None:
        return ""
    timed = [(calls["new_tokens"], len(calls["timed_ms"])) for calls in result.measurements]
    tokens = [(calls["new_tokens"], len(calls["timed_tokens"])) for calls in figure]
    if tokens != timed:
        return f"it counts the tokens of the calls {tokens[:9]}, but it timed the calls {timed[:9]}"
    rows = job.options.get("rows") or job.batch_size
    much = next((call for call in figure if max(call["timed_tokens"], default=0) > rows * call["new_tokens"]), None)
    return f"a call of {rows} x {much['new_tokens']} tokens made {max(much['timed_tokens'])} by its count" if much else ""


def _of_pipeline(job: Job, result: Result) -> str:
    """Joules, bytes and operations are of these sequences, so their number must be the job's; the clock times no call of fewer or more tokens."""
    figure = result.figures.get("pipeline")
    if not job.runs or (figure is None and (job.form != "transformers-pipeline-sequences" or job.kind != "measure")):
        return ""
    sequences, tokens = (figure or {}).get("sequences"), (figure or {}).get("tokens_by_call")
    if sequences != job.answers:
        return f"its pipeline calls make {sequences or 'an unknown number of'} sequences, its job asks for {job.answers}"
    if tokens is None or not result.measurements:
        return ""
    last = result.measurements[-1]
    if len(tokens) != len(last["timed_ms"]):
        return f"it counts the tokens of {len(tokens)} pipeline calls, and timed {len(last['timed_ms'])}"
    other = next((made for made in tokens if made != last["new_tokens"]), None)
    return "" if other is None else f"a pipeline call of {last['new_tokens']} new tokens made {other} by its count"


def _of_cycles(job: Job, figure: dict[str, Any] | None) -> str:
    """ms/token divide by these counts, so they must be the job's: the clock times no call of fewer tokens (bench/measuring/measure.py)."""
    if job.form != "padded-sentences" or job.kind != "measure":
        return ""
    if figure is None:
        return "it counts no tokens of its calls"
    counted = job.batch_size * job.most_new_tokens
    if (figure["sequences"], figure["counted_tokens"]) != (job.batch_size, counted):
        return f"it counts {figure['counted_tokens']} tokens of {figure['sequences']} sequences, its job makes {counted} of {job.batch_size}"
    if figure["real_tokens"] > counted:
        return f"{figure['real_tokens']} of its {counted} tokens are real by its own count"
    processes = {1, job.device_count}
    return "" if figure["ranks"] in processes else f"{figure['ranks']} processes ran its sentences, allowed are {' and '.join(map(str, sorted(processes)))}"


def _of_window(job: Job, measurement: dict[str, Any]) -> str:
    """The window of the timed calls, in which energy is measured, must be long enough for them."""
    began, ended = measurement.get("timed_at") or (0.0, math.inf)
    calls_s = least_s(job, measurement["timed_ms"])
    words = f"its timed calls took at least {calls_s:.3f} s and lie within {ended - began:.3f} s"
    return "" if ended - began >= 0.999 * calls_s else words


def least_s(job: Job, calls_ms: Sequence[float]) -> float:
    """The least time in s that calls made one after the other took together.

    One process makes no two calls at once. Where each GPU has a rank of its own, a call's time is that of its slowest rank. A rank may begin a call
    while another rank still ends the previous call, but not before all ranks have ended the call before that, because no call goes on without all
    ranks. So the first, third, fifth… calls do not overlap, nor do the second, fourth, sixth…
    """
    if job.device_count == 1 or not has_ranks(job):
        return math.fsum(calls_ms) / 1000
    return max(math.fsum(calls_ms[::2]), math.fsum(calls_ms[1::2])) / 1000


def has_ranks(job: Job) -> bool:
    """Does this job run as a process for each GPU? True, as it may, where the kit lacks the backend or the form of a stored result."""
    try:
        return backends.has_ranks(backends.find(job.backend)) and forms.loads(forms.find(job.form))
    except (ImportError, ValueError):
        return True


def _of_longer(result: Result) -> Iterator[str]:
    """Calls beside the timed ones must have as many tokens as timed ones, and a window. The host decides whether the window counts
    (scripts/machine/windows.py): a host that changes its speed loses no run."""
    timed = {one["new_tokens"] for one in result.measurements}
    for one in result.figures.get("longer") or []:
        calls, at = one.get("calls"), one.get("at")
        if one["new_tokens"] not in timed:
            yield f"it made longer calls of {one['new_tokens']} tokens and timed none"
        elif bool(calls) != bool(at):
            yield f"it tells only {'the number' if calls else 'the window'} of longer calls, and not {'the window' if calls else 'the number'}"


def _of_token_times(figure: dict[str, Any]) -> str:
    """Each call has the time of its first token, and the times between all its tokens."""
    calls, between = len(figure.get("first_ms") or []), [len(one) for one in figure.get("between_ms") or []]
    words = f"it tells {calls} first tokens, and {between[:9]} times between tokens in calls of {figure.get('new_tokens')}"
    return "" if between == [(figure.get("new_tokens") or 0) - 1] * calls else words


def _of_padding(figure: dict[str, Any] | None) -> str:
    """Each list has an entry for each text."""
    if figure is None:
        return ""
    lists = [figure["prompt_tokens"], *(figure[side][name] for side in ("left", "right") for name in ("first_different_token", "logits_relative_error"))]
    counts = [len(entries) for entries in lists]
    return "" if counts[0] and len(set(counts)) == 1 else f"the counts of texts in a padded batch are {counts}, allowed are equal counts"


def _of_workload_seconds(job: Job, result: Result) -> str:
    """Rates divide by a workload's seconds, which must be those of its batches; of several ranks the first tells them, which is no slower than the slowest."""
    figure = result.figures.get("workload")
    if figure is None:
        return ""
    calls_ms = [ms for calls in result.measurements for ms in calls["timed_ms"]]
    seconds, most_s = figure["seconds"], math.fsum(calls_ms) / 1000
    words = f"its workload took {seconds:.3f} s by its figure, and {most_s:.3f} s by its batches"
    return "" if 0.999 * least_s(job, calls_ms) <= seconds <= 1.001 * most_s else words


#: The times of a figure of latencies, in rising order.
LATENCIES = ("median_ms", "p95_ms", "p99_ms", "longest_ms")


def _of_latency(job: Job, figure: dict[str, Any] | None, workload: dict[str, Any] | None) -> str:
    """Items that arrive over time must all have latencies, unless the run went on after a stop."""
    rate = (job.options or {}).get("arrivals_per_s")
    if figure is None:
        return f"its items arrive {rate:g} a second, and it tells no latencies" if rate and workload else ""
    if workload is None:
        return "it tells latencies, and no workload"
    if figure["arrivals_per_s"] != rate:
        return f"it tells latencies of {figure['arrivals_per_s']:g} arrivals a second, its job has {rate or 'none'}"
    if figure["items"] != workload["items"]:
        return f"it tells latencies of {figure['items']} items, its workload has {workload['items']}"
    if bool(figure.get("reason")) != workload["resumed"]:
        return (
            "its run went on after a stop, and it tells latencies" if workload["resumed"] else "its run did not go on after a stop, and it tells no latencies"
        )
    return "" if workload["resumed"] else _of_latencies(figure, workload["seconds"])


def _of_latencies(figure: dict[str, Any], seconds: float) -> str:
    """The clock of the latencies is that of the workload's seconds, and the last of n arrivals lies near n / rate: n exponential gaps take n ± √n mean gaps."""
    missing = [name for name in (*LATENCIES, "offered_s", "finished_s") if figure.get(name) is None]
    if missing:
        return f"its latencies lack {', '.join(missing)}"
    times_ms, offered_s, finished_s = [figure[name] for name in LATENCIES], figure["offered_s"], figure["finished_s"]
    gaps, items = offered_s * figure["arrivals_per_s"], figure["items"]
    if times_ms != sorted(times_ms):
        return f"{', '.join(LATENCIES)} are {times_ms}, and none may be shorter than the one before"
    if abs(gaps - items) > 6 * math.sqrt(items) + 20:
        return f"the last of its {items} items came after {offered_s:.3f} s, at {figure['arrivals_per_s']:g} a second"
    if not offered_s <= finished_s or times_ms[-1] > 1001 * finished_s:
        return f"its last item came after {offered_s:.3f} s, the longest wait was {times_ms[-1] / 1000:.3f} s, and all ended after {finished_s:.3f} s"
    if (each_ms := figure.get("each_ms")) is not None and not _gives(each_ms, figure):
        return f"its {len(each_ms)} single latencies do not give the {items} items, the median and the longest that it tells"
    near = SHARE_OF_PHASE * seconds - CLOCK_S <= finished_s <= 1.001 * seconds
    return "" if near else f"its last answer came after {finished_s:.3f} s, and its workload took {seconds:.3f} s"


def _gives(each_ms: list[float], figure: dict[str, Any]) -> bool:
    """Do the single latencies, which are rounded to µs, give the figure's median and longest, which are not?"""
    if len(each_ms) != figure["items"]:
        return False
    told_ms: tuple[float, float] = (figure["median_ms"], figure["longest_ms"])
    return all(abs(found - told) < 0.01 for found, told in zip((statistics.median(each_ms), max(each_ms)), told_ms, strict=True))


def _of_schedule(figure: dict[str, Any]) -> str:
    """Each run has a wall time, and a busy time of each stage."""
    runs, busy = len(figure["wall_ms"]), [len(stages) for stages in figure["busy_ms"]]
    words = f"{figure['stages']} stages in {runs} runs of a schedule have {busy[:9]} busy times"
    return "" if runs and busy == [figure["stages"]] * runs else words


def exit_words(code: int) -> str:
    """ "exit code 1", or "exit code 139 (SIGSEGV)" for a signal, which engines give as -11 or as 128 + 11."""
    number = -code if code < 0 else code - 128
    try:
        return f"exit code {code} ({signal.Signals(number).name})"
    except ValueError:
        return f"exit code {code}"


def _of_kind(job: Job, result: Result, seen: Seen) -> Iterator[str]:
    if job.kind == "profile":
        yield "" if result.figures.get("profile") else "it says ok and has no profile"
    if job.kind == "measure":
        yield _other_calls(job, result)
        loads = forms.loads(forms.find(job.form))
        batch_size = job.prompt.get("batch_size") if loads else None
        allowed = (None, 1) if loads and batch_size is None else (batch_size,)  # an earlier job may name no batch size, which means 1
        yield "" if result.batch_size in allowed else f"its batch size is {result.batch_size}, the job's is {batch_size}"
        yield "" if seen.resumed else _measure_phase(job, result)
        yield _workload(job, result.figures.get("workload"))
        yield from _memory(job, result, seen)
        yield from _check(job, result)


def _other_calls(job: Job, result: Result) -> str:
    """A form that times the job's runs has exactly those calls; others have timed calls or figures of their own."""
    if not forms.times_runs(forms.find(job.form)):
        timed = [calls["timed_ms"] for calls in result.measurements]
        return "" if (timed or result.figures) and all(timed) else "it says ok and has neither timed calls nor figures"
    asked = [(run["new_tokens"], job.warmup_runs, job.timed_runs) for run in job.runs]
    made = [(calls["new_tokens"], len(calls.get("warmup_ms", [])), len(calls["timed_ms"])) for calls in result.measurements]
    return "" if made == asked else f"(new tokens, warm-up calls, timed calls) are {made[:9]}, asked for were {asked}"


#: A phase lasts at least this share of its calls less so many seconds: the calls' times are the slowest rank's, the phase is the first rank's, by a clock
#: that may be set.
SHARE_OF_PHASE, CLOCK_S = 0.9, 1.0


def _measure_phase(job: Job, result: Result) -> str:
    """The phase of the timed calls must be long enough for them: the host looks for disturbances within the phase (scripts/machine/conditions.py), or in
    the whole run where the phase ends before it begins, because the clock was set back."""
    began, ended = result.phases.get("measure") or (0.0, math.inf)
    calls_s = math.fsum(least_s(job, calls["timed_ms"]) for calls in result.measurements)
    short = 0 <= ended - began < SHARE_OF_PHASE * calls_s - CLOCK_S
    return f"its phase measure took {ended - began:.3f} s, and its timed calls at least {calls_s:.3f} s" if short else ""


def _workload(job: Job, figure: dict[str, Any] | None) -> str:
    """Rates divide by these counts, so they must be the job's."""
    items = (job.options or {}).get("items")
    if figure is None or items is None:
        return ""
    if figure["items"] != items:
        return f"it answered {figure['items']} items, the job has {items}"
    most = items * job.most_new_tokens
    return "" if figure["new_tokens"] <= most else f"it made {figure['new_tokens']:,} new tokens, the job allows {most:,}"


#: Wall times among a form's figures: {key: seconds of its unit}.
WALL_S = {"seconds": 1.0, "wall_ms": 1e-3, "profiled_wall_ms": 1e-3, "first_ms": 1e-3, "all_ms": 1e-3, "us": 1e-6}


def _too_long(job: Job, result: Result, seen: Seen) -> str:
    """Which times are longer than the process lived, in words; a resumed workload includes times of earlier processes, which do not count."""
    calls_ms = [ms for calls in result.measurements for ms in (calls.get("cold_ms"), *calls.get("warmup_ms", []), *calls["timed_ms"])]
    claimed_s = (result.load_s or 0) + (0 if seen.resumed else least_s(job, [ms for ms in calls_ms if ms is not None]))
    if claimed_s > seen.wall_s:
        return f"loading and calls took at least {claimed_s:.3f} s, its process lived {seen.wall_s:.3f} s"
    longest_s = 0 if seen.resumed else max(_walls_s(result.figures), default=0)
    return "" if longest_s <= seen.wall_s else f"one of its figures took {longest_s:.3f} s, its process lived {seen.wall_s:.3f} s"


def _walls_s(data: Any) -> Iterator[float]:
    """The wall times in a form's figures, each list as its sum."""
    for key, inner in data.items() if isinstance(data, dict) else ():
        if key in WALL_S:
            times = inner if isinstance(inner, list) else [inner]
            yield math.fsum(time for time in times if isinstance(time, int | float)) * WALL_S[key]
        else:
            yield from _walls_s(inner)
    for inner in data if isinstance(data, list) else ():
        yield from _walls_s(inner)


def _memory(job: Job, result: Result, seen: Seen) -> Iterator[str]:
    devices, asked = result.memory.get("devices") or [], job.device_count if job.device == "cuda" else 0
    # The guest cannot read the allocators of an engine in processes of its own; the host samples each GPU anyway.
    if len(devices) != asked and (devices or not result.used.get("engine_in_own_process")):
        yield f"it reports the memory of {len(devices)} GPUs, the job has {asked}"
    for device in devices:
        allocated, reserved = device["peak_allocated_bytes"], device["peak_reserved_bytes"]
        if allocated > reserved:
            yield f"{allocated:,} bytes of a GPU were allocated and only {reserved:,} reserved"
        if seen.gpu_memory_bytes and reserved > max(seen.gpu_memory_bytes):
            yield f"{reserved:,} bytes of a GPU were reserved, it has {max(seen.gpu_memory_bytes):,}"


def is_within_tolerance(check: Mapping[str, Any]) -> bool:
    """Is the error of a check's logits at most its tolerance? False where the check lacks one of the two."""
    error, tolerance = check.get("logits_relative_error"), check.get("tolerance")
    return error is not None and tolerance is not None and error <= tolerance


def _check(job: Job, result: Result) -> Iterator[str]:
    """The check's verdict must follow from its numbers, and its bound must be the job's."""
    check = result.check
    if check is None:
        yield "" if job.reference is None else "its output was not checked, and the job names a reference"
        return
    error, tolerance = check.get("logits_relative_error"), check.get("tolerance")
    if tolerance != job.tolerance:
        yield f"its check has the tolerance {tolerance}, the job's is {job.tolerance}"
    elif check["passed"] != is_within_tolerance(check):
        yield f"its check says passed = {check['passed']} with an error of {error} where {tolerance} is allowed"
    if not check["passed"] and not check.get("reason"):
        yield "its check failed without a reason"
    prefix, tokens = check.get("greedy_common_prefix_tokens"), check.get("greedy_tokens")
    most = job.most_new_tokens
    if (prefix is None) != (tokens is None) or (prefix is not None and tokens is not None and not prefix <= tokens <= most):
        yield f"{prefix} of {tokens} greedy tokens agree by its own count, but the job made {most}"
