"""Milliseconds per token of rows that generated whole batches, by three formulas.

article     time of the calls over all tokens that `generate` appended, the padding behind end tokens included; the tokens of
            the ZeRO rows times the number of GPUs, each of which ran the same sentences
once        time over all tokens that `generate` appended, each once: rows on different numbers of GPUs are compared by this formula
corrected   time over the tokens that were really made, each once

Besides, the times between tokens, of calls that tell when each token came.
"""

import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from scripts import stats
from scripts.articles import Article, Case
from scripts.results import Record
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group
from scripts.verdicts.run_facts import cycles_of

Formula = Literal["article", "once", "corrected"]
#: The formulas of the table in the article's shape.
IN_TABLE: tuple[Formula, Formula] = ("article", "corrected")
#: The metric's name in an article's published numbers.
METRIC: Final = "ms_per_token"


def between_ms(figures: Iterable[Mapping[str, Any]]) -> Sequence[float]:
    """The times between two tokens of the stamped calls of `token_times` figures, in an array: thousands of runs have millions of them."""
    times = array.array("d")
    for figure in figures:
        for call in figure.get("between_ms") or []:
            times.extend(call)
    return times


def rows_of(group: Group, article: Article | None) -> list[Row]:
    """The rows of cases with the form `padded-sentences`."""
    names = {case.name for case in article.cases if case.form == "padded-sentences"} if article else set()
    return [row for row in group.rows if row.case in names or "cycles" in row.figures]


def sizes_of(rows: Sequence[Row], cases: Sequence[Case]) -> list[int]:
    """All batch sizes of the rows and of the published numbers."""
    return sorted({row.batch_size for row in rows} | {int(size) for case in cases for size in (case.published or {})[METRIC]})


def tokens_of_a_call(row: Row, formula: Formula) -> int:
    """The tokens that a call of this row counts; 0 where the guest counted none."""
    return tokens_of_run(row.record, formula)


def tokens_of_run(run: Record, formula: Formula) -> int:
    """The tokens that a call of this run counts; 0 where the guest counted none."""
    cycles = cycles_of(run)
    if formula == "corrected":
        return int(cycles.get("real_tokens") or 0)
    times = int(cycles.get("ranks") or 1) if formula == "article" and (run.job.options or {}).get("tokens_times_ranks") else 1
    return int(cycles.get("counted_tokens") or 0) * times


def ms_per_token(row: Row, formula: Formula) -> stats.Estimate | None:
    """The mean over the runs with its interval; None where the row has no time, or a run no count of tokens."""
    if row.status != "ok" or not row.new_tokens:
        return None
    longest = row.new_tokens[-1]
    tokens = [tokens_of_run(run, formula) for run in row.runs_of(longest)]
    return stats.over_runs([ms / count for ms, count in zip(row.run_means_ms(longest), tokens, strict=True)]) if all(tokens) else None


def padding_error(row: Row) -> float | None:
    """How far the first sentence's logits are off when it is padded in a batch; None where it was not measured or is not finite."""
    return cycles_of(row.record).get("padded_logits_relative_error")


def is_right(row: Row) -> bool:
    """Did the output pass its check, and does padding leave it as it is?"""
    return row.output_is_right and not row.is_wrong_when_padded
