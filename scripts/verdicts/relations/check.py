"""`check_passes`: a case's output is right, or wrong."""

from collections.abc import Mapping
from typing import Any, ClassVar

from scripts import stats
from scripts.verdicts.findings import NOT_REPRODUCED, REPRODUCED, Finding, NotTested, Rows
from scripts.verdicts.relations.base import Relation
from scripts.verdicts.row_groups import wrong_output


class Check(Relation, frozen=True, kw_only=True):
    """Reproduced where the output equals plain transformers' within its tolerance; here a wrong output is a result, not an obstacle."""

    KEY: ClassVar[str] = "check_passes"

    case: str
    check_passes: bool

    def cases(self) -> list[str]:
        return [self.case]

    def finding(self, rows: Rows, new_tokens: int, count: int | None) -> Finding:
        row = rows.get(self.case, f"{self.case} was not run here")
        if isinstance(row, str):
            raise NotTested(row)
        if row.status != "ok" or not row.check:
            raise NotTested(row.unusable())
        if bool(row.check.get("passed")) != self.check_passes:
            return Finding(NOT_REPRODUCED, f"{self.case}'s {wrong_output(row.check) if self.check_passes else 'output is right'}")
        return Finding(REPRODUCED, f"{self.case}'s {in_words(row.check)}")


def in_words(check: Mapping[str, Any]) -> str:
    """ "logits differ by 0.05 % from transformers', 0.1 % is allowed"."""
    error, tolerance = check.get("logits_relative_error"), check.get("tolerance")
    if error is None:
        return "output passes its check" if check.get("passed") else wrong_output(check)
    return f"logits differ by {stats.percent(error)} % from transformers'" + (f", {stats.percent(tolerance)} % is allowed" if tolerance is not None else "")
