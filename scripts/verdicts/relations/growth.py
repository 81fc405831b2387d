"""`rate_grows_with_batch`: each larger batch makes more items/s."""

import dataclasses
import itertools
from typing import ClassVar, Literal

from scripts.units import counted
from scripts.verdicts import parts
from scripts.verdicts.lookup import Rows
from scripts.verdicts.parts import HOLDS, NotTested, Part, decides
from scripts.verdicts.relations import pairs
from scripts.verdicts.relations.base import Relation
from scripts.verdicts.row import Row


class Growth(Relation, frozen=True, kw_only=True):
    """From every batch size to the next larger one the items/s grow. The claim names no sizes: the sizes that may judge count, or all sizes
    where fewer than two may."""

    KEY: ClassVar[str] = "rate_grows_with_batch"

    case: str
    rate_grows_with_batch: Literal[True]

    def names(self) -> list[str]:
        return ["every step gains"]

    def parts(self, rows: Rows) -> list[Part]:
        right = rows.over_batches(self.case)
        able = rows.able(right)
        judged = able if len(able) > 1 else right
        if len(judged) < 2:
            raise NotTested(f"{self.case} has {counted(len(judged), 'batch size')} with a right output, two or more are needed")
        pairs.must_answer_the_same(judged)
        steps = [_step(larger, smaller, rows.new_tokens) for smaller, larger in itertools.pairwise(judged)]
        deciding = decides(steps)
        words = deciding.sentence
        if len(steps) > 1:
            held = sum(step.word == HOLDS for step in steps)
            words = f"of the steps from batch size {judged[0].batch_size} to {judged[-1].batch_size} the least gain: {words}"
            words += f"; {held} of {len(steps)} steps hold" if not deciding.why else ""
        few = [str(row.batch_size) for row in right if row not in judged]
        words += f"; too few runs to judge: {', '.join(few)}" if few else ""
        return [dataclasses.replace(deciding, sentence=words)]


def _step(larger: Row, smaller: Row, new_tokens: int) -> Part:
    pair = pairs.of_batches(larger, smaller, new_tokens)
    value, beside = pairs.ratio_in_words(pair, bounds=parts.ABOVE_ONE.ends)
    words = f"batch size {larger.batch_size} makes {value} times the items/s of batch size {smaller.batch_size}{beside}"
    return dataclasses.replace(pair.part(parts.ABOVE_ONE, words), cases=(larger.name, smaller.name))
