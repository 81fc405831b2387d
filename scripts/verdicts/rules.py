"""The rule that turns a claim of an article into a verdict.

A claim is a list of relations between cases (bench/articles/*.toml); it is judged within one group of rows, for one number of new tokens.
Each kind of relation is a class of scripts/verdicts/relations. One not reproduced relation makes the claim not reproduced, else one not
tested relation makes it not tested.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.articles import Article
from scripts.errors import KitError
from scripts.verdicts import relations
from scripts.verdicts.findings import NOT_REPRODUCED, NOT_TESTED, REPRODUCED, Finding, Rows, barest
from scripts.verdicts.relations import Relation, pairs
from scripts.verdicts.row_groups import Group, Place, Row


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`holding`: how many of the claim's relations were reproduced; `findings`: each relation with what it came to."""

    word: str
    reason: str
    holding: int = 0
    findings: Sequence[tuple[Relation, Finding]] = dataclasses.field(default=(), compare=False, repr=False)


def rows_by_case(group: Group, article: Article) -> Rows:
    """The row of each of the article's cases on the article's number of devices, or why there is none.

    Where a case was run in several batch sizes its name stands for the smallest, and "batch b8" for one of them; (case, batch
    size, devices) is each row that there is, whatever its number of devices.
    """
    gpus = {case.name: case.gpus for case in article.cases}
    rows: dict[str | Place, Row | str] = {row.place: row for row in group.rows}
    rows |= {row.name: row for row in group.rows if row.count == gpus.get(row.case)}
    return rows | {name: group.row_of(name, count) for name, count in gpus.items()}


def check(article: Article) -> None:
    """Raise KitError where a claim's relation is of no kind, has a wrong key or names a case that the article does not have."""
    for claim in article.claims:
        for table in claim["relations"]:
            try:
                unknown = [name for name in relations.of(table).cases() if not article.case(name)]
            except KitError as error:
                raise KitError(f"{article.slug}.toml: claim {claim['id']}: {error}") from error
            if unknown:
                known = ", ".join(sorted(case.name for case in article.cases))
                raise KitError(f"{article.slug}.toml: claim {claim['id']} names the case {unknown[0]!r}, known are {known}")


def judge(claim: Mapping[str, Any], rows: Rows, new_tokens: int) -> Verdict:
    """The Verdict on a claim with the one number behind it: the relation that decides, or the one that holds most barely."""
    related = [relations.of(table) for table in claim["relations"]]
    count = pairs.common_count(rows, related, new_tokens)
    findings = [relation.judge(rows, new_tokens, count) for relation in related]
    judged = list(zip(related, findings, strict=True))
    holding = [finding for finding in findings if finding.word == REPRODUCED]
    for word in (NOT_REPRODUCED, NOT_TESTED):
        against = [finding for finding in findings if finding.word == word]
        if against:
            return Verdict(word, against[0].reason + _rest(holding, len(findings)), len(holding), judged)
    parts = "both" if len(holding) == 2 else f"all {len(holding)}"
    closest = f"{parts} parts hold, the closest: " if len(holding) > 1 else ""
    return Verdict(REPRODUCED, closest + barest(holding).reason, len(holding), judged)


def _rest(holding: list[Finding], total: int) -> str:
    """How a claim's other parts fared: "; 3 of its 4 parts hold, the closest: …"."""
    if not holding:
        return ""
    hold = "holds" if len(holding) == 1 else "hold, the closest"
    return f"; {len(holding)} of its {total} parts {hold}: {barest(holding).reason}"
