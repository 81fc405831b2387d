"""A picture as SVG text: shapes and words at places in pixels, in the colours of a light and of a dark page.

Words stay text: a reader can select and search them, no font of this machine goes into the bytes, and a picture stays below 60 KB. Where the
width of words matters, it is estimated, because only the reader's machine knows the font.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from scripts.report.text import plain
from scripts.report.verdict_marks import COLOURS, SIGNS
from scripts.verdicts.parts import HOLDS, IN_PART, NOT_TESTED, REFUTED, UNDECIDED

WIDTH = 820.0
#: The width of a letter of 12 pixels in the widest of the usual fonts.
LETTER = 6.8
#: The height above the first panel, for title and subtitle.
HEAD = 52.0

#: {class of a shape: (its colour on a light page, on a dark one)}: Okabe and Ito's colours, which the colour-blind can tell apart.
SERIES = {
    "s0": ("#0072b2", "#56b4e9"),
    "s1": ("#b34700", "#f28e4b"),
    "s2": ("#00795a", "#2cc295"),
    "s3": ("#a8487f", "#e08bbd"),
    "s4": ("#8a6d00", "#e6c229"),
}


#: {verdict: its shape around a place}: circle, diamond, square, cross, triangle.
SHAPES = {
    HOLDS: "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    IN_PART: "m0 -6l6 6l-6 6l-6 -6z",
    UNDECIDED: "m-4.5 -4.5h9v9h-9z",
    REFUTED: "m-5 -5l10 10m0 -10l-10 10",
    NOT_TESTED: "m-5.5 -4h11l-5.5 9.5z",
}


def verdict_class(word: str) -> str:
    """The class of what is drawn for a verdict."""
    return f"v{list(SIGNS).index(word)}"


#: {what every picture has: (its style on a light page, on a dark one)}.
BASE = {".ground": ("fill:#ffffff", "fill:#0d1117"), "text": ("fill:#1f2328", "fill:#e6edf3"), ".muted": ("fill:#57606a", "fill:#9da7b1")}
BASE |= {".grid": ("stroke:#d8dee4", "stroke:#30363d"), ".ink": ("stroke:#1f2328", "stroke:#e6edf3")}
SIZES = "text{font:12px system-ui,sans-serif}.title{font-size:16px;font-weight:600}.small{font-size:11px}path{fill:none}"
#: {how a class of colour is used: its rule, from the colour and the ground}.
LOOKS = {"fill": "fill:{0};stroke:{0}", "hollow": "fill:{1};stroke:{0}", "stroke": "fill:none;stroke:{0}", "words": "fill:{0}"}


def _style(used: set[str]) -> str:
    """The rules of a light page, then those of a dark one, for `used` classes only. They have no variables, which programs for print do not know."""
    colours = {**{verdict_class(word): both for word, both in COLOURS.items()}, **SERIES}
    themes = []
    for place, ground in enumerate(("#ffffff", "#0d1117")):
        rules = [f"{name}{{{both[place]}}}" for name, both in BASE.items()]
        rules += [
            f".{name}.{look}{{{rule.format(both[place], ground)}}}"
            for name, both in colours.items()
            for look, rule in LOOKS.items()
            if f"{name} {look}" in used
        ]
        themes.append("".join(rules))
    return f"{SIZES}{themes[0]}@media (prefers-color-scheme:dark){{{themes[1]}}}"


class Picture:
    """Shapes in the order in which they are drawn."""

    def __init__(self, height: float, title: str, subtitle: str, description: Sequence[str]) -> None:
        """`title` is the finding, `subtitle` its setting, `description` what the picture shows, a sentence per shape, for readers who cannot see it."""
        self.height = height
        words = escape(". ".join(plain(line) for line in description))
        self._head = [f"<title>{escape(plain(title))}</title>", f"<desc>{words}</desc>"]
        self._used: set[str] = set()
        self._parts = [f'<rect class="ground" width="{_number(WIDTH)}" height="{_number(height)}"/>']
        self.text(14, 24, cut(title, 84), "title")
        self.text(14, 42, cut(subtitle, 130), "muted")

    def text(self, x: float, y: float, words: object, style: str = "", anchor: str = "start") -> None:
        placed = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._parts.append(f'<text x="{_number(x)}" y="{_number(y)}"{self._class(style)}{placed}>{escape(plain(words))}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str, width: float = 1.0) -> None:
        self._parts.append(f'<path d="M{_number(x1)} {_number(y1)}L{_number(x2)} {_number(y2)}"{self._class(style)} stroke-width="{_number(width)}"/>')

    def path(self, points: Sequence[tuple[float, float]], style: str, dashes: str = "") -> None:
        """A line through points."""
        if len(points) > 1:
            drawn = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
            dashed = f" stroke-dasharray={quoteattr(dashes)}" if dashes else ""
            self._parts.append(f'<path d="M{drawn}"{self._class(f"{style} stroke")} stroke-width="1.5"{dashed}/>')

    def dot(self, x: float, y: float, style: str, hollow: bool = False, radius: float = 4.0) -> None:
        look = "hollow" if hollow else "fill"
        self._parts.append(f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"{self._class(f"{style} {look}")}/>')

    def verdict(self, x: float, y: float, word: str) -> None:
        """The verdict's own shape."""
        look, width = ("stroke", 3) if word == REFUTED else ("fill", 1)
        self._parts.append(f'<path d="M{_number(x)} {_number(y)}{SHAPES[word]}"{self._class(f"{verdict_class(word)} {look}")} stroke-width="{width}"/>')

    def interval(self, x1: float, x2: float, y: float, style: str) -> None:
        """A line from one bound to the other, with a short upright line at each."""
        bounds = f"M{_number(x1)} {_number(y - 4)}v8M{_number(x1)} {_number(y)}H{_number(x2)}M{_number(x2)} {_number(y - 4)}v8"
        self._parts.append(f'<path d="{bounds}"{self._class(f"{style} stroke")} stroke-width="1.5"/>')

    def _class(self, style: str) -> str:
        """The attribute of a colour with its look, a size, or both: "s0 words small"."""
        self._used.add(" ".join(style.split()[:2]))
        return f' class="{style}"' if style else ""

    def svg(self) -> str:
        size = f'viewBox="0 0 {_number(WIDTH)} {_number(self.height)}" width="{_number(WIDTH)}" height="{_number(self.height)}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n' + "\n".join(
            [*self._head, f"<style>{_style(self._used)}</style>", *self._parts, "</svg>\n"]
        )


def cut(words: object, letters: int) -> str:
    line = plain(words)
    return line if len(line) <= letters else f"{line[: letters - 1].rstrip()}…"


def _number(value: float) -> str:
    """To a tenth of a pixel, as short as it goes."""
    return f"{value:.1f}".removesuffix(".0")
