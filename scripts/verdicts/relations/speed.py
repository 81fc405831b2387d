"""`faster`, `slower`: one case takes less time than another, by so much."""

from typing import ClassVar

from scripts.verdicts import parts
from scripts.verdicts.lookup import Rows
from scripts.verdicts.parts import Part, Range
from scripts.verdicts.relations import pairs
from scripts.verdicts.relations.base import PublishedRatio, Relation


class Speed(Relation, frozen=True, kw_only=True):
    """The time of `slower` over that of `faster` is above 1.

    size        the published ratio, which the claim states: a second part
    ratio       the published ratio, which the claim does not state: shown beside the measured one
    at_least    the ratio is at least this, in place of above 1
    at_most     … at most this, whichever of the two is faster
    batch_size  in this batch size, by ms/token
    """

    KEY: ClassVar[str] = "faster"

    faster: str
    slower: str
    size: float | None = None
    ratio: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.faster == self.slower:
            raise ValueError(f"{self.faster!r} is compared with itself, allowed are two cases")
        if self.size is not None and self.size <= 1:
            raise ValueError(f"`size` is {self.size:g}, allowed is the time of `slower` over that of `faster`, which is above 1; write the reciprocal")
        if [self.size, self.at_least, self.at_most].count(None) < 2:
            raise ValueError("one of `size`, `at_least` and `at_most` at most")
        if self.size is not None and self.ratio is not None:
            raise ValueError("`size` is the published ratio: leave `ratio` out")

    def published(self, part: Part) -> PublishedRatio | None:
        ratio = self.size or self.ratio
        return PublishedRatio(ratio, self.slower) if ratio else None

    def names(self) -> list[str]:
        if self.at_least is not None:
            return [f"at least {self.at_least:g} times as fast"]
        if self.at_most is not None:
            return [f"at most {self.at_most:g} times as fast"]
        return ["faster"] + ([f"{self.size:g} times"] if self.size is not None else [])

    def where(self) -> Range:
        """The range that its first part gives for the ratio."""
        if self.at_least is not None:
            return Range(least=self.at_least)
        return parts.ABOVE_ONE if self.at_most is None else Range(most=self.at_most)

    def parts(self, rows: Rows) -> list[Part]:
        faster, slower = (rows.usable(*named) for named in self.rows())
        pair = pairs.of_times(faster, slower, rows.new_tokens)
        ranges = [self.where()] + ([parts.size(self.size)] if self.size is not None else [])
        value, beside = pairs.ratio_in_words(pair, self.size or self.ratio, parts.ends(ranges))
        words = f"{pairs.on(faster)} is {value} times as fast as {pairs.on(slower)}{beside}"
        words += f", batch {self.batch_size}" if self.batch_size is not None else ""
        return [pair.part(where, words) for where in ranges]
