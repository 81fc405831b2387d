"""make compare A=… B=…: is B faster or slower than A, case by case?

A and B are each a run (its id or folder), a folder of runs, or a git revision, whose reports/runs counts. Rows are compared where
they are of the same article, case, variant, batch size, number of devices, stack, device, host, engine and weights; ACROSS names
some of the last five that may differ. If one side alone has many rows, these are only counted; ALL_ROWS=1 lists them. The output
is Markdown; THRESHOLD=5 ends with exit code 1 where a row's whole interval is slower by more than 5 %, and where it judged no row.
"""

import dataclasses
import itertools
import statistics
import sys
from collections.abc import Iterator, Sequence

from scripts import articles, stats
from scripts.errors import UsageError
from scripts.report import cells, tables
from scripts.report.text import Markdown, blocks, lines, plain
from scripts.units import counted
from scripts.verdicts import lookup, parts, rates
from scripts.verdicts.parts import NotTested
from scripts.verdicts.relations import pairs
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

#: {a value of ACROSS: the fields of a group's key and its kind of machine in which rows may then differ}.
ACROSS = {
    "stack": ("stack",),
    "device": ("device", "model", "device_facts", "processor", "host"),
    "host": ("processor", "host"),
    "engine": ("engine",),
    "weights": ("weights",),
}

FASTER, SLOWER, NOT_COMPARABLE, SAME = "faster", "slower", "not comparable", "the same runs"
ONLY_A, ONLY_B = "only in A", "only in B"

#: If one side alone has more rows than these, they are counted and not listed: a reader would overlook the compared rows among them.
MOST_LISTED = 10


@dataclasses.dataclass(frozen=True)
class Timed:
    """A row's calls of `new_tokens` tokens, 0 where none was timed; `own` is, in words, the part of the row's setting that ACROSS lets differ."""

    row: Row
    new_tokens: int
    own: str


@dataclasses.dataclass(frozen=True)
class Difference:
    """One row of the comparison: `ratio` is B's time over A's, None where a side lacks the row, or where `reason` says why the two are not comparable.

    `setting` is, in words, what else the rows share: "current, host, NVIDIA H200, …". `sides` are A's and B's values of what ACROSS lets differ.
    """

    name: str
    setting: str
    word: str
    ratio: stats.Estimate | None = None
    means_ms: tuple[float, float] | None = None
    reason: str = ""
    sides: tuple[str, str] = ("", "")

    @property
    def is_judged(self) -> bool:
        """Was a word found by the rule of the verdicts, or did nothing change?"""
        return self.word in (FASTER, SLOWER, parts.UNDECIDED, SAME)

    def is_slower_by(self, percent: float) -> bool:
        """Is B slower by more than `percent` with its whole interval?"""
        return self.word == SLOWER and self.ratio is not None and self.ratio.low is not None and self.ratio.low > 1 + percent / 100


def _fields(group: Group) -> dict[str, str]:
    """{field: value} of a group's key and its kind of machine, without the article; a value may be ""."""
    fields: dict[str, str] = {}
    for name, value in vars(group.key).items():
        fields |= vars(value) if name == "kind" else {name: value}
    del fields["article"]
    return fields


def name_of(group: Group, row: Row, new_tokens: int, shared: Sequence[str]) -> tuple[str, str]:
    """What two rows have to share to be compared, in words: (name, setting)."""
    batch = [f"batch {row.batch_size}"] if row.batch_size != 1 else []
    calls = [cells.tokens(new_tokens)] if new_tokens else []
    return ", ".join([f"{group.key.article}/{row.case}", f"on {row.count}", *batch, *calls]), ", ".join(shared)


def _named(groups: Sequence[Group], across: Sequence[str]) -> dict[tuple[str, str], list[Timed]]:
    """{(name, setting): the timed calls of that name} of every row. ACROSS may give rows of several groups one name."""
    free = set(itertools.chain.from_iterable(ACROSS[name] for name in across))
    named: dict[tuple[str, str], list[Timed]] = {}
    for group in groups:
        fields = {name: value for name, value in _fields(group).items() if value}
        shared, own = ([value for name, value in fields.items() if (name in free) is is_own] for is_own in (False, True))
        for row in group.rows:
            for count in row.shown_tokens:
                named.setdefault(name_of(group, row, count, shared), []).append(Timed(row, count, ", ".join(own)))
    return named


def judge(name: tuple[str, str], first: Timed, second: Timed, same_question: bool) -> Difference:
    """Compare two rows of the same name by the rule of the verdicts (docs/verdict-rules.md)."""
    before, after, count = first.row, second.row, first.new_tokens
    if before.runs == after.runs:
        return Difference(*name, SAME)
    for side, row in (("A", before), ("B", after)):
        if row.unusable(count or None):
            return Difference(*name, NOT_COMPARABLE, reason=f"{side}: {row.unusable(count or None)}")
    if not count:
        return Difference(*name, NOT_COMPARABLE, reason="no call was timed")
    if reason := _calls_of_no_length(before) or _calls_of_no_length(after):
        return Difference(*name, NOT_COMPARABLE, reason=reason)
    try:
        pair = pairs.of_times(before, after, count, same_question)
    except NotTested as reason:
        return Difference(*name, NOT_COMPARABLE, reason=str(reason))
    means_ms = (statistics.fmean(before.run_means_ms(count)), statistics.fmean(after.run_means_ms(count)))
    words = {parts.HOLDS: SLOWER, parts.REFUTED: FASTER, parts.UNDECIDED: parts.UNDECIDED, parts.NOT_TESTED: NOT_COMPARABLE}
    return Difference(*name, words[pair.part(parts.ABOVE_ONE, "").word], pair.ratio, means_ms, _why_not(before, after, count))


def _calls_of_no_length(row: Row) -> str:
    """Why calls of two runs of a row may not do equal work; "" where they do."""
    if rates.latency(row):
        return "a call answers what has arrived, so its time is no speed; the report has latencies"
    if row.record.job.form in rates.WRITING_FORMS:
        return "a call lasts from one writing of answers to the next, so its time is no speed; the report has items/s"
    return ""


def _why_not(before: Row, after: Row, new_tokens: int) -> str:
    """Why the runs of A, of B or of both judge nothing: "A: 3 runs, 5 are needed"."""
    of_a, of_b = (lookup.why_not([row], new_tokens) for row in (before, after))
    if of_a == of_b:
        return f"A and B: {of_a}" if of_a else ""
    return "; ".join(f"{side}: {reason}" for side, reason in (("A", of_a), ("B", of_b)) if reason)


def articles_told() -> dict[str, articles.Article]:
    """The articles, which only give the order of the rows; a mistake in an article's file gives a note and stops nothing."""
    known, left_out = articles.apart()
    for mistake in left_out.values():
        print(f"note: {plain(mistake)}; its rows are compared all the same, in the order of their names", file=sys.stderr)
    return known


def compare(a: Sequence[Group], b: Sequence[Group], across: Sequence[str] = ()) -> list[Difference]:
    """Every row of A and B: first each row of A with each row of B of the same name, then the rows of one side alone."""
    first, second = _named(a, across), _named(b, across)
    both = [
        dataclasses.replace(judge(name, before, after, same_question="weights" not in across), sides=(before.own, after.own))
        for name, rows in first.items()
        for before, after in itertools.product(rows, second.get(name, []))
    ]
    only = [Difference(*name, ONLY_A, sides=(row.own, "")) for name, rows in first.items() if name not in second for row in rows]
    only += [Difference(*name, ONLY_B, sides=("", row.own)) for name, rows in second.items() if name not in first for row in rows]
    return both + only


def across_that_match(a: Sequence[Group], b: Sequence[Group]) -> list[str]:
    """The shortest values of ACROSS with which some row is in both A and B; [] where there are none."""
    for count in range(1, len(ACROSS) + 1):
        found = [set(names) for names in itertools.combinations(ACROSS, count) if _named(a, names).keys() & _named(b, names).keys()]
        # "device" lets the host differ too, so where "host" is enough, "device" is not suggested.
        if found := [names for names in found if "device" not in names or {*names, "host"} - {"device"} not in found]:
            return [",".join(name for name in ACROSS if name in names) for names in found]
    return []


SIDES: list[tables.Column[Difference]] = [
    tables.Column("A", lambda difference: difference.sides[0]),
    tables.Column("B", lambda difference: difference.sides[1]),
]
COLUMNS: list[tables.Column[Difference]] = [
    tables.Column("B against A", lambda difference: difference.word),
    tables.Column("A, ms", lambda difference: cells.significant(difference.means_ms[0] if difference.means_ms else None)),
    tables.Column("B, ms", lambda difference: cells.significant(difference.means_ms[1] if difference.means_ms else None)),
    tables.Column("B / A (95 % interval)", lambda difference: stats.in_words(difference.ratio, least=2) if difference.ratio else cells.NONE),
    tables.Column("why", lambda difference: difference.reason),
]


def is_without_a_pair(differences: Sequence[Difference]) -> bool:
    """Is no row in both A and B?"""
    return {difference.word for difference in differences} <= {ONLY_A, ONLY_B}


def markdown(differences: Sequence[Difference], all_rows: bool = False, verdicts: Markdown = Markdown(), across: Sequence[str] = ()) -> Markdown:
    """The comparison as Markdown: how often each word occurs, the table of `verdicts`, and a table for each setting.

    Where no row is in both A and B, `across` are the values of ACROSS with which some rows are.

    Rows of the same runs are counted and not listed; so are more than MOST_LISTED rows of one side alone, unless `all_rows` is true.
    """
    words = [difference.word for difference in differences]
    many = [] if all_rows else [word for word in (ONLY_A, ONLY_B) if words.count(word) > MOST_LISTED]
    counted_only = lines(*(Markdown(f"{words.count(word)} rows are {word} and not listed here; ALL_ROWS=1 lists them.") for word in many))
    listed = [difference for difference in differences if difference.word not in (SAME, *many)]
    return blocks(_summary(differences, across), counted_only, verdicts, *_by_setting(listed))


def _summary(differences: Sequence[Difference], across: Sequence[str]) -> Markdown:
    """How often each word occurs, and which rows have no line of their own."""
    words = [difference.word for difference in differences]
    counts = ", ".join(f"{words.count(word)} {word}" for word in (FASTER, SLOWER, parts.UNDECIDED, NOT_COMPARABLE, SAME, ONLY_A, ONLY_B))
    told = Markdown("{}: {}.").format(counted(len(words), "row"), counts)
    if SAME in words:
        told += Markdown(" Nothing changed." if set(words) == {SAME} else " Rows of the same runs are not listed.")
    if is_without_a_pair(differences):
        with_across = f"; with {' or '.join(f'ACROSS={names}' for names in across)} some are." if across else ", whatever ACROSS lets differ."
        told += Markdown(f" No row is in both A and B{with_across}")
    return told


def _by_setting(listed: Sequence[Difference]) -> Iterator[Markdown]:
    """The heading of each setting, and its table."""
    sides = SIDES if any(any(difference.sides) for difference in listed) else []
    columns = [tables.Column[Difference]("row", lambda difference: difference.name), *sides, *COLUMNS]
    for setting in dict.fromkeys(difference.setting for difference in listed):
        yield Markdown("**{}**").format(setting)
        yield tables.aligned(columns, [difference for difference in listed if difference.setting == setting])


def across_of(typed: str) -> list[str]:
    chosen = [name for name in typed.split(",") if name]
    unknown = [name for name in chosen if name not in ACROSS]
    if unknown:
        raise UsageError(f"ACROSS is {unknown[0]!r}, allowed are {', '.join(ACROSS)}; try ACROSS=stack")
    return chosen


def threshold_of(typed: str) -> float | None:
    if not typed:
        return None
    try:
        percent = float(typed)
    except ValueError:
        percent = -1.0
    if not 0 <= percent < 1e6:
        raise UsageError(f"THRESHOLD is {typed!r}, allowed is a number of per cent from 0; try THRESHOLD=5")
    return percent
