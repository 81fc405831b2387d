"""The claims of an article as tables: verdicts for the report's first page and for each group, speed-ups beside published ones."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from scripts import stats
from scripts.articles import Article
from scripts.report import tables
from scripts.verdicts import rules, time_relations
from scripts.verdicts.findings import NOT_TESTED, REPRODUCED, Rows
from scripts.verdicts.row_groups import ENGINES, Group
from scripts.verdicts.rules import Verdict


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim's verdict in one group, for calls of so many new tokens; `group` is None where nothing could judge."""

    claim: dict
    verdict: Verdict
    group: Group | None = None
    new_tokens: int = 0


def judge_group(group: Group, article: Article) -> list[Judged]:
    """Every claim in a group, for the number of new tokens it is about, else for each that was timed; [] for rows that cannot judge it."""
    if group.cannot_judge():
        return []
    rows = rules.rows_by_case(group, article)
    asked = article.variants.get(group.key.variant, {}).get("runs", [])
    counts = tables.tokens_of(group) or [run["new_tokens"] for run in asked[:1]]
    asked_for = [(claim, count) for claim in article.claims for count in ([claim["new_tokens"]] if "new_tokens" in claim else counts)]
    return [Judged(claim, rules.judge(claim, rows, count), group, count) for claim, count in asked_for]


def judge_article(groups: Sequence[Group], article: Article) -> list[Judged]:
    """The verdicts of all groups, claim by claim. A claim that no group tested in full has the lines of those that tested
    a part of it, or one line that says why there is none."""
    everywhere = [judged for group in groups for judged in judge_group(group, article)]
    lines = []
    for claim in article.claims:
        mine = [judged for judged in everywhere if judged.claim["id"] == claim["id"]]
        tested = [judged for judged in mine if judged.verdict.word != NOT_TESTED]
        lines += tested or [judged for judged in mine if judged.verdict.holding] or mine[:1] or [Judged(claim, _untested(groups))]
    return lines


def _untested(groups: Sequence[Group]) -> Verdict:
    reasons = sorted({group.cannot_judge() for group in groups})
    return Verdict(NOT_TESTED, f"so far only: {', '.join(reasons)}")


def _word(verdict: Verdict) -> str:
    return f"**{verdict.word}**" if verdict.word != NOT_TESTED else verdict.word


def _setting(judged: Judged) -> str:
    if judged.group is None:
        return tables.NONE
    key = judged.group.key
    words = f"{key.device_words}, {key.stack}, {key.weights} weights, {ENGINES[key.engine]}, {key.variant}"
    return f"[{tables.text(words)}](#{judged.group.slug}), {tokens(judged.new_tokens)}"


def tokens(count: int) -> str:
    return f"{count} new token{'s' * (count != 1)}"


def by_claim(lines: Sequence[Judged]) -> list[list[Judged]]:
    """The verdicts on each claim, the one in the setting nearest to the article's first."""
    return [list(mine) for _, mine in itertools.groupby(lines, key=lambda judged: judged.claim["id"])]


def for_terminal(lines: Sequence[Judged]) -> list[str]:
    """A line a claim for the terminal."""
    return [f"{nearest.claim['id']} {nearest.verdict.word}: {nearest.claim['text']}" for nearest, *_ in by_claim(lines)]


def _elsewhere(others: Sequence[Judged], article: Article) -> str:
    """In how many of the settings further from the article's a claim is reproduced."""
    good = sum(judged.verdict.word == REPRODUCED for judged in others)
    return f"[reproduced in {good} of {len(others)}](#verdicts-{article.slug})" if others else tables.NONE


def in_short(lines: Sequence[Judged], article: Article) -> list[str]:
    """The claims that the article's file calls its headlines, a sentence each, and what qualifies them."""
    told = []
    for nearest, *others in by_claim(lines):
        if nearest.claim.get("headline"):
            where = f", on {_setting(nearest)}" if nearest.group else ""
            elsewhere = f"; in other settings {_elsewhere(others, article)}" if others else ""
            told.append(f"- {tables.prose(nearest.claim['text'])} {_word(nearest.verdict)}: {tables.text(nearest.verdict.reason)}{where}{elsewhere}.")
    return [*told, *([f"- {tables.prose(article.caveat)}"] if told and article.caveat else [])]


def first_page(lines: Sequence[Judged], article: Article) -> list[str]:
    """One line a claim: its verdict in the setting nearest to the article's, and in how many of the other settings it is reproduced."""
    rows = []
    for nearest, *others in by_claim(lines):
        title = f"{nearest.claim['id']} {tables.prose(nearest.claim['text'])}"
        rows.append([title, _word(nearest.verdict), tables.text(nearest.verdict.reason), _setting(nearest), _elsewhere(others, article)])
    headers = ["claim", "verdict", "the number behind it", "measured on, nearest to the article", "other settings"]
    return tables.table(headers, rows, left=5) if rows else []


def everywhere(lines: Sequence[Judged], article: Article) -> list[str]:
    """Every claim in every setting that tested it, where one line a claim does not tell all."""
    if len(lines) <= len(article.claims):
        return []
    rows, told = [], ""
    for judged in lines:
        name = judged.claim["id"]
        claim = name if name == told else f"{name} {tables.prose(judged.claim['text'])}"
        told = name
        rows.append([claim, _word(judged.verdict), tables.text(judged.verdict.reason), _setting(judged)])
    return tables.table(["claim", "verdict", "the number behind it", "measured on"], rows, left=4)


def of_group(group: Group, article: Article) -> list[str]:
    """Claim, new tokens, verdict and number within one group, those not tested included."""
    rows = [
        [f"{judged.claim['id']} {tables.prose(judged.claim['text'])}", tokens(judged.new_tokens), _word(judged.verdict), tables.text(judged.verdict.reason)]
        for judged in judge_group(group, article)
    ]
    return tables.table(["claim", "for", "verdict", "the number behind it"], rows, left=4) if rows else []


def speed_ups(group: Group, article: Article) -> list[str]:
    """The speed-ups that the article gives or that its numbers imply, published beside measured."""
    rows_by_case = rules.rows_by_case(group, article)
    pairs = {}
    for claim in article.claims:
        for relation in claim["relations"]:
            if "faster" in relation:
                pairs.setdefault((relation["faster"], relation["slower"], relation.get("batch_size")), (relation, claim))
    counts = tables.tokens_of(group)
    rows = []
    for (faster, slower, batch_size), (relation, claim) in pairs.items():
        cells = [_ratio_cell(relation, claim, rows_by_case, count) for count in counts]
        published = f"{relation['ratio']:.2f}" if "ratio" in relation else tables.NONE
        rows.append([f"{tables.text(faster)} over {tables.text(slower)}" + (f", batch {batch_size}" if batch_size else ""), published, *cells])
    headers = ["how many times as fast", "published", *[f"measured, {tokens(count)} (95 % interval)" for count in counts]]
    return tables.table(headers, rows) if rows and counts else []


def _ratio_cell(relation: Mapping, claim: Mapping, rows: Rows, new_tokens: int) -> str:
    """The ratio for calls of so many new tokens; a dash where the claim is about others."""
    if claim.get("new_tokens") not in (None, new_tokens):
        return tables.NONE
    devices = time_relations.common_count(rows, claim["relations"], new_tokens)
    finding = time_relations.judge_speed(relation, rows, new_tokens, devices)
    return NOT_TESTED if finding.ratio is None else stats.in_words(finding.ratio, least=2)
