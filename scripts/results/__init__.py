"""The results: one folder a run, written once, checked when it is read."""

from scripts.results.store import (
    DONE,
    ROOT,
    RUNS,
    SCHEMA,
    InvalidDocument,
    Record,
    Skipped,
    done,
    existing,
    load,
    load_all,
    next_id,
    store,
)

__all__ = [
    "DONE",
    "InvalidDocument",
    "ROOT",
    "RUNS",
    "Record",
    "SCHEMA",
    "Skipped",
    "done",
    "existing",
    "load",
    "load_all",
    "next_id",
    "store",
]
