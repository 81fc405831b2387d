"""Was the output of a run right? By the check that its guest made, and by the answers that its form compared."""

from typing import Any

from scripts.results.store import Record


def check_of(run: Record) -> dict[str, Any] | None:
    """The check of a run's output; None where none was made.

    It has failed, and names the reason as `unlike`, where another cache than the default one gave another answer: the check itself is of the model alone.
    """
    check = (run.guest.check or None) if run.guest else None
    unlike = _unlike_the_default_cache(run)
    return {**(check or {}), "passed": False, "unlike": unlike} if unlike else check


def _unlike_the_default_cache(run: Record) -> str:
    """ "with the offloaded cache 0 of 11 sequences are those of the default cache"; "" where all are, and for a run of another form."""
    caches = (run.guest.figures.get("kv_offload") or {}).get("caches") or [] if run.guest else []
    told = [(cache["cache"], cache.get("identical"), cache.get("batch_size")) for cache in caches]
    others = [
        f"with the {name} cache {alike} of {of} sequences are those of the default cache" for name, alike, of in told if None not in (alike, of) and alike != of
    ]
    return "; ".join(others)
