"""What the results of a bundle say, beyond being undamaged: were all warm-ups and timed calls made, was the output right, are the pins those of the bundle?

What the host refuses of a guest (scripts/results/answers.py) is refused here too: whoever writes a result by hand passes no host.

A contradiction within a result is a problem. A wrong output or another environment is none as long as the result says so: it is counted.
"""

import dataclasses
import datetime
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.job import Result
from scripts.pins import Pins
from scripts.results import Record, answers
from scripts.results.output import check_of
from scripts.verdicts import lookup, rates, row_groups


@dataclass(frozen=True)
class Pinned:
    """Numbers of runs that ended well. `other_pins` are of pins that the bundle does not hold, `deviating` differ from those that they name."""

    ok: int
    other_pins: int
    deviating: int


@dataclass(frozen=True)
class Meaning:
    """Numbers of runs; `output_wrong` names them, `other_pins` and `deviating` are as in Pinned.

    `may_judge` counts the runs of the first report that verdicts may rest on: of full models on GPUs, with weights that judge.
    """

    ok: int
    failed: int
    output_right: int
    output_wrong: tuple[str, ...]
    output_not_checked: int
    other_pins: int
    deviating: int
    may_judge: Pinned


def of(first: Sequence[Record], held: Pins, apart: Sequence[Record] = ()) -> Meaning:
    """What the runs of the first report say, and those without containers, which lie `apart`."""
    pins_ids = names_of_pins(held)
    records = [*first, *apart]
    every, judging = _pinned(records, pins_ids), _pinned(_may_judge(first), pins_ids)
    done = [record for record in records if record.status == "ok"]
    checks = {record.id: (check_of(record) or {}).get("passed") for record in done}
    return Meaning(
        ok=len(done),
        failed=len(records) - len(done),
        output_right=sum(passed is True for passed in checks.values()),
        output_wrong=tuple(run for run, passed in checks.items() if passed is False),
        output_not_checked=sum(passed is None for passed in checks.values()),
        other_pins=every.other_pins,
        deviating=every.deviating,
        may_judge=judging,
    )


def _pinned(records: Sequence[Record], pins_ids: Collection[str]) -> Pinned:
    done = [record for record in records if record.status == "ok"]
    return Pinned(len(done), sum(record.host.get("pins_id") not in pins_ids for record in done), sum(bool(record.host.get("differences")) for record in done))


def _may_judge(records: Sequence[Record]) -> list[Record]:
    groups = [group for group in row_groups.build(records, {}) if not group.cannot_judge()]
    return [run for group in groups for row in group.rows if lookup.weights_can_judge(row) for run in row.runs]


def problems(record: Record) -> Iterator[str]:
    """In words: where a result contradicts its own job or itself."""
    told = list(_problems(record))
    yield from told or filter(None, [_refused(record)])


def _refused(record: Record) -> str:
    """Why the host would have refused this answer of a guest, in words; "" where it would not."""
    guest, job, host = record.guest, record.job, record.host
    if guest is None:
        return ""
    memory_bytes = [gpu["memory_total_bytes"] for gpu in host.get("gpus") or []]
    resumed = bool((guest.figures.get("workload") or {}).get("resumed"))
    try:
        return answers.disagreement(job, _before_the_judge(guest), answers.Seen(0, host.get("wall_s") or math.inf, memory_bytes, resumed))
    except (ImportError, ValueError) as error:
        return f"its form {job.form!r} is none of this kit, so its calls cannot be checked ({error})"


def _before_the_judge(guest: Result) -> Result:
    """The answer as the guest gave it: an output whose tokens the judge refused has not passed, whatever its logits are."""
    check = guest.check or {}
    if check.get("passed") or (check.get("judged") or {}).get("passed", True):
        return guest
    error, tolerance = check.get("logits_relative_error"), check.get("tolerance")
    return dataclasses.replace(guest, check={**check, "passed": error is not None and tolerance is not None and error <= tolerance})


def _problems(record: Record) -> Iterator[str]:
    guest, job = record.guest, record.job
    if job.id != record.id:
        yield f"its job is that of the run {job.id[:255]!r}"
    if guest and record.status == "ok" and guest.status != "ok":
        yield f"it is ok, and its guest says {guest.status}"
    for measured in guest.measurements if guest and record.status == "ok" else ():
        warm, timed, calls = len(measured.get("warmup_ms") or []), len(measured["timed_ms"]), f"calls of {measured['new_tokens']} new tokens"
        if warm != job.warmup_runs:
            yield f"{calls}: {warm} warm-ups in place of the {job.warmup_runs} of its job"
        if timed != job.timed_runs and job.form not in rates.WORKLOAD_FORMS:  # as many batches as the texts give
            yield f"{calls}: {timed} timed calls in place of the {job.timed_runs} of its job"
    check = check_of(record) or {}
    error, tolerance = check.get("logits_relative_error"), check.get("tolerance")
    if check.get("passed") and error is not None and tolerance is not None and error > tolerance:
        yield f"its output is called right with an error of {error:g}, the tolerance is {tolerance:g}"
    if check.get("passed") and not (check.get("judged") or {}).get("passed", True):
        yield "its output is called right, and the judge refused its tokens"
    if check and tolerance != job.tolerance:
        yield f"its output was checked with the tolerance {tolerance}, its job says {job.tolerance}"
    yield from _of_the_host(record)


def _of_the_host(record: Record) -> Iterator[str]:
    """In words: where what the host saw contradicts itself or the job."""
    host, job = record.host, record.job
    image = host.get("image") or {}
    pins_ids = [found for found in (host.get("pins_id"), image.get("pins_id")) if found]
    if len(set(pins_ids)) > 1:
        yield f"its image is of the pins {pins_ids[1]}, the run names {pins_ids[0]}"
    if image and f"/{job.backend}:{job.stack}-" not in image["tag"]:
        yield f"its image is {image['tag'][:80]!r}, its job asks for {job.backend}:{job.stack}"
    if job.device == "cuda" and len(host.get("gpus") or []) != job.device_count:
        yield f"its host names {len(host.get('gpus') or [])} GPUs, its job asks for {job.device_count}"
    started_s = datetime.datetime.fromisoformat(host["started_at"]).timestamp()
    if abs((host.get("began") or started_s) - started_s) > 1:
        yield f"it began at {host['began']:.0f} s since 1970, and started_at is {host['started_at']}, which is {started_s:.0f} s"


def names_of_pins(held: Pins) -> dict[str, set[str]]:
    """{pins id: the images that have it, as "deepspeed:current"}; raises OSError where a file of an image cannot be read."""
    names: dict[str, set[str]] = {}
    for image in held.images():
        names.setdefault(image.pins_id, set()).add(image.name)
    return names


def another_image(record: Record, names: Mapping[str, set[str]]) -> str:
    """Where a run's pins are those of another backend or stack than its job's, in words; "" for pins that the bundle does not hold."""
    named, asked = names.get(record.host.get("pins_id") or "", set()), f"{record.job.backend}:{record.job.stack}"
    return f"its pins are those of {' and '.join(sorted(named))}, its job asks for {asked}" if named and asked not in named else ""
