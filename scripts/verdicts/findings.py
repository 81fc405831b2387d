"""What a relation of a claim comes to, and the rows that it is judged on.

A row supports nothing where its status is not ok or its output is wrong or unchecked: the relation is then not tested.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from scripts import stats
from scripts.verdicts.row_groups import Place, Row

REPRODUCED, NOT_REPRODUCED, NOT_TESTED = "reproduced", "not reproduced", "not tested"

#: The row of each case on the article's number of devices in its smallest batch, or in words why there is none; and under
#: (case, batch size, devices) every row that there is.
Rows = Mapping[str | Place, Row | str]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The word on one relation, the sentence with the number behind it, and the ratio where it is one of times."""

    word: str
    reason: str
    ratio: stats.Estimate | None = None


class NotTested(Exception):
    """Why rows cannot test a relation; `ratio` where there is a number nevertheless."""

    def __init__(self, reason: str, ratio: stats.Estimate | None = None) -> None:
        super().__init__(reason)
        self.ratio = ratio


def tested(holds: bool, reason: str, ratio: stats.Estimate | None = None) -> Finding:
    """The Finding on a relation that was tested."""
    return Finding(REPRODUCED if holds else NOT_REPRODUCED, reason, ratio)


def usable(rows: Rows, case: str, new_tokens: int | None = None) -> Row:
    """A case's row, where it can support a claim; raises NotTested in the words of Row.unusable."""
    row = rows.get(case, f"{case} was not run here")
    reason = row if isinstance(row, str) else row.unusable(new_tokens)
    if isinstance(row, str) or reason:
        raise NotTested(reason)
    return row


def bounds(ratio: stats.Estimate, words: str) -> tuple[float, float]:
    """The bounds of a ratio's interval; raises NotTested where too few calls were timed."""
    if ratio.low is None or ratio.high is None:
        raise NotTested(f"{words}, but fewer than {stats.LEAST_SAMPLES} timed calls carry no interval", ratio)
    return ratio.low, ratio.high


def question(row: Row) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a row was asked: rows of other models or prompts cannot be compared."""
    return {name: value for name, value in row.record.job.model.items() if name != "path"}, row.record.job.prompt


def barest(holding: Sequence[Finding]) -> Finding:
    """Of reproduced relations the one whose ratio is least sure to be above 1; the first where none is a ratio."""
    ratios = [finding for finding in holding if finding.ratio]
    return min(ratios, key=lambda finding: finding.ratio.low if finding.ratio and finding.ratio.low is not None else 0.0) if ratios else holding[0]
