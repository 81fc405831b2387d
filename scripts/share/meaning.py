"""What the results of a bundle say, beyond being undamaged: were all warm-ups and timed calls made, was the output right, are the pins those of the bundle?

A contradiction within a result (scripts/results/consistency.py) is a problem. A wrong output or another environment is no problem as long as
the result says so: such results are counted.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import forms
from bench.job import Job
from scripts.pins import Pins
from scripts.results import Record, consistency
from scripts.results.output import check_of
from scripts.verdicts import lookup, row_groups


@dataclass(frozen=True)
class Pinned:
    """Numbers of runs that ended well. `other_pins` have pins that the bundle does not hold, `deviating` differ from the pins that they name."""

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
    """Where a result contradicts its own job or itself, and where the kit cannot tell, in words."""
    told = [f"its job is that of the run {record.job.id[:255]!r}"] if record.job.id != record.id else []
    if record.job.device == "cuda" and record.host.get("gpus") is None:
        told.append("its host names no GPU")
    told += consistency.problems(record)
    yield from told or filter(None, [_of_another_kit(record.job)])


def _of_another_kit(job: Job) -> str:
    """ "its form … is none of this kit"; "" for a form that it has."""
    try:
        forms.find(job.form)
    except (ImportError, ValueError) as error:
        return f"its form {job.form!r} is none of this kit, so its calls cannot be checked ({error})"
    return ""


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
