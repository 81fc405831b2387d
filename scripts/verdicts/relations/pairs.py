"""Two rows side by side: the ratio of their times over runs, what they differ in, and all of it in words.

ms/token follow the article's formula (scripts/verdicts/token_times.py).
"""

import dataclasses
from collections.abc import Sequence

from scripts import stats
from scripts.results import Record
from scripts.verdicts import lookup, parts, token_times
from scripts.verdicts.parts import NOT_TESTED, SIZE_FACTOR, NotTested, OnGpus, Part, Range, runs_in_words
from scripts.verdicts.row import Row, apart, gpus
from scripts.verdicts.run_facts import gpu_uuids_of, kernels_ms

#: The most sets of GPUs that a note names.
MOST_SETS = 4

#: The range of all numbers.
EVERYWHERE = Range()


@dataclasses.dataclass(frozen=True)
class OfKernels:
    """The ratio of the times in which a kernel ran; `of_times` is that of the whole times of the same runs; `runs` tells how many runs, "" for all."""

    ratio: float
    of_times: float
    runs: str

    @property
    def is_another(self) -> bool:
        """Do the two ratios differ by more than SIZE_FACTOR? Then much of the ratio of times comes from time without a kernel."""
        return max(self.ratio, self.of_times) > SIZE_FACTOR * min(self.ratio, self.of_times)

    def is_elsewhere(self, where: Range) -> bool:
        """Does only one of the two ratios lie within the range of a claim?"""
        return where.holds(self.ratio) != where.holds(self.of_times)

    def in_words(self, where: Range = EVERYWHERE) -> str:
        """ "kernels alone: 1.19"; "kernels alone: 1.82 of 3 runs" where other runs do not tell it; and the side of `where`, if `of_times` lies on the other."""
        side = f", {'within' if where.holds(self.ratio) else 'outside of'} what is claimed" if self.is_elsewhere(where) else ""
        return f"kernels alone: {stats.significant(self.ratio)}{self.runs and f' of {self.runs}'}{side}"


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two rows that answered the same question: `ratio` is the time of `slower` over that of `faster`, `spread` its least and greatest over pairs of runs.

    `on_gpus` are the ratios on each set of GPUs that ran both rows, where there are several sets or where other GPUs ran one row alone: then the ratio
    of all runs is that of a mixture.
    `of_kernels` is the ratio of the times in which a kernel ran; None unless each row has a run on one GPU that tells this time.
    `runs` is the number of undisturbed runs of the row that has fewest. `remarks` are notes that a relation adds.
    """

    faster: Row
    slower: Row
    ratio: stats.Estimate
    spread: tuple[float, float]
    why_not: str
    on_gpus: tuple[OnGpus, ...] = ()
    of_kernels: OfKernels | None = None
    runs: int = 0
    remarks: tuple[str, ...] = ()

    def notes(self, where: Range = EVERYWHERE) -> tuple[str, ...]:
        """What stands beside the ratio: "by GPUs: 1.56 of 2 runs, 2.64 of 3 runs", MOST_SETS sets at most; "on GPUs that ran both: 4.13 of 3 runs";
        "over these 3 sets: 0.69 to 4.41", the interval that takes each set as one number; "kernels alone: 1.82 of 3 runs"; remarks.

        `where` is the claim's range for the ratio: kernels alone may lie on its other side.
        """
        more = [f"and {len(self.on_gpus) - MOST_SETS} more"] if len(self.on_gpus) > MOST_SETS else []
        which = "by GPUs" if len(self.on_gpus) > 1 else "on GPUs that ran both"
        by_gpus = [f"{which}: {', '.join([*(one.in_words for one in self.on_gpus[:MOST_SETS]), *more])}"] if self.on_gpus else []
        if over_sets := self._over_sets():
            by_gpus.append(f"over these {len(self.on_gpus)} sets: {_interval(over_sets, where)}")
        kernels = [self.of_kernels.in_words(where)] if self.of_kernels and self.of_kernels.is_another else []
        return (*by_gpus, *kernels, *self.remarks)

    def doubts(self, where: Range) -> tuple[str, ...]:
        """What would give the part with this range another word, though it decides nothing: "by 3 sets of GPUs undecided, 0.69 to 4.41",
        where each set counts as one number; "kernels alone: 1.82, outside of what is claimed".
        """
        if self.why_not:
            return ()  # there is no word to be doubted
        over_sets, doubts = self._over_sets(), []
        if over_sets and over_sets.ends and self.ratio.ends and where.word(*over_sets.ends) != where.word(*self.ratio.ends):
            doubts.append(f"by {len(self.on_gpus)} sets of GPUs {where.word(*over_sets.ends)}, {_interval(over_sets, where)}")
        if self.of_kernels and self.of_kernels.is_another and self.of_kernels.is_elsewhere(where):
            doubts.append(self.of_kernels.in_words(where))
        return tuple(doubts)

    def _over_sets(self) -> stats.Estimate | None:
        """The ratio with the interval that takes each set of GPUs as one number; None for fewer than three sets."""
        over_sets = stats.over_sets([one.ratio for one in self.on_gpus]) if self.on_gpus else None
        return over_sets if over_sets and over_sets.ends else None

    def part(self, where: Range, sentence: str) -> Part:
        """The part of a claim that places the ratio in this range."""
        rows = self.faster, self.slower
        part = judged(where, self.ratio, self.why_not, sentence, (self.faster.case, self.slower.case), tuple(differences(*rows)))
        notes, doubts = self.notes(where), self.doubts(where)
        return dataclasses.replace(part, is_apart=apart(*rows), notes=notes, doubts=doubts, on_gpus=self.on_gpus, runs=self.runs)


def _interval(over_sets: stats.Estimate, where: Range) -> str:
    """ "0.69 to 4.41", with so many digits that each end shows on which side of the range's ends it lies."""
    return stats.with_interval(over_sets, least=2, bounds=where.ends)[1]


def judged(where: Range, ratio: stats.Estimate, why_not: str, sentence: str, cases: tuple[str, str] | None = None, differs: tuple[str, ...] = ()) -> Part:
    """A part whose number is a ratio; not tested where the rows judge nothing, or the ratio has no interval."""
    word = where.word(*ratio.ends) if ratio.ends and not why_not else NOT_TESTED
    return Part("", word, stats.in_words(ratio, least=2, bounds=where.ends), sentence, why_not, ratio, cases, where, differs)


def of_times(faster: Row, slower: Row, new_tokens: int, same_question: bool = True) -> Pair:
    """The pair by ms/token, or by the call where the rows count no tokens.

    Raises NotTested where `same_question` is true and the rows' questions differ, and as `comparable_ms` does.
    """
    if same_question:
        must_answer_the_same([faster, slower])
    below, above = comparable_ms([faster, slower], new_tokens)
    return _pair(faster, slower, above, below, new_tokens)


def of_batches(large: Row, small: Row, new_tokens: int) -> Pair:
    """The pair by items/s, of rows whose calls answer as many items as their batch has: the ratio is that of `large` over `small`."""
    above, below = ([ms / row.batch_size for ms in row.run_means_ms(new_tokens)] for row in (small, large))
    return _pair(large, small, above, below, new_tokens)


def _pair(faster: Row, slower: Row, above: Sequence[float], below: Sequence[float], new_tokens: int) -> Pair:
    spread = (min(above) / max(below), max(above) / min(below))
    timed = [list(zip(row.runs_of(new_tokens), times_ms, strict=True)) for row, times_ms in ((slower, above), (faster, below))]
    ratio, why_not = stats.ratio_over_runs(above, below), lookup.why_not([faster, slower], new_tokens)
    runs = lookup.fewest_runs([faster, slower], new_tokens)
    return Pair(faster, slower, ratio, spread, why_not, by_gpus(*timed), _of_kernels(timed, new_tokens), runs)


def _of_kernels(timed: Sequence[Sequence[tuple[Record, float]]], new_tokens: int) -> OfKernels | None:
    """By the runs of the slower and of the faster row that tell for how much of their time a kernel ran; None where a row has no such run."""
    sides = [_with_kernels(of_row, new_tokens) for of_row in timed]
    if not all(sides):
        return None
    kernels = [[kernel_ms for kernel_ms, _ in side] for side in sides]
    whole = [[whole_ms for _, whole_ms in side] for side in sides]
    counts = [len(side) for side in sides]
    of_runs = "" if counts == [len(of_row) for of_row in timed] else runs_in_words(counts)
    return OfKernels(stats.ratio_over_runs(*kernels).value, stats.ratio_over_runs(*whole).value, of_runs)


def _with_kernels(timed: Sequence[tuple[Record, float]], new_tokens: int) -> list[tuple[float, float]]:
    """(the time in which a kernel ran, the whole time) of each run that tells it."""
    told = [(kernels_ms(run, new_tokens, ms), ms) for run, ms in timed]
    return [(kernels, ms) for kernels, ms in told if kernels]


def by_gpus(slower: Sequence[tuple[Record, float]], faster: Sequence[tuple[Record, float]]) -> tuple[OnGpus, ...]:
    """The ratio on each set of GPUs that ran both rows, oldest first; () where one set ran all runs, or none ran both rows.

    Runs that share a GPU belong to one set: a result does not name its machine, and rows on one GPU of a pair belong to the rows on both.
    """
    of_gpu: dict[str, set[str]] = {}
    timed = sorted([*((run, ms, 0) for run, ms in slower), *((run, ms, 1) for run, ms in faster)], key=lambda one: str(one[0].host["started_at"]))
    for run, *_ in timed:
        joined = set(gpu_uuids_of(run)).union(*(of_gpu[uuid] for uuid in gpu_uuids_of(run) if uuid in of_gpu))
        of_gpu.update(dict.fromkeys(joined, joined))
    times: dict[frozenset[str], tuple[list[float], list[float]]] = {}
    for run, ms, side in timed:
        if uuids := gpu_uuids_of(run):
            times.setdefault(frozenset(of_gpu[uuids[0]]), ([], []))[side].append(ms)
    found = [OnGpus(stats.ratio_over_runs(*sides).value, (len(sides[0]), len(sides[1]))) for sides in times.values() if all(sides)]
    all_of_one = [(len(slower), len(faster))] == [one.runs for one in found]
    return () if all_of_one else tuple(found)


def comparable_ms(rows: Sequence[Row], new_tokens: int) -> Sequence[Sequence[float]]:
    """The time of each run of each row: ms/token by the article's formula, or ms a call where no run of the rows counts tokens.

    Raises NotTested where some runs count tokens and others do not, and where rows of different batch sizes count none.
    """
    tokens = [[token_times.tokens_of_run(run, "article") for run in row.runs_of(new_tokens)] for row in rows]
    means = [row.run_means_ms(new_tokens) for row in rows]
    if not any(any(of_row) for of_row in tokens):
        if other := next((row for row in rows if row.batch_size != rows[0].batch_size), None):
            raise NotTested(f"{rows[0].name} and {other.name} differ in their batch sizes and count no tokens")
        return means
    if uncounted := next((row for row, of_row in zip(rows, tokens, strict=True) if not all(of_row)), None):
        raise NotTested(f"{uncounted.name} has a run without a count of its tokens")
    return [[ms / count for ms, count in zip(*of_row, strict=True)] for of_row in zip(means, tokens, strict=True)]


def must_answer_the_same(rows: Sequence[Row]) -> None:
    """Raise NotTested where the rows' questions differ."""
    if other := next((row for row in rows if question(row) != question(rows[0])), None):
        raise NotTested(f"{rows[0].name} and {other.name} ran different models or prompts")


def question(row: Row) -> tuple[object, ...]:
    """What a row was asked: only rows of the same model and prompt can be compared, in any batch size."""
    prompt = {name: value for name, value in row.record.job.prompt.items() if name != "batch_size"}
    return row.record.job.model_without_path, prompt


def differences(faster: Row, slower: Row) -> list[str]:
    """In what two rows differ beside the system; `on` shows the dtypes and numbers of GPUs."""
    versions = [row.version("transformers") for row in (faster, slower)]
    differs = ["dtype"] if faster.dtype != slower.dtype else []
    differs += ["number of GPUs"] if faster.count != slower.count else []
    return differs + ([f"transformers {versions[0]} against {versions[1]}"] if all(versions) and versions[0] != versions[1] else [])


def on(row: Row) -> str:
    """ "deepspeed on 2 GPUs in float16"."""
    return f"{row.case} on {gpus(row.count)} in {row.dtype}"


def ratio_in_words(pair: Pair, published: float | None = None, bounds: Sequence[float] = ()) -> tuple[str, str]:
    """(the ratio in digits, what stands behind it in brackets): interval or spread, what was published, what the rows differ in, and notes.

    Each end of the interval shows on which side of `bounds` it lies.
    """
    value, interval = stats.with_interval(pair.ratio, least=2, bounds=bounds)
    beside = []
    if interval:
        beside.append(f"95 % interval {interval}")
    elif pair.spread[0] != pair.spread[1]:
        beside.append(f"{pair.spread[0]:.2f} to {pair.spread[1]:.2f} over pairs of runs")
    if published is not None:
        beside.append(f"published {published:.2f}" if published < 10 else f"published {published:g}")
    if differs := differences(pair.faster, pair.slower):
        beside.append(f"the rows differ in {parts.listed(differs)}")
    if apart(pair.faster, pair.slower):
        beside.append("on different GPUs")
    beside += pair.notes()
    return value, f" ({'; '.join(beside)})" if beside else ""
