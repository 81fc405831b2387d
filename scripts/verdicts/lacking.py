"""What the verdict on a claim lacks in a setting: do more runs test what is not tested yet, and what has to be typed for them?"""

import dataclasses
import enum
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from scripts import pins, stats
from scripts.results.marks import disturbed_by
from scripts.verdicts import lookup
from scripts.verdicts.lookup import Named, Rows
from scripts.verdicts.parts import NOT_TESTED, Part
from scripts.verdicts.relations import Relation
from scripts.verdicts.row import Row


@dataclasses.dataclass(frozen=True)
class Lacking:
    """What has to be typed: the number of GPUs, None where each case has the article's; and the runs of each row."""

    gpus: int | None
    repeats: int


class State(enum.Enum):
    """Whether the rows of a case may judge, would with more runs, or never will."""

    ABLE = enum.auto()
    LACKS_RUNS = enum.auto()
    NEVER = enum.auto()


def of(judged: Sequence[tuple[Relation, Sequence[Part]]], rows: Rows, in_article: int) -> Lacking | None:
    """What a claim lacks on the GPUs on which it is judged; None where more runs would test no further part of it, or none of its rows is there."""
    not_tested = [relation.rows() for relation, parts in judged if any(part.word == NOT_TESTED for part in parts)]
    wanted = [row for named in not_tested if _would_test(named, rows) for row in named]
    if not wanted or not any(_found(*row, rows) for relation, _ in judged for row in relation.rows()):
        return None
    numbers = {lookup.count(rows.article, case, rows.most) for case, _ in wanted}
    if rows.most < in_article and len(numbers) > 1:  # no number of GPUs fits all rows
        return None
    beside = max((_runs_that_judge_nothing(row) for named in wanted for row in _found(*named, rows)), default=0)
    return Lacking(None if rows.most == in_article else rows.most, stats.LEAST_RUNS + beside)


def _runs_that_judge_nothing(row: Row) -> int:
    """How many of a row's runs count as done and judge nothing: REPEATS has to be larger by this number."""
    return sum(bool(disturbed_by(run)) and not run.host.get("shared_with") for run in row.ok_runs)


def _would_test(named: Sequence[Named], rows: Rows) -> bool:
    states = {_state(*row, rows) for row in named}
    return State.NEVER not in states and State.LACKS_RUNS in states


def _found(case: str, batch_size: int | None, rows: Rows) -> list[Row]:
    """The rows of a case in a batch size, or in all."""
    return [row for row in rows.of_case(case) if batch_size in (None, row.batch_size)]


def _state(case: str, batch_size: int | None, rows: Rows) -> State:
    of_article, key = rows.article.case(case), rows.group.key
    if of_article is None or key.variant not in rows.article.variants_of(of_article) or key.stack not in _backends()[of_article.backend]["stacks"]:
        return State.NEVER
    states = [_state_of(row, rows) for row in _found(case, batch_size, rows)]
    if batch_size is None and isinstance(rows.article.batch_sizes_of(of_article, key.variant), dict):
        ended = State.NEVER in states  # a sweep goes on until memory runs out
        states = [state for state in states if state != State.NEVER]
        if len(states) < 2 and not ended:
            return State.LACKS_RUNS
    if not states or State.LACKS_RUNS in states:
        return State.LACKS_RUNS
    return State.NEVER if State.NEVER in states else State.ABLE


@functools.cache
def _backends() -> Mapping[str, Any]:
    return pins.load().backends


def _state_of(row: Row, rows: Rows) -> State:
    if not lookup.weights_can_judge(row):
        return State.NEVER
    if rows.article.loaded_otherwise(row.record.job) or (row.status == "ok" and not row.runs_of(rows.new_tokens)):
        return State.LACKS_RUNS  # today's job is another one
    if row.unusable(rows.new_tokens):
        return State.NEVER if row.status == "ok" or lookup.ends(row) else State.LACKS_RUNS
    return State.LACKS_RUNS if lookup.why_not([row], rows.new_tokens) else State.ABLE
