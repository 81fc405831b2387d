"""All claims in one picture: published ratios beside measured ones, the verdict as colour, shape and word."""

import collections
import dataclasses
import itertools
import textwrap
from collections.abc import Sequence

from scripts import stats
from scripts.report.plots import scales
from scripts.report.plots.dots import FOOT, ROW, axis
from scripts.report.plots.svg import HEAD, LETTER, WIDTH, Picture, cut, verdict_class
from scripts.report.text import plain
from scripts.report.verdict_marks import SIGNS

#: The letters of a line of a title; a longer title takes a second line, and TITLE is what that line adds to the row.
LONGEST = 60
TITLE = 14
RIGHT = 110.0


@dataclasses.dataclass(frozen=True)
class Line:
    """A claim with its verdict; `published` and `measured` are ratios, None where the claim has none or nothing measured it."""

    title: str
    word: str
    published: float | None = None
    measured: stats.Estimate | None = None


def plot(lines: Sequence[Line]) -> str | None:
    """A line a claim, on one logarithmic axis of ratios; None where no claim has a ratio."""
    numbers = [number for line in lines for number in _numbers(line)]
    if not numbers:
        return None
    titles = [_wrapped(line.title) for line in lines]
    heights = [ROW + TITLE * (len(title) - 1) for title in titles]
    bottom = HEAD + sum(heights)
    count = collections.Counter(line.word for line in lines)
    title = ", ".join(f"{count[word]} {_verb(word, count[word])}" for word in SIGNS if count[word])
    picture = Picture(
        bottom + FOOT,
        f"Of {len(lines)} claims: {title}",
        "Vertical line: the published ratio. Sign: the measured ratio with its 95 % interval, of several that of the claim's first part.",
        _told(lines),
    )
    scale = scales.for_values([*numbers, 1.0], 24 + LETTER * LONGEST, WIDTH - RIGHT, logarithmic=True, margin=1.3)
    axis(picture, scale, HEAD, bottom, "times as fast, or another ratio of the claim; logarithmic")
    picture.line(scale.at(1), HEAD, scale.at(1), bottom, "ink")
    for line, words, height, end in zip(lines, titles, heights, itertools.accumulate(heights), strict=True):
        _draw(picture, scale, HEAD + end - height / 2, line, words)
    return picture.svg()


def _wrapped(title: str) -> list[str]:
    """A title in one line, or in two of which the second is cut."""
    first, *others = textwrap.wrap(plain(title), LONGEST) or [""]
    return [first, cut(" ".join(others), LONGEST)] if others else [first]


def _verb(word: str, count: int) -> str:
    """ "1 holds in part", "2 hold in part"."""
    return word if count == 1 else word.replace("holds", "hold")


def _numbers(line: Line) -> list[float]:
    measured = [line.measured.value, line.measured.low, line.measured.high] if line.measured else []
    return scales.finite([line.published, *measured])


def _draw(picture: Picture, scale: scales.Scale, y: float, line: Line, title: Sequence[str]) -> None:
    for place, words in enumerate(title):
        picture.text(14, y + 4 + TITLE * (place - (len(title) - 1) / 2), words)
    if line.published is not None:
        picture.line(scale.at(line.published), y - 7, scale.at(line.published), y + 7, "ink", 2)
    if line.measured:
        if line.measured.low is not None and line.measured.high is not None:
            picture.interval(scale.at(line.measured.low), scale.at(line.measured.high), y, verdict_class(line.word))
        picture.verdict(scale.at(line.measured.value), y, line.word)
    picture.text(WIDTH - RIGHT + 12, y + 4, f"{SIGNS[line.word]} {line.word}", f"{verdict_class(line.word)} words")


def _told(lines: Sequence[Line]) -> list[str]:
    return [
        f"{line.title} {line.word}"
        + (f", published {line.published:g}" if line.published is not None else "")
        + (f", measured {stats.in_words(line.measured, least=2)}" if line.measured else "")
        for line in lines
    ]
