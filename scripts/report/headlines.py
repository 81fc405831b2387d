"""The README's table of headlines: the claims that the articles' files call so, each with its verdict nearest to the article's setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.job import write_whole
from scripts import stats
from scripts.articles import Article
from scripts.errors import KitError
from scripts.images import marked_sections
from scripts.paths import ROOT
from scripts.report import tables
from scripts.report.views import claims
from scripts.report.views.claims import Judged
from scripts.verdicts import rules, time_relations
from scripts.verdicts.findings import Finding

README = ROOT / "README.md"
HEADERS = ("claim", "published", "measured (95 % interval)", "verdict", "measured on")


def table(judged: Mapping[str, Sequence[Judged]], known: Mapping[str, Article]) -> list[str]:
    """The lines of a Markdown table, a row a headline; `judged` is what report.document.judge gives."""
    rows = []
    for slug, verdicts in judged.items():
        for nearest, *_ in claims.by_claim(verdicts):
            if nearest.claim.get("headline"):
                rows.append(_row(nearest, known[slug]))
    return tables.table(HEADERS, rows, left=len(HEADERS))[:-1]


def _row(judged: Judged, article: Article) -> list[str]:
    published, measured = tables.NONE, tables.text(judged.verdict.reason)
    relation, finding = _deciding(judged, article)
    against, ratio = (
        relation.get("slower") or relation.get("single"),
        relation.get("ratio") or relation.get("item_ratio_at_least"),
    )
    if finding and finding.ratio and against and ratio:
        published = tables.text(f"{ratio:g} × {against}")
        measured = tables.text(f"{stats.in_words(finding.ratio, least=2)} × {against}")
    return [tables.prose(judged.claim["text"]), published, measured, f"**{judged.verdict.word}**", _place(judged)]


def _deciding(judged: Judged, article: Article) -> tuple[Mapping, Finding | None]:
    """The relation whose finding the verdict's sentence names first, and that finding; ({}, None) where no row judged the claim."""
    if judged.group is None:
        return {}, None
    rows = rules.rows_by_case(judged.group, article)
    relations = judged.claim["relations"]
    count = time_relations.common_count(rows, relations, judged.new_tokens)
    pairs = [(relation, rules.judge_relation(relation, rows, judged.new_tokens, count)) for relation in relations]
    named = [pair for pair in pairs if pair[1].reason in judged.verdict.reason]
    return min(named, key=lambda pair: judged.verdict.reason.index(pair[1].reason), default=({}, None))


def _place(judged: Judged) -> str:
    if judged.group is None:
        return tables.NONE
    key = judged.group.key
    words = f"{key.device_words}, stack {key.stack}, {key.weights} weights"
    return f"[{tables.text(words)}](reports/REPORT.md#{judged.group.slug})"


def page(text: str, lines: Sequence[str]) -> str:
    """The README with these lines between its markers; KitError where a marker is missing."""
    return marked_sections.put_between("README.md", text, "headlines", "".join(f"{line}\n" for line in lines))


def save(lines: Sequence[str], readme: Path = README) -> None:
    """Put the table into the README; raises KitError where it has no markers for it."""
    text = readme.read_text(encoding="utf-8")
    if (new := page(text, lines)) != text:
        write_whole(readme, new)


def check(lines: Sequence[str], readme: Path = README) -> None:
    """Raise KitError where the README's table is not the one that these lines make."""
    text = readme.read_text(encoding="utf-8")
    if page(text, lines) != text:
        raise KitError("README.md: its table of headlines is not what reports/runs gives. Try: make report")
