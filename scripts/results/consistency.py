"""Where a stored result contradicts its own job, itself, or what its host saw, in words.

Answers that a host refuses (scripts/results/answers.py) are refused in stored results too, because a result written by hand passes no host.
"""

import dataclasses
import datetime
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bench import forms
from bench.job import Result
from scripts.results import answers

if TYPE_CHECKING:
    from scripts.results.store import Record


def problems(record: "Record") -> Iterator[str]:
    """The contradictions of a result. Where the kit lacks the form of its job, such as a newer kit's, the number of calls is not checked."""
    told = list(_of_parts(record))
    yield from told or filter(None, [_refused(record)])


def _refused(record: "Record") -> str:
    """Why the host would have refused this answer of a guest, in words; "" where it would not."""
    guest, job, host = record.guest, record.job, record.host
    if guest is None:
        return ""
    memory_bytes = [gpu["memory_total_bytes"] for gpu in host.get("gpus") or []]
    resumed = bool((guest.figures.get("workload") or {}).get("resumed"))
    try:
        forms.find(job.form)
    except Exception:  # the form is of another kit, or somebody is writing it
        return answers.contradiction(job, guest) if guest.status == "ok" else ""
    return answers.disagreement(job, _before_the_judge(guest), answers.Seen(0, host.get("wall_s") or math.inf, memory_bytes, resumed))


def _before_the_judge(guest: Result) -> Result:
    """The answer as the guest gave it: where the judge refused the tokens, `passed` is False in the record, whatever the logits are."""
    check = guest.check or {}
    if check.get("passed") or (check.get("judged") or {}).get("passed", True):
        return guest
    return dataclasses.replace(guest, check={**check, "passed": answers.is_within_tolerance(check)})


def _of_parts(record: "Record") -> Iterator[str]:
    guest = record.guest
    if guest and record.status == "ok" and guest.status != "ok":
        yield f"it is ok, and its guest says {guest.status}"
    yield from _of_the_check((guest.check if guest else None) or {}, record.job.tolerance)
    yield from _of_the_host(record)


def _of_the_check(check: dict[str, Any], allowed: float | None) -> Iterator[str]:
    error, tolerance = check.get("logits_relative_error"), check.get("tolerance")
    if check.get("passed") and error is not None and tolerance is not None and error > tolerance:
        yield f"its output is called right with an error of {error:g}, the tolerance is {tolerance:g}"
    if check.get("passed") and not (check.get("judged") or {}).get("passed", True):
        yield "its output is called right, and the judge refused its tokens"
    if check and tolerance != allowed:
        yield f"its output was checked with the tolerance {tolerance}, its job says {allowed}"


def _of_the_host(record: "Record") -> Iterator[str]:
    """Where the host's facts contradict each other or the job, in words."""
    host, job = record.host, record.job
    image = host.get("image") or {}
    pins_ids = [found for found in (host.get("pins_id"), image.get("pins_id")) if found]
    if len(set(pins_ids)) > 1:
        yield f"its image is of the pins {pins_ids[1]:.80}, the run names {pins_ids[0]:.80}"
    if image and f"/{job.backend}:{job.stack}-" not in image["tag"]:
        yield f"its image is {image['tag'][:80]!r}, its job asks for {job.backend}:{job.stack}"
    yield from _of_the_gpus(host, job.device_count if job.device == "cuda" else 0)
    started_s = datetime.datetime.fromisoformat(host["started_at"]).timestamp()
    if abs((host.get("began") or started_s) - started_s) > 1:
        yield f"it began at {host['began']:.0f} s since 1970, and started_at is {host['started_at']}, which is {started_s:.0f} s"


def _of_the_gpus(host: Mapping[str, Any], asked: int) -> Iterator[str]:
    """Memory, energy and busy shares must be of the run's GPUs, and no GPU may have held more than it has. An early result may name no GPU."""
    if host.get("gpus") is None:
        return
    has_bytes = {gpu["uuid"]: gpu["memory_total_bytes"] for gpu in host["gpus"]}
    if len(has_bytes) != asked:
        yield f"its host names {len(has_bytes)} GPUs, its job asks for {asked}"
        return
    read = [*(host.get("gpu_memory") or []), *(gpu for name in ("energy", "busy") for calls in host.get(name) or [] for gpu in calls["gpus"])]
    if others := sorted({gpu["uuid"] for gpu in read} - has_bytes.keys()):
        yield f"it tells of the GPU {others[0][:80]!r}, which its host does not name"
        return
    for gpu in host.get("gpu_memory") or []:
        if (gpu.get("peak_used_bytes") or 0) > has_bytes[gpu["uuid"]]:
            yield f"{gpu['peak_used_bytes']:,} bytes of a GPU were used, it has {has_bytes[gpu['uuid']]:,}"
