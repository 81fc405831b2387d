"""The batch sizes of a case: a list, or a sweep until memory runs out.

Batch sizes run in rising order until one runs out of memory: larger ones would run out too. The run that did not fit is a result
like any other. `{ from = 1, until = "oom", within = 0.25 }` doubles the batch until memory runs out, then halves the gap between
the largest batch that fits and the smallest that does not, until the gap is at most `within` times the largest that fits.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scripts.errors import KitError

#: Runs one batch size and returns the status of its run; None where it could not start.
Try = Callable[[int], str | None]

#: The default of a sweep's `within`.
WITHIN = 0.25

#: The largest batch of a sweep on a CPU: a host that runs out of memory kills other processes.
MOST_ON_CPU = 8


def on_cpu(sizes: Sequence[int] | Mapping[str, Any]) -> Sequence[int]:
    """The batch sizes on a CPU; a sweep becomes its doublings up to MOST_ON_CPU."""
    if not isinstance(sizes, Mapping):
        return sizes
    first = sizes.get("from", 1)
    return [first << step for step in range(MOST_ON_CPU.bit_length()) if step == 0 or first << step <= MOST_ON_CPU]


def mistake_in(sizes: Sequence[int] | Mapping[str, Any]) -> str:
    """The mistake in the batch sizes of an article's file, in words, or ""."""
    if isinstance(sizes, Mapping):
        unknown = set(sizes) - {"from", "until", "within"}
        if unknown or sizes.get("until") != "oom" or not _is_size(sizes.get("from", 1)) or not 0 < sizes.get("within", WITHIN) < 1:
            return f'a sweep is {{ from = 1, until = "oom", within = {WITHIN} }}, found {dict(sizes)}'
        return ""
    if not sizes or not all(_is_size(size) for size in sizes) or len(set(sizes)) != len(sizes):
        return f"batch sizes are different whole numbers from 1, found {list(sizes)}"
    return ""


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def walk(sizes: Sequence[int] | Mapping[str, Any], run: Try) -> list[int]:
    """Run a sweep, or a list in rising order until a batch runs out of memory; returns the sizes that did not run out. Raises KitError for a mistake."""
    mistake = mistake_in(sizes)
    if mistake:
        raise KitError(mistake)
    fitting: list[int] = []

    def kept(size: int) -> str | None:
        status = run(size)
        if status != "oom":
            fitting.append(size)
        return status

    if isinstance(sizes, Mapping):
        _until_oom(sizes.get("from", 1), sizes.get("within", WITHIN), kept)
    else:
        for size in sorted(sizes):
            if kept(size) == "oom":
                break
    return sorted(fitting)


def _until_oom(first: int, within: float, run: Try) -> None:
    """Double the size until memory runs out, then halve the gap; a status other than ok or oom says nothing about memory and ends the sweep."""
    fits, size = 0, first
    while (status := run(size)) == "ok":
        fits, size = size, 2 * size
    if status != "oom" or not fits:
        return
    too_large = size
    while too_large - fits > max(1, within * fits):
        middle = (fits + too_large) // 2
        status = run(middle)
        if status not in ("ok", "oom"):
            return
        fits, too_large = (middle, too_large) if status == "ok" else (fits, middle)
