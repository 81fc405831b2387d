"""JSON objects from elsewhere, in which a key may come twice."""

import collections
from collections.abc import Sequence
from typing import Any


def unambiguous(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object, as json's object_pairs_hook. Raises ValueError for a key that comes twice, because programs differ in the value that they take."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice, _ = collections.Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice[:60]!r} comes twice")
    return fields
