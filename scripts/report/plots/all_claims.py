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

#: The most letters on a line of a title; a longer title takes a second line, which adds TITLE pixels to the row.
LONGEST = 60
TITLE = 14
#: The rows of a claim's parts lie closer, and their names begin further right.
PART = 18.0
INDENT = 20.0
#: The sign stands before the title: a narrow screen shows the picture's left side alone.
SIGN = 16.0
#: Where the axis and the digits end, in pixels from the picture's right edge.
RIGHT, DIGITS = 160.0, 108.0


@dataclasses.dataclass(frozen=True)
class Dot:
    """A measured ratio, the published one, each None where there is none, and the verdict on the part of this `name`.

    `on_gpus` are the measured ratios on each set of GPUs alone, where the runs come from several sets.
    """

    word: str
    published: float | None = None
    measured: stats.Estimate | None = None
    name: str = ""
    on_gpus: Sequence[float] = ()


@dataclasses.dataclass(frozen=True)
class Line:
    """A claim with its verdict. `dots` are its ratios: a dot with a name has a row of its own below the title, a dot without one is in the title's row."""

    title: str
    word: str
    dots: Sequence[Dot] = ()

    @property
    def parts(self) -> list[Dot]:
        return [dot for dot in self.dots if dot.name]


def plot(lines: Sequence[Line]) -> str | None:
    """A line per claim, on one logarithmic axis of ratios; None where no claim has a ratio."""
    numbers = [number for line in lines for number in _numbers(line)]
    if not numbers:
        return None
    titles = [_wrapped(line.title) for line in lines]
    heights = [ROW + TITLE * (len(title) - 1) for title in titles]
    ends = list(itertools.accumulate(height + PART * len(line.parts) for line, height in zip(lines, heights, strict=True)))
    bottom = HEAD + ends[-1]
    count = collections.Counter(line.word for line in lines)
    title = ", ".join(f"{count[word]} {_verb(word, count[word])}" for word in SIGNS if count[word])
    picture = Picture(
        bottom + FOOT,
        f"Of {len(lines)} claims: {title}",
        "Upright line: published ratio. Sign: verdict, at the measured ratio with its 95 % interval. Small dots: each set of GPUs alone.",
        _told(lines),
    )
    scale = scales.for_values([*numbers, 1.0], 24 + SIGN + LETTER * LONGEST, WIDTH - RIGHT, logarithmic=True, margin=1.3)
    axis(picture, scale, HEAD, bottom, "times as fast, or another ratio of the claim; logarithmic")
    picture.line(scale.at(1), HEAD, scale.at(1), bottom, "ink")
    for line, words, height, end in zip(lines, titles, heights, ends, strict=True):
        _draw(picture, scale, HEAD + end - PART * len(line.parts) - height / 2, height / 2, line, words)
    return picture.svg()


def _wrapped(title: str) -> list[str]:
    """A title in one line or two; the second is cut where it is too long."""
    first, *others = textwrap.wrap(plain(title), LONGEST) or [""]
    return [first, cut(" ".join(others), LONGEST)] if others else [first]


def _verb(word: str, count: int) -> str:
    """ "1 holds in part", "2 hold in part"."""
    return word if count == 1 else word.replace("holds", "hold")


def _numbers(line: Line) -> list[float]:
    measured = [number for dot in line.dots if dot.measured for number in (dot.measured.value, dot.measured.low, dot.measured.high)]
    return scales.finite([number for dot in line.dots for number in (dot.published, *dot.on_gpus)] + measured)


def _draw(picture: Picture, scale: scales.Scale, y: float, half: float, line: Line, title: Sequence[str]) -> None:
    """Draw a claim: the middle of its title is at `y`, and the rows of its parts begin `half` the title's height below."""
    _sign(picture, 14, y, line.word)
    for place, words in enumerate(title):
        picture.text(14 + SIGN, y + 4 + TITLE * (place - (len(title) - 1) / 2), words)
    _word(picture, y, line.word)
    for dot in line.dots:
        if not dot.name:
            _dot(picture, scale, y, dot)
    for place, dot in enumerate(line.parts):
        below = y + half + PART * place + PART / 2 - 4
        _sign(picture, 14 + INDENT, below, dot.word)
        picture.text(14 + INDENT + SIGN, below + 4, cut(dot.name, LONGEST - 4), "muted")
        _dot(picture, scale, below, dot)
        _word(picture, below, dot.word)


def _dot(picture: Picture, scale: scales.Scale, y: float, dot: Dot) -> None:
    if dot.published is not None:
        picture.line(scale.at(dot.published), y - 7, scale.at(dot.published), y + 7, "ink", 2)
    for ratio in scales.finite(dot.on_gpus):
        picture.dot(scale.at(ratio), y + 8, "muted", radius=2.0)
    if dot.measured:
        if ends := dot.measured.ends:
            picture.interval(scale.at(ends[0]), scale.at(ends[1]), y, verdict_class(dot.word))
        picture.verdict(scale.at(dot.measured.value), y, dot.word)
        picture.text(WIDTH - DIGITS, y + 4, stats.in_words(stats.Estimate(dot.measured.value), least=2), anchor="end")


def _sign(picture: Picture, x: float, y: float, word: str) -> None:
    picture.text(x, y + 4, SIGNS[word], f"{verdict_class(word)} words")


def _word(picture: Picture, y: float, word: str) -> None:
    picture.text(WIDTH - DIGITS + 10, y + 4, word, f"{verdict_class(word)} words")


def _told(lines: Sequence[Line]) -> list[str]:
    return [f"{line.title} {line.word}" + "".join(map(_in_words, line.dots)) for line in lines]


def _in_words(dot: Dot) -> str:
    """ "; near in batch 128: refuted, published 1.13, measured 2.79 (2.36 to 3.31)"."""
    return (
        (f"; {dot.name}: {dot.word}" if dot.name else "")
        + (f", published {dot.published:g}" if dot.published is not None else "")
        + (f", measured {stats.in_words(dot.measured, least=2)}" if dot.measured else "")
        + (f", by GPUs {', '.join(f'{ratio:.2f}' for ratio in dot.on_gpus)}" if dot.on_gpus else "")
    )
