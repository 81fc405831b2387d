"""Which version of the rules of the verdicts a result was first judged by; docs/verdict-rules.md holds the rules of each."""

from bench.models import weights
from scripts.results.store import Record

#: The rules that the kit judges by, and when they were written. A new result carries the number.
VERSION = 3
DATE = "2026-11-23"


def first_judged_by(record: Record) -> int:
    """The version of the rules that first judged a result: the number that the result carries. Results without a number were judged by version 1 if their
    weights are of recipe 1, else by version 2: weights of recipe 2 came after it."""
    earlier = 2 if weights.recipe_of(record.job.model) != 1 else 1
    return int(record.host.get("rules_version") or earlier)
