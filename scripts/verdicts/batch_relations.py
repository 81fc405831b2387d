"""The relations that the article on batches makes, each as it is judged.

single/batched/item_ratio_at_least   reproduced where the whole 95 % interval of items/s of the best batch size over those of
                     the case `single` is at or above the bound; not tested where it is below, as long as no batch size ran out of memory
rate_grows_with_batch     reproduced where from each batch size with five timed calls to the next larger one the whole 95 %
                     interval of the ratio of items/s lies above 1
left_padding_needed  reproduced where every padded text's first logits are within the dtype's tolerance of those of the text
                     alone when padded on the left, and none are when padded on the right
"""

import itertools
from collections.abc import Mapping

from scripts import stats
from scripts.verdicts import rates
from scripts.verdicts.findings import NOT_REPRODUCED, NOT_TESTED, REPRODUCED, Finding, Rows, question, tested, unusable
from scripts.verdicts.row_groups import Row, apart


def _right_sizes(rows: Rows, case: str) -> dict[int, Row]:
    """{batch size: its row} of a case where the output is right, from the smallest batch up."""
    named = [row for name, row in rows.items() if isinstance(name, str) and isinstance(row, Row)]
    mine = {row.batch_size: row for row in named if row.case == case and not row.unusable()}
    return dict(sorted(mine.items()))


def sizes_of(rows: Rows, case: str) -> list[Row]:
    """The rows of a case whose output is right and whose calls carry an interval, from the smallest batch up.

    A batch that was called a time or two, to see whether it fits, neither speaks for a claim nor against it.
    """
    return [row for row in _right_sizes(rows, case).values() if stats.carry_interval(rates.timed_ms(row))]


def rate_ratio(above: Row, below: Row) -> stats.Estimate:
    """items/s of one row over another's, with its interval."""
    return stats.scaled(stats.ratio(rates.timed_ms(below), rates.timed_ms(above)), above.batch_size / below.batch_size)


def _few(case: str) -> str:
    return f"{case} has no row of {stats.LEAST_SAMPLES} timed calls, fewer carry no interval"


def judge_item_ratio(relation: Mapping, rows: Rows) -> Finding:
    """The Finding on a relation single/batched/item_ratio_at_least."""
    reason = unusable(rows, relation["single"])
    sizes = sizes_of(rows, relation["batched"])
    if not reason and not stats.carry_interval(rates.timed_ms(rows[relation["single"]])):
        reason = _few(relation["single"])
    if reason or not sizes:
        return Finding(NOT_TESTED, reason or unusable(rows, relation["batched"]) or _few(relation["batched"]))
    single, best = rows[relation["single"]], max(sizes, key=lambda row: rates.items_per_s(row).value)
    if question(single)[0] != question(best)[0]:
        return Finding(NOT_TESTED, f"{single.name} and {best.name} ran different models")
    ratio = rate_ratio(best, single)
    alone, together = (rates.duration(rates.hours(rates.items_per_s(row).value)) for row in (single, best))
    words = f"{best.name} makes {stats.in_words(ratio, least=2)} times the items/s of {single.name}"
    words += f": {rates.ITEMS:,} items take {together} instead of {alone}" + (", on different GPUs" if apart(single, best) else "")
    if ratio.low >= relation["item_ratio_at_least"]:
        return Finding(REPRODUCED, words, ratio)
    if not _memory_ran_out(rows, relation["batched"]):
        return Finding(NOT_TESTED, f"{words}, but no batch size was so large that memory ran out", ratio)
    return Finding(NOT_REPRODUCED, words, ratio)


def _memory_ran_out(rows: Rows, case: str) -> bool:
    """Was a batch size of the case too large for the memory? Until then a larger one may make more items/s."""
    return any(isinstance(row, Row) and row.case == case and row.status == "oom" for row in rows.values())


def judge_growth(relation: Mapping, rows: Rows) -> Finding:
    """The Finding on a relation case/rate_grows_with_batch: the step that gains least decides."""
    case = relation["case"]
    sizes = sizes_of(rows, case)
    if len(sizes) < 2:
        words = f"{case} has {len(sizes)} batch size{'s' * (len(sizes) != 1)} with a right output and {stats.LEAST_SAMPLES} timed calls"
        return Finding(NOT_TESTED, f"{words}, two or more are needed")
    steps = [(rate_ratio(larger, smaller), larger, smaller) for smaller, larger in itertools.pairwise(sizes)]
    ratio, larger, smaller = min(steps, key=lambda step: step[0].low)
    told = f"of the steps from batch size {sizes[0].batch_size} to {sizes[-1].batch_size} the least gain: " if len(steps) > 1 else ""
    words = f"{told}batch size {larger.batch_size} makes {stats.in_words(ratio, least=2)} times the items/s of batch size {smaller.batch_size}"
    words += ", on different GPUs" if apart(larger, smaller) else ""
    few = [str(size) for size, row in _right_sizes(rows, case).items() if row not in sizes]
    words += f"; too few calls to judge: {', '.join(few)}" if few else ""
    return tested(ratio.low > 1, words, ratio)


def judge_padding(relation: Mapping, rows: Rows) -> Finding:
    """The Finding on a relation case/left_padding_needed."""
    reason = unusable(rows, relation["case"])
    if reason:
        return Finding(NOT_TESTED, reason)
    row = rows[relation["case"]]
    found, allowed = rates.figure(row, "padding"), row.record.job.tolerance
    padded = [place for place, tokens in enumerate(found["prompt_tokens"]) if tokens < max(found["prompt_tokens"])] if found else []
    if not padded or allowed is None:
        return Finding(NOT_TESTED, f"{row.name} has no padded text or no tolerance")
    left, right = ([found[side]["logits_relative_error"][place] for place in padded] for side in ("left", "right"))
    words = (
        f"the first token's logits of {len(padded)} padded texts are at most {stats.percent(max(left))} % off those of the text alone "
        f"with padding on the left, at least {stats.percent(min(right))} % with padding on the right, {stats.percent(allowed)} % is allowed"
    )
    return tested(max(left) <= allowed < min(right), words)
