"""The one door for text: whatever stands in the report is `Markdown`, and making Markdown of any other value escapes it.

`Markdown("**{}** on {}").format(status, count)`, `+`, `%` and `join` escape their arguments too, and so do tables and templates: a
mistake shows a backslash too many, never a tag. Escaped text reads the same in GitHub's Markdown and in the site's. The site's knows
no backslash before `<`, `>`, `&` and `~`, so these become HTML's entities.
"""

import re
from typing import Any, Self
from urllib.parse import quote

from markupsafe import Markup

LONGEST = 450
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
#: Characters that mean something anywhere; at the beginning of a line, those that make a heading or an item of a list; within a bare
#: address, those by which GitHub recognises a link.
SPECIAL = re.compile(r"(?P<anywhere>[\\`*_\[\]|])|(?P<entity>[&<>~]|:(?=//)|(?<=www)\.)|^(?P<start>#|[-+](?=\s)|\d+[.)](?=\s))", re.IGNORECASE)


def plain(value: object) -> str:
    """A value as one line of printable characters, cut where it is longer than LONGEST."""
    words = str(value)
    if not words.isprintable():
        words = "".join(character if character.isprintable() else " " for character in words)
    line = " ".join(words.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"


class Markdown(Markup):
    """Text that is Markdown already. The constructor takes the kit's own words as they are, `escape` takes anything."""

    __slots__ = ()

    @classmethod
    def escape(cls, s: Any, /) -> Self:
        """A value as one line that means nothing but itself; Markdown stays as it is."""
        return s if isinstance(s, cls) else cls(SPECIAL.sub(_escaped, plain(s)))


def _escaped(match: re.Match[str]) -> str:
    special = match[0]
    return ENTITIES.get(special, f"&#{ord(special)};") if match["entity"] else f"{special[:-1]}\\{special[-1]}"


def prose(words: str) -> Markdown:
    """Markdown of the kit's own, as the articles' files hold it, on one line and fit for a table."""
    return Markdown(" ".join(words.split()).replace("|", "\\|"))


def code(value: object) -> Markdown:
    """A value as a code span, or as escaped words where it has characters that a code span of one of the renderers cannot hold."""
    line = " ".join(str(value).split())
    return Markdown(f"`{line}`") if line and line.isprintable() and not set(line) & set("`|<>&\\") else Markdown.escape(line)


def link(words: object, target: str) -> Markdown:
    """A link to a place within the report or beside it."""
    return Markdown(f"[{Markdown.escape(words)}]({quote(target, safe='/#.-_~')})")


def anchor(name: str) -> Markdown:
    """The place that `#name` leads to."""
    return Markdown(f'<a id="{name_of(name)}"></a>')


def name_of(name: str) -> str:
    """A name as an anchor and the part of a link behind `#` hold it."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def blocks(*parts: Markdown) -> Markdown:
    """Paragraphs, tables and headings with an empty line between them; empty ones are left out."""
    return Markdown("\n\n").join(part for part in parts if part)


def folded(summary: str, inner: Markdown) -> Markdown:
    """A part of a page behind a click; empty where there is nothing."""
    return blocks(Markdown("<details><summary>{}</summary>").format(summary), inner, Markdown("</details>")) if inner else Markdown()


def lines(*parts: Markdown) -> Markdown:
    """Lines that belong together, as of a list."""
    return Markdown("\n").join(parts)
