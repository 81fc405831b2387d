"""What every relation of a claim is and can do. A kind of relation is one class in one file of this folder."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import msgspec

from scripts.articles import references
from scripts.verdicts import lookup
from scripts.verdicts.lookup import Named, Rows
from scripts.verdicts.parts import HOLDS, NOT_TESTED, REFUTED, NotTested, Part
from scripts.verdicts.row import Row


class PublishedRatio(NamedTuple):
    """The article's own ratio, and the case that it is over."""

    value: float
    over: str


class Relation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A relation between cases; its fields are the keys that an article's file gives it, and their types are checked when it is read.

    part  what the claim says, in a word or two; each kind has words of its own where the file gives none
    """

    #: The key by which a relation of this kind is recognised.
    KEY: ClassVar[str] = ""

    part: str | None = None

    def rows(self) -> Sequence[Named]:
        """The rows that the relation names."""
        return references.rows_of(msgspec.to_builtins(self))

    def published(self, part: Part) -> PublishedRatio | None:
        """The ratio that the article gives for one of the relation's parts; None where it gives none."""
        return None

    def names(self) -> list[str]:
        """The parts of a claim that it makes, in a word or two each."""
        raise NotImplementedError

    def judge(self, rows: Rows) -> list[Part]:
        """Its parts, judged, in the order of `names`."""
        names = [self.part or self.names()[0], *self.names()[1:]]
        try:
            return [dataclasses.replace(part, name=name) for part, name in zip(self.parts(rows), names, strict=True)]
        except NotTested as untested:
            return [Part(name, NOT_TESTED, why=str(untested)) for name in names]

    def parts(self, rows: Rows) -> list[Part]:
        """As `judge`, with empty names; raises NotTested where the rows cannot test the relation."""
        raise NotImplementedError


def checked(row: Row, holds: bool, sentence: str, number: str = "") -> list[Part]:
    """The part of a relation that needs no interval: every run of the row counts."""
    why = lookup.why_not([row], None)
    return [Part("", NOT_TESTED if why else HOLDS if holds else REFUTED, number, sentence, why)]
