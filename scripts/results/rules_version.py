"""Which version of the rules of the verdicts a result was first judged by; docs/verdict-rules.md holds the rules of each."""

from bench.models import weights
from scripts.results.store import Record

#: The rules that the kit judges by, and when they were written. A new result carries the number.
VERSION = 3
DATE = "2026-11-23"


def first_judged_by(record: Record) -> int:
    """The version of the rules that first judged a result: the number that it carries. Of results from before the number version 1 judged those with
    weights of recipe 1; the first ones of recipe 2 came into the repository when version 2 was there."""
    earlier = 2 if weights.recipe_of(record.job.model) != 1 else 1
    return int(record.host.get("rules_version") or earlier)
