"""What a part of a claim comes to: a word, and the number behind it. docs/verdict-rules.md holds the rules."""

import dataclasses
import math
from collections.abc import Sequence

from scripts import stats

HOLDS, IN_PART, UNDECIDED, REFUTED, NOT_TESTED = "holds", "holds in part", "undecided", "refuted", "not tested"

#: A published size holds from size / SIZE_FACTOR to size x SIZE_FACTOR.
SIZE_FACTOR = 1.25


@dataclasses.dataclass(frozen=True)
class Range:
    """Where a claim says that a number lies, both ends included, or neither where the range is open."""

    least: float = -math.inf
    most: float = math.inf
    is_open: bool = False

    def word(self, low: float, high: float) -> str:
        """The word on an interval: HOLDS inside, REFUTED outside, UNDECIDED across an end."""
        if self.holds(low) and self.holds(high):
            return HOLDS
        outside = (high <= self.least or low >= self.most) if self.is_open else (high < self.least or low > self.most)
        return REFUTED if outside else UNDECIDED

    @property
    def ends(self) -> list[float]:
        """The ends that are numbers."""
        return [end for end in (self.least, self.most) if math.isfinite(end)]

    @property
    def in_words(self) -> str:
        """ "below 1.5", "at least 1.5", "3.06 to 4.79"; "" for ABOVE_ONE, which "faster" says, and for all numbers."""
        least, most = (f"{end:.{4 if end >= 100 else 3}g}" if math.isfinite(end) else "" for end in (self.least, self.most))
        if self == ABOVE_ONE or not self.ends:
            return ""
        if least and most:
            return f"{least} to {most}"
        if least:
            return f"{'above' if self.is_open else 'at least'} {least}"
        return f"{'below' if self.is_open else 'at most'} {most}"

    def holds(self, value: float) -> bool:
        """Does the claim hold for this very number?"""
        return self.least < value < self.most if self.is_open else self.least <= value <= self.most


ABOVE_ONE = Range(least=1, is_open=True)


def below(bound: float) -> Range:
    """The range below a bound, without the bound."""
    return Range(most=bound, is_open=True)


def ends(ranges: Sequence[Range]) -> list[float]:
    """The ends of all ranges."""
    return [end for where in ranges for end in where.ends]


def size(published: float) -> Range:
    """The range around a published size, by the same factor above and below."""
    return Range(published / SIZE_FACTOR, published * SIZE_FACTOR)


@dataclasses.dataclass(frozen=True)
class OnGpus:
    """The ratio of two rows on one set of GPUs, and the numbers of runs of the slower and of the faster row behind it."""

    ratio: float
    runs: tuple[int, int]

    @property
    def in_words(self) -> str:
        """ "1.56 of 2 runs"; "1.56 of 2 and 3 runs" where the rows have different numbers."""
        return f"{self.ratio:.2f} of {runs_in_words(self.runs)}"


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of a claim, judged.

    name      what the claim says, in a word or two: "faster", "3.83 times"
    word      HOLDS, UNDECIDED, REFUTED or NOT_TESTED
    number    what was measured, in digits: "2.9 (2.6 to 3.2)"; "" without rows
    sentence  what the number is of, and what stands beside it
    why       why it was not tested; "" where it was
    ratio     the number, where it is a ratio of two cases; `cases` are their names, and `where` is the claim's range for it
    differs   in what the compared rows differ beside the system
    is_apart  whether the compared rows share no GPU in any run
    notes     what else stands beside the number
    doubts    the notes for a first page, in short: what would give the part another word, and which of several comparisons decides it
    on_gpus   the ratio on each set of GPUs with runs of both rows, where there are several such sets or other GPUs ran one row alone
    compared  the comparisons of an "every" part
    runs      the fewest undisturbed runs of a compared row
    """

    name: str
    word: str
    number: str = ""
    sentence: str = ""
    why: str = ""
    ratio: stats.Estimate | None = None
    cases: tuple[str, str] | None = None
    where: Range | None = None
    differs: tuple[str, ...] = ()
    is_apart: bool = False
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    on_gpus: tuple[OnGpus, ...] = ()
    compared: tuple["Part", ...] = ()
    runs: int = 0

    @property
    def is_of_a_mixture(self) -> bool:
        """Do its ratios on different GPUs differ by more than SIZE_FACTOR, while no set of GPUs has enough runs of both rows to judge by itself?"""
        ratios = [one.ratio for one in self.on_gpus]
        return bool(ratios) and max(ratios) > SIZE_FACTOR * min(ratios) and all(min(one.runs) < stats.LEAST_RUNS for one in self.on_gpus)

    @property
    def has_rows(self) -> bool:
        return bool(self.sentence)

    @property
    def comparisons(self) -> str:
        """ "12 of 18 comparisons hold, 4 not tested", of an "every" part that does not hold; "" of others, and where none was tested.

        The part's number is that of the comparison that decides it.
        """
        if len(self.compared) < 2 or self.word == HOLDS or all(part.word == NOT_TESTED for part in self.compared):
            return ""
        held, untested = (sum(part.word == word for part in self.compared) for word in (HOLDS, NOT_TESTED))
        return f"{held} of {len(self.compared)} comparisons hold" + (f", {untested} not tested" if untested else "")

    @property
    def explanation(self) -> str:
        """The sentence, or the reason why there is none."""
        return self.sentence or self.why


class NotTested(Exception):
    """Why there are no rows that could test a part."""


def every(words: Sequence[str]) -> str:
    """The word on a part all of whose relations must hold."""
    return next((word for word in (REFUTED, NOT_TESTED, UNDECIDED) if word in words), HOLDS)


def decides(parts: Sequence[Part]) -> Part:
    """The comparison that decides an "every" part: of those with the part's word, the one whose ratio's interval has the smallest lower end."""
    word = every([part.word for part in parts])
    return min((part for part in parts if part.word == word), key=_lower_end)


def _lower_end(part: Part) -> float:
    if part.ratio is None:
        return -math.inf
    return part.ratio.value if part.ratio.low is None else part.ratio.low


def claim(words: Sequence[str]) -> str:
    """The word on a claim with parts of these words."""
    if len(set(words)) == 1:
        return words[0]
    if HOLDS in words and (REFUTED in words or UNDECIDED in words):
        return IN_PART
    return NOT_TESTED if NOT_TESTED in words else UNDECIDED


def runs_in_words(counts: Sequence[int]) -> str:
    """ "2 runs"; "2 and 3 runs" for rows with different numbers of them."""
    return f"{' and '.join(map(str, dict.fromkeys(counts)))} run{'s' * (max(counts) != 1)}"


def listed(words: Sequence[str]) -> str:
    """ "dtype, number of GPUs and transformers"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
