"""The rows that a claim asks for in a group, and whether they may judge it."""

import dataclasses
import sys
from collections.abc import Sequence

from scripts import stats
from scripts.articles import Article
from scripts.results.marks import disturbed_by, ran_out_by_itself
from scripts.units import counted
from scripts.verdicts.parts import NotTested, listed
from scripts.verdicts.row import Row, gpus
from scripts.verdicts.row_groups import Group

#: Random weights of earlier recipes hide faults from the output check, so their rows judge nothing.
LEAST_RECIPE = 2

#: (case, batch size); None for the case's smallest.
Named = tuple[str, int | None]


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of one group for calls of `new_tokens` tokens, each case on the article's number of devices, but on no more than `most`."""

    group: Group
    article: Article
    new_tokens: int
    most: int

    def of(self, case: str, batch_size: int | None = None) -> Row:
        """The row of a case in a batch size, or its smallest; raises NotTested where it is missing, or where its case now loads in another way."""
        of_article, variant = self.article.case(case), self.group.key.variant
        if of_article and variant not in self.article.variants_of(of_article):
            raise NotTested(f"{case} is no case of the variant {variant}")
        row = self._found(case, batch_size)
        if isinstance(row, str):
            raise NotTested(row)
        if reason := self._of_another_load(row):
            raise NotTested(reason)
        return row

    def has(self, case: str, batch_size: int | None = None) -> bool:
        """Was such a row run: did it time these calls, or end in another way?"""
        row = self._found(case, batch_size)
        return isinstance(row, Row) and (row.status != "ok" or bool(row.runs_of(self.new_tokens)))

    def why_none(self, named: Sequence[Named], reasons: Sequence[str]) -> str:
        """Why comparisons of these rows were not tested: the first of `reasons` that is no missing row, then all missing rows, then rows of few runs."""
        there = {(row.case, size) for row in self.group.rows for size in (None, row.batch_size)}
        missing = [row for row in named if row not in there]
        told = [str(self._found(*row)) for row in missing]
        others = [reason for reason in reasons if reason not in told][:1]
        not_run = [f"not run (stack {self.group.key.stack}): {_listed(missing)}"] if len(missing) > 1 else told
        few = [row for row in named if row in there and self._has_few_runs(*row)]
        return "; ".join([*others, *not_run, *([f"fewer than {stats.LEAST_RUNS} runs: {_listed(few)}"] if few else [])])

    def _has_few_runs(self, case: str, batch_size: int | None) -> bool:
        row = self._found(case, batch_size)
        return isinstance(row, Row) and row.status == "ok" and weights_can_judge(row) and bool(why_not([row], self.new_tokens))

    def usable(self, case: str, batch_size: int | None = None) -> Row:
        """As `of`; raises NotTested also where the row's output is wrong, or where it has no such calls."""
        row = self.of(case, batch_size)
        if reason := row.unusable(self.new_tokens):
            raise NotTested(reason)
        return row

    def of_case(self, case: str) -> list[Row]:
        """The rows of a case in all batch sizes, even with a wrong output."""
        return [row for row in self.group.rows if row.case == case and row.count == count(self.article, case, self.most)]

    def over_batches(self, case: str) -> list[Row]:
        """The rows of a case whose output is right, from the smallest batch up."""
        return sorted(
            (row for row in self.of_case(case) if not row.unusable(self.new_tokens) and not self._of_another_load(row)), key=lambda row: row.batch_size
        )

    def able(self, rows: Sequence[Row]) -> list[Row]:
        """The rows among these that may judge, each by itself."""
        return [row for row in rows if not why_not([row], self.new_tokens)]

    def _of_another_load(self, row: Row) -> str:
        """That the row's case now loads in another way, in words; the row's page tells how it loaded."""
        return f"{row.name} on {gpus(row.count)} was loaded in another way" if self.article.loaded_otherwise(row.record.job) else ""

    def _found(self, case: str, batch_size: int | None) -> Row | str:
        return self.group.row_of(case, count(self.article, case, self.most), batch_size)


def _listed(rows: Sequence[Named]) -> str:
    """ "ds-inference in batch 8, 16; accelerate-int8 and ds-zero in batch 8, 16, 32"."""
    sizes_of: dict[str, list[str]] = {}
    for case, batch_size in rows:
        sizes_of.setdefault(case, []).extend([] if batch_size is None else [str(batch_size)])
    cases_of: dict[str, list[str]] = {}
    for case, sizes in sizes_of.items():
        cases_of.setdefault(", ".join(sizes), []).append(case)
    return "; ".join(listed(cases) + (f" in batch {sizes}" if sizes else "") for sizes, cases in cases_of.items())


def count(article: Article, case: str, most: int) -> int:
    """On how many devices a case is judged: the article's number, at most `most`."""
    of_article = article.case(case)
    return min(of_article.gpus, most) if of_article else most


def weights_can_judge(row: Row) -> bool:
    """Has the row real weights, or random ones with which the output check sees enough?"""
    return row.recipe >= LEAST_RECIPE


def why_not(rows: Sequence[Row], new_tokens: int | None) -> str:
    """Why these rows judge nothing, or ""; without `new_tokens` each run counts, whatever its calls are."""
    if not all(weights_can_judge(row) for row in rows):
        return f"weights of recipe {min(row.recipe for row in rows)}, which judge nothing"
    row = min(rows, key=lambda row: len(row.undisturbed(new_tokens)))
    fewest, disturbed = len(row.undisturbed(new_tokens)), sum(bool(disturbed_by(run)) for run in row.ok_runs)
    if fewest >= stats.LEAST_RUNS:
        return ""
    beside = f" beside {disturbed} on a disturbed machine" if disturbed else ""
    return f"{counted(fewest, 'run')}{beside}, {stats.LEAST_RUNS} are needed"


def fewest_runs(rows: Sequence[Row], new_tokens: int | None) -> int:
    """The undisturbed runs of the row that has fewest."""
    return min(len(row.undisturbed(new_tokens)) for row in rows)


def devices_for(group: Group, article: Article, named: Sequence[Named], new_tokens: int) -> int:
    """The largest number of devices for a claim that names these rows: the article's number, or the nearest number below it that was measured.

    A number of devices is measured where each of the rows has five runs, or ran out of its GPUs' memory, or is unsupported. Where no number is measured, the
    number with the most such rows counts, then the number with the most rows, then with the most calls. A trial of a few calls on more devices
    therefore hides nothing.
    """
    most = max(count(article, case, sys.maxsize) for case, _ in named)
    cases = {case for case, _ in named}
    numbers = sorted({row.count for row in group.rows if row.case in cases and row.count <= most}, reverse=True) or [most]

    def rank(number: int) -> tuple[int, int, int]:
        rows_or_reasons = (group.row_of(case, count(article, case, number), batch_size) for case, batch_size in named)
        rows = [row for row in rows_or_reasons if isinstance(row, Row)]
        measured = sum(ends(row) or len(row.undisturbed(new_tokens)) >= stats.LEAST_RUNS for row in rows)
        calls = sum(len(row.calls_ms(new_tokens)) for row in rows)
        return (measured, len(rows), calls) if measured < len(named) else (measured, measured, sys.maxsize)

    return max(numbers, key=rank)


def ends(row: Row) -> bool:
    """Did the row end in a way that a repeat would give again?"""
    return row.status == "unsupported" or ran_out_by_itself(row.record)


def is_about_the_number(article: Article, cases: Sequence[str]) -> bool:
    """Do these cases differ in the number of devices alone? On fewer they would be the same case."""
    gpus_of_system: dict[tuple[str, str, str], set[int]] = {}
    for case in filter(None, map(article.case, cases)):
        gpus_of_system.setdefault((case.backend, case.model, case.form), set()).add(case.gpus)
    return any(len(gpus) > 1 for gpus in gpus_of_system.values())
