"""Copies of runs under other names: verdicts count runs, and a copy is no run."""

from collections.abc import Iterable, Iterator

from bench.job import Result

#: The fewest timed calls that show a copy: one call of two runs may take the very same time, several do not.
LEAST_ALIKE = 3


def of(answers: Iterable[tuple[str, Result | None]]) -> Iterator[tuple[str, str]]:
    """(the id of a copy, in words of which earlier run) of each copy, for runs given as (id, the guest's answer)."""
    first: dict[tuple[object, ...], str] = {}
    for name, guest in answers:
        series = [(measured["new_tokens"], *measured["timed_ms"]) for measured in guest.measurements] if guest else []
        if sum(len(calls) - 1 for calls in series) >= LEAST_ALIKE and (earlier := first.setdefault(tuple(series), name)) != name:
            yield name, f"its timed calls are those of {earlier}, to the last digit"
