"""Whatever a result holds, the report shows it as text: no tag, no attribute, no link and no broken table comes from it."""

import dataclasses
import functools
import json
import operator
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import markdown
import pytest
from markdown_it import MarkdownIt

from bench.job import InvalidDocument, to_json
from scripts import articles, results
from scripts.report import data, document, failures, row_pages
from scripts.report import page as page_text
from scripts.report.text import Markdown, blocks, code, link
from scripts.report.views import VIEWS
from scripts.results import Record, Skipped
from scripts.share import site_pages
from scripts.verdicts import row_groups
from tests import committed

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)",
    "evil | `evil` | evil\n\n| evil |\n",
    "](javascript:evil) ![evil](javascript:evil)",
    "</details></td></table><h1 onclick=evil>",
    '" onmouseover="evil',
    "https://evil.example <https://evil.example> www.evil.example",
    "# evil\n## evil\n- evil",
    "{{ 7 * 7 }} {% evil %} {: onclick=evil }",
    "\x1b[31m \ud800 \x00 \x02evil\x03 $\\frac{evil}$",
    "&lt;evil&gt; &#60;script> \\",
)
ATTRIBUTES = {"id", "href", "src", "alt", "style", "class", "title"}


def paths_of(value: object, path: tuple = ()) -> Iterator[tuple]:
    """The path of every string and of every object in a JSON document."""
    if isinstance(value, (str, dict)):
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in inner:
        yield from paths_of(entry, (*path, name))


def damaged(whole: dict, path: tuple, draw: random.Random) -> dict:
    """A copy in which the string at a path is hostile, or a key of the object there."""
    changed = pickle.loads(pickle.dumps(whole))
    *above, last = path or (None,)
    place = functools.reduce(operator.getitem, above, changed) if path else None
    value = place[last] if path else changed
    if isinstance(value, dict):
        if value:
            value[draw.choice(HOSTILE)] = value.pop(draw.choice(sorted(value)))
    else:
        place[last] = draw.choice(HOSTILE) + draw.choice(("", value))
    return changed


def read(folder: Path, name: str, whole: dict) -> Record | None:
    """The record, as the kit's own reader takes it; None where it refuses it."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "result.json").write_text(json.dumps(whole))
    try:
        return results.load(folder / name)
    except InvalidDocument:
        return None


@functools.cache
def of_each_kind() -> list[dict]:
    """A committed result of each kind: of every figure, every status, with and without a form."""
    kinds = {}
    for record in committed.every():
        figures = sorted((record.guest.figures or {}) if record.guest else {})
        kinds.setdefault((record.job.kind, record.status, record.job.form, *figures), record)
    return [json.loads(to_json(record)) for record in kinds.values()]


def drawn(folder: Path, seed: int) -> list[Record]:
    """Each committed kind with a hostile value in every second string that the reader lets it into, of hundreds of packages in a few."""
    draw, records = random.Random(seed), []
    for whole in of_each_kind():
        name, kept = whole["id"], read(folder, whole["id"], whole)
        for path in [path for path in paths_of(whole) if path[-1:] != ("id",) and draw.random() < (0.02 if "packages" in path else 0.5)]:
            try:
                changed = damaged(whole, path, draw)
            except (KeyError, TypeError):  # the object above it has lost this key
                continue
            if record := read(folder, name, changed):
                whole, kept = changed, record
        records.append(kept)
    name = '](javascript:evil) "<b>|-01'
    assert read(folder, name, {**of_each_kind()[0], "id": name}) is None
    return records


@pytest.fixture(scope="module")
def hostile_records(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[Record]]:
    """The records of a seed, which take seconds to draw."""
    return functools.cache(lambda seed: drawn(tmp_path_factory.mktemp("hostile"), seed))


class Seen(HTMLParser):
    """The tags of a page, and its links."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.targets = Counter(), set(), []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        self.targets += [value for name, value in attrs if name in ("href", "src")]


def in_both_renderers(text: str) -> list[Seen]:
    """As the site shows a page, and as GitHub's parser does."""
    ((_, page),) = site_pages.written([site_pages.Page("a.md", "a.md", text)], lambda path: True)
    of_site = markdown.markdown(page, extensions=["tables", "md_in_html", "toc"])
    return [Seen(of_site), Seen(MarkdownIt("commonmark").enable("table").render(text))]


def pages_of(records: list[Record]) -> tuple[dict[str, str], list[Skipped]]:
    known = articles.load_all()

    def make(some: list[Record]) -> page_text.Body:
        content = document.judged(some, known)
        pictures = {f"{group.slug}-{view.name}": "" for group in content.groups for view in VIEWS if view.plot}
        return page_text.body(dataclasses.replace(content, pictures=pictures))

    parts, skipped = failures.made_of(records, Path("runs"), make)
    hostile = [Skipped(Path("runs", value.replace("/", "")), value) for value in HOSTILE]
    return page_text.texts(parts, [*skipped, *hostile], with_findings=True), skipped


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)])
def test_nothing_of_a_hostile_result_becomes_a_tag_an_attribute_a_link_or_a_row(hostile_records: Callable[[int], list[Record]], seed: int) -> None:
    texts, skipped = pages_of(hostile_records(seed))
    assert not skipped and "evil" in "".join(texts.values())
    known_targets = {reference for article in articles.load_all().values() for reference in article.references} | {
        "FINDINGS.md",
        "index.md",
        data.CSV,
        data.JSON,
        *texts,
    }
    known = articles.load_all()
    rows = row_pages.made(row_groups.build(hostile_records(seed), known), known, "runs")
    assert rows.texts
    for picture in rows.pictures.values():
        ElementTree.fromstring(picture)
    for text in [*texts.values(), *rows.texts.values(), rows.overview]:
        nothing_becomes_more_than_text(text, known_targets | rows.texts.keys())


def nothing_becomes_more_than_text(text: str, known_targets: set[str]) -> None:
    table_lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = len(table_lines) - sum(bool(re.fullmatch(r"\| :?-[-:| ]*\|", line)) for line in table_lines)
    headings = sum(bool(re.match("#+ ", line)) for line in text.splitlines())
    for seen in in_both_renderers(text):
        allowed = {
            "h1",
            "h2",
            "h3",
            "h4",
            "p",
            "a",
            "ul",
            "li",
            "em",
            "strong",
            "code",
            "img",
            "details",
            "summary",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
        }
        assert set(seen.tags) <= allowed
        assert seen.attributes <= ATTRIBUTES
        assert [target for target in seen.targets if not re.match("#|plots/|runs/", target) and target.partition("#")[0] not in known_targets] == []
        assert seen.tags["tr"] == rows
        assert sum(seen.tags[f"h{level}"] for level in range(1, 7)) == headings
    width = 0
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (width and cells) or cells == width, line
        width = cells


@pytest.mark.slow
def test_plots_of_hostile_results_are_whole(hostile_records: Callable[[int], list[Record]]) -> None:
    known = articles.load_all()
    forms = {"batch", "padded-sentences", "generate"}
    content = document.judged([record for record, whole in zip(hostile_records(0), of_each_kind(), strict=False) if whole["job"]["form"] in forms], known)
    pictures = document.drawn(content.groups, known)
    assert pictures
    for picture in pictures.values():
        ElementTree.fromstring(picture.encode("utf-8"))


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_reads_as_itself_in_both_renderers(value: str) -> None:
    shown = " ".join("".join(character if character.isprintable() else " " for character in value).split())
    text = blocks(Markdown("- {}").format(value), Markdown("- {}").format(code(value)), link(value, "runs/x"))
    of_site = ElementTree.fromstring(f"<body>{markdown.markdown(text, extensions=['tables'])}</body>")
    of_github = ElementTree.fromstring(f"<body>{MarkdownIt('commonmark').render(text)}</body>")
    for body in (of_site, of_github):
        assert [" ".join("".join(element.itertext()).split()) for element in body.iter() if element.tag in ("li", "a")] == [shown] * 3


def test_what_is_not_escaped_by_hand_is_escaped_at_the_door() -> None:
    assert Markdown("**{}**").format("<b>") == "**&lt;b&gt;**"
    assert Markdown("\n").join(["*", Markdown("*")]) == "\\*\n*"
    assert Markdown("a ") + "_b_" == "a \\_b\\_"
    assert Markdown.escape(Markdown("*a*")) == "*a*"
