"""Runs that are another run under another name: verdicts count runs, and a copy is none."""

from collections.abc import Iterable, Iterator

from bench.job import Result

#: A single call of another run may have taken the very same time; several have not.
LEAST_ALIKE = 3


def of(answers: Iterable[tuple[str, Result | None]]) -> Iterator[tuple[str, str]]:
    """(the id of a run, of which earlier one it is a copy, in words), of (an id, its guest's answer)."""
    first: dict[tuple[object, ...], str] = {}
    for name, guest in answers:
        series = [(measured["new_tokens"], *measured["timed_ms"]) for measured in guest.measurements] if guest else []
        if sum(len(calls) - 1 for calls in series) >= LEAST_ALIKE and (earlier := first.setdefault(tuple(series), name)) != name:
            yield name, f"its timed calls are those of {earlier}, to the last digit"
