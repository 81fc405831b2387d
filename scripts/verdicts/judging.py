"""Which claims hold where: every claim of an article in every group of rows that may judge it. A report judges once and passes the verdicts on."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from scripts import pins
from scripts.articles import PUBLISHED, Article
from scripts.verdicts import lookup, rules
from scripts.verdicts.parts import NOT_TESTED, Part
from scripts.verdicts.row_groups import Group
from scripts.verdicts.rules import Verdict
from scripts.verdicts.version_1 import Frozen, Place

CONTROLLED = "controlled"


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim's verdict in one group, for calls of so many new tokens; `group` is None where nothing could judge.

    version_1  the word of version 1 of the rules on the same rows; "" where it never judged them
    alike      the same parts in the controlled variant, of rows that differ in nothing but the system
    is_alone   whether the variant judges the claim in place of the published one, which lacks a case of the claim
    """

    claim: Mapping[str, Any]
    verdict: Verdict
    group: Group | None = None
    new_tokens: int = 0
    version_1: str = ""
    alike: Sequence[Part] = ()
    is_alone: bool = False

    @property
    def stack(self) -> str:
        return self.group.key.stack if self.group else ""

    @property
    def is_controlled(self) -> bool:
        return self.group is not None and self.group.key.variant == CONTROLLED

    @property
    def place(self) -> Place:
        return self.claim["id"], self.group.slug if self.group else "", self.new_tokens

    def is_twin_of(self, verdict: "Judged") -> bool:
        """Do the two verdicts differ in their settings by the variant alone?"""
        if self.group is None or verdict.group is None or self.new_tokens != verdict.new_tokens:
            return False
        return dataclasses.replace(self.group.key, variant="") == dataclasses.replace(verdict.group.key, variant="")


@dataclasses.dataclass(frozen=True)
class Lines:
    """The verdicts on one claim.

    headline    in the variant that judges the claim, mostly the published one, on the stack that is nearest to the article's libraries
    controlled  the second line: in the controlled variant on that stack; None where it has no rows for the claim, or is the headline
    others      everywhere else
    version_1   the word that stood for the claim under version 1; "" where its rows are neither among these nor in the report beside
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
    """Every claim in a group, for the number of new tokens it is about, else for each that was timed; [] for a group that cannot judge."""
    if group.cannot_judge():
        return []
    variant = group.key.variant
    first_runs = article.variants.get(variant, {}).get("runs", [])[:1]
    timed_tokens = group.new_tokens or [run["new_tokens"] for run in first_runs]
    judged = []
    for claim in article.claims:
        is_alone = variant != PUBLISHED and variant in article.judging_variants(claim["id"])
        for count in [claim["new_tokens"]] if "new_tokens" in claim else timed_tokens:
            judged.append(Judged(claim, rules.judge(claim, group, article, count), group, count, is_alone=is_alone))
    return judged


def judge_article(groups: Sequence[Group], article: Article, version_1: Mapping[Place, Frozen] | None = None, beside: Collection[str] = ()) -> ArticleVerdicts:
    """The verdicts of all groups, the words of version 1 beside them; raises KitError where the article's file makes a claim that cannot be judged.

    `beside` names groups that another report shows: a word of version 1 on their rows stands for its claim too.
    """
    rules.check(article)
    earlier = version_1 or {}
    verdicts = [judged for group in groups for judged in judge_group(group, article)]
    words = {place: frozen.word for place, frozen in earlier.items()}
    controlled = [judged for judged in verdicts if judged.is_controlled]
    everywhere = [dataclasses.replace(judged, version_1=words.get(judged.place, ""), alike=_alike(judged, controlled)) for judged in verdicts]
    claims, stacks = [], pins.load().stacks
    for claim in article.claims:
        of_claim = sorted((judged for judged in everywhere if judged.claim["id"] == claim["id"]), key=lambda judged: _distance(judged.stack, article, stacks))
        judging = article.judging_variants(claim["id"]) or [PUBLISHED]
        claims.append(_lines(claim, judging, of_claim, groups, _former_word(claim, of_claim, earlier, beside)))
    return ArticleVerdicts(article, claims, everywhere)


def _lines(claim: Mapping[str, Any], judging: Sequence[str], of_claim: Sequence[Judged], groups: Sequence[Group], version_1: str) -> Lines:
    able = [judged for judged in of_claim if judged.group and judged.group.key.variant in judging]
    nearest = [judged for judged in able if judged.stack == able[0].stack]
    headline = _best(nearest) if nearest else Judged(claim, _untested(groups, judging if of_claim else ()))
    stack = headline.stack or (of_claim[0].stack if of_claim else "")
    second = [judged for judged in of_claim if judged.is_controlled and not judged.is_alone and judged.stack == stack and judged.verdict.has_rows]
    controlled = _best([judged for judged in second if judged.is_twin_of(headline)] or second) if second else None
    others = [judged for judged in of_claim if judged is not headline and judged is not controlled]
    return Lines(headline, controlled, others, version_1)


def _former_word(claim: Mapping[str, Any], of_claim: Sequence[Judged], earlier: Mapping[Place, Frozen], beside: Collection[str]) -> str:
    """The word that stood for a claim under version 1. A group's name begins with its article, so another article's claim with this id does not match."""
    groups = {judged.group.slug for judged in of_claim if judged.group} | {*beside}
    of_headline = (frozen for frozen in earlier.values() if frozen.headline and frozen.claim == claim["id"] and frozen.group in groups)
    return next((frozen.word for frozen in of_headline), "")


def _distance(stack: str, article: Article, stacks: Mapping[str, Mapping[str, Any]]) -> int:
    """How far a stack's libraries are from the article's: its own stack, that stack's port to newer GPUs, all others (in the order of the groups)."""
    if stack == article.stack:
        return 0
    return 1 if stacks.get(stack, {}).get("port_of") == article.stack else 2


def _best(verdicts: Sequence[Judged]) -> Judged:
    """The best of equally near settings, by this order: it tested the claim, it tested a part, its weights may judge, it has most rows, it ran on most GPUs.

    Rows that cannot judge count too: “its output is wrong” tells more than “it was not run”.
    """

    def rank(judged: Judged) -> tuple[bool, bool, bool, int, int, int]:
        verdict, rows = judged.verdict, judged.group.rows if judged.group else ()
        able = any(lookup.weights_can_judge(row) for row in rows)
        without_rows = sum(not part.has_rows for part in verdict.parts)
        return verdict.word == NOT_TESTED, not verdict.some_part_was_judged, not able, without_rows, verdict.not_run, verdict.fewer

    return min(verdicts, key=rank)


def _alike(judged: Judged, controlled: Sequence[Judged]) -> list[Part]:
    """For parts whose rows in the published variant differ in more than the system: the same parts in the controlled variant, if its rows do not."""
    if judged.group is None or judged.group.key.variant != PUBLISHED:
        return []
    twins = [twin for twin in controlled if twin.claim is judged.claim and twin.is_twin_of(judged)]
    pairs = [pair for twin in twins for pair in zip(judged.verdict.parts, twin.verdict.parts, strict=True)]
    return [same for published, same in pairs if published.differs and same.ratio and not same.differs]


def _untested(groups: Sequence[Group], judging: Sequence[str]) -> Verdict:
    """The verdict without a group that may judge; `judging` are the variants that would judge, where only other variants have verdicts."""
    if judging:
        return Verdict(NOT_TESTED, f"the variant {' or '.join(judging)} was not run at full size on a GPU")
    reasons = sorted({group.cannot_judge() for group in groups})
    return Verdict(NOT_TESTED, f"so far only: {', '.join(reasons)}" if reasons else "nothing was run yet")
