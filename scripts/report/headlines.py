"""The README's table of headlines: the claims marked so in the articles' files, each with its verdict in the judging variant, nearest to the article."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.job import write_whole
from scripts.errors import KitError
from scripts.images import marked_sections
from scripts.paths import ROOT
from scripts.report import pages
from scripts.report.cells import NONE
from scripts.report.tables import Column, with_header
from scripts.report.text import Markdown, blocks, link, name_of, prose
from scripts.report.views import claims, overview
from scripts.verdicts.judging import ArticleVerdicts, Judged, Lines

README = ROOT / "README.md"


@dataclass(frozen=True)
class Headline:
    """A claim of the article of this name."""

    slug: str
    claim: Lines


def table(verdicts: Mapping[str, ArticleVerdicts]) -> Markdown:
    """A row per headline. Below the table stands how often each word occurs among all claims, headlines or not."""
    chosen = [Headline(slug, claim) for slug, of_article in verdicts.items() for claim in claims.headline_claims(of_article)]
    return blocks(with_header(COLUMNS, chosen), overview.tally(overview.every_claim(verdicts), "docs/verdict-rules.md") if chosen else Markdown())


def _claim(one: Headline) -> Markdown:
    """The claim behind its number, which CLAIMS= takes and which leads to the whole verdict."""
    judged, page = one.claim.headline, pages.of_article(one.slug)
    return link(judged.claim["id"], f"reports/{page}#{name_of(claims.place_of(judged, one.slug))}") + Markdown(" ") + prose(judged.claim["text"])


def _measured(claim: Lines) -> object:
    """The ratio; where there is none, the sentence."""
    shown = overview.published_part(claim.headline)
    if not shown or not shown.part.ratio:
        return claims.numbers(claim.headline)
    subject = f"{shown.part.cases[0]} " if shown.part.cases else ""
    return f"{subject}{shown.part.number} × {shown.published.over}"


def _verdict(claim: Lines) -> Markdown:
    """The verdict without the ratio that `_measured` shows."""
    shown = overview.published_part(claim.headline)
    return overview.verdict(claim.headline, shown.part.number if shown else "")


def _place(judged: Judged) -> Markdown:
    if judged.group is None or not judged.verdict.has_rows:
        return Markdown(NONE)
    key = judged.group.key
    weights = "" if key.weights.startswith("random") else f", {key.weights} weights"
    return link(f"{judged.verdict.most} × {key.model}, stack {key.stack}{weights}", f"reports/{pages.of_setting(judged.group)}")


COLUMNS: list[Column[Headline]] = [
    Column("claim", _claim, words=True),
    Column("published", lambda one: overview.published(one.claim), words=True),
    Column("measured (95 % interval)", lambda one: _measured(one.claim), words=True),
    Column("verdict", lambda one: _verdict(one.claim), words=True),
    Column("measured on (random weights, unless named)", lambda one: _place(one.claim.headline), words=True),
]


def page(text: str, table: str) -> str:
    """The README with this table between its markers; KitError where a marker is missing."""
    return marked_sections.put_between("README.md", text, "headlines", f"{table}\n")


def save(table: str, readme: Path = README) -> None:
    """Put the table into the README; raises KitError where it has no markers for it."""
    text = readme.read_text(encoding="utf-8")
    if (new := page(text, table)) != text:
        write_whole(readme, new)


def check(table: str, readme: Path = README) -> None:
    """Raise KitError where the README's table is another one."""
    text = readme.read_text(encoding="utf-8")
    if page(text, table) != text:
        raise KitError("README.md: its table of headlines is not what reports/runs gives. Try: make report")
