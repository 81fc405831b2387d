"""The kinds of relations that a claim may make, each a class in a file of its own: its keys, the rows it needs, its parts and their words."""

from collections.abc import Mapping
from typing import Any

import msgspec

from scripts.errors import KitError
from scripts.verdicts.relations.base import Relation
from scripts.verdicts.relations.batching import Batching
from scripts.verdicts.relations.check import Check
from scripts.verdicts.relations.extreme import Fastest, Slowest
from scripts.verdicts.relations.gain import Gain, GainOver
from scripts.verdicts.relations.growth import Growth
from scripts.verdicts.relations.memory import Memory
from scripts.verdicts.relations.padding import Padding
from scripts.verdicts.relations.speed import Speed

KINDS: tuple[type[Relation], ...] = (Speed, Fastest, Slowest, GainOver, Gain, Memory, Check, Batching, Growth, Padding)

__all__ = ["KINDS", "Relation", "of"]


def of(table: Mapping[str, Any]) -> Relation:
    """A relation of an article's file; raises KitError where its keys are those of no kind, or of the wrong type."""
    kind = next((kind for kind in KINDS if kind.KEY in table), None)
    if kind is None:
        known = ", ".join(kind.KEY for kind in KINDS)
        raise KitError(f"a relation with the keys {', '.join(sorted(table))} has none of {known}; give it one, as inference-tools.toml shows")
    if table[kind.KEY] is False:
        raise KitError(f"the relation {dict(table)}: `{kind.KEY}` is false, allowed is true; leave the relation out")
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        allowed = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise KitError(f"the relation {dict(table)}: {error}; allowed are {allowed}") from error
