"""What a relation of a claim comes to, and the rows that it is judged on.

A row supports nothing where its status is not ok or its output is wrong or unchecked: the relation is then not tested.
"""

import dataclasses
from collections.abc import Mapping

from scripts import stats
from scripts.verdicts.row_groups import Row

REPRODUCED, NOT_REPRODUCED, NOT_TESTED = "reproduced", "not reproduced", "not tested"

#: The row of each case on the article's number of devices in its smallest batch, or in words why there is none; and under
#: (case, batch size, devices) every row that there is.
Rows = Mapping[str | tuple[str, int, int], Row | str]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The word on one relation, the sentence with the number behind it, and the ratio where it is one of times."""

    word: str
    reason: str
    ratio: stats.Estimate | None = None


def tested(holds: bool, reason: str, ratio: stats.Estimate | None = None) -> Finding:
    """The Finding on a relation that was tested."""
    return Finding(REPRODUCED if holds else NOT_REPRODUCED, reason, ratio)


def unusable(rows: Rows, case: str, new_tokens: int | None = None) -> str:
    """Why a case's row cannot support a claim, in the words of Row.unusable, or ""."""
    row = rows.get(case, f"{case} was not run here")
    return row if isinstance(row, str) else row.unusable(new_tokens)


def question(row: Row) -> tuple[dict, dict]:
    """What a row was asked: rows of other models or prompts cannot be compared."""
    return {name: value for name, value in row.record.job.model.items() if name != "path"}, row.record.job.prompt


def barest(holding: list[Finding]) -> Finding:
    """Of reproduced relations the one whose ratio is least sure to be above 1; the first where none is a ratio."""
    ratios = [finding for finding in holding if finding.ratio]
    return min(ratios, key=lambda finding: finding.ratio.low) if ratios else holding[0]
