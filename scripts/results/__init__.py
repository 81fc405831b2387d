"""The results: one folder per run, written once, checked when it is read."""

from bench.job import InvalidDocument
from scripts.results.store import (
    DONE,
    RUNS,
    TRIALS,
    WITHOUT_CONTAINERS,
    Record,
    Skipped,
    any_run,
    ended,
    ended_like,
    enough,
    existing,
    kept_elsewhere,
    load,
    load_all,
    load_runs,
    measuring_into,
    must_hold_runs,
    next_number,
    no_run_in,
    report_of,
    runs_for,
    store,
    where_shown,
    whole,
)

__all__ = ["DONE", "InvalidDocument", "RUNS", "Record", "Skipped", "TRIALS", "WITHOUT_CONTAINERS", "any_run", "ended", "ended_like", "enough"]
__all__ += [
    "existing",
    "kept_elsewhere",
    "load",
    "load_all",
    "load_runs",
    "measuring_into",
    "must_hold_runs",
    "next_number",
    "no_run_in",
    "report_of",
    "runs_for",
    "store",
    "where_shown",
    "whole",
]
