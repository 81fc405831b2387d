"""The report's first screen: how many claims hold, all claims in one picture and one table, what qualifies them."""

import collections
from collections.abc import Mapping, Sequence

from scripts.report.cells import NONE
from scripts.report.plots import all_claims
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks, lines, link, prose
from scripts.report.views import claims
from scripts.results import Record, rules_version
from scripts.verdicts.judging import ArticleVerdicts, Judged, Lines
from scripts.verdicts.parts import Part

#: The picture's name below plots/.
PICTURE = "claims"


def section(verdicts: Mapping[str, ArticleVerdicts], records: Sequence[Record], pictured: bool) -> Markdown:
    """Counts, picture, table and what qualifies them; "" where no row may judge a claim. `pictured`: there is a picture to show."""
    chosen = _claims(verdicts)
    if not any(claim.headline.group for claim in chosen):
        return Markdown()
    reason = claims.common_reason([claim.headline for claim in chosen])
    picture = Markdown(f"![Every claim: the published ratio and the measured one](plots/{PICTURE}.svg)") if pictured else Markdown()
    caveats = [Markdown("- {}").format(prose(of_article.article.caveat)) for of_article in verdicts.values() if of_article.article.caveat]
    return blocks(_counts(chosen), picture, table(_columns(verdicts), chosen), claims.said_once(reason), lines(_measured_how(records), *caveats))


def picture(verdicts: Mapping[str, ArticleVerdicts]) -> str | None:
    """All claims as SVG; None where none has a ratio."""
    return all_claims.plot([_line(claim.headline) for claim in _claims(verdicts)])


def verdict(judged: Judged) -> Markdown:
    """The word; of a claim of several parts that came out differently each part's."""
    parts = judged.verdict.parts
    apart = [f"({claims.in_short(parts)})"] if len({part.word for part in parts}) > 1 else []
    return Markdown(" ").join([claims.word(judged), *apart])


def ratio(judged: Judged) -> tuple[float, str, Part] | None:
    """(published, the case that it is over, the part about it) of the first part that a ratio was measured for, else of the first with a published one."""
    pairs = [(published, part) for relation, parts in judged.verdict.judged for part in parts if (published := relation.published(part))]
    of_part = next((pair for pair in pairs if pair[1].ratio), pairs[0] if pairs else None)
    return (*of_part[0], of_part[1]) if of_part else None


def _published(claim: Lines) -> str:
    numbers = ratio(claim.headline)
    return f"{numbers[0]:g} × {numbers[1]}" if numbers else NONE


PUBLISHED: Column[Lines] = Column("published", _published, words=True)


def _claims(verdicts: Mapping[str, ArticleVerdicts]) -> list[Lines]:
    return [claim for of_article in verdicts.values() for claim in of_article.claims]


def _counts(chosen: Sequence[Lines]) -> Markdown:
    """ "**2** holds · **1** undecided · …: 15 claims by version 2 of the rules"."""
    count = collections.Counter(claim.headline.verdict.word for claim in chosen)
    words = Markdown(" · ").join(Markdown("**{}** {}").format(count[word], word) for word in all_claims.MARKS)
    return Markdown("{}, of {} claims by version {} of the rules (docs/verdict-rules.md).").format(words, len(chosen), rules_version.VERSION)


def _columns(verdicts: Mapping[str, ArticleVerdicts]) -> list[Column[Lines]]:
    slugs = {id(claim): slug for slug, of_article in verdicts.items() for claim in of_article.claims}

    def measured(claim: Lines) -> str:
        numbers = ratio(claim.headline)
        return (numbers[2].number if numbers else "") or NONE

    return [
        Column(
            "claim",
            lambda claim: link(claim.headline.claim["id"], f"#claims-{slugs[id(claim)]}") + Markdown(" ") + prose(claim.headline.claim["text"]),
            words=True,
        ),
        Column("verdict", lambda claim: claims.word(claim.headline), words=True),
        PUBLISHED,
        Column("measured (95 % interval)", measured, words=True),
        Column("version 1, on its rows", lambda claim: claim.version_1 or NONE, words=True, when=any(claim.version_1 for claim in _claims(verdicts))),
    ]


def _line(judged: Judged) -> all_claims.Line:
    numbers = ratio(judged)
    title = f"{judged.claim['id']} {judged.claim['text']}"
    return all_claims.Line(title, judged.verdict.word, numbers[0] if numbers else None, numbers[2].ratio if numbers else None)


def _measured_how(records: Sequence[Record]) -> Markdown:
    """Which part of the results came from the pinned images, on which devices."""
    devices = sorted({gpu["name"] for record in records for gpu in record.host.get("gpus") or []}) or ["CPU"]
    contained = sum(record.host.get("engine") == "docker" for record in records)
    weights = sorted({record.job.model["weights"] for record in records})
    words = Markdown("- {} of {} results come from containers of the pinned images. Devices: {}. Weights: {}. Limits: docs/limits.md.")
    return words.format(contained, len(records), ", ".join(devices), ", ".join(weights))
