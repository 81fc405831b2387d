"""The rule that turns a claim of an article into a verdict.

A claim is a list of relations between cases (bench/articles/*.toml); it is judged within one group of rows, for one
number of new tokens. A relation is

    faster/slower        reproduced where the whole 95 % interval of mean(slower) / mean(faster) lies above 1, and where
                         cases were run repeatedly the ratio of every pair of runs does too
      … with `within`    and the ratio itself lies between ratio / within and ratio x within, both included
      … with `at_least`  the interval lies above that number in place of 1
      … with `at_most`   the interval lies below that number, and which of the two is faster does not count
      … with `batch_size`  in this batch size
    lowest/below         reproduced where `lowest` takes fewer ms/token than each of `below` in each of `batch_sizes`, by the rule for faster/slower
    from_batch/to_batch  the gain is ms/token at the first over ms/token at the second: reproduced where its interval lies above
                         `gain_at_least`, below `gain_below`, or above `share_of_linear` of to_batch / from_batch
    peak_memory_below_bytes   reproduced where no GPU of the case ever held as much, by the host's NVML
    check_passes         reproduced where the output equals plain transformers' within its tolerance
    single/batched/item_ratio_at_least   reproduced where the whole 95 % interval of items/s of the best batch size over those of
                         the case `single` is at or above the bound; not tested where it is below, as long as no batch size ran out of memory
    rate_grows_with_batch     reproduced where from each batch size with five timed calls to the next larger one the whole 95 %
                         interval of the ratio of items/s lies above 1
    left_padding_needed  reproduced where every padded text's first logits are within the dtype's tolerance of those of the text
                         alone when padded on the left, and none are when padded on the right

A row supports nothing where its status is not ok or its output is wrong or unchecked: the relation is then not tested.
Where batch sizes are named, cases are compared on one number of GPUs: the article's, or the largest that all of them ran on here. ms/token
are the article's (scripts/tokens.py).
One not reproduced relation makes the claim not reproduced, else one not tested relation makes it not tested.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from scripts import batches, stats, tokens
from scripts.articles import Article
from scripts.groups import GIB, Group, Row, run_means_ms, wrong_output

REPRODUCED, NOT_REPRODUCED, NOT_TESTED = "reproduced", "not reproduced", "not tested"


@dataclasses.dataclass(frozen=True)
class Finding:
    """The word on one relation, the sentence with the number behind it, and the ratio where it is one of times."""

    word: str
    reason: str
    ratio: stats.Estimate | None = None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`holding`: how many of the claim's relations were reproduced."""

    word: str
    reason: str
    holding: int = 0


#: The row of each case on the article's number of devices in its smallest batch, or in words why there is none; and under
#: (case, batch size, devices) every row that there is.
Rows = Mapping[str | tuple[str, int, int], Row | str]


def rows_by_case(group: Group, article: Article) -> dict[str | tuple[str, int, int], Row | str]:
    """The row of each of the article's cases on the article's number of devices, or why there is none.

    Where a case was run in several batch sizes its name stands for the smallest, and "batch b8" for one of them; (case, batch
    size, devices) is each row that there is, whatever its number of devices.
    """
    gpus = {case.name: case.gpus for case in article.cases}
    every = {(row.case, row.batch_size, row.count): row for row in group.rows}
    every_size = {row.name: row for row in group.rows if row.count == gpus.get(row.case)}
    return {**every, **every_size, **{name: group.row_of(name, count) for name, count in gpus.items()}}


def common_count(rows: Rows, cases: Sequence[str]) -> int | None:
    """The largest number of devices that all of the cases ran on; None where there is none."""
    counts = [{key[2] for key in rows if isinstance(key, tuple) and key[0] == case} for case in cases]
    return max(set.intersection(*counts), default=None)


def _unusable(rows: Rows, case: str, new_tokens: int | None = None) -> str:
    row = rows.get(case, f"{case} was not run here")
    return row if isinstance(row, str) else row.unusable(new_tokens)


def _in_batches(rows: Rows, wanted: Sequence[tuple[str, int]], new_tokens: int) -> tuple[dict[tuple[str, int], Row], str]:
    """({(case, batch size): its row} on the common number of devices, why that is not possible)."""
    cases = list(dict.fromkeys(case for case, _ in wanted))
    count = common_count(rows, cases)
    if count is None:
        return {}, f"{', '.join(cases)} did not all run on the same number of devices here"
    found = {}
    for case, batch_size in wanted:
        row = rows.get((case, batch_size, count))
        reason = row.unusable(new_tokens) if isinstance(row, Row) else f"{case} b{batch_size} was not run on {count} here"
        if not reason and tokens.wrong_when_padded(row):
            reason = f"{row.name}'s output is another one when padded: its numbers do not count"
        if reason:
            return {}, reason
        found[case, batch_size] = row
    return found, ""


def per_token_ratio(above: Row, below: Row, new_tokens: int) -> tuple[stats.Estimate, list[float]]:
    """(ms/token of one row over ms/token of another by the article's formula, the same for every pair of repeated runs)."""
    counted = [tokens.tokens_of_a_call(row, "article") for row in (above, below)]
    factor = counted[1] / counted[0] if all(counted) else 1.0  # rows that tell no tokens are compared by the call
    ratio = stats.scaled(stats.ratio(above.timed_ms(new_tokens), below.timed_ms(new_tokens)), factor)
    return ratio, [one * factor for one in ratios_over_runs(below, above, new_tokens)]


def _question(row: Row) -> tuple[dict, dict]:
    """What a row was asked: rows of other models or prompts cannot be compared."""
    return {name: value for name, value in row.record.job.model.items() if name != "path"}, row.record.job.prompt


def ratios_over_runs(faster: Row, slower: Row, new_tokens: int) -> list[float]:
    """The ratio of the means of every run of one row to every run of the other; empty unless one of them was repeated."""
    above, below = run_means_ms(slower, new_tokens), run_means_ms(faster, new_tokens)
    return [one / other for one in above for other in below] if len(above) * len(below) > 1 else []


def _on(row: Row) -> str:
    return f"{row.case} ({row.count} GPU{'s' * (row.count != 1)})"


def ratio_words(relation: Mapping, faster: Row, slower: Row, ratio: stats.Estimate, over_runs: Sequence[float] = ()) -> str:
    """ "deepspeed (2 GPUs) is 2.95 times as fast as int8 (1 GPU) (2.91 to 2.99; 2.80 to 2.99 over repeated runs; published 3.83)"."""
    value, interval = stats.with_interval(ratio, least=2)
    beside = [interval] if interval else []
    if over_runs:
        beside.append(f"{min(over_runs):.2f} to {max(over_runs):.2f} over repeated runs")
    if "ratio" in relation:
        beside.append(f"published {relation['ratio']:.2f}")
    return f"{_on(faster)} is {value} times as fast as {_on(slower)}" + (f" ({'; '.join(beside)})" if beside else "")


def judge_speed(relation: Mapping, rows: Rows, new_tokens: int) -> Finding:
    """The Finding on a relation faster/slower."""
    names = (relation["faster"], relation["slower"])
    if "batch_size" in relation:
        found, reason = _in_batches(rows, [(name, relation["batch_size"]) for name in names], new_tokens)
        faster, slower = (found.get((name, relation["batch_size"])) for name in names)
    else:
        reason = next((why for why in (_unusable(rows, name, new_tokens) for name in names) if why), "")
        faster, slower = rows.get(names[0]), rows.get(names[1])
    if reason:
        return Finding(NOT_TESTED, reason)
    if _question(faster) != _question(slower):
        return Finding(NOT_TESTED, f"{names[0]} and {names[1]} ran different models or prompts")
    ratio, over_runs = per_token_ratio(slower, faster, new_tokens)
    words = ratio_words(relation, faster, slower, ratio, over_runs) + (f", batch {relation['batch_size']}" if "batch_size" in relation else "")
    if ratio.low is None:
        return Finding(NOT_TESTED, f"{words}, but fewer than {stats.LEAST_SAMPLES} timed calls carry no interval", ratio)
    if "at_most" in relation:
        holds = max([ratio.high, *over_runs]) < relation["at_most"]
        return Finding(REPRODUCED if holds else NOT_REPRODUCED, f"{words}, the bound is {relation['at_most']:g}", ratio)
    # The direction has to hold within a run and in every pair of runs.
    if min([ratio.low, *over_runs]) <= relation.get("at_least", 1):
        return Finding(NOT_REPRODUCED, words + (f", the bound is {relation['at_least']:g}" if "at_least" in relation else ""), ratio)
    if "within" in relation:
        least, most = relation["ratio"] / relation["within"], relation["ratio"] * relation["within"]
        if not least <= ratio.value <= most:
            return Finding(NOT_REPRODUCED, f"{words}, counted as near is {least:.2f} to {most:.2f}", ratio)
    return Finding(REPRODUCED, words, ratio)


def judge_lowest(relation: Mapping, rows: Rows, new_tokens: int) -> Finding:
    """The Finding on a relation lowest/below: the pair of cases that decides, or the one that holds most barely."""
    names = [relation["lowest"], *relation["below"]]
    found, reason = _in_batches(rows, [(name, size) for size in relation["batch_sizes"] for name in names], new_tokens)
    if reason:
        return Finding(NOT_TESTED, reason)
    pairs = [
        judge_speed({"faster": relation["lowest"], "slower": other, "batch_size": size}, rows, new_tokens)
        for size in relation["batch_sizes"]
        for other in relation["below"]
    ]
    for word in (NOT_TESTED, NOT_REPRODUCED):
        against = [pair for pair in pairs if pair.word == word]
        if against:
            return dataclasses.replace(against[0], reason=f"{against[0].reason}; {len(pairs) - len(against)} of {len(pairs)} comparisons hold")
    return _barest(pairs)


def judge_gain(relation: Mapping, rows: Rows, new_tokens: int) -> Finding:
    """The Finding on a relation from_batch/to_batch."""
    case, small, large = relation["case"], relation["from_batch"], relation["to_batch"]
    found, reason = _in_batches(rows, [(case, small), (case, large)], new_tokens)
    if reason:
        return Finding(NOT_TESTED, reason)
    gain, over_runs = per_token_ratio(found[case, small], found[case, large], new_tokens)
    value, interval = stats.with_interval(gain, least=2)
    beside = ([interval] if interval else []) + ([f"published {relation['ratio']:.2f}"] if "ratio" in relation else [])
    words = f"{case}'s ms/token fall {value} times from batch {small} to {large}" + (f" ({'; '.join(beside)})" if beside else "")
    if gain.low is None:
        return Finding(NOT_TESTED, f"{words}, but fewer than {stats.LEAST_SAMPLES} timed calls carry no interval", gain)
    if "gain_below" in relation:
        bound, holds = relation["gain_below"], max([gain.high, *over_runs]) < relation["gain_below"]
    else:
        bound = relation["gain_at_least"] if "gain_at_least" in relation else relation["share_of_linear"] * large / small
        holds = min([gain.low, *over_runs]) > bound
    return Finding(REPRODUCED if holds else NOT_REPRODUCED, f"{words}, the bound is {bound:g}", gain)


def judge_memory(relation: Mapping, rows: Rows) -> Finding:
    """The Finding on a relation case/peak_memory_below_bytes."""
    case, limit = relation["case"], relation["peak_memory_below_bytes"]
    row = rows.get(case)
    if isinstance(row, Row) and row.status == "oom" and _all_hold(row, limit):
        return Finding(NOT_REPRODUCED, f"{case} ran out of memory on a GPU of at least {limit / GIB:.1f} GiB")
    reason = _unusable(rows, case)
    if reason:
        return Finding(NOT_TESTED, reason)
    peaks = rows[case].peak_used_bytes().values()
    if not peaks:
        return Finding(NOT_TESTED, f"the memory of {case}'s GPUs was not sampled")
    words = f"{case} held at most {max(peaks) / GIB:.2f} GiB on a GPU, the bound is {limit / GIB:.2f} GiB"
    return Finding(REPRODUCED if max(peaks) < limit else NOT_REPRODUCED, words)


def _all_hold(row: Row, limit_bytes: int) -> bool:
    gpus = row.record.host.get("gpus") or []
    return bool(gpus) and all(gpu["memory_total_bytes"] >= limit_bytes for gpu in gpus)


def judge_check(relation: Mapping, rows: Rows) -> Finding:
    """The Finding on a relation case/check_passes: here a wrong output is a result, not an obstacle."""
    case = relation["case"]
    row = rows.get(case, f"{case} was not run here")
    if isinstance(row, str) or row.status != "ok" or not row.check:
        return Finding(NOT_TESTED, row if isinstance(row, str) else row.unusable())
    if bool(row.check.get("passed")) != relation["check_passes"]:
        return Finding(NOT_REPRODUCED, f"{case}'s {wrong_output(row.check) if relation['check_passes'] else 'output is right'}")
    return Finding(REPRODUCED, f"{case}'s {check_words(row.check)}")


def sizes_of(rows: Rows, case: str) -> list[Row]:
    """The rows of a case whose output is right and whose calls carry an interval, from the smallest batch up.

    A batch that was called a time or two, to see whether it fits, neither speaks for a claim nor against it.
    """
    named = [row for name, row in rows.items() if isinstance(name, str) and isinstance(row, Row)]
    mine = {row.batch_size: row for row in named if row.case == case and not row.unusable()}
    return [mine[size] for size in sorted(mine) if len(batches.timed_ms(mine[size])) >= stats.LEAST_SAMPLES]


def rate_ratio(above: Row, below: Row) -> stats.Estimate:
    """items/s of one row over another's, with its interval."""
    return stats.scaled(stats.ratio(batches.timed_ms(below), batches.timed_ms(above)), above.batch_size / below.batch_size)


def _few(case: str) -> str:
    return f"{case} has no row of {stats.LEAST_SAMPLES} timed calls, fewer carry no interval"


def judge_item_ratio(relation: Mapping, rows: Rows) -> Finding:
    """The Finding on a relation single/batched/item_ratio_at_least."""
    reason = _unusable(rows, relation["single"])
    sizes = sizes_of(rows, relation["batched"])
    if not reason and len(batches.timed_ms(rows[relation["single"]])) < stats.LEAST_SAMPLES:
        reason = _few(relation["single"])
    if reason or not sizes:
        return Finding(NOT_TESTED, reason or _unusable(rows, relation["batched"]) or _few(relation["batched"]))
    single, best = rows[relation["single"]], max(sizes, key=lambda row: batches.items_per_s(row).value)
    if _question(single)[0] != _question(best)[0]:
        return Finding(NOT_TESTED, f"{single.name} and {best.name} ran different models")
    ratio = rate_ratio(best, single)
    alone, together = (batches.duration(batches.hours(batches.items_per_s(row).value)) for row in (single, best))
    words = f"{best.name} makes {stats.in_words(ratio, least=2)} times the items/s of {single.name}"
    words += f": {batches.ITEMS:,} items take {together} instead of {alone}"
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
    return Finding(REPRODUCED if ratio.low > 1 else NOT_REPRODUCED, words, ratio)


def judge_padding(relation: Mapping, rows: Rows) -> Finding:
    """The Finding on a relation case/left_padding_needed."""
    reason = _unusable(rows, relation["case"])
    if reason:
        return Finding(NOT_TESTED, reason)
    row = rows[relation["case"]]
    found, allowed = batches.figure(row, "padding"), row.record.job.tolerance
    padded = [place for place, tokens in enumerate(found["prompt_tokens"]) if tokens < max(found["prompt_tokens"])] if found else []
    if not padded or allowed is None:
        return Finding(NOT_TESTED, f"{row.name} has no padded text or no tolerance")
    left, right = ([found[side]["logits_relative_error"][place] for place in padded] for side in ("left", "right"))
    words = (
        f"the first token's logits of {len(padded)} padded texts are at most {stats.percent(max(left))} % off those of the text alone "
        f"with padding on the left, at least {stats.percent(min(right))} % with padding on the right, {stats.percent(allowed)} % is allowed"
    )
    return Finding(REPRODUCED if max(left) <= allowed < min(right) else NOT_REPRODUCED, words)


def check_words(check: Mapping) -> str:
    error, tolerance = check.get("logits_relative_error"), check.get("tolerance")
    if error is None:
        return "output passes its check" if check.get("passed") else wrong_output(check)
    return f"logits differ by {stats.percent(error)} % from transformers'" + (f", {stats.percent(tolerance)} % is allowed" if tolerance is not None else "")


def judge_relation(relation: Mapping, rows: Rows, new_tokens: int) -> Finding:
    """The Finding on one relation of a claim, for calls that made `new_tokens` new tokens."""
    if "lowest" in relation:
        return judge_lowest(relation, rows, new_tokens)
    if "from_batch" in relation:
        return judge_gain(relation, rows, new_tokens)
    if "faster" in relation:
        return judge_speed(relation, rows, new_tokens)
    if "peak_memory_below_bytes" in relation:
        return judge_memory(relation, rows)
    if "check_passes" in relation:
        return judge_check(relation, rows)
    if "item_ratio_at_least" in relation:
        return judge_item_ratio(relation, rows)
    if "rate_grows_with_batch" in relation:
        return judge_growth(relation, rows)
    if "left_padding_needed" in relation:
        return judge_padding(relation, rows)
    return Finding(NOT_TESTED, f"the kit has no rule for a relation of {', '.join(sorted(relation))}")


def judge(claim: Mapping, rows: Rows, new_tokens: int) -> Verdict:
    """The Verdict on a claim with the one number behind it: the relation that decides, or the one that holds most barely."""
    findings = [judge_relation(relation, rows, new_tokens) for relation in claim["relations"]]
    holding = [finding for finding in findings if finding.word == REPRODUCED]
    for word in (NOT_REPRODUCED, NOT_TESTED):
        against = [finding for finding in findings if finding.word == word]
        if against:
            return Verdict(word, against[0].reason + _rest(holding, len(findings)), len(holding))
    closest = f"all {len(holding)} parts hold, the closest: " if len(holding) > 1 else ""
    return Verdict(REPRODUCED, closest + _barest(holding).reason, len(holding))


def _barest(holding: list[Finding]) -> Finding:
    """Of reproduced relations the one whose ratio is least sure to be above 1; the first where none is a ratio."""
    ratios = [finding for finding in holding if finding.ratio]
    return min(ratios, key=lambda finding: finding.ratio.low) if ratios else holding[0]


def _rest(holding: list[Finding], total: int) -> str:
    """How a claim's other parts fared: "; 3 of its 4 parts hold, the closest: …"."""
    return f"; {len(holding)} of its {total} parts hold, the closest: {_barest(holding).reason}" if holding else ""
