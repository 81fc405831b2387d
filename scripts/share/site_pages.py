"""The pages of a site: the report's own, those of the report without containers, and the notes of docs/ that the findings lead to.

Each page has a source, which is its path in links from the report's folder, and a place in the site. A link to a page leads to its place; a link to
anything that the site does not hold becomes its words.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote, unquote

from scripts import results
from scripts.paths import ROOT
from scripts.report import pages
from scripts.results import door

FINDINGS = "FINDINGS.md"
#: The pages that every report begins with: {file beside the report: its place in the site}.
FIRST = {pages.INDEX: "index.md", FINDINGS: FINDINGS}

#: The pages of docs/ in a site with findings: they are about the kit's own report.
NOTES = ("limits.md", "readings.md", "verdict-rules.md", "output-check.md", "method.md", "faults.md")
#: The folder of the report on runs without containers, beside the first report.
APART = results.WITHOUT_CONTAINERS.parent.name

#: A link, but no picture, to another page or file of the kit: not to another server, and not to a place of its own page.
LINK = re.compile(r"(?<![!\\])\[(?P<words>[^\[\]\n]*)(?<!\\)\]\((?![a-z]+:|#)(?P<path>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)")


@dataclass(frozen=True)
class Page:
    source: str
    place: str
    text: str


def of_report(report: Path) -> dict[str, str]:
    """{name: text} of the pages of a report's folder that are no links: the index, the findings and what `make report` wrote."""
    names = [*FIRST, *(path.name for path in pages.written_by_the_kit(report) if path.name not in FIRST)]
    return {name: (report / name).read_text(encoding="utf-8") for name in names if (report / name).exists() and door.is_plain(report / name)}


def within(folder: str, texts: Mapping[str, str]) -> list[Page]:
    """The pages of a report in a folder of the site, "" for the site's own."""
    return [Page(posixpath.join(folder, name), posixpath.join(folder, FIRST.get(name, name)), text) for name, text in texts.items()]


def notes() -> list[Page]:
    """The pages of docs/ with four spaces before text within an item of a list, which the generator needs."""
    found = {f"docs/{name}": ROOT / "docs" / name for name in NOTES}
    return [
        Page(f"../{name}", name, re.sub(r"^ {2,3}(?=\S)", "    ", path.read_text(encoding="utf-8"), flags=re.MULTILINE))
        for name, path in found.items()
        if path.is_file()
    ]


def written(every: Sequence[Page], is_held: Callable[[str], bool], of_place: Mapping[str, str] = MappingProxyType({})) -> Iterable[tuple[str, str]]:
    """(place, text) of each page for the site's generator; `is_held` tells whether the site has a file, `of_place` leads from a row's anchor to its page.

    GitHub reads Markdown within <details>; this generator has to be told to.
    """
    place_of = {_source(page.source): page.place for page in every}
    for page in every:
        text = page.text.replace("<details>", '<details markdown="1">')
        text = _with_rows(_linked(text, page, place_of, is_held), of_place if page.source == posixpath.basename(page.source) else {})
        yield page.place, text


def _linked(text: str, page: Page, place_of: Mapping[str, str], is_held: Callable[[str], bool]) -> str:
    """A page's text with its links as the site has them. A link to a missing page of the same folder stays, and the generator complains."""

    def put(match: re.Match[str]) -> str:
        source = _source(posixpath.join(posixpath.dirname(page.source), unquote(match["path"])))
        place = place_of.get(source, source)
        if source in place_of or (not source.startswith("..") and is_held(place)):
            path = quote(posixpath.relpath(place, posixpath.dirname(page.place) or "."), safe="/.-_~")
            return f"[{match['words']}]({path}{match['anchor'] or ''})"
        return match[0] if "/" not in source and source.endswith(".md") else match["words"]

    return LINK.sub(put, text)


def _source(path: str) -> str:
    """A path relative to the report's folder: `../docs/x` becomes `docs/x`, and `../reports/x`, as pages of docs/ have it, becomes `x`."""
    return re.sub(r"^(?:\.\./)+(?:reports/|(?=docs/))", "", posixpath.normpath(path))


def _with_rows(text: str, of_place: Mapping[str, str]) -> str:
    def with_page(match: re.Match[str]) -> str:
        page = of_place.get(match["anchor"])
        return f'<a id="{match["anchor"]}"></a>[{match["name"]}]({page})' if page else match[0]

    return re.sub(r'<a id="(?P<anchor>[^"]+)"></a>(?P<name>[^\s|]+)', with_page, text)
