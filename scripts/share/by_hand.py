"""The pages of a bundle that do not follow from its data: somebody wrote them, and a site of the unpacked bundle shows them as they are.

They are Markdown, which lets HTML through with its scripts. The kit's own pages hold no HTML but the comments around numbers.
"""

import re
from collections.abc import Iterator
from pathlib import Path

PAGES = ("reports/FINDINGS.md", "reports/instruments/*.md")

#: A tag, a declaration or a link between angle brackets; a comment is none.
HTML = re.compile(r"<(?!!--)[a-z/!?]", re.IGNORECASE)

#: The target of a link behind its text, or where it is defined; either may stand on the next line.
TARGET = re.compile(r"(?:\]\(\s*|^[ \t>]*\[[^\]]*\]:\s*)([^)\s]+)", re.MULTILINE)

#: The allowed schemes: a link with another one may hold a script. An entity may stand for a scheme's colon.
SCHEMES = ("https://", "http://", "mailto:")


def problems(folder: Path) -> Iterator[str]:
    """Each place of a page written by hand that a browser would take for more than text, in words."""
    for path in sorted(path for pattern in PAGES for path in folder.glob(pattern) if path.is_file()):
        text = path.read_text(encoding="utf-8", errors="replace")
        for place, why in _found(text):
            line = text.count("\n", 0, place) + 1
            yield f"{path.relative_to(folder)}: line {line} has {why}; a page written by hand is Markdown without HTML"


def _found(text: str) -> Iterator[tuple[int, str]]:
    yield from ((found.start(), f"markup, {text[found.start() :][:40]!r}") for found in HTML.finditer(text))
    for found in TARGET.finditer(text):
        if not found[1].startswith(SCHEMES) and {":", "&"} & set(found[1]):
            yield found.start(1), f"a link to {found[1][:40]!r}"
