"""The batch sizes that a case is run with: a list, or as far as memory goes.

A sweep goes up, and stops where memory ran out: what needs more would run out as well. The batch that did not fit is a
result like any other. `{ from = 1, until = "oom", within = 0.25 }` doubles until memory runs out, then halves the gap between
the largest batch that fits and the smallest that does not, until it is at most `within` of the former.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scripts.errors import KitError

#: Runs one batch size and tells the status it ended with; None where it could not start.
Try = Callable[[int], str | None]

#: What is near enough where a sweep says nothing.
WITHIN = 0.25


#: The largest batch of a sweep until memory runs out where there is no GPU, for a host that runs out of memory kills others.
MOST_ON_CPU = 8


def on_cpu(asked: Sequence[int] | Mapping[str, Any]) -> Sequence[int]:
    """The batch sizes for a CPU: of a sweep until memory runs out its first doublings only."""
    if not isinstance(asked, Mapping):
        return asked
    first = asked.get("from", 1)
    return [first << step for step in range(MOST_ON_CPU.bit_length()) if step == 0 or first << step <= MOST_ON_CPU]


def check(asked: Sequence[int] | Mapping[str, Any]) -> str:
    """What is wrong with the batch sizes of an article's file, or ""."""
    if isinstance(asked, Mapping):
        wrong = sorted(set(asked) - {"from", "until", "within"})
        if wrong or asked.get("until") != "oom" or not _is_size(asked.get("from", 1)) or not 0 < asked.get("within", WITHIN) < 1:
            return f'a sweep is {{ from = 1, until = "oom", within = {WITHIN} }}, found {dict(asked)}'
        return ""
    if not asked or not all(_is_size(size) for size in asked) or len(set(asked)) != len(asked):
        return f"batch sizes are different whole numbers from 1, found {list(asked)}"
    return ""


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def walk(asked: Sequence[int] | Mapping[str, Any], run: Try) -> None:
    """Run every batch size that is asked for and may fit."""
    wrong = check(asked)
    if wrong:
        raise KitError(wrong)
    if isinstance(asked, Mapping):
        _until_oom(asked.get("from", 1), asked.get("within", WITHIN), run)
        return
    for size in sorted(asked):
        if run(size) == "oom":
            return


def _until_oom(first: int, within: float, run: Try) -> None:
    """Double, then search below; anything else than ok or oom ends the sweep, for it tells nothing about memory."""
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
