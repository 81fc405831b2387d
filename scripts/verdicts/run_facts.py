"""What one run tells: its calls, its GPUs, its peaks, and the marks of its machine."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scripts import stats
from scripts.results import Record

#: NVML reads whole per cents: a smaller mean share is mostly rounding.
LEAST_SHARE = 0.01


def series(record: Record) -> dict[int, list[float]]:
    """{new tokens: timed calls in ms} of a record."""
    measurements = record.guest.measurements if record.guest else []
    return {call["new_tokens"]: call["timed_ms"] for call in reversed(measurements) if call["timed_ms"]}


def with_calls(runs: Iterable[Record], new_tokens: int) -> Sequence[Record]:
    """The runs that timed calls of so many new tokens."""
    return [run for run in runs if series(run).get(new_tokens)]


def cold_ms_of(record: Record) -> float | None:
    """A run's first call after loading; None where the guest told none."""
    calls = record.guest.measurements if record.guest else []
    return next((call["cold_ms"] for call in calls if call.get("cold_ms") is not None), None)


def is_on_stand_in(run: Record) -> bool:
    """Was the image of a run, or its base, a stand-in for the pinned one?"""
    return bool((run.host.get("image") or {}).get("stand_in"))


def gpu_uuids_of(run: Record) -> list[str]:
    """The GPUs that a run had, in their order; [] on a CPU."""
    return [gpu["uuid"] for gpu in run.host.get("gpus") or []]


def uuids_of_runs(runs: Iterable[Record]) -> set[str]:
    """All GPUs that any of the runs had."""
    return {uuid for run in runs for uuid in gpu_uuids_of(run)}


def peak_used_bytes(record: Record) -> dict[str, int]:
    """{GPU UUID: the most it held during a run}, without GPUs that gave no sample."""
    sampled = record.host.get("gpu_memory") or []
    return {gpu["uuid"]: gpu["peak_used_bytes"] for gpu in sampled if gpu.get("peak_used_bytes") is not None}


def peak_resident_bytes(record: Record) -> int | None:
    """The peak resident memory of a run's measured processes together; None where no guest told it, or where it told one process's alone."""
    if not record.guest:
        return None
    told = record.guest.memory
    of_the_first_alone = record.guest.used.get("engine_in_own_process") and "processes" not in told
    return None if of_the_first_alone else told.get("peak_rss_bytes")


def peak_of_a_gpu_bytes(record: Record) -> int | None:
    """The most that any GPU of a run held; None without a sample."""
    return max(peak_used_bytes(record).values(), default=None)


def busy_shares_of(record: Record, new_tokens: int) -> list[float | str]:
    """The shares of a run's GPUs, or their codes."""
    told: list[dict[str, Any]] = next((one["gpus"] for one in record.host.get("busy") or [] if one["new_tokens"] == new_tokens), [])
    return [gpu["share"] if gpu["code"] == "ok" and gpu.get("share") is not None else str(gpu["code"]) for gpu in told]


def energy_of(record: Record, new_tokens: int) -> dict[str, Any]:
    """What a run tells of its energy in calls of so many new tokens, as scripts/machine/energy.py gives it; {} where it tells none."""
    return next((one for one in record.host.get("energy") or [] if one["new_tokens"] == new_tokens), {})


def kernels_ms(record: Record, new_tokens: int, time_ms: float) -> float | None:
    """The time of a mean call, in ms, in which a kernel ran, for a run on one GPU; None where the share of this time is not known.

    The share is that of further calls, which have a mean of their own, or of the timed ones, whose mean is `time_ms`. Runs on several GPUs give None,
    because a kernel that runs there may wait for another GPU.
    """
    shares = busy_shares_of(record, new_tokens)
    share = shares[0] if len(shares) == len(gpu_uuids_of(record)) == 1 else ""
    return None if isinstance(share, str) or share < LEAST_SHARE else share * (_further_call_ms(record, new_tokens) or time_ms)


def _further_call_ms(record: Record, new_tokens: int) -> float | None:
    """The mean of the calls that a run made beside the timed ones, for its energy and its shares; None where it made none."""
    told = energy_of(record, new_tokens)
    seconds = told["gpus"][0].get("seconds") if told.get("calls") and told["gpus"] else None
    return 1000 * seconds / told["calls"] if seconds else None


def cycles_of(run: Record) -> Mapping[str, Any]:
    """What a run on padded sentences counted; {} for any other run."""
    return run.figures.get("cycles") or {}


def is_wrong_when_padded(run: Record) -> bool:
    """Is the first sentence's answer another one among padded sentences, by more than the output check allows?"""
    error, allowed = cycles_of(run).get("padded_logits_relative_error", 0.0), run.job.tolerance
    return error is None or (allowed is not None and error > allowed)


def wrong_output(check: Mapping[str, Any]) -> str:
    """What is wrong with an output that failed its check: "output differs by 33 % from transformers'"."""
    judged = check.get("judged")
    if judged and not judged["passed"]:
        return f"output failed its check ({judged['reason']})"
    error, tolerance = check.get("logits_relative_error"), check.get("tolerance")
    if error is not None and (tolerance is None or error > tolerance):
        return f"output differs by {stats.percent(error)} % from transformers'"
    return f"output failed its check ({check.get('reason') or 'no reason given'})"
