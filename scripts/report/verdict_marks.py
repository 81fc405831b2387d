"""How a verdict looks: a sign, which alone tells the words apart, and a colour."""

from scripts.report.text import Markdown
from scripts.verdicts.parts import HOLDS, IN_PART, NOT_TESTED, REFUTED, UNDECIDED

SIGNS = {HOLDS: "●", IN_PART: "◆", UNDECIDED: "■", REFUTED: "✖", NOT_TESTED: "▼"}
#: The same five as site_files/style.css: (on a light page, on a dark one).
COLOURS = {
    HOLDS: ("#1a7f37", "#3fb950"),
    IN_PART: ("#9a6700", "#d29922"),
    UNDECIDED: ("#57606a", "#8b949e"),
    REFUTED: ("#cf222e", "#f85149"),
    NOT_TESTED: ("#6e7781", "#8b949e"),
}


def legend() -> Markdown:
    """ "● holds · ◆ holds in part · …"."""
    return Markdown(" · ").join(f"{sign} {word}" for word, sign in SIGNS.items())
