"""`faster`, `slower`: one case takes less time than another."""

from typing import ClassVar

from scripts.verdicts.findings import NOT_REPRODUCED, REPRODUCED, Finding, NotTested, Rows, bounds, question, tested, usable
from scripts.verdicts.relations import pairs
from scripts.verdicts.relations.base import Relation
from scripts.verdicts.row_groups import Row


class Speed(Relation, frozen=True, kw_only=True):
    """Reproduced where the whole 95 % interval of mean(slower) / mean(faster) lies above 1, and where cases were run repeatedly the ratio of
    every pair of runs does too.

    ratio       the published one
    within      and the ratio itself lies between `ratio` / within and `ratio` x within, both included
    at_least    the interval lies above this number in place of 1
    at_most     the interval lies below this number, and which of the two is faster does not count
    batch_size  in this batch size
    """

    KEY: ClassVar[str] = "faster"

    faster: str
    slower: str
    ratio: float | None = None
    within: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.within is not None and self.ratio is None:
            raise ValueError("`within` stands beside the `ratio` that it is about")

    def cases(self) -> list[str]:
        return [self.faster, self.slower]

    def rows(self) -> list[tuple[str, int]]:
        return [(case, self.batch_size) for case in self.cases()] if self.batch_size is not None else []

    def published(self) -> tuple[float, str] | None:
        return (self.ratio, self.slower) if self.ratio else None

    def finding(self, rows: Rows, new_tokens: int, count: int | None) -> Finding:
        faster, slower = self._pair(rows, new_tokens, count)
        ratio, over_runs = pairs.per_token_ratio(slower, faster, new_tokens)
        value, beside = pairs.in_digits(ratio, over_runs, self.ratio, (faster, slower))
        words = f"{pairs.on(faster)} is {value} times as fast as {pairs.on(slower)}{beside}"
        words += f", batch {self.batch_size}" if self.batch_size is not None else ""
        low, high = bounds(ratio, words)
        if self.at_most is not None:
            return tested(max([high, *over_runs]) < self.at_most, f"{words}, the bound is {self.at_most:g}", ratio)
        # The direction has to hold within a run and in every pair of runs.
        if min([low, *over_runs]) <= (1 if self.at_least is None else self.at_least):
            return Finding(NOT_REPRODUCED, words + (f", the bound is {self.at_least:g}" if self.at_least is not None else ""), ratio)
        if self.within is not None and self.ratio is not None:
            least, most = self.ratio / self.within, self.ratio * self.within
            if not least <= ratio.value <= most:
                side = "faster" if ratio.value > most else "less"
                return Finding(NOT_REPRODUCED, f"{words}, {side} than what counts as near, {least:.2f} to {most:.2f}", ratio)
        return Finding(REPRODUCED, words, ratio)

    def _pair(self, rows: Rows, new_tokens: int, count: int | None) -> tuple[Row, Row]:
        """(the faster row, the slower row); raises NotTested where they cannot be compared."""
        if self.batch_size is not None:
            batches = pairs.in_batches(rows, self, new_tokens, count)
            faster, slower = batches[self.faster, self.batch_size], batches[self.slower, self.batch_size]
        else:
            faster, slower = usable(rows, self.faster, new_tokens), usable(rows, self.slower, new_tokens)
        if question(faster) != question(slower):
            raise NotTested(f"{self.faster} and {self.slower} ran different models or prompts")
        return faster, slower
