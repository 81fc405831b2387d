"""The claims of an article as tables: verdicts for the report's first page and for each group, speed-ups beside published ones."""

import collections
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.articles import Article
from scripts.report import cells, rerun_command
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, anchor, blocks, code, link, prose
from scripts.report.verdict_marks import SIGNS
from scripts.verdicts.judging import ArticleVerdicts, Judged, Lines
from scripts.verdicts.lacking import Lacking
from scripts.verdicts.parts import NOT_TESTED, Part, listed
from scripts.verdicts.relations.extreme import Extreme
from scripts.verdicts.relations.speed import Speed
from scripts.verdicts.row_groups import Group


def word(judged: Judged) -> Markdown:
    """ "**holds** on 1 GPU (the article: 8)", "**holds** (judged by the variant controlled)"."""
    verdict = judged.verdict
    shown = Markdown("**{}**" if verdict.word != NOT_TESTED else "{}").format(verdict.word)
    beside = [f"(judged by the variant {judged.group.key.variant})"] if judged.group and judged.is_alone else []
    beside += [verdict.gpus] if verdict.has_rows and verdict.gpus else []
    return Markdown(" ").join([shown, *beside])


def title(judged: Judged) -> Markdown:
    return Markdown(f"{judged.claim['id']} ") + prose(judged.claim["text"])


def place_of(judged: Judged, slug: str) -> str:
    """The anchor of a claim's line on its article's page, for citing the verdict."""
    return f"claim-{slug}-{judged.claim['id']}"


def setting(judged: Judged) -> Markdown:
    """Where the rows of a verdict were measured; a dash where there are none."""
    if judged.group is None or not judged.verdict.was_run:
        return Markdown(NONE)
    key = judged.group.key
    words = f"{judged.group.device_words}, {key.stack}, {key.weights} weights, {key.engine_words}, {key.variant}"
    return link(words, f"#{judged.group.slug}") + f", {cells.tokens(judged.new_tokens)}"


def elsewhere(claim: Lines, slug: str) -> Markdown:
    """How often each word stands in the other settings that test a claim: "1 holds, 2 undecided"."""
    words = collections.Counter(judged.verdict.word for judged in claim.others if judged.verdict.word != NOT_TESTED)
    if not words:
        return Markdown(NONE)
    return link(", ".join(f"{words[word]} {word}" for word in SIGNS if word in words), f"#verdicts-{slug}")


def common_reason(judged: Sequence[Judged]) -> str:
    """The most frequent reason why parts with rows were not tested, which tables then say only once; "" where no reason occurs twice."""
    reasons = collections.Counter(part.why for one in judged for part in one.verdict.parts if part.why and part.has_rows)
    reason, count = max(reasons.items(), key=lambda pair: pair[1], default=("", 0))
    return reason if count > 1 else ""


def said_once(reason: str) -> Markdown:
    """The sentence that tells the common reason."""
    return Markdown("*Not tested*, unless a line gives another reason: {}.").format(reason) if reason else Markdown()


def numbers(judged: Judged, reason: str = "") -> Markdown:
    """What the verdict rests on. With several parts, each sentence follows the words of the parts that share it; `reason` is told elsewhere."""
    parts = judged.verdict.parts
    by_sentence: dict[str, list[Part]] = {}
    for part in parts:
        by_sentence.setdefault(part.explanation, []).append(part)
    told = [Markdown.escape(sentence) for sentence in by_sentence or [judged.verdict.reason]]
    if any(part.word != NOT_TESTED or (part.has_rows and part.why != reason) for part in parts):
        if len(parts) > 1:
            words = ("; ".join(_with_word(part, reason) for part in sharing) for sharing in by_sentence.values())
            told = [Markdown("*{}* — {}").format(*pair) for pair in zip(words, by_sentence, strict=True)]
        elif parts[0].why:
            told.insert(0, Markdown.escape(parts[0].why))
    return Markdown(". ").join([*told, *dict.fromkeys(_alike(part) for part in judged.alike)])


def _with_word(part: Part, reason: str) -> str:
    """ "3.83 times: refuted", "ds-zero goes on: not tested (1 run, 5 are needed)"."""
    why = f" ({part.why})" if part.why and part.has_rows and part.why != reason else ""
    return f"{part.name}: {part.word}{why}"


def _alike(part: Part) -> str:
    """ "Like for like, controlled: 1.16 (1.12 to 1.19) × layer-parallel (by GPUs: …)"."""
    return f"Like for like, controlled: {part.number}" + (f" × {part.cases[1]}" if part.cases else "") + in_brackets(part)


def in_brackets(part: Part) -> str:
    """ " (the rows differ in dtype; on different GPUs; by GPUs: …; 12 of 18 comparisons hold)": what qualifies a number; "" where nothing does."""
    beside = [f"the rows differ in {listed(part.differs)}"] if part.differs else []
    beside += ["on different GPUs"] if part.is_apart else []
    beside += [*part.notes, part.comparisons] if part.comparisons else part.notes
    return f" ({'; '.join(beside)})" if beside else ""


def for_terminal(verdicts: ArticleVerdicts) -> list[str]:
    """A line per claim for the terminal."""
    return [f"{one.headline.claim['id']} {one.headline.verdict.word}: {one.headline.claim['text']}" for one in verdicts.claims]


def headline_claims(verdicts: ArticleVerdicts) -> list[Lines]:
    """The claims that the article's file calls its headlines."""
    return [one for one in verdicts.claims if one.headline.claim.get("headline")]


def first_lines(verdicts: ArticleVerdicts) -> list[Judged]:
    """The headline of each claim, and the controlled line below it."""
    return [judged for one in verdicts.claims for judged in (one.headline, one.controlled) if judged]


#: What stands above the claims of a variant that does not judge them.
SECOND_LINE = Markdown(
    "The variant published judges these claims. The words below are of the variant controlled: they stand beside those verdicts and count in no total."
)

#: Beside a main table of arithmetic means, for a reader who divides them.
RATIOS = Markdown("A ratio is one of geometric means over the runs; the arithmetic means of the tables may give another one.")

CLAIM: Column[Judged] = Column("claim", title, words=True)
VERDICT: Column[Judged] = Column("verdict", word, words=True)


def _numbers(reason: str) -> Column[Judged]:
    return Column("parts of the claim, measured numbers", lambda judged: numbers(judged, reason), words=True)


def _version_1(judged: Sequence[Judged]) -> Column[Judged]:
    return Column("version 1", lambda one: one.version_1 or NONE, words=True, when=any(one.version_1 for one in judged))


def first_page(verdicts: ArticleVerdicts, reason: str) -> Markdown:
    """Each claim's verdict in the judging variant, nearest to the article, with the controlled one below it, and how the claim fares elsewhere."""
    of = {id(judged): one for one in verdicts.claims for judged in (one.headline, one.controlled) if judged}

    def is_headline(judged: Judged) -> bool:
        return of[id(judged)].headline is judged

    def other(judged: Judged) -> Markdown:
        return elsewhere(of[id(judged)], verdicts.article.slug) if is_headline(judged) else Markdown()

    def before(judged: Judged) -> str:
        return (of[id(judged)].version_1 if is_headline(judged) else judged.version_1) or NONE

    def name(judged: Judged) -> Markdown | str:
        return anchor(place_of(judged, verdicts.article.slug)) + title(judged) if is_headline(judged) else f"{judged.claim['id']}, controlled"

    columns = [
        Column[Judged]("claim", name, words=True),
        *(VERDICT, _numbers(reason)),
        Column[Judged]("verdict of version 1 of the rules, on its own rows", before, words=True, when=any(one.version_1 for one in verdicts.claims)),
        Column[Judged]("measured on", setting, words=True),
        Column[Judged]("verdicts in other settings", other, words=True, when=any(other(one.headline) != NONE for one in verdicts.claims)),
    ]
    return table(columns, first_lines(verdicts))


def elsewhere_in_full(verdicts: ArticleVerdicts) -> Markdown:
    """Every claim in each setting that has rows for it and no line on the first page."""
    told = {id(judged) for judged in first_lines(verdicts)}
    judged = [one for claim in verdicts.claims for one in claim.all if id(one) not in told and one.verdict.was_run]
    reason = common_reason(judged)
    columns = [CLAIM, VERDICT, _numbers(reason), _version_1(judged), Column[Judged]("measured on", setting, words=True)]
    return blocks(said_once(reason), table(columns, judged)) if judged else Markdown()


def of_group(group: Group, judged: Sequence[Judged], article: Article) -> Markdown:
    """The claims within one group, tested or not: new tokens, verdict and numbers, and commands that would test more; empty where no claim has a row."""
    if not any(one.verdict.was_run for one in judged):
        return Markdown()
    reason = common_reason(judged)
    calls = Column[Judged]("calls of", lambda line: cells.tokens(line.new_tokens), words=True)
    told = table([CLAIM, calls, VERDICT, _numbers(reason), _version_1(judged)], judged)
    beside = SECOND_LINE if any(one.is_controlled and not one.is_alone for one in judged) else Markdown()
    ratios = RATIOS if any(_has_ratio(part) for one in judged for part in one.verdict.parts) else Markdown()
    return blocks(beside, ratios, said_once(reason), told, _to_test(group, judged, article))


def _has_ratio(part: Part) -> bool:
    return part.ratio is not None or any(map(_has_ratio, part.compared))


def _to_test(group: Group, judged: Sequence[Judged], article: Article) -> Markdown:
    """The commands that measure what verdicts lack in a setting; empty where more runs would test nothing."""
    claims_of: dict[Lacking, list[str]] = {}
    for one in judged:
        if one.verdict.lacking:
            claims_of.setdefault(one.verdict.lacking, []).append(one.claim["id"])
    if not claims_of:
        return Markdown()
    record = group.rows[0].record
    commands = [rerun_command.rest_of_claims(record, article, list(dict.fromkeys(ids)), lacking) for lacking, ids in claims_of.items()]
    intro = Markdown("To test more of the claims that have rows here (runs of the very same job on this kind of machine are skipped):")
    return blocks(intro, Markdown("\n").join([Markdown("- {}").format(code(command)) for command in commands]))


@dataclass(frozen=True)
class SpeedUp:
    """A comparison of two times, and its parts within one group by the number of new tokens; a part has no ratio where the rows have none."""

    relation: Speed
    parts: dict[int, Part]

    @property
    def words(self) -> str:
        batch = f", batch {self.relation.batch_size}" if self.relation.batch_size else ""
        return f"{self.relation.faster} over {self.relation.slower}{batch}"

    def measured(self, new_tokens: int) -> str:
        """The ratio for calls of so many new tokens; a dash where the claim is about other calls."""
        if new_tokens not in self.parts:
            return NONE
        part = self.parts[new_tokens]
        return NOT_TESTED if part.ratio is None else stats.in_words(part.ratio, least=2) + ("" if part.runs else f", {cells.DISTURBED}")


def speed_ups(group: Group, judged: Sequence[Judged]) -> Markdown:
    """The speed-ups that the article gives or that its numbers imply, published beside measured."""

    def measured(new_tokens: int) -> Column[SpeedUp]:
        return Column(f"measured, {cells.tokens(new_tokens)} (95 % interval over runs)", lambda speed_up: speed_up.measured(new_tokens))

    columns = [
        Column[SpeedUp]("how many times as fast", lambda speed_up: speed_up.words, words=True),
        Column[SpeedUp]("published", lambda speed_up: cells.decimal(speed_up.relation.size or speed_up.relation.ratio, 2)),
        *(measured(count) for count in group.new_tokens),
    ]
    return table(columns, _speed_ups(judged) if group.new_tokens else [])


def _speed_ups(judged: Sequence[Judged]) -> list[SpeedUp]:
    """Each pair of cases in a batch size once, from the first claim that names the pair."""
    found: dict[tuple[str, str, int | None], tuple[str, SpeedUp]] = {}
    for one in judged:
        for speed, part in _comparisons(one):
            claim, speed_up = found.setdefault((speed.faster, speed.slower, speed.batch_size), (one.claim["id"], SpeedUp(speed, {})))
            if claim == one.claim["id"]:
                speed_up.parts[one.new_tokens] = part
    return [speed_up for _, speed_up in found.values()]


def _comparisons(judged: Judged) -> Iterator[tuple[Speed, Part]]:
    """The comparisons of two times with a published ratio, each judged."""
    for relation, parts in judged.verdict.judged:
        if isinstance(relation, Speed):
            yield relation, parts[0]
        elif isinstance(relation, Extreme) and relation.ratios:
            yield from zip(relation.speeds(), parts[0].compared, strict=True)
