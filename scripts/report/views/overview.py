"""The report's first screen: how many claims hold, all claims in one picture, the fastest systems, what qualifies them."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from scripts import stats
from scripts.report.cells import NONE
from scripts.report.plots import all_claims
from scripts.report.text import Markdown, blocks, lines, link, name_of, prose
from scripts.report.verdict_marks import SIGNS
from scripts.report.views import claims
from scripts.results import Record, rules_version
from scripts.units import counted
from scripts.verdicts.judging import ArticleVerdicts, Judged, Lines
from scripts.verdicts.parts import NOT_TESTED, Part
from scripts.verdicts.relations.base import PublishedRatio, Relation
from scripts.verdicts.rules import Verdict
from scripts.verdicts.run_facts import is_on_stand_in

#: An item of a list within a list: GitHub and the site's Markdown both take four spaces.
NESTED = Markdown("    - ")

HEADING = Markdown("## Did it hold?")

#: The picture's name below plots/.
PICTURE = "claims"


def section(verdicts: Mapping[str, ArticleVerdicts], pictured: bool, systems: Markdown, limits: Markdown) -> Markdown:
    """Counts and picture where a row may judge a claim; limits and the comparisons of systems, which need no claim; "" where there is neither.

    `pictured`: there is a picture.
    """
    chosen = every_claim(verdicts)
    claimed = any(claim.headline.group for claim in chosen)
    if not (claimed or systems):
        return Markdown()
    picture = Markdown(f"![Every claim: the published ratio and the measured one](plots/{PICTURE}.svg)") if pictured else Markdown()
    return blocks(*((HEADING, tally(chosen, "#method"), picture) if claimed else ()), limits, systems)


def claim_lines(verdicts: ArticleVerdicts) -> Markdown:
    """A line per claim of an article, with its verdict, the measured ratios and the published ones; a line per part below where the parts' words differ.
    A list and no table, for readers on a phone.
    """
    return blocks(_calls(verdicts), lines(*(_claim_line(claim, verdicts.article.slug) for claim in verdicts.claims)))


def in_brief(verdicts: ArticleVerdicts) -> ArticleVerdicts:
    """The same verdicts with only the doubts of each part beside its number: the article's page has all notes."""
    shortened = [dataclasses.replace(one, headline=_brief(one.headline), controlled=one.controlled and _brief(one.controlled)) for one in verdicts.claims]
    return dataclasses.replace(verdicts, claims=shortened)


def _brief(judged: Judged) -> Judged:
    parts = [(relation, [dataclasses.replace(part, notes=part.doubts) for part in of_relation]) for relation, of_relation in judged.verdict.judged]
    return dataclasses.replace(judged, verdict=dataclasses.replace(judged.verdict, judged=parts))


def _calls(verdicts: ArticleVerdicts) -> Markdown:
    """ "Judged by calls of 100 or 128 new tokens.": a call of one token is no generation."""
    counts = sorted({claim.headline.new_tokens for claim in verdicts.claims if claim.headline.verdict.has_rows})
    if not counts:
        return Markdown()
    beside = ": they time the prompt (prefill), not generation" if counts == [1] else ""
    return Markdown("Judged by calls of {} new token{}{}.").format(" or ".join(map(str, counts)), "s" * (counts != [1]), beside)


def _claim_line(claim: Lines, slug: str) -> Markdown:
    judged = claim.headline
    words = Markdown("- {} {} {} {}").format(
        SIGNS[judged.verdict.word], link(judged.claim["id"], f"#{name_of(claims.place_of(judged, slug))}"), prose(judged.claim["text"]), claims.word(judged)
    )
    one_gpu = f"on one GPU {judged.claim['on_one_gpu']}" if judged.claim.get("on_one_gpu") and judged.verdict.gpus.startswith("on 1 GPU ") else ""
    if judged.verdict.parts_differ and judged.verdict.word != NOT_TESTED:
        remark = [NESTED + one_gpu] if one_gpu else []
        return lines(words, *(NESTED + Markdown("{} {}").format(SIGNS[part.word], fact) for part, fact in _parts_apart(judged)), *remark)
    after = list(filter(None, (_why_not_tested(judged), *_facts(judged), one_gpu)))
    return lines(Markdown(": ").join([words, Markdown("; ").join(after)]) if after else words, *_second_line(claim))


def _second_line(claim: Lines) -> list[Markdown]:
    """The word of the variant controlled on an untested claim, and its setting. The word is no verdict, and only the article's page would have it else."""
    judged = claim.controlled
    if judged is None or claim.headline.verdict.word != NOT_TESTED or judged.verdict.word == NOT_TESTED:
        return []
    number = next((part.number for part in judged.verdict.parts if part.ratio), "")
    after = Markdown("; ").join([verdict(judged, number), *_facts(judged)])
    words = Markdown("{} in the variant controlled only, counted in no total: {}. Measured on {}")
    return [NESTED + words.format(SIGNS[judged.verdict.word], after, claims.setting(judged))]


def _facts(judged: Judged) -> list[str]:
    """ "deepspeed 4.9 (4.1 to 5.5) × layer-parallel, published 3.83", a fact for each published ratio, or for each measured one where the article
    gives none; with several published ratios each fact names its part.
    """
    found = {(one.published, one.part.number): one.part for one in _published_parts(judged)}
    named = len(found) > 1
    if not found:
        return [f"{part.cases[0]} {part.number} × {part.cases[1]}{claims.in_brackets(part)}" for part in judged.verdict.parts if part.ratio and part.cases]
    return [(f"{part.name}: " if named else "") + _fact(published, part) for (published, _), part in found.items()]


def _parts_apart(judged: Judged) -> list[tuple[Part, str]]:
    """(part, the part with its word and its number) of each: "near in batch 128 (at most 1.25): refuted, …". Doubts about a word follow it even where
    the number follows another part.
    """
    told_parts = []
    for relation, part, is_shown in _with_numbers(judged):
        published = relation.published(part)
        number = _fact(published, part) if published else part.number
        doubts = f" ({'; '.join(part.doubts)})" if part.doubts else ""
        told_parts.append((part, _part_apart(part, number) if is_shown else _part_apart(part, "") + doubts))
    return told_parts


def _with_numbers(judged: Judged) -> Iterator[tuple[Relation, Part, bool]]:
    """(relation, part, whether its number follows the part) of each: a number that several parts of one relation share follows the last of them."""
    for relation, parts in judged.verdict.judged:
        for part in parts:
            yield relation, part, part is [other for other in parts if other.number == part.number][-1]


def _part_apart(part: Part, number: str) -> str:
    """ "near in batch 128 (at most 1.25): refuted, …"."""
    why = f" ({part.why})" if part.why else ""
    claimed = f" ({part.where.in_words})" if part.where and part.where.in_words else ""
    return f"{part.name}{claimed}: {part.word}{why}" + (f", {number}" if number else "")


def _fact(published: PublishedRatio, part: Part) -> str:
    if not part.number:
        return f"published {published.value:g} × {published.over}"
    subject = f"{part.cases[0]} " if part.cases else ""
    return f"{subject}{part.number} × {published.over}, published {published.value:g}{claims.in_brackets(part)}"


def _why_not_tested(judged: Judged) -> str:
    """The reasons of a claim that was not tested; "" for any other claim."""
    if judged.verdict.word != NOT_TESTED:
        return ""
    reasons = [part.why for part in judged.verdict.parts if part.why] or [judged.verdict.reason]
    return "; ".join(dict.fromkeys(reasons))


@dataclasses.dataclass(frozen=True)
class PublishedPart:
    """A part of a claim, and the article's ratio that it is about."""

    published: PublishedRatio
    part: Part


def _published_parts(judged: Judged) -> list[PublishedPart]:
    """Each part with a published ratio."""
    return [PublishedPart(published, part) for relation, parts in judged.verdict.judged for part in parts if (published := relation.published(part))]


def picture(verdicts: Mapping[str, ArticleVerdicts]) -> str | None:
    """All claims as SVG; None where none has a ratio."""
    return all_claims.plot([_line(claim.headline) for claim in every_claim(verdicts)])


def verdict(judged: Judged, shown: str = "") -> Markdown:
    """The word, with each part's word where these differ, and with the reason where a claim with rows was not tested.

    `shown` is a number that already stands beside the verdict.
    """
    if judged.verdict.has_rows and (why := _why_not_tested(judged)):
        return Markdown("{} ({})").format(claims.word(judged), why)
    if not judged.verdict.parts_differ:
        return claims.word(judged)
    apart = "; ".join(_part_in_short(part, part.number if is_shown and part.number != shown else "") for _, part, is_shown in _with_numbers(judged))
    return Markdown(": ").join([claims.word(judged), apart])


def _part_in_short(part: Part, number: str) -> str:
    """As `_part_apart`, without the reason of a part that has no rows."""
    return _part_apart(part if part.has_rows else dataclasses.replace(part, why=""), number)


def published_part(judged: Judged) -> PublishedPart | None:
    """The first part with a published and a measured ratio, else the first with a published one; None where there is none."""
    found = _published_parts(judged)
    return next((one for one in found if one.part.ratio), found[0] if found else None)


def measured_ratios(judged: Judged) -> list[tuple[stats.Estimate, str, list[Part]]]:
    """(a measured ratio, the case that it is over, the parts that rest on it) of each."""
    found: dict[tuple[stats.Estimate, str], list[Part]] = {}
    for relation, parts in judged.verdict.judged:
        for part in parts:
            published = relation.published(part)
            over = published.over if published else part.cases[1] if part.cases else ""
            if part.ratio and over:
                found.setdefault((part.ratio, over), []).append(part)
    return [(*measured, parts) for measured, parts in found.items()]


def published(claim: Lines) -> str:
    """ "3.83 × layer-parallel"."""
    shown = published_part(claim.headline)
    return f"{shown.published.value:g} × {shown.published.over}" if shown else NONE


def every_claim(verdicts: Mapping[str, ArticleVerdicts]) -> list[Lines]:
    return [claim for of_article in verdicts.values() for claim in of_article.claims]


def tally(chosen: Sequence[Lines], rules: str) -> Markdown:
    """ "● **4** holds · …, of 15 claims by version 3 of the rules. The 20 parts of the tested claims: ● **12** holds · …". Parts are counted too,
    because a claim's word does not tell the words of its parts. The last sentence counts verdicts from fewer GPUs than the article's. `rules` links to
    the rules.
    """
    tested = _tested(chosen)
    of_claims = collections.Counter(claim.headline.verdict.word for claim in chosen)
    of_parts = collections.Counter(part.word for verdict in tested for part in verdict.parts)
    text = Markdown("{}, of {} claims by version {} of {}.").format(_counted(of_claims, SIGNS), len(chosen), rules_version.VERSION, link("the rules", rules))
    if of_parts:
        words = _counted(of_parts, [word for word in SIGNS if of_parts[word]])
        text += Markdown(" The {} parts of the tested claims: {}.").format(of_parts.total(), words)
    fewer = sum(verdict.fewer > 0 for verdict in tested)
    return text + (Markdown(f" {fewer} of the {len(tested)} tested claims ran on fewer GPUs than in the article.") if fewer else "")


def _tested(chosen: Sequence[Lines]) -> list[Verdict]:
    return [claim.headline.verdict for claim in chosen if claim.headline.verdict.word != NOT_TESTED]


def _counted(count: Mapping[str, int], words: Iterable[str]) -> Markdown:
    return Markdown(" · ").join(Markdown("{} **{}** {}").format(SIGNS[word], count[word], word) for word in words)


def _line(judged: Judged) -> all_claims.Line:
    return all_claims.Line(f"{judged.claim['id']} {judged.claim['text']}", judged.verdict.word, _dots(judged))


def _dots(judged: Judged) -> list[all_claims.Dot]:
    """The published and measured ratio of a claim; for a tested claim whose parts' words differ, those of each part, with its name and word."""
    if not judged.verdict.parts_differ or judged.verdict.word == NOT_TESTED:
        if shown := published_part(judged):
            return [_dot(judged.verdict.word, shown.published, shown.part)]
        return [_dot(judged.verdict.word, None, parts[0]) for _, _, parts in measured_ratios(judged)[:1]]
    dots = []
    for relation, part, is_shown in _with_numbers(judged):
        published = relation.published(part)
        if is_shown and (part.ratio or published):
            dots.append(_dot(part.word, published, part, part.name))
    return dots


def _dot(word: str, published: PublishedRatio | None, part: Part, name: str = "") -> all_claims.Dot:
    return all_claims.Dot(word, published.value if published else None, part.ratio, name, [one.ratio for one in part.on_gpus])


def limits(records: Sequence[Record], elsewhere: Markdown, page: str) -> Markdown:
    """What qualifies every number, in a line; `elsewhere` names other results, `page` is the link to docs/limits.md, "" where there is none."""
    devices = sorted({gpu["name"] for record in records for gpu in record.host.get("gpus") or []}) or ["CPU"]
    contained = sum(record.host.get("engine") not in (None, "host") for record in records)
    weights = sorted({record.job.model["weights"] for record in records})
    of_all = f"all {contained} results" if contained == len(records) > 1 else f"{contained} of {counted(len(records), 'result')}"
    stand_ins = sum(map(is_on_stand_in, records))
    base = "" if not stand_ins else f", {'all' if stand_ins == contained else stand_ins} on a stand-in for the pinned base image"
    words = Markdown("Limits: weights {}; devices {}; {} from containers with the pinned packages{}{}; more in {}.")
    return words.format(", ".join(weights), ", ".join(devices), of_all, base, elsewhere, link("docs/limits.md", page) if page else "docs/limits.md")
