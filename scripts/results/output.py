"""Was the output of a run right? By the check that its guest made, and by the answers that its form compared."""

from collections.abc import Mapping
from typing import Any

from scripts.results.store import Record


def check_of(run: Record) -> dict[str, Any] | None:
    """The check of a run's output; None where none was made.

    It has failed, with this reason, where another cache than the default one gave another answer: the guest's own check is of the model alone.
    """
    check = (run.guest.check or None) if run.guest else None
    unlike = _unlike_the_default_cache(run)
    return {**(check or {}), "passed": False, "reason": unlike} if unlike else check


def answers_otherwise(cache: Mapping[str, Any]) -> bool:
    """Has a cache of the form `kv-offload` made other tokens than the default one?"""
    alike, of = cache.get("identical"), cache.get("batch_size")
    return None not in (alike, of) and alike != of


def _unlike_the_default_cache(run: Record) -> str:
    """ "with the offloaded cache 0 of 11 sequences are those of the default cache"; "" where all are, and for a run of another form."""
    caches = (run.guest.figures.get("kv_offload") or {}).get("caches") or [] if run.guest else []
    words = "with the {cache} cache {identical} of {batch_size} sequences are those of the default cache"
    return "; ".join(words.format(**cache) for cache in caches if answers_otherwise(cache))
