"""The rows that a claim asks for in a group, and whether they may judge it."""

import collections
import dataclasses
from collections.abc import Sequence

from scripts import stats
from scripts.articles import Article
from scripts.verdicts import token_times
from scripts.verdicts.parts import NotTested
from scripts.verdicts.row_groups import Group, Row, gpus

#: Random weights of earlier recipes hide faults from the output check, so their rows judge nothing.
LEAST_RECIPE = 2


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of one group for calls of so many new tokens.

    count  on so many devices where batch sizes are named; every other case is wanted on the article's number
    """

    group: Group
    article: Article
    new_tokens: int
    count: int = 0

    def of(self, case: str) -> Row:
        """The row of a case in its smallest batch; raises NotTested where it is missing or supports nothing."""
        found = self.article.case(case)
        variant = self.group.key.variant
        if found and found.variants and variant not in found.variants:
            raise NotTested(f"{case} is no case of the variant {variant}")
        row = self.group.row_of(case, found.gpus if found else 1)
        if isinstance(row, str):
            raise NotTested(row)
        return row

    def usable(self, case: str) -> Row:
        """As `of`; raises NotTested where the row's output is wrong too, or it has no such calls."""
        return _right(self.of(case), self.new_tokens)

    def in_batch(self, case: str, batch_size: int) -> Row:
        """The row of a case in a batch size; raises NotTested as `usable`, and where padding changes the output."""
        of_case = [row for row in self.group.rows if row.case == case]
        if not of_case:
            raise NotTested(f"{case} was not run here")
        row = next((row for row in of_case if (row.batch_size, row.count) == (batch_size, self.count)), None)
        if row is None:
            raise NotTested(f"{case} b{batch_size} was not run on {gpus(self.count)} here")
        if token_times.wrong_when_padded(row):
            raise NotTested(f"{row.name}'s output is another one when padded: its numbers do not count")
        return _right(row, self.new_tokens)

    def over_batches(self, case: str) -> list[Row]:
        """The rows of a case whose output is right, from the smallest batch up."""
        found = self.article.case(case)
        rows = [row for row in self.group.rows if row.case == case and found and row.count == found.gpus]
        return sorted((row for row in rows if not row.unusable(self.new_tokens)), key=lambda row: row.batch_size)


def _right(row: Row, new_tokens: int) -> Row:
    if reason := row.unusable(new_tokens):
        raise NotTested(reason)
    return row


def why_not(rows: Sequence[Row], new_tokens: int | None) -> str:
    """Why these rows judge nothing, or ""; without `new_tokens` each run counts, whatever its calls are."""
    if any(row.recipe < LEAST_RECIPE for row in rows):
        return f"weights of recipe {min(row.recipe for row in rows)}"
    fewest = min(len(row.ok_runs if new_tokens is None else row.run_means_ms(new_tokens)) for row in rows)
    return f"{fewest} run{'s' * (fewest != 1)}, {stats.LEAST_RUNS} are needed" if fewest < stats.LEAST_RUNS else ""


def count_for(group: Group, named: Sequence[tuple[str, int]], most: int, new_tokens: int) -> int:
    """The number of devices to judge rows on that are named by case and batch size: `most`, the article's, or the nearest below that was measured.

    Measured means: each of the rows has five runs, or ran out of memory, or is unsupported. Where no number has that, the one with the most such
    rows counts, of several that with the most rows, then calls: a look with a call or two on more GPUs hides nothing.
    """
    of_named = [row for row in group.rows if (row.case, row.batch_size) in named and row.count <= most]
    ended: collections.Counter[int] = collections.Counter()
    ran: collections.Counter[int] = collections.Counter()
    calls: collections.Counter[int] = collections.Counter()
    for row in of_named:
        ended[row.count] += row.status in ("oom", "unsupported") or len(row.run_means_ms(new_tokens)) >= stats.LEAST_RUNS
        ran[row.count] += 1
        calls[row.count] += len(row.timed_ms(new_tokens))
    measured = [count for count in ran if ended[count] == len(named)]
    return max(measured) if measured else max(ran, key=lambda count: (ended[count], ran[count], calls[count], count), default=most)
