"""Thousands of records in little memory: equal parts are kept once, and long lists of times as arrays.

Code that reads a record sees no difference: an array of numbers is a sequence of floats, and `bench.job.to_json` writes it as the list that it was.
"""

import array
import marshal
from collections.abc import Mapping
from typing import Any

#: {content: part} of the documents read so far.
_SHARED: dict[bytes, Any] = {}


def shared(part: Any) -> Any:
    """This part of JSON data, or an equal one that was read earlier. Nobody may change the part: other records hold it too."""
    return _SHARED.setdefault(marshal.dumps(part, 2), part)  # version 2: equal bytes for equal content


def with_shared(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """A copy of an object whose parts of these names are shared."""
    return {name: shared(value) if name in names else value for name, value in fields.items()}


def packed(numbers: list[Any]) -> "list[Any] | array.array[float]":
    """A list of floats in ms or another unit, in 8 bytes each where a list takes 32; a list that holds anything else stays as it is."""
    return array.array("d", numbers) if set(map(type, numbers)) == {float} else numbers


def with_packed_times(figures: dict[str, Any]) -> dict[str, Any]:
    """A copy of a guest's figures whose times between tokens, by far the most numbers of a result, are packed call by call."""
    times = figures.get("token_times")
    if not times or not times.get("between_ms"):
        return figures
    return {**figures, "token_times": {**times, "between_ms": [packed(call) for call in times["between_ms"]]}}
