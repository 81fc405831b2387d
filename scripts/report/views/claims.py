"""The claims of an article as tables: verdicts for the report's first page and for each group, speed-ups beside published ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, lines, link, prose
from scripts.verdicts.findings import NOT_TESTED, REPRODUCED
from scripts.verdicts.judging import ArticleVerdicts, Judged
from scripts.verdicts.relations.speed import Speed
from scripts.verdicts.row_groups import Group
from scripts.verdicts.rules import Verdict


def word(verdict: Verdict) -> Markdown:
    return Markdown("**{}**" if verdict.word != NOT_TESTED else "{}").format(verdict.word)


def title(judged: Judged) -> Markdown:
    return Markdown(f"{judged.claim['id']} ") + prose(judged.claim["text"])


def setting(judged: Judged) -> Markdown:
    if judged.group is None:
        return Markdown(NONE)
    key = judged.group.key
    words = f"{key.device_words}, {key.stack}, {key.weights} weights, {key.engine_words}, {key.variant}"
    return link(words, f"#{judged.group.slug}") + f", {cells.tokens(judged.new_tokens)}"


def elsewhere(others: Sequence[Judged], slug: str) -> Markdown:
    """In how many of the settings further from the article's a claim is reproduced."""
    good = sum(judged.verdict.word == REPRODUCED for judged in others)
    return link(f"reproduced in {good} of {len(others)}", f"#verdicts-{slug}") if others else Markdown(NONE)


def for_terminal(verdicts: ArticleVerdicts) -> list[str]:
    """A line a claim for the terminal."""
    return [f"{nearest.claim['id']} {nearest.verdict.word}: {nearest.claim['text']}" for nearest, *_ in verdicts.by_claim()]


def in_short(verdicts: ArticleVerdicts) -> Markdown:
    """The claims that the article's file calls its headlines, a sentence each, and what qualifies them."""
    headlines = []
    for nearest, *others in verdicts.by_claim():
        if nearest.claim.get("headline"):
            where = Markdown(", on {}").format(setting(nearest)) if nearest.group else ""
            further = Markdown("; in other settings {}").format(elsewhere(others, verdicts.article.slug)) if others else ""
            claim, verdict = prose(nearest.claim["text"]), nearest.verdict
            headlines.append(Markdown("- {} {}: {}{}{}.").format(claim, word(verdict), verdict.reason, where, further))
    if headlines and verdicts.article.caveat:
        headlines.append(Markdown("- {}").format(prose(verdicts.article.caveat)))
    return lines(*headlines)


CLAIM: Column[Judged] = Column("claim", title, words=True)
VERDICT: Column[Judged] = Column("verdict", lambda judged: word(judged.verdict), words=True)
NUMBER: Column[Judged] = Column("the number behind it", lambda judged: judged.verdict.reason, words=True)


def first_page(verdicts: ArticleVerdicts) -> Markdown:
    """One line a claim: its verdict in the setting nearest to the article's, and in how many of the other settings it is reproduced."""
    others = {nearest.claim["id"]: further for nearest, *further in verdicts.by_claim()}
    columns = [
        *(CLAIM, VERDICT, NUMBER),
        Column("measured on, nearest to the article", setting, words=True),
        Column("other settings", lambda judged: elsewhere(others[judged.claim["id"]], verdicts.article.slug), words=True),
    ]
    return table(columns, [nearest for nearest, *_ in verdicts.by_claim()])


def everywhere(verdicts: ArticleVerdicts) -> Markdown:
    """Every claim in every setting that tested it, where one line a claim does not tell all."""
    if len(verdicts.lines) <= len(verdicts.article.claims):
        return Markdown()
    nearest = {id(judged) for judged, *_ in verdicts.by_claim()}
    claim = Column[Judged]("claim", lambda judged: title(judged) if id(judged) in nearest else judged.claim["id"], words=True)
    return table([claim, VERDICT, NUMBER, Column("measured on", setting, words=True)], verdicts.lines)


def of_group(judged: Sequence[Judged]) -> Markdown:
    """Claim, new tokens, verdict and number within one group, those not tested included."""
    calls = Column[Judged]("for", lambda line: cells.tokens(line.new_tokens), words=True)
    return table([CLAIM, calls, VERDICT, NUMBER], judged)


@dataclass(frozen=True)
class SpeedUp:
    """A relation of two times, and its claim's verdicts within one group."""

    relation: Speed
    judged: Sequence[Judged]

    @property
    def words(self) -> str:
        batch = f", batch {self.relation.batch_size}" if self.relation.batch_size else ""
        return f"{self.relation.faster} over {self.relation.slower}{batch}"

    def measured(self, new_tokens: int) -> str:
        """The ratio for calls of so many new tokens; a dash where the claim is about others."""
        for judged in self.judged:
            if judged.new_tokens == new_tokens:
                finding = next(finding for relation, finding in judged.verdict.findings if relation == self.relation)
                return NOT_TESTED if finding.ratio is None else stats.in_words(finding.ratio, least=2)
        return NONE


def speed_ups(group: Group, judged: Sequence[Judged]) -> Markdown:
    """The speed-ups that the article gives or that its numbers imply, published beside measured."""

    def measured(new_tokens: int) -> Column[SpeedUp]:
        return Column(f"measured, {cells.tokens(new_tokens)} (95 % interval)", lambda speed_up: speed_up.measured(new_tokens))

    columns = [
        Column[SpeedUp]("how many times as fast", lambda speed_up: speed_up.words, words=True),
        Column[SpeedUp]("published", lambda speed_up: cells.decimal(speed_up.relation.ratio, 2)),
        *(measured(count) for count in group.new_tokens),
    ]
    return table(columns, list(_speed_ups(judged)) if group.new_tokens else [])


def _speed_ups(judged: Sequence[Judged]) -> Iterator[SpeedUp]:
    """Each pair of cases in a batch size once, as the first claim that names it has it."""
    seen = set()
    for first in judged:
        for relation, _ in first.verdict.findings:
            if isinstance(relation, Speed) and (pair := (relation.faster, relation.slower, relation.batch_size)) not in seen:
                seen.add(pair)
                yield SpeedUp(relation, [other for other in judged if other.claim is first.claim])
