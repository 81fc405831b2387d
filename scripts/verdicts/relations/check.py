"""`check_passes`: a case's output is right in every run."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from scripts import stats
from scripts.results.output import check_of
from scripts.verdicts.lookup import Rows
from scripts.verdicts.parts import NotTested, Part
from scripts.verdicts.relations.base import Relation, checked
from scripts.verdicts.run_facts import wrong_output


class Check(Relation, frozen=True, kw_only=True):
    """The output equals plain transformers' within its tolerance, also among padded sentences; here a wrong output is a result, not an obstacle."""

    KEY: ClassVar[str] = "check_passes"

    case: str
    check_passes: Literal[True]

    def names(self) -> list[str]:
        return ["right output"]

    def parts(self, rows: Rows) -> list[Part]:
        row = rows.of(self.case)
        checks = [check for run in row.ok_runs if (check := check_of(run))]
        if not checks or len(checks) < len(row.ok_runs):
            raise NotTested(row.unusable())
        worst = max(checks, key=lambda check: (not check.get("passed"), check.get("logits_relative_error") or 0.0))
        if not worst.get("passed"):
            return checked(row, False, f"{self.case}'s {wrong_output(worst)}")
        if row.is_wrong_when_padded:
            return checked(row, False, f"{self.case}'s output is another one when padded")
        return checked(row, True, f"{self.case}'s {in_words(worst)}")


def in_words(check: Mapping[str, Any]) -> str:
    """What a check that passed found: "logits differ by 0.05 % from transformers', 0.1 % is allowed"."""
    error, tolerance = check.get("logits_relative_error"), check.get("tolerance")
    if error is None:
        return "output passes its check"
    return f"logits differ by {stats.percent(error)} % from transformers'" + (f", {stats.percent(tolerance)} % is allowed" if tolerance is not None else "")
