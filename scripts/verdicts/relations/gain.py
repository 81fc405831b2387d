"""`from_batch`, `to_batch`: what a case gains from a larger batch."""

from typing import ClassVar

from scripts.verdicts.findings import Finding, Rows, bounds, tested
from scripts.verdicts.relations import pairs
from scripts.verdicts.relations.base import Relation


class Gain(Relation, frozen=True, kw_only=True):
    """The gain is ms/token at the first batch size over ms/token at the second.

    gain_at_least    reproduced where its interval lies above this
    gain_below       … below this
    share_of_linear  … above this share of to_batch / from_batch
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

    def rows(self) -> list[tuple[str, int]]:
        return [(self.case, self.from_batch), (self.case, self.to_batch)]

    @property
    def least(self) -> float:
        """What the gain has to be above."""
        return (self.share_of_linear or 0) * self.to_batch / self.from_batch if self.gain_at_least is None else self.gain_at_least

    def finding(self, rows: Rows, new_tokens: int, count: int | None) -> Finding:
        batches = pairs.in_batches(rows, self, new_tokens, count)
        small, large = batches[self.case, self.from_batch], batches[self.case, self.to_batch]
        gain, over_runs = pairs.per_token_ratio(small, large, new_tokens)
        value, beside = pairs.in_digits(gain, over_runs, self.ratio, (small, large))
        words = f"{pairs.on(small)}: its ms/token fall {value} times from batch {self.from_batch} to {self.to_batch}{beside}"
        low, high = bounds(gain, words)
        if self.gain_below is not None:
            return tested(max([high, *over_runs]) < self.gain_below, f"{words}, the bound is {self.gain_below:g}", gain)
        return tested(min([low, *over_runs]) > self.least, f"{words}, the bound is {self.least:g}", gain)
