"""JSON objects of others, in which a key may come twice."""

from collections.abc import Sequence
from typing import Any


def unambiguous(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object, as json's object_pairs_hook. ValueError for a key that comes twice, of which programs take different ones."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:60]!r} comes twice")
    return fields
