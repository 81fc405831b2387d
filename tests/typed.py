"""Options as a user types them after `make bench-…`."""

from scripts.commands import measure
from scripts.run.options import Options


def chosen(**typed: str) -> Options:
    """What the command line makes of these variables; raises UsageError for a wrong one."""
    words = [part for name, value in typed.items() for part in (f"--{name.lower().replace('_', '-')}", value)]
    verb = measure.profile if "PROFILER" in typed else measure.bench
    return measure.options_of(verb.make_context(str(verb.name), ["backend", *words]).params)
