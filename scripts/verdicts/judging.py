"""Which claims hold where: every claim of an article in every group of rows that may judge it. A report judges once and passes what came out."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from scripts import pins
from scripts.articles import Article
from scripts.verdicts import lookup, rules
from scripts.verdicts.parts import NOT_TESTED, Part
from scripts.verdicts.row_groups import Group
from scripts.verdicts.rules import Verdict
from scripts.verdicts.version_1 import Frozen, Place

PUBLISHED, CONTROLLED = "published", "controlled"


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim's verdict in one group, for calls of so many new tokens; `group` is None where nothing could judge.

    version_1  the word of version 1 of the rules on the same rows; "" where it never judged them
    alike      the same parts in the controlled variant, of rows that differ in nothing but the system
    """

    claim: Mapping[str, Any]
    verdict: Verdict
    group: Group | None = None
    new_tokens: int = 0
    version_1: str = ""
    alike: Sequence[Part] = ()


@dataclasses.dataclass(frozen=True)
class Lines:
    """The verdicts on one claim.

    headline    in the published variant, on the stack that is nearest to the article's libraries
    controlled  the second line: in the controlled variant on that stack; None where it has no rows for the claim
    others      everywhere else
    version_1   the word that stood for the claim under version 1; "" where its rows are not among these
    """

    headline: Judged
    controlled: Judged | None
    others: Sequence[Judged]
    version_1: str

    @property
    def all(self) -> list[Judged]:
        return [self.headline, *([self.controlled] if self.controlled else []), *self.others]


@dataclasses.dataclass(frozen=True)
class ArticleVerdicts:
    """The verdicts on an article's claims: `claims` in the order of its file, `everywhere` each claim in every group that can judge it."""

    article: Article
    claims: Sequence[Lines]
    everywhere: Sequence[Judged]

    def of_group(self, group: Group) -> list[Judged]:
        return [judged for judged in self.everywhere if judged.group is group]


def judge_group(group: Group, article: Article) -> list[Judged]:
    """Every claim in a group, for the number of new tokens it is about, else for each that was timed; [] for rows that cannot judge it."""
    if group.cannot_judge():
        return []
    asked = article.variants.get(group.key.variant, {}).get("runs", [])
    counts = group.new_tokens or [run["new_tokens"] for run in asked[:1]]
    asked_for = [(claim, count) for claim in article.claims for count in ([claim["new_tokens"]] if "new_tokens" in claim else counts)]
    return [Judged(claim, rules.judge(claim, group, article, count), group, count) for claim, count in asked_for]


def judge_article(groups: Sequence[Group], article: Article, version_1: Mapping[Place, Frozen] | None = None) -> ArticleVerdicts:
    """The verdicts of all groups, the words of version 1 beside them; raises KitError where the article's file makes a claim that cannot be judged."""
    rules.check(article)
    earlier = version_1 or {}
    judged = [one for group in groups for one in judge_group(group, article)]
    everywhere = [dataclasses.replace(one, version_1=_earlier_word(one, earlier), alike=_alike(one, judged)) for one in judged]
    claims, stacks = [], pins.load().stacks
    for claim in article.claims:
        of_claim = sorted((one for one in everywhere if one.claim["id"] == claim["id"]), key=lambda one: _distance(_stack(one), article.stack, stacks))
        claims.append(_lines(claim, of_claim, groups, earlier))
    return ArticleVerdicts(article, claims, everywhere)


def _lines(claim: Mapping[str, Any], of_claim: Sequence[Judged], groups: Sequence[Group], earlier: Mapping[Place, Frozen]) -> Lines:
    published = [one for one in of_claim if one.group and one.group.key.variant == PUBLISHED]
    nearest = [one for one in published if _stack(one) == _stack(published[0])]
    headline = _best(nearest) if nearest else Judged(claim, _untested(groups, bool(of_claim)))
    stack = _stack(headline) if headline.group else _stack(of_claim[0]) if of_claim else ""
    second = [one for one in of_claim if _is_controlled(one) and _stack(one) == stack and any(part.has_rows for part in one.verdict.parts)]
    controlled = _best([one for one in second if _is_twin(one, headline)] or second) if second else None
    others = [one for one in of_claim if one is not headline and one is not controlled]
    words = [found.word for one in of_claim if (found := earlier.get(_place(one))) and found.headline]
    return Lines(headline, controlled, others, words[0] if words else "")


def _distance(stack: str, of_article: str, stacks: Mapping[str, Mapping[str, Any]]) -> int:
    """How far a stack's libraries are from the article's: its own stack, that stack's port to newer GPUs, all others (in the order of the groups)."""
    if stack == of_article:
        return 0
    return 1 if stacks.get(stack, {}).get("port_of") == of_article else 2


def _stack(one: Judged) -> str:
    return one.group.key.stack if one.group else ""


def _best(lines: Sequence[Judged]) -> Judged:
    """Of equally near settings the first that tested the claim, else a part of it, else whose weights may judge, else with most rows; on most GPUs."""

    def rank(one: Judged) -> tuple[bool, bool, bool, int, int]:
        able = one.group is not None and any(row.recipe >= lookup.LEAST_RECIPE for row in one.group.rows)
        return (
            one.verdict.word == NOT_TESTED,
            not one.verdict.some_part_was_judged,
            not able,
            sum(not part.has_rows for part in one.verdict.parts),
            one.verdict.fewer,
        )

    return min(lines, key=rank)


def _is_twin(one: Judged, other: Judged) -> bool:
    """Are the two of one setting but for the variant?"""
    if one.group is None or other.group is None:
        return False
    return dataclasses.replace(one.group.key, variant="") == dataclasses.replace(other.group.key, variant="") and one.new_tokens == other.new_tokens


def _alike(one: Judged, judged: Sequence[Judged]) -> list[Part]:
    """Where rows of the published variant differ in more than the system: the same parts where rows of the controlled variant do not."""
    if one.group is None or one.group.key.variant != PUBLISHED or not any(part.differs for part in one.verdict.parts):
        return []
    twins = [other for other in judged if other.claim is one.claim and _is_controlled(other) and _is_twin(other, one)]
    pairs = [pair for twin in twins for pair in zip(one.verdict.parts, twin.verdict.parts, strict=True)]
    return [there for here, there in pairs if here.differs and there.ratio and not there.differs]


def _is_controlled(one: Judged) -> bool:
    return one.group is not None and one.group.key.variant == CONTROLLED


def _place(one: Judged) -> Place:
    return one.claim["id"], one.group.slug if one.group else "", one.new_tokens


def _earlier_word(one: Judged, earlier: Mapping[Place, Frozen]) -> str:
    found = earlier.get(_place(one))
    return found.word if found else ""


def _untested(groups: Sequence[Group], elsewhere: bool) -> Verdict:
    if elsewhere:
        return Verdict(NOT_TESTED, f"the variant {PUBLISHED} was not run here")
    reasons = sorted({group.cannot_judge() for group in groups})
    return Verdict(NOT_TESTED, f"so far only: {', '.join(reasons)}" if reasons else "nothing was run here")
