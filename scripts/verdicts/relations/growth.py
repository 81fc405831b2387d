"""`rate_grows_with_batch`: a larger batch goes on helping."""

import itertools
from typing import ClassVar

from scripts import stats
from scripts.verdicts.findings import Finding, NotTested, Rows, bounds, tested
from scripts.verdicts.relations import sweeps
from scripts.verdicts.relations.base import Relation
from scripts.verdicts.row_groups import apart


class Growth(Relation, frozen=True, kw_only=True):
    """Reproduced where from each batch size with five timed calls to the next larger one the whole 95 % interval of the ratio of items/s lies
    above 1: the step that gains least decides."""

    KEY: ClassVar[str] = "rate_grows_with_batch"

    case: str
    rate_grows_with_batch: bool

    def cases(self) -> list[str]:
        return [self.case]

    def finding(self, rows: Rows, new_tokens: int, count: int | None) -> Finding:
        timed = sweeps.timed_rows(rows, self.case)
        if len(timed) < 2:
            words = f"{self.case} has {len(timed)} batch size{'s' * (len(timed) != 1)} with a right output and {stats.LEAST_SAMPLES} timed calls"
            raise NotTested(f"{words}, two or more are needed")
        steps = [(sweeps.rate_ratio(larger, smaller), larger, smaller) for smaller, larger in itertools.pairwise(timed)]
        ratio, larger, smaller = min(steps, key=lambda step: bounds(step[0], "a step")[0])
        least = f"of the steps from batch size {timed[0].batch_size} to {timed[-1].batch_size} the least gain: " if len(steps) > 1 else ""
        words = f"{least}batch size {larger.batch_size} makes {stats.in_words(ratio, least=2)} times the items/s of batch size {smaller.batch_size}"
        words += ", on different GPUs" if apart(larger, smaller) else ""
        few = [str(row.batch_size) for row in sweeps.right_rows(rows, self.case) if all(row is not counted for counted in timed)]
        words += f"; too few calls to judge: {', '.join(few)}" if few else ""
        return tested(bounds(ratio, words)[0] > 1, words, ratio)
