"""Which claims hold where: every claim of an article in every group of rows that may judge it. A report judges once and passes what came out."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.articles import Article
from scripts.verdicts import rules
from scripts.verdicts.findings import NOT_TESTED
from scripts.verdicts.row_groups import Group
from scripts.verdicts.rules import Verdict


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim's verdict in one group, for calls of so many new tokens; `group` is None where nothing could judge."""

    claim: Mapping[str, Any]
    verdict: Verdict
    group: Group | None = None
    new_tokens: int = 0


@dataclasses.dataclass(frozen=True)
class ArticleVerdicts:
    """The verdicts on an article's claims.

    lines        claim by claim, the setting nearest to the article's first. A claim that no group tested in full has the lines of those that
                 tested a part of it, or one line that says why there is none
    everywhere   every claim in every group that can judge it
    """

    article: Article
    lines: Sequence[Judged]
    everywhere: Sequence[Judged]

    def of_group(self, group: Group) -> list[Judged]:
        return [judged for judged in self.everywhere if judged.group is group]

    def by_claim(self) -> list[list[Judged]]:
        """The lines of each claim."""
        return [list(lines) for _, lines in itertools.groupby(self.lines, key=lambda judged: judged.claim["id"])]


def judge_group(group: Group, article: Article) -> list[Judged]:
    """Every claim in a group, for the number of new tokens it is about, else for each that was timed; [] for rows that cannot judge it."""
    if group.cannot_judge():
        return []
    rows = rules.rows_by_case(group, article)
    asked = article.variants.get(group.key.variant, {}).get("runs", [])
    counts = group.new_tokens or [run["new_tokens"] for run in asked[:1]]
    asked_for = [(claim, count) for claim in article.claims for count in ([claim["new_tokens"]] if "new_tokens" in claim else counts)]
    return [Judged(claim, rules.judge(claim, rows, count), group, count) for claim, count in asked_for]


def judge_article(groups: Sequence[Group], article: Article) -> ArticleVerdicts:
    """The verdicts of all groups; raises KitError where the article's file makes a claim that cannot be judged."""
    rules.check(article)
    everywhere = [judged for group in groups for judged in judge_group(group, article)]
    lines: list[Judged] = []
    for claim in article.claims:
        of_claim = [judged for judged in everywhere if judged.claim["id"] == claim["id"]]
        tested = [judged for judged in of_claim if judged.verdict.word != NOT_TESTED]
        lines += tested or [judged for judged in of_claim if judged.verdict.holding] or of_claim[:1] or [Judged(claim, _untested(groups))]
    return ArticleVerdicts(article, lines, everywhere)


def _untested(groups: Sequence[Group]) -> Verdict:
    reasons = sorted({group.cannot_judge() for group in groups})
    return Verdict(NOT_TESTED, f"so far only: {', '.join(reasons)}")
