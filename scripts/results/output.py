"""Was the output of a run right? By the check that its guest made, and by the answers that its form compared."""

from collections.abc import Iterator, Mapping
from typing import Any

from scripts.results.store import Record


def check_of(run: Record) -> dict[str, Any] | None:
    """The check of a run's output; None where none was made.

    The check also fails, with a reason, where a cache other than the default one, or the rolling schedule of a pipeline, gave another answer: the
    guest's own check is of the model alone.
    """
    check = (run.guest.check or None) if run.guest else None
    unlike = "; ".join((*_unlike_the_default_cache(run), *_unlike_in_turn(run)))
    return {**(check or {}), "passed": False, "reason": unlike} if unlike else check


def answers_otherwise(cache: Mapping[str, Any]) -> bool:
    """Has a cache of the form `kv-offload` made other tokens than the default one?"""
    alike, of = cache.get("identical"), cache.get("batch_size")
    return None not in (alike, of) and alike != of


def rolls_otherwise(schedule: Mapping[str, Any]) -> bool:
    """Has the rolling schedule of the form `pipeline-parallel` made other tokens than the same micro-batches in turn?

    Both compute the very same shapes; the naive schedule computes a larger batch, which may round otherwise.
    """
    return bool(schedule["schedule"] == "rolling" and schedule["identical"] != sequences_of(schedule))


def sequences_of(schedule: Mapping[str, Any]) -> int:
    """How many sequences a schedule answered."""
    return int(schedule["micro_batches"] * schedule["micro_batch_size"])


def _unlike_the_default_cache(run: Record) -> Iterator[str]:
    """ "with the offloaded cache 0 of 11 sequences are those of the default cache"; nothing where all are, and for a run of another form."""
    caches = (run.guest.figures.get("kv_offload") or {}).get("caches") or [] if run.guest else []
    words = "with the {cache} cache {identical} of {batch_size} sequences are those of the default cache"
    return (words.format(**cache) for cache in caches if answers_otherwise(cache))


def _unlike_in_turn(run: Record) -> Iterator[str]:
    """ "under the rolling schedule 3 of 64 sequences are those in turn"; nothing where all are, and for a run of another form."""
    schedules = run.guest.figures.get("schedules") or [] if run.guest else []
    words = "under the rolling schedule {} of {} sequences are those in turn"
    return (words.format(one["identical"], sequences_of(one)) for one in schedules if rolls_otherwise(one))
