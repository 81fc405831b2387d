"""The README's table of headlines: the claims that the articles' files call so, each with its verdict nearest to the article's setting."""

from collections.abc import Mapping
from pathlib import Path

from bench.job import write_whole
from scripts import stats
from scripts.errors import KitError
from scripts.images import marked_sections
from scripts.paths import ROOT
from scripts.report.cells import NONE
from scripts.report.tables import Column, with_header
from scripts.report.text import Markdown, link, prose
from scripts.verdicts.judging import ArticleVerdicts, Judged

README = ROOT / "README.md"

COLUMNS: list[Column[Judged]] = [
    Column("claim", lambda judged: prose(judged.claim["text"]), words=True),
    Column("published", lambda judged: _ratios(judged)[0], words=True),
    Column("measured (95 % interval)", lambda judged: _ratios(judged)[1], words=True),
    Column("verdict", lambda judged: Markdown("**{}**").format(judged.verdict.word), words=True),
    Column("measured on", lambda judged: _place(judged), words=True),
]


def table(verdicts: Mapping[str, ArticleVerdicts]) -> Markdown:
    """A row a headline, with its verdict in the setting nearest to the article's."""
    nearest = [lines[0] for of_article in verdicts.values() for lines in of_article.by_claim()]
    return with_header(COLUMNS, [judged for judged in nearest if judged.claim.get("headline")])


def _ratios(judged: Judged) -> tuple[str, str]:
    """(published, measured) of the relation whose finding the verdict's sentence names first; where that has no ratio, the sentence."""
    reason = judged.verdict.reason
    named = [pair for pair in judged.verdict.findings if pair[1].reason in reason]
    relation, finding = min(named, key=lambda pair: reason.index(pair[1].reason), default=(None, None))
    published = relation.published() if relation else None
    if not finding or not finding.ratio or not published:
        return NONE, reason
    ratio, against = published
    return f"{ratio:g} × {against}", f"{stats.in_words(finding.ratio, least=2)} × {against}"


def _place(judged: Judged) -> Markdown:
    if judged.group is None:
        return Markdown(NONE)
    key = judged.group.key
    return link(f"{key.device_words}, stack {key.stack}, {key.weights} weights", f"reports/REPORT.md#{judged.group.slug}")


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
