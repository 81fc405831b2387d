"""The rule that turns a claim of an article into a verdict.

A claim is a list of relations between cases (bench/articles/*.toml); it is judged within one group of rows, for one
number of new tokens. Each relation is recognised by a name in it: those of times are in scripts/verdicts/time_relations.py, those of batches in
scripts/verdicts/batch_relations.py, and here

    peak_memory_below_bytes   reproduced where no GPU of the case ever held as much, by the host's NVML
    check_passes         reproduced where the output equals plain transformers' within its tolerance

One not reproduced relation makes the claim not reproduced, else one not tested relation makes it not tested.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from scripts import stats
from scripts.articles import Article
from scripts.verdicts import batch_relations, time_relations
from scripts.verdicts.findings import NOT_REPRODUCED, NOT_TESTED, REPRODUCED, Finding, Rows, barest, tested, unusable
from scripts.verdicts.row_groups import GIB, Group, Row, wrong_output


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`holding`: how many of the claim's relations were reproduced; `findings`: each relation with what it came to."""

    word: str
    reason: str
    holding: int = 0
    findings: Sequence[tuple[Mapping, Finding]] = dataclasses.field(default=(), compare=False, repr=False)


def rows_by_case(group: Group, article: Article) -> dict[str | tuple[str, int, int], Row | str]:
    """The row of each of the article's cases on the article's number of devices, or why there is none.

    Where a case was run in several batch sizes its name stands for the smallest, and "batch b8" for one of them; (case, batch
    size, devices) is each row that there is, whatever its number of devices.
    """
    gpus = {case.name: case.gpus for case in article.cases}
    every = {(row.case, row.batch_size, row.count): row for row in group.rows}
    every_size = {row.name: row for row in group.rows if row.count == gpus.get(row.case)}
    return {**every, **every_size, **{name: group.row_of(name, count) for name, count in gpus.items()}}


def judge_memory(relation: Mapping, rows: Rows) -> Finding:
    """The Finding on a relation case/peak_memory_below_bytes."""
    case, limit = relation["case"], relation["peak_memory_below_bytes"]
    row = rows.get(case)
    if isinstance(row, Row) and row.status == "oom" and _all_hold(row, limit):
        return Finding(NOT_REPRODUCED, f"{case} ran out of memory on a GPU of at least {limit / GIB:.1f} GiB")
    reason = unusable(rows, case)
    if reason:
        return Finding(NOT_TESTED, reason)
    peaks = rows[case].peak_used_bytes().values()
    if not peaks:
        return Finding(NOT_TESTED, f"the memory of {case}'s GPUs was not sampled")
    words = f"{case} held at most {max(peaks) / GIB:.2f} GiB on a GPU, the bound is {limit / GIB:.2f} GiB"
    return tested(max(peaks) < limit, words)


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


def check_words(check: Mapping) -> str:
    error, tolerance = check.get("logits_relative_error"), check.get("tolerance")
    if error is None:
        return "output passes its check" if check.get("passed") else wrong_output(check)
    return f"logits differ by {stats.percent(error)} % from transformers'" + (f", {stats.percent(tolerance)} % is allowed" if tolerance is not None else "")


#: {a name in a relation: its rule}, of relations about calls of so many new tokens.
OF_CALLS = {"lowest": time_relations.judge_lowest, "from_batch": time_relations.judge_gain, "faster": time_relations.judge_speed}

#: The same, of relations about whole rows.
OF_ROWS = {
    "peak_memory_below_bytes": judge_memory,
    "check_passes": judge_check,
    "item_ratio_at_least": batch_relations.judge_item_ratio,
    "rate_grows_with_batch": batch_relations.judge_growth,
    "left_padding_needed": batch_relations.judge_padding,
}


def judge_relation(relation: Mapping, rows: Rows, new_tokens: int, count: int | None) -> Finding:
    """The Finding on one relation of a claim, for calls that made `new_tokens` new tokens, where it names batch sizes on so many devices."""
    for name, rule in OF_CALLS.items():
        if name in relation:
            return rule(relation, rows, new_tokens, count)
    for name, rule in OF_ROWS.items():
        if name in relation:
            return rule(relation, rows)
    return Finding(NOT_TESTED, f"the kit has no rule for a relation of {', '.join(sorted(relation))}")


def judge(claim: Mapping, rows: Rows, new_tokens: int) -> Verdict:
    """The Verdict on a claim with the one number behind it: the relation that decides, or the one that holds most barely."""
    count = time_relations.common_count(rows, claim["relations"], new_tokens)
    pairs = [(relation, judge_relation(relation, rows, new_tokens, count)) for relation in claim["relations"]]
    findings = [finding for _, finding in pairs]
    holding = [finding for finding in findings if finding.word == REPRODUCED]
    for word in (NOT_REPRODUCED, NOT_TESTED):
        against = [finding for finding in findings if finding.word == word]
        if against:
            return Verdict(word, against[0].reason + _rest(holding, len(findings)), len(holding), pairs)
    parts = "both" if len(holding) == 2 else f"all {len(holding)}"
    closest = f"{parts} parts hold, the closest: " if len(holding) > 1 else ""
    return Verdict(REPRODUCED, closest + barest(holding).reason, len(holding), pairs)


def _rest(holding: list[Finding], total: int) -> str:
    """How a claim's other parts fared: "; 3 of its 4 parts hold, the closest: …"."""
    if not holding:
        return ""
    hold = "holds" if len(holding) == 1 else "hold, the closest"
    return f"; {len(holding)} of its {total} parts {hold}: {barest(holding).reason}"
