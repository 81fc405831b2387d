"""What the results of a bundle say, beyond being undamaged: were all warm-ups and timed calls made, was the output right, are the pins those of the bundle?

A contradiction within a result is a problem. A wrong output or another environment is none as long as the result says so: it is counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts.pins import Pins
from scripts.results import Record
from scripts.results.output import check_of
from scripts.verdicts import rates


@dataclass(frozen=True)
class Meaning:
    """Numbers of runs; `output_wrong` names them. `other_pins` are of pins that the bundle does not hold, `deviating` differ from those that they name."""

    ok: int
    failed: int
    output_right: int
    output_wrong: tuple[str, ...]
    output_not_checked: int
    other_pins: int
    deviating: int


def of(records: Sequence[Record], held: Pins) -> Meaning:
    pins_ids = {image.pins_id for image in held.images()}
    done = [record for record in records if record.status == "ok"]
    checks = {record.id: (check_of(record) or {}).get("passed") for record in done}
    return Meaning(
        ok=len(done),
        failed=len(records) - len(done),
        output_right=sum(passed is True for passed in checks.values()),
        output_wrong=tuple(run for run, passed in checks.items() if passed is False),
        output_not_checked=sum(passed is None for passed in checks.values()),
        other_pins=sum(record.host.get("pins_id") not in pins_ids for record in done),
        deviating=sum(bool(record.host.get("differences")) for record in done),
    )


def problems(record: Record) -> Iterator[str]:
    """In words: where a result contradicts its own job or itself."""
    guest, job = record.guest, record.job
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
    if check and tolerance != job.tolerance:
        yield f"its output was checked with the tolerance {tolerance}, its job says {job.tolerance}"
    pins_ids = [found for found in (record.host.get("pins_id"), (record.host.get("image") or {}).get("pins_id")) if found]
    if len(set(pins_ids)) > 1:
        yield f"its image is of the pins {pins_ids[1]}, the run names {pins_ids[0]}"
