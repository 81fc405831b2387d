"""`from_batch`, `to_batch`: what a case gains from a larger batch, by itself or beside another case."""

from collections.abc import Sequence
from typing import ClassVar

from scripts import stats
from scripts.verdicts import lookup, parts
from scripts.verdicts.lookup import Named, Rows
from scripts.verdicts.parts import Part, Range
from scripts.verdicts.relations import pairs
from scripts.verdicts.relations.base import Relation
from scripts.verdicts.row_groups import Row


class Gain(Relation, frozen=True, kw_only=True):
    """The gain is ms/token at the first batch size over ms/token at the second.

    gain_at_least    it is at least this
    gain_below       … below this
    share_of_linear  … at least this share of to_batch / from_batch
    ratio            the published gain
    """

    KEY: ClassVar[str] = "from_batch"

    case: str
    from_batch: int
    to_batch: int
    gain_at_least: float | None = None
    gain_below: float | None = None
    share_of_linear: float | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        if [self.gain_at_least, self.gain_below, self.share_of_linear].count(None) != 2:
            raise ValueError("one of `gain_at_least`, `gain_below` and `share_of_linear` is the bound")

    def cases(self) -> list[str]:
        return [self.case]

    def rows(self) -> Sequence[Named]:
        return [(self.case, self.from_batch), (self.case, self.to_batch)]

    @property
    def bound(self) -> float:
        if self.share_of_linear is not None:
            return self.share_of_linear * self.to_batch / self.from_batch
        return self.gain_below or self.gain_at_least or 0.0

    def names(self) -> list[str]:
        return [f"{self.case} gains {'less than' if self.gain_below is not None else 'at least'} {self.bound:g} times"]

    def parts(self, rows: Rows) -> list[Part]:
        small, large = (rows.usable(case, size) for case, size in self.rows())
        pair = pairs.of_times(large, small, rows.new_tokens)
        value, beside = pairs.told(pair, self.ratio)
        words = f"{pairs.on(small)}: its ms/token fall {value} times from batch {self.from_batch} to {self.to_batch}{beside}, the bound is {self.bound:g}"
        where = parts.below(self.bound) if self.gain_below is not None else Range(least=self.bound)
        return [pair.part(where, words)]


class GainOver(Relation, frozen=True, kw_only=True):
    """The gain of `case` over that of `gains_more_than`, between the same batch sizes, is at least `at_least`; `ratio` is the published one."""

    KEY: ClassVar[str] = "gains_more_than"

    case: str
    gains_more_than: str
    from_batch: int
    to_batch: int
    at_least: float
    ratio: float | None = None

    def cases(self) -> list[str]:
        return [self.case, self.gains_more_than]

    def rows(self) -> Sequence[Named]:
        return [(case, size) for case in self.cases() for size in (self.from_batch, self.to_batch)]

    def names(self) -> list[str]:
        return [f"gains at least {self.at_least:g} times as much as {self.gains_more_than}"]

    def parts(self, rows: Rows) -> list[Part]:
        own, other = ([rows.usable(case, size) for size in (self.from_batch, self.to_batch)] for case in self.cases())
        times = [pairs.comparable_ms(two, rows.new_tokens) for two in (own, other)]
        (own_small, own_large), (other_small, other_large) = times
        ratio = stats.quotient_over_runs([own_small, other_large], [own_large, other_small])
        differs = tuple(pairs.differences(own[0], other[0]))
        published = f" (published {self.ratio:g})" if self.ratio is not None else ""
        words = f"the gain of {pairs.on(own[0])} from batch {self.from_batch} to {self.to_batch} is {stats.in_words(ratio, least=2)} times that of "
        words += f"{pairs.on(other[0])}{published}, the bound is {self.at_least:g}"
        words += f"; the rows differ in {pairs.listed(differs)}" if differs else ""
        why = lookup.why_not(_rows(own, other), rows.new_tokens)
        return [pairs.judged(Range(least=self.at_least), ratio, why, words, (self.case, self.gains_more_than), differs)]


def _rows(*two: list[Row]) -> list[Row]:
    return [row for pair in two for row in pair]
