"""`left_padding_needed`: padding on the left leaves the logits of the first new token as they are, padding on the right does not."""

from typing import Any, ClassVar, Literal

from scripts import stats
from scripts.verdicts.lookup import Rows
from scripts.verdicts.parts import NotTested, Part
from scripts.verdicts.relations.base import Relation, checked


class Padding(Relation, frozen=True, kw_only=True):
    """In every run, padding on the left leaves each padded text's first logits within the dtype's tolerance of those of the text alone, and padding on
    the right leaves none within it."""

    KEY: ClassVar[str] = "left_padding_needed"

    case: str
    left_padding_needed: Literal[True]

    def names(self) -> list[str]:
        return ["left padding needed"]

    def parts(self, rows: Rows) -> list[Part]:
        row = rows.usable(self.case)
        allowed = row.record.job.tolerance
        figures = [run.figures.get("padding") or {} for run in row.ok_runs]
        count = min(len(_padded(figure)) for figure in figures)
        if not count or allowed is None:
            raise NotTested(f"{row.name} has no padded text or no tolerance")
        left_error = max(max(_errors(figure, "left")) for figure in figures)
        right_error = min(min(_errors(figure, "right")) for figure in figures)
        words = (
            f"the first token's logits of {count} padded texts are at most {stats.percent(left_error)} % off those of the text alone "
            f"with padding on the left, at least {stats.percent(right_error)} % with padding on the right, {stats.percent(allowed)} % is allowed"
        )
        return checked(row, left_error <= allowed < right_error, words)


def _padded(figure: dict[str, Any]) -> list[int]:
    """The places of the texts that were padded."""
    tokens = figure.get("prompt_tokens") or [0]
    return [place for place, count in enumerate(tokens) if count < max(tokens)]


def _errors(figure: dict[str, Any], side: str) -> list[float]:
    return [figure[side]["logits_relative_error"][place] for place in _padded(figure)]
