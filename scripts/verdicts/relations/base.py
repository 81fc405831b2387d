"""What every relation of a claim is and can do. A kind of relation is one class in one file of this folder."""

from typing import ClassVar

import msgspec

from scripts.verdicts.findings import NOT_TESTED, Finding, NotTested, Rows


class Relation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A relation between cases; its fields are the keys that an article's file gives it, and their types are checked when it is read."""

    #: The key by which a relation of this kind is recognised.
    KEY: ClassVar[str] = ""

    def cases(self) -> list[str]:
        """The cases that it names."""
        raise NotImplementedError

    def rows(self) -> list[tuple[str, int]]:
        """The (case, batch size) of each row that it names; [] where it names no batch size."""
        return []

    def published(self) -> tuple[float, str] | None:
        """(the article's ratio, the case that it is over), where it gives one."""
        return None

    def judge(self, rows: Rows, new_tokens: int, count: int | None) -> Finding:
        """The Finding for calls of so many new tokens, where it names batch sizes on so many devices."""
        try:
            return self.finding(rows, new_tokens, count)
        except NotTested as untested:
            return Finding(NOT_TESTED, str(untested), untested.ratio)

    def finding(self, rows: Rows, new_tokens: int, count: int | None) -> Finding:
        """As judge; raises NotTested where the rows cannot test it."""
        raise NotImplementedError
