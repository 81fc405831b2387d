"""`left_padding_needed`: padding on the left leaves answers as they are, padding on the right does not."""

from typing import ClassVar

from scripts import stats
from scripts.verdicts import rates
from scripts.verdicts.findings import Finding, NotTested, Rows, tested, usable
from scripts.verdicts.relations.base import Relation


class Padding(Relation, frozen=True, kw_only=True):
    """Reproduced where every padded text's first logits are within the dtype's tolerance of those of the text alone when padded on the left,
    and none are when padded on the right."""

    KEY: ClassVar[str] = "left_padding_needed"

    case: str
    left_padding_needed: bool

    def cases(self) -> list[str]:
        return [self.case]

    def finding(self, rows: Rows, new_tokens: int, count: int | None) -> Finding:
        row = usable(rows, self.case)
        figure, allowed = rates.figure(row, "padding"), row.record.job.tolerance
        padded = [place for place, tokens in enumerate(figure["prompt_tokens"]) if tokens < max(figure["prompt_tokens"])] if figure else []
        if not padded or allowed is None:
            raise NotTested(f"{row.name} has no padded text or no tolerance")
        left, right = ([figure[side]["logits_relative_error"][place] for place in padded] for side in ("left", "right"))
        words = (
            f"the first token's logits of {len(padded)} padded texts are at most {stats.percent(max(left))} % off those of the text alone "
            f"with padding on the left, at least {stats.percent(min(right))} % with padding on the right, {stats.percent(allowed)} % is allowed"
        )
        return tested(max(left) <= allowed < min(right), words)
