"""The rule that turns a claim of an article into a verdict: versions 2 and 3 of docs/verdict-rules.md.

A claim is a list of relations between cases (bench/articles/*.toml), each of which makes a part or two; it is judged within one group of rows,
for one number of new tokens. Each kind of relation is a class of scripts/verdicts/relations.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from scripts import articles
from scripts.articles import Article
from scripts.errors import KitError
from scripts.verdicts import lacking, lookup, parts, relations
from scripts.verdicts.lacking import Lacking
from scripts.verdicts.lookup import Rows
from scripts.verdicts.parts import NOT_TESTED, Part
from scripts.verdicts.relations import Relation
from scripts.verdicts.row import gpus
from scripts.verdicts.row_groups import Group


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The word on a claim, and its parts.

    reason      why there are no parts
    most        on how many GPUs at most its rows ran
    in_article  on how many the article's did
    not_run     how many of the rows that the claim names are missing
    lacking     what has to be typed for runs that would test what is not tested yet; None where more runs would test nothing
    judged      each relation with its parts
    """

    word: str
    reason: str = ""
    most: int = 0
    in_article: int = 0
    not_run: int = 0
    lacking: Lacking | None = None
    judged: Sequence[tuple[Relation, Sequence[Part]]] = dataclasses.field(default=(), repr=False)

    @property
    def gpus(self) -> str:
        """On how many GPUs it was judged where that is not the article's number: "on 1 GPU (the article: 8)"."""
        return f"on {gpus(self.most)} (the article: {self.in_article})" if self.most != self.in_article else ""

    @property
    def fewer(self) -> int:
        """How many GPUs fewer than in the article."""
        return self.in_article - self.most

    @property
    def parts(self) -> list[Part]:
        return [part for _, of_relation in self.judged for part in of_relation]

    @property
    def parts_differ(self) -> bool:
        """Did the parts come out with different words?"""
        return len({part.word for part in self.parts}) > 1

    @property
    def has_rows(self) -> bool:
        """Are there rows for any of the parts, even with too few runs to judge it?"""
        return any(part.has_rows for part in self.parts)

    @property
    def was_run(self) -> bool:
        """Are there rows for a part, or for all of the claim, even with a wrong output?"""
        return self.has_rows or bool(self.judged and not self.not_run)

    @property
    def some_part_was_judged(self) -> bool:
        return any(part.word != NOT_TESTED for part in self.parts)


def check(article: Article) -> None:
    """Raise KitError where a claim's relation is of no kind or has a wrong key, or two of its parts have one name.

    scripts/articles has checked the cases that it names.
    """
    for claim in article.claims:
        where = f"bench/articles/{article.slug}.toml: claim {claim['id']}"
        try:
            named = [relation.part for relation in map(relations.of, claim["relations"]) if relation.part]
        except KitError as error:
            raise KitError(f"{where}: {error}") from error
        if twice := next((part for part in named if named.count(part) > 1), None):
            raise KitError(f"{where}: the part {twice!r} is there twice; give each part a name of its own")


def mistakes() -> dict[str, KitError]:
    """{slug: the error} of the articles whose files have a mistake, and of those whose claims cannot be judged."""
    known, found = articles.apart()
    for slug, article in known.items():
        try:
            check(article)
        except KitError as error:
            found[slug] = error
    return found


def judge(claim: Mapping[str, Any], group: Group, article: Article, new_tokens: int) -> Verdict:
    """The Verdict on a claim in a group of rows."""
    related = [relations.of(table) for table in claim["relations"]]
    named = list(dict.fromkeys(row for relation in related for row in relation.rows()))
    in_article, most = _devices(named, group, article, new_tokens)
    rows = Rows(group, article, new_tokens, most)
    judged = [(relation, relation.judge(rows)) for relation in related]
    word = parts.claim([part.word for _, of_relation in judged for part in of_relation])
    not_run = sum(not rows.has(*row) for row in named)
    return Verdict(word, most=most, in_article=in_article, not_run=not_run, lacking=lacking.of(judged, rows, in_article), judged=judged)


def _devices(named: Sequence[lookup.Named], group: Group, article: Article, new_tokens: int) -> tuple[int, int]:
    """(the article's number of devices for a claim that names these rows, on how many at most it is judged here)."""
    cases = [case for case, _ in named]
    in_article = max(case.gpus for case in article.cases if case.name in cases)
    if lookup.is_about_the_number(article, cases):
        return in_article, in_article
    return in_article, lookup.devices_for(group, article, named, new_tokens)
