"""The verdicts on claims by A and by B of make compare, side by side, as the report on each side has them."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scripts.articles import Article
from scripts.errors import KitError
from scripts.report import cells, tables
from scripts.report.text import Markdown, plain
from scripts.report.views import claims
from scripts.results import Record
from scripts.verdicts import judging, row_groups
from scripts.verdicts.judging import Judged, Lines
from scripts.verdicts.parts import NOT_TESTED
from scripts.verdicts.row_groups import Group


@dataclass(frozen=True)
class Pair:
    """The verdicts of A and B on a claim, which is named with its article."""

    claim: str
    a: Judged
    b: Judged

    @property
    def measured_on(self) -> str:
        first, second = _setting(self.a), _setting(self.b)
        return first if first == second else f"A: {first}; B: {second}"


def pairs(a: Sequence[Group], b: Sequence[Group], known: Mapping[str, Article]) -> list[Pair]:
    """Each claim that at least one side tested, and for which both sides have rows that are not the same runs.

    B's verdict is the first of its report. A's verdict is the one in the same setting, for as many new tokens, where A has rows there, else A's first.
    """
    of_a, of_b = _claims(a, known), _claims(b, known)
    found = [Pair(name, _nearest(of_a[name], lines.headline), lines.headline) for name, lines in of_b.items() if name in of_a]
    run = [pair for pair in found if pair.a.verdict.was_run and pair.b.verdict.was_run and _runs(pair.a) != _runs(pair.b)]
    return [pair for pair in run if {pair.a.verdict.word, pair.b.verdict.word} != {NOT_TESTED}]


def table(found: Sequence[Pair]) -> Markdown:
    columns = [
        tables.Column[Pair]("claim", lambda pair: pair.claim),
        tables.Column[Pair]("verdict by A", lambda pair: _word(pair.a)),
        tables.Column[Pair]("verdict by B", lambda pair: _word(pair.b)),
        tables.Column[Pair]("measured on", lambda pair: pair.measured_on),
    ]
    return tables.aligned(columns, found) if found else Markdown()


def _claims(groups: Sequence[Group], known: Mapping[str, Article]) -> dict[str, Lines]:
    """{article and claim: its verdicts}; an article with a claim that cannot be judged is left out, with a note."""
    found: dict[str, Lines] = {}
    for slug in dict.fromkeys(group.key.article for group in groups if group.key.article in known):
        try:
            judged = judging.judge_article([group for group in groups if group.key.article == slug], known[slug])
        except KitError as error:
            print(f"note: {plain(error)}; its verdicts are not compared", file=sys.stderr)
            continue
        found |= {f"{slug} {lines.headline.claim['id']}": lines for lines in judged.claims}
    return found


def _word(judged: Judged) -> Markdown:
    """ "**holds in part**: faster: holds; 3.83 times: refuted": the parts follow where their words differ, because A and B may hold in different parts."""
    parts = judged.verdict.parts if judged.verdict.parts_differ else []
    told = Markdown.escape("; ".join(f"{part.name}: {part.word}" for part in parts))
    return Markdown(": ").join(filter(None, [claims.word(judged), told]))


def _nearest(lines: Lines, other: Judged) -> Judged:
    alike = (one for one in lines.all if _place(one) == _place(other) and one.verdict.was_run)
    return next(alike, lines.headline)


def _place(judged: Judged) -> tuple[object, int]:
    return judged.group and judged.group.key, judged.new_tokens


def _runs(judged: Judged) -> list[Record]:
    return row_groups.runs_of([judged.group] if judged.group else [])


def _setting(judged: Judged) -> str:
    return f"{judged.group.heading}, {cells.tokens(judged.new_tokens)}" if judged.group else cells.NONE
