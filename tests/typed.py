"""Options as a user types them after `make bench-…`."""

from scripts.commands import measure
from scripts.run.options import Options


def chosen(**typed: str) -> Options:
    """What the command line makes of these variables; raises UsageError for a wrong one."""
    words = [part for name, value in typed.items() for part in (f"--{name.lower().replace('_', '-')}", value)]
    return measure.options_of(measure.bench.make_context("bench", ["backend", *words]).params)
