"""`from_batch`, `to_batch`: what a case gains from a larger batch, by itself or beside another case."""

import dataclasses
from typing import ClassVar

from scripts import stats
from scripts.verdicts import lookup, parts
from scripts.verdicts.lookup import Rows
from scripts.verdicts.parts import Part, Range
from scripts.verdicts.relations import pairs
from scripts.verdicts.relations.base import PublishedRatio, Relation


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
        _rising(self.from_batch, self.to_batch)

    @property
    def bound(self) -> float:
        if self.share_of_linear is not None:
            return self.share_of_linear * self.to_batch / self.from_batch
        return self.gain_below or self.gain_at_least or 0.0

    def published(self, part: Part) -> PublishedRatio | None:
        return PublishedRatio(self.ratio, self._name_in(self.from_batch)) if self.ratio else None

    def names(self) -> list[str]:
        return [f"{self.case} gains {'less than' if self.gain_below is not None else 'at least'} {self.bound:g} times"]

    def parts(self, rows: Rows) -> list[Part]:
        small, large = (rows.usable(case, size) for case, size in self.rows())
        pair = pairs.of_times(large, small, rows.new_tokens)
        grew = self.to_batch / self.from_batch
        # Such a gain comes from a small batch that waited for its host or ran on a slower machine: the GPU alone gives the larger batch at most `grew`.
        if pair.ratio.value > grew:
            pair = dataclasses.replace(pair, remarks=(f"more than the batch grew, {grew:g} times",))
        value, beside = pairs.ratio_in_words(pair, self.ratio, [self.bound])
        words = f"{pairs.on(small)}: its ms/token fall {value} times from batch {self.from_batch} to {self.to_batch}{beside}, the bound is {self.bound:g}"
        where = parts.below(self.bound) if self.gain_below is not None else Range(least=self.bound)
        cases = (self._name_in(self.to_batch), self._name_in(self.from_batch))
        return [dataclasses.replace(pair.part(where, words), cases=cases)]

    def _name_in(self, batch_size: int) -> str:
        """As rows of batches are named; here also in batch 1."""
        return f"{self.case} b{batch_size}"


class GainOver(Relation, frozen=True, kw_only=True):
    """The gain of `case` over that of `gains_more_than`, between the same batch sizes, is at least `at_least`; `ratio` is the published one."""

    KEY: ClassVar[str] = "gains_more_than"

    case: str
    gains_more_than: str
    from_batch: int
    to_batch: int
    at_least: float
    ratio: float | None = None

    def __post_init__(self) -> None:
        if self.case == self.gains_more_than:
            raise ValueError(f"{self.case!r} is compared with itself, allowed are two cases")
        _rising(self.from_batch, self.to_batch)

    def published(self, part: Part) -> PublishedRatio | None:
        return PublishedRatio(self.ratio, f"the gain of {self.gains_more_than}") if self.ratio else None

    def names(self) -> list[str]:
        return [f"gains at least {self.at_least:g} times as much as {self.gains_more_than}"]

    def parts(self, rows: Rows) -> list[Part]:
        small, large, slow_small, slow_large = (rows.usable(*named) for named in self.rows())
        compared = [small, large, slow_small, slow_large]
        pairs.must_answer_the_same(compared)
        small_ms, large_ms, slow_small_ms, slow_large_ms = pairs.comparable_ms(compared, rows.new_tokens)
        ratio = stats.quotient_over_runs([small_ms, slow_large_ms], [large_ms, slow_small_ms])
        differs = tuple(pairs.differences(small, slow_small))
        published = f" (published {self.ratio:g})" if self.ratio is not None else ""
        number = stats.in_words(ratio, least=2, bounds=[self.at_least])
        words = f"the gain of {pairs.on(small)} from batch {self.from_batch} to {self.to_batch} is {number} times that of "
        words += f"{pairs.on(slow_small)}{published}, the bound is {self.at_least:g}"
        words += f"; the rows differ in {parts.listed(differs)}" if differs else ""
        why = lookup.why_not(compared, rows.new_tokens)
        part = pairs.judged(Range(least=self.at_least), ratio, why, words, (self.case, self.gains_more_than), differs)
        return [dataclasses.replace(part, runs=lookup.fewest_runs(compared, rows.new_tokens))]


def _rising(from_batch: int, to_batch: int) -> None:
    if from_batch >= to_batch:
        raise ValueError(f"`from_batch` is {from_batch}, allowed is a smaller batch than `to_batch`, which is {to_batch}")
