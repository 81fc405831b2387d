"""Was the output of a run right? By the check that its guest made, and by the answers that its form compared."""

from collections.abc import Iterator, Mapping
from typing import Any

from scripts.results.store import Record


def check_of(run: Record) -> dict[str, Any] | None:
    """The check of a run's output; None where none was made.

    The check also fails, with a reason, where a call of the forms `kv-offload` or `pipeline-parallel` gave another answer than it has to: the guest's
    own check is of the model alone.
    """
    check = (run.guest.check or None) if run.guest else None
    unlike = "; ".join((*_unlike_the_default_cache(run), *_unlike_in_turn(run)))
    return {**(check or {}), "passed": False, "reason": unlike} if unlike else check


def answers_otherwise(cache: Mapping[str, Any]) -> bool:
    """Has a cache of the form `kv-offload` made, in any call, other tokens than the first call with the default one?"""
    alike, of = cache.get("identical"), cache.get("batch_size")
    return None not in (alike, of) and alike != of


#: What is said of a schedule that made other tokens. It computes the shapes of "in turn"; the naive one computes a larger batch, which may round otherwise.
UNLIKE_IN_TURN = {
    "in turn": "in turn {} of {} sequences are in every call those of the first",
    "rolling": "under the rolling schedule {} of {} sequences are those in turn",
}


def schedules_otherwise(schedule: Mapping[str, Any]) -> bool:
    """Has a schedule of the form `pipeline-parallel` made, in any call, other tokens than the first call of the same micro-batches in turn?"""
    return bool(schedule["schedule"] in UNLIKE_IN_TURN and schedule["identical"] != sequences_of(schedule))


def sequences_of(schedule: Mapping[str, Any]) -> int:
    """How many sequences a schedule answered."""
    return int(schedule["micro_batches"] * schedule["micro_batch_size"])


def _unlike_the_default_cache(run: Record) -> Iterator[str]:
    """ "with the offloaded cache 0 of 11 sequences are those of the default cache"; nothing where all are, and for a run of another form."""
    caches = (run.figures.get("kv_offload") or {}).get("caches") or []
    return (_unlike(cache) for cache in caches if answers_otherwise(cache))


def _unlike(cache: Mapping[str, Any]) -> str:
    right = "in every call those of the first" if cache["cache"] == "default" else "those of the default cache"
    return f"with the {cache['cache']} cache {cache['identical']} of {cache['batch_size']} sequences are {right}"


def _unlike_in_turn(run: Record) -> Iterator[str]:
    """ "under the rolling schedule 3 of 64 sequences are those in turn"; nothing where all are, and for a run of another form."""
    schedules = run.figures.get("schedules") or []
    return (UNLIKE_IN_TURN[one["schedule"]].format(one["identical"], sequences_of(one)) for one in schedules if schedules_otherwise(one))
