"""Which version of the rules of the verdicts a result was first judged by; docs/verdict-rules.md holds the rules of each."""

from scripts.results.store import Record

#: The rules that the kit judges by, and when they were written. A new result carries the number.
VERSION = 2
DATE = "2026-11-23"


def first_judged_by(record: Record) -> int:
    """The version of the rules when the result was stored; results from before the number are of version 1."""
    return int(record.host.get("rules_version") or 1)
