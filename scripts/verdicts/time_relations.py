"""The relations between times of calls, each as it is judged.

    faster/slower        reproduced where the whole 95 % interval of mean(slower) / mean(faster) lies above 1, and where
                         cases were run repeatedly the ratio of every pair of runs does too
      … with `within`    and the ratio itself lies between ratio / within and ratio x within, both included
      … with `at_least`  the interval lies above that number in place of 1
      … with `at_most`   the interval lies below that number, and which of the two is faster does not count
      … with `batch_size`  in this batch size
    lowest/below         reproduced where `lowest` takes fewer ms/token than each of `below` in each of `batch_sizes`, by the rule for faster/slower
    from_batch/to_batch  the gain is ms/token at the first over ms/token at the second: reproduced where its interval lies above
                         `gain_at_least`, below `gain_below`, or above `share_of_linear` of to_batch / from_batch

Where batch sizes are named, all relations of a claim are judged on one number of GPUs: that on which most of the rows that it names carry
an interval, of several that on which most of them ran, then the largest. So a look with a call or two on more GPUs undoes no verdict.
ms/token are the article's (scripts/verdicts/token_times.py).
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from scripts import stats
from scripts.verdicts import token_times
from scripts.verdicts.findings import NOT_REPRODUCED, NOT_TESTED, REPRODUCED, Finding, Rows, barest, question, tested, unusable
from scripts.verdicts.row_groups import Row, apart, gpus, run_means_ms


def named_rows(relation: Mapping) -> list[tuple[str, int]]:
    """The (case, batch size) of each row that a relation names; [] where it names no batch size."""
    if "lowest" in relation:
        return [(case, size) for size in relation["batch_sizes"] for case in (relation["lowest"], *relation["below"])]
    if "from_batch" in relation:
        return [(relation["case"], relation["from_batch"]), (relation["case"], relation["to_batch"])]
    return [(relation[name], relation["batch_size"]) for name in ("faster", "slower")] if "batch_size" in relation else []


def common_count(rows: Rows, relations: Sequence[Mapping], new_tokens: int) -> int | None:
    """The number of devices on which most of the rows that the relations name carry an interval, of several that on which most of them ran,
    then the largest; None where none of their cases ran."""
    named = {one for relation in relations for one in named_rows(relation)}
    cases, ran, timed = {case for case, _ in named}, collections.Counter(), collections.Counter()
    for key, row in rows.items():
        if isinstance(key, tuple) and key[0] in cases:
            ran[key[2]] += key[:2] in named
            timed[key[2]] += key[:2] in named and stats.carry_interval(row.timed_ms(new_tokens))
    return max(ran, key=lambda count: (timed[count], ran[count], count), default=None)


def _in_batches(rows: Rows, relation: Mapping, new_tokens: int, count: int | None) -> tuple[dict[tuple[str, int], Row], str]:
    """({(case, batch size): its row} on so many devices, why that is not possible)."""
    wanted = named_rows(relation)
    ran = {key[0] for key in rows if isinstance(key, tuple)}
    missing = [case for case in dict.fromkeys(case for case, _ in wanted) if case not in ran]
    if missing:
        return {}, f"{' and '.join(missing)} {'was' if len(missing) == 1 else 'were'} not run here"
    found = {}
    for case, batch_size in wanted:
        row = rows.get((case, batch_size, count))
        reason = row.unusable(new_tokens) if isinstance(row, Row) else f"{case} b{batch_size} was not run on {gpus(count)} here"
        if not reason and token_times.wrong_when_padded(row):
            reason = f"{row.name}'s output is another one when padded: its numbers do not count"
        if reason:
            return {}, reason
        found[case, batch_size] = row
    return found, ""


def per_token_ratio(above: Row, below: Row, new_tokens: int) -> tuple[stats.Estimate, list[float]]:
    """(ms/token of one row over ms/token of another by the article's formula, its extremes over pairs of repeated runs)."""
    counted = [token_times.tokens_of_a_call(row, "article") for row in (above, below)]
    factor = counted[1] / counted[0] if all(counted) else 1.0  # rows that tell no tokens are compared by the call
    ratio = stats.scaled(stats.ratio(above.timed_ms(new_tokens), below.timed_ms(new_tokens)), factor)
    return ratio, [one * factor for one in ratios_over_runs(below, above, new_tokens)]


def ratios_over_runs(faster: Row, slower: Row, new_tokens: int) -> list[float]:
    """The smallest and the largest ratio of a run's mean of one row to a run's mean of the other; empty unless one of them was repeated."""
    above, below = run_means_ms(slower, new_tokens), run_means_ms(faster, new_tokens)
    return [min(above) / max(below), max(above) / min(below)] if len(above) * len(below) > 1 else []


def _on(row: Row) -> str:
    return f"{row.case} ({gpus(row.count)}, {row.dtype})"


def ratio_words(relation: Mapping, faster: Row, slower: Row, ratio: stats.Estimate, over_runs: Sequence[float] = ()) -> str:
    """ "deepspeed (2 GPUs, float16) is 2.95 times as fast as int8 (1 GPU, int8) (95 % interval 2.91 to 2.99; 2.80 to 2.99 over repeated runs)"."""
    value, beside = _told(relation, ratio, over_runs, faster, slower)
    return f"{_on(faster)} is {value} times as fast as {_on(slower)}{beside}"


def _told(relation: Mapping, ratio: stats.Estimate, over_runs: Sequence[float], one: Row, other: Row) -> tuple[str, str]:
    """A ratio in digits, and in brackets what stands behind it: its interval, its extremes over repeated runs, what was published."""
    value, interval = stats.with_interval(ratio, least=2)
    beside = [f"95 % interval {interval}"] if interval else []
    if over_runs:
        beside.append(f"{min(over_runs):.2f} to {max(over_runs):.2f} over repeated runs")
    if "ratio" in relation:
        beside.append(f"published {relation['ratio']:.2f}")
    if apart(one, other):
        beside.append("on different GPUs")
    return value, f" ({'; '.join(beside)})" if beside else ""


def _pair(relation: Mapping, rows: Rows, new_tokens: int, count: int | None) -> tuple[list[Row], str]:
    """([the faster row, the slower row] of a relation, why they cannot be compared)."""
    names = (relation["faster"], relation["slower"])
    if "batch_size" in relation:
        found, reason = _in_batches(rows, relation, new_tokens, count)
        pair = [found.get((name, relation["batch_size"])) for name in names]
    else:
        reason = next((why for why in (unusable(rows, name, new_tokens) for name in names) if why), "")
        pair = [rows.get(name) for name in names]
    if not reason and question(pair[0]) != question(pair[1]):
        reason = f"{names[0]} and {names[1]} ran different models or prompts"
    return pair, reason


def judge_speed(relation: Mapping, rows: Rows, new_tokens: int, count: int | None) -> Finding:
    """The Finding on a relation faster/slower; one in a batch size on `count` devices, the common_count of its claim."""
    pair, reason = _pair(relation, rows, new_tokens, count)
    if reason:
        return Finding(NOT_TESTED, reason)
    faster, slower = pair
    ratio, over_runs = per_token_ratio(slower, faster, new_tokens)
    words = ratio_words(relation, faster, slower, ratio, over_runs) + (f", batch {relation['batch_size']}" if "batch_size" in relation else "")
    if ratio.low is None:
        return Finding(NOT_TESTED, f"{words}, but fewer than {stats.LEAST_SAMPLES} timed calls carry no interval", ratio)
    if "at_most" in relation:
        holds = max([ratio.high, *over_runs]) < relation["at_most"]
        return tested(holds, f"{words}, the bound is {relation['at_most']:g}", ratio)
    # The direction has to hold within a run and in every pair of runs.
    if min([ratio.low, *over_runs]) <= relation.get("at_least", 1):
        return Finding(NOT_REPRODUCED, words + (f", the bound is {relation['at_least']:g}" if "at_least" in relation else ""), ratio)
    if "within" in relation:
        least, most = relation["ratio"] / relation["within"], relation["ratio"] * relation["within"]
        if not least <= ratio.value <= most:
            side = "faster" if ratio.value > most else "less"
            return Finding(NOT_REPRODUCED, f"{words}, {side} than what counts as near, {least:.2f} to {most:.2f}", ratio)
    return Finding(REPRODUCED, words, ratio)


def judge_lowest(relation: Mapping, rows: Rows, new_tokens: int, count: int | None) -> Finding:
    """The Finding on a relation lowest/below: the pair of cases that decides, or the one that holds most barely."""
    _, reason = _in_batches(rows, relation, new_tokens, count)
    if reason:
        return Finding(NOT_TESTED, reason)
    pairs = [
        judge_speed({"faster": relation["lowest"], "slower": other, "batch_size": size}, rows, new_tokens, count)
        for size in relation["batch_sizes"]
        for other in relation["below"]
    ]
    for word in (NOT_TESTED, NOT_REPRODUCED):
        against = [pair for pair in pairs if pair.word == word]
        if against:
            return dataclasses.replace(against[0], reason=f"{against[0].reason}; {len(pairs) - len(against)} of {len(pairs)} comparisons hold")
    return barest(pairs)


def judge_gain(relation: Mapping, rows: Rows, new_tokens: int, count: int | None) -> Finding:
    """The Finding on a relation from_batch/to_batch."""
    case, small, large = relation["case"], relation["from_batch"], relation["to_batch"]
    found, reason = _in_batches(rows, relation, new_tokens, count)
    if reason:
        return Finding(NOT_TESTED, reason)
    gain, over_runs = per_token_ratio(found[case, small], found[case, large], new_tokens)
    value, beside = _told(relation, gain, over_runs, found[case, small], found[case, large])
    words = f"{_on(found[case, small])}: its ms/token fall {value} times from batch {small} to {large}{beside}"
    if gain.low is None:
        return Finding(NOT_TESTED, f"{words}, but fewer than {stats.LEAST_SAMPLES} timed calls carry no interval", gain)
    if "gain_below" in relation:
        bound, holds = relation["gain_below"], max([gain.high, *over_runs]) < relation["gain_below"]
    else:
        bound = relation["gain_at_least"] if "gain_at_least" in relation else relation["share_of_linear"] * large / small
        holds = min([gain.low, *over_runs]) > bound
    return tested(holds, f"{words}, the bound is {bound:g}", gain)
