"""Versions 2 and 3 of the rules of the verdicts, at their edges, on made-up runs."""

import dataclasses
import itertools
import json
import math
import re

import msgspec
import pytest

from bench.job import Job
from scripts import articles, stats
from scripts.articles import shapes
from scripts.errors import KitError
from scripts.report import page
from scripts.report.text import Markdown
from scripts.report.views import claims, matrix, memory, overview, scaling, systems
from scripts.results import Record
from scripts.verdicts import judging, lookup, parts, relations, row_groups, rules, run_facts, version_1
from scripts.verdicts.lookup import Rows
from scripts.verdicts.parts import HOLDS, IN_PART, NOT_TESTED, REFUTED, UNDECIDED, Part, Range
from scripts.verdicts.relations import pairs
from scripts.verdicts.row import Row
from scripts.verdicts.rules import Verdict
from scripts.verdicts.version_1 import Frozen
from tests import reports, synthetic
from tests.synthetic import busy, check, job, record, repeated

ARTICLE = articles.load_all()["inference-tools"]
FASTER = {"faster": "deepspeed", "slower": "layer-parallel"}
FITS = {"case": "int8", "peak_memory_below_bytes": 24 * synthetic.GIB}
RIGHT = {"case": "bminf", "check_passes": True}
#: What the host of a run says that ran out of memory, though its GPUs may have had enough.
HOST_S_MEMORY_OR_OTHERS = [{"oom_killed": True}, {"conditions": {"marks": ["foreign load"], "disturbed": ["foreign load"]}}]


def group_of(records: list[Record]) -> row_groups.Group:
    (group,) = row_groups.build(records, {ARTICLE.slug: ARTICLE})
    return group


def judge_runs(claim: list[dict], records: list[Record], new_tokens: int = 1) -> Verdict:
    """A claim of these relations on these runs."""
    return rules.judge({"relations": claim}, group_of(records), ARTICLE, new_tokens)


def judge(relation: dict, *records: Record, scatter: float = 0.01, count: int = 5) -> Verdict:
    """A claim of one relation on so many runs like each of these."""
    return judge_runs([relation], [run for one in records for run in repeated(one, count, scatter)])


def part_of(*arguments: object, **typed: object) -> Part:
    """The only part of that verdict."""
    (part,) = judge(*arguments, **typed).parts
    return part


def pair(fast_ms: float, slow_ms: float, **asked: object) -> tuple[Record, Record]:
    """DeepSpeed's row and layer parallelism's, whose calls are all the same."""
    return record(job("deepspeed", 2, **asked), fast_ms, spread=0.0), record(job("layer-parallel", 2, **asked), slow_ms, spread=0.0)


# ------------------------------------------------------------------------------------------------ words
@pytest.mark.parametrize(
    ("where", "interval", "word"),
    [
        (parts.ABOVE_ONE, (1.001, 1.2), HOLDS),
        (parts.ABOVE_ONE, (1.0, 1.2), UNDECIDED),
        (parts.ABOVE_ONE, (0.8, 1.001), UNDECIDED),
        (parts.ABOVE_ONE, (0.8, 1.0), REFUTED),
        (parts.ABOVE_ONE, (1.0, 1.0), REFUTED),
        (Range(least=2), (2.0, 2.2), HOLDS),
        (Range(least=2), (1.9, 2.0), UNDECIDED),
        (Range(least=2), (1.9, 1.999), REFUTED),
        (Range(most=1.25), (1.0, 1.25), HOLDS),
        (Range(most=1.25), (1.25, 1.3), UNDECIDED),
        (Range(most=1.25), (1.251, 1.3), REFUTED),
        (parts.below(1.5), (1.0, 1.499), HOLDS),
        (parts.below(1.5), (1.0, 1.5), UNDECIDED),
        (parts.below(1.5), (1.5, 1.6), REFUTED),
        (parts.size(2.0), (1.6, 2.5), HOLDS),
        (parts.size(2.0), (1.599, 2.5), UNDECIDED),
        (parts.size(2.0), (1.6, 2.501), UNDECIDED),
        (parts.size(2.0), (2.501, 2.6), REFUTED),
        (parts.size(2.0), (1.5, 1.599), REFUTED),
        (parts.size(2.0), (1.0, 3.0), UNDECIDED),
    ],
)
def test_the_word_on_an_interval_at_the_edges_of_what_a_claim_says(where: Range, interval: tuple[float, float], word: str) -> None:
    assert where.word(*interval) == word


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([REFUTED, REFUTED], REFUTED),
        ([HOLDS, REFUTED], IN_PART),
        ([HOLDS, UNDECIDED], IN_PART),
        ([HOLDS, REFUTED, NOT_TESTED], IN_PART),
        ([HOLDS, NOT_TESTED], NOT_TESTED),
        ([REFUTED, NOT_TESTED], NOT_TESTED),
        ([UNDECIDED, NOT_TESTED], NOT_TESTED),
        ([REFUTED, UNDECIDED], UNDECIDED),
        ([NOT_TESTED], NOT_TESTED),
    ],
)
def test_the_word_on_a_claim_of_several_parts(words: list[str], word: str) -> None:
    assert parts.claim(words) == word


@pytest.mark.parametrize(
    ("words", "word"),
    [([HOLDS, REFUTED, NOT_TESTED], REFUTED), ([HOLDS, NOT_TESTED, UNDECIDED], NOT_TESTED), ([HOLDS, UNDECIDED], UNDECIDED), ([HOLDS, HOLDS], HOLDS)],
)
def test_the_word_on_a_part_that_says_every(words: list[str], word: str) -> None:
    assert parts.every(words) == word


# ------------------------------------------------------------------------------------------------ the unit is the run
def test_a_direction_holds_where_the_interval_over_runs_lies_above_one() -> None:
    part = part_of({**FASTER, "ratio": 4.66}, *pair(10.0, 30.0))
    assert part.word == HOLDS and part.ratio.low > 1
    assert part.sentence.startswith("deepspeed on 2 GPUs in float32 is 3.0") and "95 % interval" in part.sentence and "published 4.66" in part.sentence


def test_the_interval_is_welchs_over_the_runs_means() -> None:
    fast, slow = pair(10.0, 30.0)
    runs = [repeated(one, 6, 0.05) for one in (slow, fast)]
    means = [[run.guest.measurements[0]["timed_ms"][0] for run in of_row] for of_row in runs]
    assert judge_runs([FASTER], [*runs[0], *runs[1]]).parts[0].ratio == parts.stats.ratio_over_runs(*means)


def test_runs_that_scatter_leave_a_direction_undecided_however_steady_their_calls_are() -> None:
    assert part_of(FASTER, *pair(100.0, 102.0), scatter=0.05).word == UNDECIDED
    assert part_of(FASTER, *pair(100.0, 102.0), scatter=0.001).word == HOLDS


@pytest.mark.parametrize(("fast_ms", "word"), [(100.0, REFUTED), (130.0, REFUTED)])
def test_the_other_direction_and_none_at_all_refute(fast_ms: float, word: str) -> None:
    assert part_of(FASTER, *pair(fast_ms, 100.0), scatter=0.0).word == word


@pytest.mark.parametrize(("count", "why"), [(1, "1 run, 5 are needed"), (4, "4 runs, 5 are needed"), (5, "")])
def test_fewer_than_five_runs_judge_nothing_and_show_their_ratio_without_an_interval(count: int, why: str) -> None:
    part = part_of(FASTER, *pair(10.0, 30.0), count=count)
    assert (part.word, part.why) == (NOT_TESTED if why else HOLDS, why)
    assert part.number.startswith("3.00") and ("to" in part.number) is not why
    assert ("over pairs of runs" in part.sentence) is (count == 4)


def test_the_spread_of_a_ratio_is_that_of_the_most_distant_runs() -> None:
    group = group_of([run for one in pair(10.0, 30.0) for run in repeated(one, 3, 0.1)])
    fast, slow = (next(row for row in group.rows if row.case == case) for case in ("deepspeed", "layer-parallel"))
    compared = pairs.of_times(fast, slow, 1)
    assert compared.spread == pytest.approx((3 * math.exp(-0.2), 3 * math.exp(0.2)))


def test_of_comparisons_with_one_word_the_one_with_the_lowest_lower_end_decides() -> None:
    barely, clearly = (Part("", HOLDS, ratio=stats.Estimate(value, low, 9.0)) for value, low in ((3.0, 1.1), (2.0, 1.9)))
    assert parts.decides([clearly, barely]) is barely


def test_a_comparison_without_an_interval_is_as_low_as_its_value() -> None:
    near, far = (Part("", NOT_TESTED, ratio=stats.Estimate(value)) for value in (1.1, 2.0))
    assert parts.decides([far, near]) is near


def test_a_comparison_without_rows_decides_before_one_that_has_some() -> None:
    without, few = Part("", NOT_TESTED, why="bminf was not run"), Part("", NOT_TESTED, ratio=stats.Estimate(1.1))
    assert parts.decides([few, without]) is without


def test_runs_of_other_pins_are_rows_of_their_own() -> None:
    older, newer = repeated(record(job("int8"), 50.0), 6)[:3], repeated(record(job("int8"), 50.0), 6)[3:]
    for run in older:
        run.host["pins_id"] = run.host["image"]["pins_id"] = "1" * 12
    (row,) = group_of([*older, *newer]).rows
    assert {run.id for run in row.runs} == {run.id for run in newer}


def test_a_share_of_proportion_is_of_the_ratio_of_the_batch_sizes() -> None:
    relation = relations.of({"part": "near", "case": "ds-zero", "from_batch": 4, "to_batch": 128, "share_of_linear": 0.5})
    assert relation.bound == 0.5 * 128 / 4


@pytest.mark.parametrize(("bound", "name"), [("gain_below", "ds-zero gains less than 1.5 times"), ("gain_at_least", "ds-zero gains at least 1.5 times")])
def test_a_gain_is_named_by_the_side_of_its_bound(bound: str, name: str) -> None:
    relation = relations.of({"case": "ds-zero", "from_batch": 32, "to_batch": 128, bound: 1.5})
    assert relation.names() == [name] and relation.bound == 1.5


def test_groups_stand_with_gpus_before_cpus_full_before_tiny_and_published_before_controlled() -> None:
    settings = [(device, scale, variant) for device in ("cuda", "cpu") for scale in ("full", "tiny") for variant in ("published", "controlled")]
    runs = [record(job("int8", device=device, scale=scale, variant=variant), 50.0) for device, scale, variant in settings]
    groups = row_groups.build(reversed(runs), {})
    assert [(group.key.device, group.key.scale, group.key.variant) for group in groups] == settings


def test_both_rows_need_their_runs() -> None:
    fast, slow = pair(10.0, 30.0)
    few = judge_runs([FASTER], [*repeated(fast, 5), *repeated(slow, 3)])
    assert (few.word, few.parts[0].why) == (NOT_TESTED, "3 runs, 5 are needed")


def test_a_run_that_failed_is_none_of_the_five_and_does_not_undo_them() -> None:
    fast, slow = pair(10.0, 30.0)
    failed = dataclasses.replace(repeated(record(fast.job, status="failed", reason="synthetic"), 9)[8], reason="synthetic")
    assert judge_runs([FASTER], [*repeated(fast, 5), failed, *repeated(slow)]).word == HOLDS
    assert judge_runs([FASTER], [*repeated(fast, 4), failed, *repeated(slow)]).word == NOT_TESTED


@pytest.mark.parametrize(("count", "why"), [(4, "deepspeed is oom: no room"), (5, "")])
def test_a_row_whose_latest_run_ran_out_of_memory_counts_with_five_runs_before_it(count: int, why: str) -> None:
    asked = job("deepspeed", 2)
    latest = record(asked, status="oom", reason="no room", number=6, started_at="2026-11-29T04:10:00Z")
    (row,) = group_of([*repeated(record(asked, 12.0), count), latest]).rows
    assert (row.status, row.unusable(1)) == ("oom", why)


def test_a_row_of_a_case_that_the_article_no_longer_has_is_loaded_as_it_says() -> None:
    assert ARTICLE.loaded_otherwise(job("gone", 2)) == ARTICLE.loaded_otherwise(job("int8", variant="gone")) == ""


def test_the_first_call_after_loading_is_told_whichever_calls_it_was_before() -> None:
    run = record(job("int8", new_tokens=(1, 16)), (10.0, 90.0))
    run.guest.measurements.reverse()
    assert [one["cold_ms"] for one in run.guest.measurements] == [None, 50.0] and run_facts.cold_ms_of(run) == 50.0


def test_calls_that_were_never_timed_are_none_of_a_run_s() -> None:
    run = record(job("int8", new_tokens=(1, 16)), (10.0, 90.0))
    run.guest.measurements[1]["timed_ms"] = []
    assert list(run_facts.series(run)) == [1] and group_of([run]).new_tokens == [1]


def test_a_row_without_an_answer_of_its_guest_tells_no_version() -> None:
    (row,), (without,) = (group_of([record(job("int8"), status=status, reason="synthetic")]).rows for status in ("ok", "oom"))
    assert (row.version("torch"), row.version("vllm"), without.version("torch")) == ("9.9.9", "", "")


def test_a_run_whose_job_names_no_batch_size_is_of_one_sequence() -> None:
    of_no_size = record(job("int8"))
    del of_no_size.job.prompt["batch_size"]
    (row,) = group_of([of_no_size]).rows
    assert (row.batch_size, row.name) == (1, "int8")


def test_the_sizes_of_a_case_are_in_order_and_none_is_there_that_loads_in_another_way_since() -> None:
    asked = job("deepspeed", 2)
    small, large = (dataclasses.replace(asked, prompt={**asked.prompt, "batch_size": size}) for size in (1, 8))
    loaded_otherwise = dataclasses.replace(large, load={**asked.load, "kernels": "another"})

    def sizes(*jobs: Job) -> list[int]:
        rows = Rows(group_of([run for one in jobs for run in repeated(record(one, 12.0))]), ARTICLE, 1, most=2)
        return [row.batch_size for row in rows.over_batches("deepspeed")]

    assert (sizes(large, small), sizes(small, loaded_otherwise)) == ([1, 8], [1])


def test_weights_of_recipe_1_judge_nothing_and_the_reason_says_so() -> None:
    part = part_of(FASTER, *pair(10.0, 30.0, recipe=1))
    assert (part.word, part.why) == (NOT_TESTED, "weights of recipe 1, which judge nothing")
    assert part_of(FASTER, *pair(10.0, 30.0, recipe=1, weights="hub")).word == HOLDS
    for relation, case in ((FITS, "int8"), (RIGHT, "bminf")):
        assert part_of(relation, record(job(case, recipe=1))).why == "weights of recipe 1, which judge nothing"


# ------------------------------------------------------------------------------------------------ size and bounds
@pytest.mark.parametrize(
    ("slow_ms", "word"), [(20.0, HOLDS), (16.5, HOLDS), (24.5, HOLDS), (15.0, REFUTED), (26.0, REFUTED), (16.0, UNDECIDED), (25.0, UNDECIDED)]
)
def test_a_size_is_refuted_by_too_much_as_by_too_little(slow_ms: float, word: str) -> None:
    direction, size = judge({**FASTER, "size": 2.0}, *pair(10.0, slow_ms)).parts
    assert (direction.name, direction.word, size.name, size.word) == ("faster", HOLDS, "2 times", word)


def test_a_claim_with_a_size_may_hold_in_part() -> None:
    assert judge({**FASTER, "size": 2.0}, *pair(10.0, 30.0)).word == IN_PART
    assert judge({**FASTER, "size": 2.0}, *pair(10.0, 20.0)).word == HOLDS
    assert judge({**FASTER, "size": 2.0}, *pair(10.0, 9.0)).word == REFUTED


@pytest.mark.parametrize(("slow_ms", "word"), [(20.5, HOLDS), (20.0, UNDECIDED), (19.5, REFUTED)])
def test_at_least_is_a_bound_from_below(slow_ms: float, word: str) -> None:
    assert part_of({**FASTER, "at_least": 2.0}, *pair(10.0, slow_ms)).word == word


@pytest.mark.parametrize(("slow_ms", "word"), [(12.0, HOLDS), (12.5, UNDECIDED), (13.0, REFUTED), (5.0, HOLDS)])
def test_at_most_is_a_bound_from_above_whichever_is_faster(slow_ms: float, word: str) -> None:
    assert part_of({**FASTER, "at_most": 1.25}, *pair(10.0, slow_ms)).word == word


# ------------------------------------------------------------------------------------------------ every, fastest
FASTEST = {"fastest": "deepspeed", "than": ["layer-parallel", "bminf"], "ratios": [3.83, 23.38]}


def test_the_fastest_is_faster_than_every_other_and_the_closest_is_told() -> None:
    rows = [*pair(10.0, 30.0), record(job("bminf"), 90.0, spread=0.0)]
    part = part_of(FASTEST, *rows)
    assert part.word == HOLDS and part.sentence.startswith("the closest of 2: deepspeed") and "as fast as layer-parallel" in part.sentence
    assert part.notes == ("the closest of 2 comparisons",), "a claim that names no batch size tells none"
    (relation, _), *_ = judge(FASTEST, *rows).judged
    assert relation.published(part) == (3.83, "layer-parallel")


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("bound", ["at_least", "at_most"])
def test_the_digits_of_an_interval_show_on_which_side_of_the_bound_its_end_lies(bound: str, side: int) -> None:
    known = part_of(FASTER, *pair(10.0, 20.0), scatter=0.05).ratio
    end = (known.low if bound == "at_least" else known.high) + side * 0.0004
    part = part_of({**FASTER, bound: end}, *pair(10.0, 20.0), scatter=0.05)
    told = re.search(r"\((\S+) to (\S+)\)", part.number)
    assert told and f"95 % interval {told[1]} to {told[2]}" in part.sentence
    assert Range(**{"least" if bound == "at_least" else "most": end}).word(float(told[1]), float(told[2])) == part.word


def test_one_that_is_faster_refutes_the_fastest_whatever_else_was_not_run() -> None:
    refuted = part_of(FASTEST, *pair(10.0, 9.0))
    assert refuted.word == REFUTED and refuted.sentence.endswith("; 0 of 2 comparisons hold, 1 not tested")
    every = part_of(FASTEST, *pair(10.0, 9.0), record(job("bminf"), 90.0, spread=0.0))
    assert every.comparisons == "1 of 2 comparisons hold", "of those that were not tested it tells where there are some"
    missing = part_of(FASTEST, *pair(10.0, 30.0))
    assert (missing.word, missing.why) == (NOT_TESTED, "bminf was not run in this setting (stack current)")


def test_a_fastest_that_was_not_tested_tells_how_many_comparisons_hold_for_its_number_need_not_be_the_closest() -> None:
    records = [*rows(10.0, 12.0), record(job("bminf"), 90.0, spread=0.0)]
    verdict = judge_runs([FASTEST], records)
    (part,) = verdict.parts
    assert part.word == NOT_TESTED and part.cases == ("deepspeed", "bminf"), "layer-parallel is closer"
    assert part.comparisons == "1 of 2 comparisons hold, 1 not tested" and part.sentence.endswith(f"; {part.comparisons}")
    assert part_of(FASTEST, *pair(10.0, 30.0), record(job("bminf"), 90.0, spread=0.0)).comparisons == "", "all hold"
    single = [record(job(*of_case), ms) for of_case, ms in ((("deepspeed", 2), 10.0), (("layer-parallel", 2), 30.0), (("bminf",), 90.0))]
    assert judge_runs([FASTEST], single).parts[0].comparisons == "", "none was tested"
    others = [record(job(*of_case), ms, spread=0.0) for of_case, ms in ((("int8",), 50.0), (("tensor-parallel", 2), 60.0))]
    told = overview.claim_lines(judging.judge_article(row_groups.build([*records, *others], {ARTICLE.slug: ARTICLE}), ARTICLE))
    assert "1 of 4 comparisons hold, 3 not tested)" in str(told), "the first page tells it too"


def test_the_slowest_is_slower_than_every_other() -> None:
    slowest = {"slowest": "bminf", "than": ["layer-parallel", "deepspeed"]}
    assert part_of(slowest, *pair(10.0, 30.0), record(job("bminf"), 90.0)).word == HOLDS
    assert part_of(slowest, *pair(10.0, 30.0), record(job("bminf"), 20.0)).word == REFUTED


# ------------------------------------------------------------------------------------------------ memory, output
@pytest.mark.parametrize(("peak_gib", "word"), [(23.99, HOLDS), (24.0, REFUTED), (30.0, REFUTED)])
def test_memory_has_to_stay_below_the_bound(peak_gib: float, word: str) -> None:
    part = part_of(FITS, record(job("int8"), peak_gib=peak_gib, memory_gib=80))
    assert part.word == word and part.number == f"{peak_gib:.2f} GiB"


def test_the_largest_peak_of_any_run_counts() -> None:
    runs = repeated(record(job("int8"), peak_gib=9.0, memory_gib=80))
    runs[1].host["gpu_memory"][0]["peak_used_bytes"] = 25 * synthetic.GIB
    (part,) = judge_runs([FITS], runs).parts
    assert (part.word, part.number) == (REFUTED, "25.00 GiB")
    assert part_of(FITS, record(job("int8")), count=4).why == "4 runs, 5 are needed"


@pytest.mark.parametrize(("memory_gib", "word"), [(24, REFUTED), (16, NOT_TESTED)])
def test_running_out_of_memory_once_speaks_against_fitting_where_there_was_enough(memory_gib: int, word: str) -> None:
    assert part_of(FITS, record(job("int8"), status="oom", reason="synthetic", memory_gib=memory_gib), count=1).word == word


def test_of_several_gpus_the_fullest_counts() -> None:
    runs = repeated(record(job("int8", 2), peak_gib=9.0, memory_gib=80))
    runs[1].host["gpu_memory"][1]["peak_used_bytes"] = 25 * synthetic.GIB
    assert run_facts.peak_of_a_gpu_bytes(runs[1]) == 25 * synthetic.GIB
    fits = {"case": "deepspeed", "peak_memory_below_bytes": 24 * synthetic.GIB}
    of_two = repeated(record(job("deepspeed", 2), peak_gib=9.0, memory_gib=80))
    assert judge_runs([fits], of_two).word == HOLDS
    of_two[1].host["gpu_memory"][1]["peak_used_bytes"] = 25 * synthetic.GIB
    verdict = judge_runs([fits], of_two)
    assert verdict.word == REFUTED and (verdict.parts[0].name, verdict.parts[0].number) == ("fits 24 GiB", "25.00 GiB")


def test_out_of_memory_refutes_only_where_every_gpu_had_enough() -> None:
    full = record(job("deepspeed", 2), status="oom", reason="synthetic", memory_gib=24)
    fits = {"case": "deepspeed", "peak_memory_below_bytes": 24 * synthetic.GIB}
    assert judge_runs([fits], [full]).word == REFUTED
    full.host["gpus"][1]["memory_total_bytes"] = 16 * synthetic.GIB
    assert judge_runs([fits], [full]).word == NOT_TESTED


@pytest.mark.parametrize("facts", HOST_S_MEMORY_OR_OTHERS, ids=["host", "others"])
def test_the_host_s_memory_and_a_gpu_that_others_used_refute_nothing(facts: dict) -> None:
    full = record(job("int8"), status="oom", reason="synthetic", memory_gib=80)
    full.host.update(facts)
    good = repeated(record(job("int8"), peak_gib=9.0, memory_gib=80))
    assert judge_runs([FITS], [*good, full]).word == HOLDS
    assert judge_runs([FITS], [*good, record(job("int8"), status="oom", reason="synthetic", memory_gib=80)]).word == REFUTED


def test_a_gpu_that_was_never_sampled_leaves_fitting_untested() -> None:
    of_two = repeated(record(job("deepspeed", 2), peak_gib=9.0, memory_gib=80))
    of_two[3].host["gpu_memory"][1]["peak_used_bytes"] = None
    verdict = judge_runs([{"case": "deepspeed", "peak_memory_below_bytes": 24 * synthetic.GIB}], of_two)
    assert (verdict.word, verdict.parts[0].why) == (NOT_TESTED, "the memory of deepspeed's GPUs was not sampled")


def test_out_of_memory_with_weights_of_recipe_1_refutes_nothing() -> None:
    assert part_of(FITS, record(job("int8", recipe=1), status="oom", reason="synthetic", memory_gib=80), count=1).word == NOT_TESTED


def test_a_failed_run_without_a_sample_of_memory_does_not_undo_five() -> None:
    runs = repeated(record(job("int8"), peak_gib=9.0, memory_gib=80), 6)
    failed = dataclasses.replace(runs[2], status="failed", reason="synthetic", guest=None)
    failed.host["gpu_memory"] = []
    assert judge_runs([FITS], [*runs[:2], failed, *runs[3:]]).word == HOLDS


def test_memory_that_was_not_sampled_in_every_run_tests_nothing() -> None:
    runs = repeated(record(job("int8")))
    runs[2].host["gpu_memory"] = []
    assert judge_runs([FITS], runs).word == NOT_TESTED


def test_a_right_output_is_told_with_its_error_and_what_is_allowed() -> None:
    assert part_of(RIGHT, record(job("bminf"))).sentence == "bminf's logits differ by 0.02 % from transformers', 0.1 % is allowed"
    of_no_bound, of_no_logits = ({**check(), name: None} for name in ("tolerance", "logits_relative_error"))
    assert part_of(RIGHT, record(job("bminf"), checked=of_no_bound)).sentence == "bminf's logits differ by 0.02 % from transformers'"
    runs = repeated(record(job("bminf")), 5)
    runs[2].guest.check["logits_relative_error"] = 4e-4
    assert judge_runs([RIGHT], runs).parts[0].sentence.startswith("bminf's logits differ by 0.04 % from"), "the largest error of any run"
    assert part_of(RIGHT, record(job("bminf"), checked=of_no_logits)).sentence == "bminf's output passes its check"


def test_a_wrong_output_of_which_no_bound_is_known_is_told_with_its_error() -> None:
    assert run_facts.wrong_output({"logits_relative_error": 0.33, "tolerance": None}) == "output differs by 33 % from transformers'"
    assert run_facts.wrong_output({"logits_relative_error": 1e-4, "tolerance": 1e-3, "reason": "no"}) == "output failed its check (no)"


def test_a_claim_about_the_output_takes_a_wrong_one_as_its_answer() -> None:
    assert part_of(RIGHT, record(job("bminf"))).word == HOLDS
    assert part_of(RIGHT, record(job("bminf"), checked=check(0.2, passed=False))).word == REFUTED
    assert part_of(RIGHT, record(job("bminf"), unchecked=True)).word == NOT_TESTED
    runs = repeated(record(job("bminf")))
    runs[1].guest.check = check(None, passed=False)
    assert judge_runs([RIGHT], runs).word == REFUTED, "one run whose output failed before its logits were compared"
    assert part_of(RIGHT, record(job("bminf")), count=4).word == NOT_TESTED


@pytest.mark.parametrize(("error", "word"), [(1e-3, HOLDS), (2e-3, REFUTED), (None, REFUTED)])
def test_an_output_that_padding_changes_in_one_run_is_wrong_for_a_claim_about_the_output_too(error: float | None, word: str) -> None:
    runs = repeated(record(job("bminf")))
    runs[1].guest.figures["cycles"] = {"padded_logits_relative_error": error}
    (part,) = judge_runs([RIGHT], runs).parts
    assert part.word == word and (part.sentence == "bminf's output is another one when padded") is (word == REFUTED)


def test_the_output_has_to_be_right_in_every_run() -> None:
    runs = repeated(record(job("bminf")))
    runs[0].guest.check = check(0.2, passed=False)
    assert judge_runs([RIGHT], runs).word == REFUTED
    assert judge_runs([{"slowest": "bminf", "than": ["int8"]}], [*runs, *repeated(record(job("int8"), 10.0))]).word == NOT_TESTED
    runs[0].guest.check = None
    assert judge_runs([RIGHT], runs).word == NOT_TESTED


# ------------------------------------------------------------------------------------------------ rows that support nothing
@pytest.mark.parametrize(("relation", "case", "facts"), [(RIGHT, "bminf", {}), (FITS, "int8", {"status": "oom", "reason": "synthetic"})])
def test_a_row_whose_case_loads_in_another_way_since_tells_neither_of_its_output_nor_of_its_memory(relation: dict, case: str, facts: dict) -> None:
    row = record(job(case), **facts)
    assert part_of(relation, row).word == (REFUTED if facts else HOLDS)
    row.job.load["low_cpu_mem_usage"] = "no longer"
    part = part_of(relation, row)
    assert (part.word, part.why) == (NOT_TESTED, f"{case} on 1 GPU was loaded in another way")


def test_a_wrong_output_supports_no_claim() -> None:
    fast, slow = pair(10.0, 30.0)
    fast.guest.check = check(0.33, passed=False)
    part = part_of(FASTER, fast, slow)
    assert (part.word, part.why, part.number) == (NOT_TESTED, "deepspeed's output differs by 33 % from transformers': its numbers do not count", "")


def test_a_wrong_output_is_told_also_where_a_later_run_was_not_checked() -> None:
    wrong = record(job("deepspeed", 2), 12.0, checked=check(0.5, passed=False))
    unchecked = record(job("deepspeed", 2), 12.0, unchecked=True, number=2, started_at="2026-11-29T04:10:00Z")
    (row,) = group_of([wrong, unchecked]).rows
    assert row.check == wrong.guest.check and "differs by 50 %" in row.unusable(1)


def test_an_unchecked_output_supports_no_claim() -> None:
    fast, slow = pair(10.0, 30.0)
    fast.guest.check = None
    assert "was not checked" in part_of(FASTER, fast, slow).why


@pytest.mark.parametrize("status", ["oom", "timeout", "unsupported", "failed"])
def test_a_row_that_did_not_run_supports_no_claim(status: str) -> None:
    part = part_of(FASTER, record(job("deepspeed", 2), status=status, reason="synthetic"), pair(10.0, 30.0)[1])
    assert (part.word, part.why) == (NOT_TESTED, f"deepspeed {'failed' if status == 'failed' else f'is {status}'}: synthetic")


def test_a_row_that_ran_out_of_memory_was_run() -> None:
    verdict = judge_runs([FASTER], [record(job("deepspeed", 2), status="oom", reason="no room"), *repeated(record(job("layer-parallel", 2), 30.0))])
    assert verdict.was_run and verdict.not_run == 0


def test_a_missing_row_tests_nothing() -> None:
    assert part_of(FASTER, pair(10.0, 30.0)[0]).why == "layer-parallel was not run in this setting (stack current)"


def test_a_case_of_the_other_variant_is_named() -> None:
    article = articles.find("batch-generate")
    (group,) = row_groups.build([record(job("single", article=article.slug))], {article.slug: article})
    claim = next(claim for claim in article.claims if claim["id"] == "3.3")
    assert rules.judge(claim, group, article, 64).parts[0].why == "padding is no case of the variant published"


def test_rows_that_were_asked_different_things_are_not_compared() -> None:
    part = part_of(FASTER, record(job("deepspeed", 2), 10.0), record(job("layer-parallel", 2, prompt="another"), 30.0))
    assert part.word == NOT_TESTED and "different models or prompts" in part.why


def test_a_model_in_another_folder_is_the_same_model() -> None:
    fast, slow = pair(10.0, 30.0)
    slow.job.model["path"] = "models/random/elsewhere"
    assert judge(FASTER, fast, slow).word == HOLDS


def test_the_reason_that_a_table_says_once_is_one_of_rows_that_are_there() -> None:
    def reason(*records: Record) -> str:
        return claims.common_reason(judging.judge_group(group_of(list(records)), ARTICLE))

    assert reason(*rows(10.0, 30.0, count=2)) == "2 runs, 5 are needed"
    assert reason(*repeated(pair(10.0, 30.0)[0])) == "", "a row that was not run is told on its own line"


def test_a_number_of_gpus_stands_beside_the_word_of_a_claim_that_has_rows() -> None:
    def word(*records: Record) -> str:
        return str(claims.word(headline([run for one in records for run in repeated(one)]).headline))

    fast, slow = record(job("deepspeed", 1), 10.0, spread=0.0), record(job("layer-parallel", 1), 9.0, spread=0.0)
    assert word(fast, slow) == "**refuted** on 1 GPU (the article: 2)"
    assert word(fast, record(job("layer-parallel", 1), 9.0, checked=check(0.4, passed=False))) == "not tested"


def test_a_row_without_calls_of_that_length_tests_nothing() -> None:
    rows = [*repeated(record(job("deepspeed", 2, new_tokens=(1, 16)), (10.0, 90.0))), *repeated(record(job("layer-parallel", 2), 30.0))]
    verdict = judge_runs([FASTER], rows, 16)
    assert (verdict.parts[0].why, verdict.not_run) == ("layer-parallel has no run of 16 new tokens", 1)


# ------------------------------------------------------------------------------------------------ number of GPUs
def on(count: int, fast_ms: float, slow_ms: float) -> list[Record]:
    return [record(job(case, count), ms, spread=0.0) for case, ms in (("deepspeed", fast_ms), ("layer-parallel", slow_ms))]


def test_a_claim_is_judged_on_the_article_s_number_of_gpus_or_the_nearest_below_which_is_said() -> None:
    two = judge(FASTER, *on(2, 10.0, 30.0), *on(1, 10.0, 9.0))
    assert (two.word, two.gpus) == (HOLDS, "")
    one = judge(FASTER, *on(1, 10.0, 9.0))
    assert (one.word, one.gpus) == (REFUTED, "on 1 GPU (the article: 2)")
    mixed = judge_runs([FASTER], [run for row in on(1, 10.0, 9.0) for run in repeated(row)] + on(2, 10.0, 30.0))
    assert (mixed.word, mixed.gpus) == (REFUTED, "on 1 GPU (the article: 2)"), "single runs on two GPUs measured nothing"


@pytest.mark.parametrize("status", ["oom", "unsupported"])
def test_a_status_that_a_repeat_would_give_again_measures_a_number_of_gpus(status: str) -> None:
    few = [run for row in on(1, 10.0, 9.0) for run in repeated(row)]
    many = [*repeated(on(2, 10.0, 30.0)[0]), record(job("layer-parallel", 2), status=status, reason="synthetic")]
    verdict = judge_runs([FASTER], few + many)
    assert (verdict.gpus, verdict.parts[0].why) == ("", f"layer-parallel is {status}: synthetic")


@pytest.mark.parametrize("facts", HOST_S_MEMORY_OR_OTHERS, ids=["host", "others"])
def test_a_run_that_would_fit_in_another_moment_measures_no_number_of_gpus(facts: dict) -> None:
    full = [record(row.job, status="oom", reason="synthetic") for row in on(2, 10.0, 30.0)]
    for one in full:
        one.host.update(facts)
    verdict = judge_runs([FASTER], [run for row in on(1, 10.0, 30.0) for run in repeated(row)] + full)
    assert (verdict.word, verdict.gpus) == (HOLDS, "on 1 GPU (the article: 2)")


def test_a_claim_without_rows_is_one_of_the_article_s_number_of_gpus_whatever_other_cases_ran_on() -> None:
    verdict = judge(FASTER, record(job("tensor-parallel", 1), 30.0))
    assert (verdict.word, verdict.most, verdict.gpus) == (NOT_TESTED, 2, "")


def test_more_gpus_than_the_article_s_judge_nothing() -> None:
    verdict = judge(FASTER, *on(4, 10.0, 30.0))
    assert (verdict.word, verdict.parts[0].why) == (NOT_TESTED, "deepspeed ran on 4 GPUs in this setting (stack current), not on 2")


def test_the_rows_of_a_claim_are_of_one_number_of_gpus() -> None:
    part = part_of(FASTER, on(1, 10.0, 9.0)[0], on(2, 10.0, 30.0)[1])
    assert part.word == NOT_TESTED and "ran on 1 GPU in this setting" in part.why


def test_a_case_that_the_article_ran_on_one_gpu_stays_on_one() -> None:
    verdict = judge({"faster": "deepspeed", "slower": "int8"}, *on(2, 10.0, 30.0), record(job("int8"), 30.0))
    assert (verdict.word, verdict.gpus) == (HOLDS, "") and "int8 on 1 GPU" in verdict.parts[0].sentence


# ------------------------------------------------------------------------------------------------ like with like
def test_what_the_rows_differ_in_beside_the_system_is_told() -> None:
    fast, slow = pair(10.0, 30.0)
    assert part_of(FASTER, fast, slow).differs == () and "differ" not in part_of(FASTER, fast, slow).sentence
    fast.guest.used["dtype"] = "float16"
    fast.guest.environment["packages"] = {**synthetic.PACKAGES, "transformers": "4.43.4"}
    assert part_of(FASTER, fast, slow).sentence.endswith("the rows differ in dtype and transformers 4.43.4 against 8.8.8)")
    one_gpu = part_of({"faster": "deepspeed", "slower": "int8"}, fast, record(job("int8"), 30.0))
    assert one_gpu.differs[:2] == ("dtype", "number of GPUs")


def test_rows_on_different_gpus_say_so() -> None:
    fast, slow = pair(10.0, 30.0)
    for place, gpu in enumerate(slow.host["gpus"]):
        gpu["uuid"] = f"GPU-another-{place}"
    assert part_of(FASTER, fast, slow).sentence.endswith("; on different GPUs)")
    runs = repeated(slow)
    runs[0].host["gpus"] = fast.host["gpus"]
    assert "different GPUs" not in judge_runs([FASTER], [*repeated(fast), *runs]).parts[0].sentence
    runs[0].host["conditions"] = {"marks": [HOT], "disturbed": [HOT]}  # a run that counts for nothing
    assert "different GPUs" in judge_runs([FASTER], [*repeated(fast), *runs]).parts[0].sentence


def test_the_short_line_of_a_claim_says_that_its_rows_ran_on_different_gpus_and_in_what_they_differ() -> None:
    def line(*slow_gpus: str, dtype: str = "float32") -> str:
        fast, slow = pair(10.0, 30.0)
        for gpu, uuid in zip(slow.host["gpus"], slow_gpus, strict=False):
            gpu["uuid"] = uuid
        fast.guest.used["dtype"] = dtype
        groups = row_groups.build([*repeated(fast), *repeated(slow)], articles.load_all())
        verdicts = judging.judge_article(groups, articles.find("inference-tools"))
        lines = str(overview.claim_lines(verdicts)).splitlines()
        return lines[-1] if "[1.5]" in lines[-3] else ""

    assert "published 3.83" in line() and "different GPUs" not in line()
    assert line("GPU-another-1", "GPU-another-2").endswith("published 3.83 (on different GPUs)")
    assert line("GPU-another-1", "GPU-another-2", dtype="float16").endswith("published 3.83 (the rows differ in dtype; on different GPUs)")


def both_variants(scatter: float = 0.01) -> judging.ArticleVerdicts:
    """Published: float16 beside float32. Controlled: float16 on both sides, and less of a lead."""
    fast, slow = pair(10.0, 30.0)
    fast.guest.used["dtype"] = "float16"
    controlled = [record(job(case, 2, variant="controlled"), ms, spread=0.0) for case, ms in (("deepspeed", 10.0), ("layer-parallel", 12.0))]
    records = [run for one in (fast, slow, *controlled) for run in repeated(one, scatter=scatter)]
    return judging.judge_article(row_groups.build(records, {ARTICLE.slug: ARTICLE}), ARTICLE)


def test_a_setting_has_the_verdicts_of_its_own_rows_and_a_claim_that_nothing_judges_is_of_no_variant() -> None:
    judged = both_variants()
    for group in {id(one.group): one.group for one in judged.everywhere}.values():
        of_group = judged.of_group(group)
        assert [one.claim["id"] for one in of_group] == [claim["id"] for claim in ARTICLE.claims]
        assert {(one.group.key.variant, one.is_controlled) for one in of_group} == {(group.key.variant, group.key.variant == "controlled")}
    nowhere = judging.judge_article([], ARTICLE).claims[0].headline
    assert (nowhere.group, nowhere.is_controlled, nowhere.stack) == (None, False, "")


def test_a_like_for_like_row_stands_beside_a_comparison_that_is_none() -> None:
    (lines,) = [one for one in both_variants().claims if one.headline.claim["id"] == "1.5"]
    assert [part.number[:4] for part in lines.headline.alike] == ["1.20", "1.20"]
    assert not lines.controlled.alike


def test_a_like_for_like_ratio_of_different_gpus_says_so() -> None:
    (lines,) = [one for one in both_variants().claims if one.headline.claim["id"] == "1.5"]
    (part, *_) = lines.headline.alike
    told = dataclasses.replace(lines.headline, alike=[dataclasses.replace(part, notes=("by GPUs: 1.16 of 2 runs, 0.5 of 2 runs",))])
    assert str(claims.numbers(told)).endswith("× layer-parallel (by GPUs: 1.16 of 2 runs, 0.5 of 2 runs)")


def test_a_comparison_that_the_controlled_variant_cannot_make_is_no_like_for_like_row() -> None:
    fast, slow = pair(10.0, 30.0)
    fast.guest.used["dtype"] = "float16"
    alone = record(job("deepspeed", 2, variant="controlled"), 10.0, spread=0.0)
    published = headline([run for one in (fast, slow, alone) for run in repeated(one)]).headline
    assert published.verdict.parts[0].differs == ("dtype",) and not published.alike


def test_a_row_that_differs_in_the_controlled_variant_too_is_not_like_for_like() -> None:
    records = [run for variant in ("published", "controlled") for run in rows(10.0, 30.0, variant=variant)]
    for run in records:
        run.guest.used["dtype"] = "float16" if run.job.case == "deepspeed" else "float32"
    assert headline(records).headline.verdict.parts[0].differs == ("dtype",) and not headline(records).headline.alike


# ------------------------------------------------------------------------------------------------ settings
def headline(records: list[Record], claim: str = "1.5") -> judging.Lines:
    judged = judging.judge_article(row_groups.build(records, {ARTICLE.slug: ARTICLE}), ARTICLE)
    return next(one for one in judged.claims if one.headline.claim["id"] == claim)


def rows(fast_ms: float, slow_ms: float, count: int = 5, **asked: object) -> list[Record]:
    return [run for one in pair(fast_ms, slow_ms, **asked) for run in repeated(one, count)]


def test_the_published_variant_is_the_headline_and_the_controlled_one_a_second_line() -> None:
    lines = headline(rows(10.0, 20.0, variant="controlled") + rows(10.0, 9.0))
    assert (lines.headline.verdict.word, lines.controlled.verdict.word, lines.others) == (REFUTED, IN_PART, [])


def test_the_controlled_variant_never_stands_in_for_the_published_one() -> None:
    lines = headline(rows(10.0, 38.3, variant="controlled"))
    assert (lines.headline.verdict.word, lines.headline.verdict.reason) == (NOT_TESTED, "the variant published was not run at full size on a GPU")
    assert lines.controlled.verdict.word == HOLDS
    few = headline(rows(10.0, 38.3, variant="controlled") + rows(10.0, 38.3, count=1))
    assert few.headline.verdict.word == NOT_TESTED and few.headline.group.key.variant == "published"


def test_the_first_page_tells_beside_a_claim_that_was_not_tested_what_the_controlled_variant_says() -> None:
    def below(records: list[Record]) -> list[str]:
        judged = judging.judge_article(row_groups.build(records, {ARTICLE.slug: ARTICLE}), ARTICLE)
        lines = str(overview.claim_lines(judged)).splitlines()
        place = next(number for number, line in enumerate(lines) if "[1.5]" in line)
        return [line for line in itertools.takewhile(lambda line: line.startswith("    - "), lines[place + 1 :]) if "controlled" in line]

    untested, controlled = rows(10.0, 38.3, count=1), rows(10.0, 20.0, variant="controlled")
    (line,) = below(untested + controlled)
    words = "**holds in part**: faster: holds; 3.83 times (3.06 to 4.79): refuted; deepspeed 2.00 ("
    assert (
        line.startswith(f"    - ◆ in the variant controlled only, counted in no total: {words}")
        and ") × layer-parallel, published 3.83. Measured on [" in line
        and "](#inference-tools-" in line
    )
    (line,) = below(untested + rows(10.0, 38.3, variant="controlled"))
    assert line.startswith("    - ● in the variant controlled only, counted in no total: **holds**; deepspeed 3.83 (")
    assert below(untested + rows(10.0, 38.3, count=1, variant="controlled")) == [], "the second line was not tested either"
    assert below(rows(10.0, 9.0) + controlled) == [], "the claim was tested"


def test_the_article_s_own_libraries_come_before_their_port_and_that_before_today_s() -> None:
    today, port, own = (rows(10.0, slow_ms, stack=stack) for stack, slow_ms in (("current", 9.0), ("hopper", 38.3), (ARTICLE.stack, 20.0)))
    assert headline(today).headline.verdict.word == REFUTED
    assert headline(today + port).headline.verdict.word == HOLDS
    assert headline(today + port + own).headline.verdict.word == IN_PART
    assert [one.group.key.stack for one in headline(today + port + own).others] == ["hopper", "current"]
    assert "[1 refuted](" in claims.elsewhere(headline(today + own), ARTICLE.slug) and "[1 holds](" in claims.elsewhere(headline(port + own), "x")


def test_other_settings_are_told_in_full_once_and_only_where_they_have_rows() -> None:
    def in_full(records: list[Record]) -> str:
        return str(claims.elsewhere_in_full(judging.judge_article(row_groups.build(records, {ARTICLE.slug: ARTICLE}), ARTICLE)))

    own, today = rows(10.0, 38.3, stack=ARTICLE.stack), rows(10.0, 9.0, stack="current")
    assert in_full(own) == "", "the first page tells all"
    told = [line for line in in_full(own + today).splitlines() if "current" in line]
    assert [line.split(" ")[1] for line in told] == ["1.1", "1.5"] and "refuted" in told[1] and ARTICLE.stack not in in_full(own + today)


def test_a_claim_that_only_trials_ran_names_each_kind_of_them() -> None:
    trials = rows(10.0, 38.3, scale="tiny") + rows(10.0, 38.3, scale="tiny", device="cpu")
    assert headline(trials).headline.verdict.reason == "so far only: tiny model on a CPU, tiny model on a GPU"


def test_why_a_claim_was_not_tested_stands_before_the_numbers_that_there_are() -> None:
    told = str(claims.numbers(headline([*rows(10.0, 30.0, count=4), *repeated(record(job("tensor-parallel", 2), 20.0))], "1.2").headline))
    assert told.startswith("4 runs, 5 are needed. tensor-parallel on 2 GPUs in float32 is 1.50")


def test_a_column_tells_the_word_of_version_1_where_any_claim_has_one() -> None:
    group = group_of(rows(10.0, 38.3))
    for version_1_of, told in (({("1.5", group.slug, 1): "reproduced"}, True), ({}, False)):
        earlier = {place: Frozen(*place, word, True) for place, word in version_1_of.items()}
        judged = judging.judge_article([group], ARTICLE, earlier)
        assert ("| version 1 |" in claims.of_group(group, judged.of_group(group), ARTICLE)) is told


def test_rows_without_a_time_stand_below_those_that_have_one_whatever_the_article_s_order() -> None:
    group = group_of([record(job("transformers"), status="oom", reason="synthetic"), record(job("int8"), 90.0), record(job("bminf"), 50.0)])
    assert [row.case for row in group.rows][0] == "transformers"
    lines = str(systems.main_table(group, ARTICLE)).splitlines()
    assert [case for line in lines for case in ("transformers", "int8", "bminf") if line.startswith(f"| {case} |")] == ["bminf", "int8", "transformers"]


def test_the_error_of_an_output_stands_beside_what_is_allowed_where_that_is_known() -> None:
    def error(checked: dict) -> str:
        return str(memory.section(group_of([record(job("int8"), checked=checked)]), ARTICLE))

    assert "| 0.02 (0.1) |" in error(check()) and "| 0.02 |" in error({**check(), "tolerance": None})


def test_a_table_of_devices_is_that_of_an_article_that_cuts_models_over_them() -> None:
    on_some = group_of([run for count in (1, 2) for run in repeated(record(job("tensor-parallel", count), 40.0 / count))])
    assert scaling.section(on_some, ARTICLE) == "" and scaling.section(on_some, None) == ""
    assert "times as fast as on the fewest" in scaling.section(on_some, articles.find("deepspeed-inference"))


@pytest.mark.parametrize("disturbed", [0, 5])
def test_a_ratio_of_a_row_whose_runs_were_all_disturbed_says_so_in_the_tables_of_its_setting(disturbed: int) -> None:
    mark = ", disturbed |" if disturbed else ") |"
    runs = rows(10.0, 38.3)
    of_slower = [run for run in runs if run.job.case == "layer-parallel"]
    for run in of_slower[:disturbed]:
        run.host["conditions"] = {"disturbed": ["foreign load: synthetic"]}
    group = group_of(runs)
    (line,) = [line for line in claims.speed_ups(group, judging.judge_article([group], ARTICLE).of_group(group)).splitlines() if "3.83" in line]
    assert line.endswith(mark) and "| 3.83 | 3.8" in line
    on_some = [run for count in (1, 2) for run in repeated(record(job("tensor-parallel", count), 40.0 / count))]
    for run in [run for run in on_some if run.job.device_count == 1][:disturbed]:
        run.host["conditions"] = {"disturbed": ["foreign load: synthetic"]}
    (line,) = [line for line in scaling.section(group_of(on_some), articles.find("deepspeed-inference")).splitlines() if "| 2.0" in line]
    assert mark in line


def test_no_place_is_named_where_nothing_was_measured() -> None:
    article = judging.judge_article(row_groups.build(rows(10.0, 38.3), {ARTICLE.slug: ARTICLE}), ARTICLE)
    places = {one.headline.claim["id"]: str(claims.setting(one.headline)) for one in article.claims}
    assert "SYNTHETIC GPU" in places["1.5"] and places["1.4"] == "—"


def test_a_claim_is_told_with_the_length_of_its_calls() -> None:
    of_one = judging.judge_article(row_groups.build(rows(10.0, 38.3), {ARTICLE.slug: ARTICLE}), ARTICLE)
    assert str(overview.claim_lines(of_one)).startswith("Judged by calls of 1 new token: they time the prompt (prefill), not generation.\n\n- ")
    assert str(overview.claim_lines(judging.judge_article([], ARTICLE))).startswith("- ")


def test_the_port_of_another_article_s_libraries_is_no_nearer_than_today_s() -> None:
    article = dataclasses.replace(ARTICLE, stack="2023-05")
    of_stacks = [record for stack in ("hopper", "hopper-2023-05", "current") for record in rows(10.0, 38.3, stack=stack)]
    groups = row_groups.build(of_stacks, {article.slug: article})
    lines = judging.judge_article(groups, article).claims[0]
    assert [judged.group.key.stack for judged in (lines.headline, *lines.others)] == ["hopper-2023-05", "hopper", "current"]


def test_no_other_setting_changes_the_headline() -> None:
    lines = headline(rows(10.0, 38.3, stack="current") + rows(10.0, 38.3, stack="hopper", count=1))
    assert (lines.headline.verdict.word, lines.headline.group.key.stack) == (NOT_TESTED, "hopper")


def test_of_equally_near_settings_the_one_that_tests_the_claim_is_the_headline() -> None:
    lines = headline(rows(10.0, 38.3, recipe=1) + rows(10.0, 38.3))
    assert lines.headline.group.key.weights == "random (recipe 2)"
    one_run = headline(rows(10.0, 38.3, recipe=1) + rows(10.0, 38.3, count=1))
    assert one_run.headline.group.key.weights == "random (recipe 2)"


def test_the_article_s_stack_comes_first_whatever_its_name() -> None:
    article = dataclasses.replace(ARTICLE, stack="z-own")
    groups = row_groups.build(rows(10.0, 9.0, stack="hopper") + rows(10.0, 38.3, stack="z-own"), {article.slug: article})
    lines = next(one for one in judging.judge_article(groups, article).claims if one.headline.claim["id"] == "1.5")
    assert lines.headline.group.key.stack == "z-own"


def on_another_host(records: list[Record]) -> list[Record]:
    """The same on a host whose groups come first."""
    for run in records:
        run.host["machine"] = {**run.host["machine"], "cpu": "A CPU"}
    return records


def test_of_two_hosts_the_one_that_tests_the_claim_or_a_part_of_it_is_the_headline() -> None:
    tested = headline(on_another_host(rows(10.0, 38.3, count=1)) + rows(10.0, 38.3))
    assert (tested.headline.verdict.word, [one.verdict.word for one in tested.others]) == (HOLDS, [NOT_TESTED])
    fits = [*rows(10.0, 38.3, count=1), *repeated(record(job("int8")))]
    part = headline(on_another_host([*rows(10.0, 38.3, count=1), record(job("int8"))]) + fits, "1.3")
    assert [one.word for one in part.headline.verdict.parts] == [NOT_TESTED, HOLDS] and part.headline.verdict.word == NOT_TESTED


def test_of_two_hosts_that_test_nothing_the_one_that_has_the_claim_s_rows_is_the_headline() -> None:
    alone = on_another_host(repeated(record(job("deepspeed", 2), 10.0), 1))
    untested = headline(alone + on(1, 10.0, 38.3)).headline
    assert untested.verdict.word == NOT_TESTED and untested.verdict.parts[0].number.startswith("3.83")


def test_of_two_hosts_without_a_usable_row_the_one_that_ran_the_claim_s_rows_is_the_headline() -> None:
    wrong = [record(job("deepspeed", 2), 10.0, checked=check(0.4, passed=False)), record(job("layer-parallel", 2), 38.3)]
    lines = headline(on_another_host([record(job("bminf"), 90.0)]) + wrong)
    assert lines.headline.verdict.word == NOT_TESTED and "output differs" in lines.headline.verdict.parts[0].why
    (elsewhere,) = lines.others
    assert "was not run" in elsewhere.verdict.parts[0].why and (lines.headline.verdict.not_run, elsewhere.verdict.not_run) == (0, 2)


def test_rows_for_most_parts_come_before_the_article_s_number_of_gpus() -> None:
    wrong = record(job("layer-parallel", 2), 38.3, checked=check(0.4, passed=False))
    on_one = [record(job("layer-parallel", 1), 38.3), record(job("int8"), 90.0)]
    lines = headline(on_another_host([wrong, record(job("int8"), 90.0)]) + on_one, "1.3")
    assert [(one.verdict.fewer, [part.has_rows for part in one.verdict.parts]) for one in lines.all] == [(1, [True, True]), (0, [False, True])]


def test_rows_that_were_run_come_before_the_article_s_number_of_gpus() -> None:
    wrong = check(0.4, passed=False)
    on_one = [record(job("deepspeed", 1), 10.0, checked=wrong), record(job("layer-parallel", 1), 38.3)]
    lines = headline(on_another_host([record(job("deepspeed", 2), 10.0, checked=wrong)]) + on_one)
    assert (lines.headline.verdict.not_run, lines.headline.verdict.fewer) == (0, 1)
    assert [(one.verdict.not_run, one.verdict.fewer) for one in lines.others] == [(1, 0)]


def test_a_cell_of_the_matrix_has_the_sign_of_a_claim_whose_rows_ran_and_cannot_count() -> None:
    records = [record(job("deepspeed", 2), 10.0, checked=check(0.4, passed=False)), record(job("layer-parallel", 2), 38.3)]
    groups = row_groups.build(records, {ARTICLE.slug: ARTICLE})
    verdicts = judging.judge_article(groups, ARTICLE)
    lines = [line for line in str(matrix.table(groups, verdicts)).splitlines() if line.startswith("|")]
    cells = dict(zip(lines[0].split(" | "), lines[2].split(" | "), strict=True))
    assert (cells["1.5"][:3], cells["1.2"]) == ("[▼]", "—")
    assert "output differs" in claims.of_group(groups[0], verdicts.of_group(groups[0]), verdicts.article), "the place that the sign leads to tells why"


def test_a_cell_of_the_matrix_takes_the_calls_that_were_judged_before_those_that_no_row_timed() -> None:
    long = [run for case, ms in (("deepspeed", 1000.0), ("layer-parallel", 3830.0)) for run in repeated(record(job(case, 2, new_tokens=(100,)), ms))]
    groups = row_groups.build([*long, *repeated(record(job("int8"), 90.0))], {ARTICLE.slug: ARTICLE})
    lines = [line for line in str(matrix.table(groups, judging.judge_article(groups, ARTICLE))).splitlines() if line.startswith("|")]
    cells = dict(zip(lines[0].split(" | "), lines[2].split(" | "), strict=True))
    assert cells["1.5"].startswith("[● deepspeed 3.8")


def test_a_wrong_output_is_told_before_the_rows_that_are_missing() -> None:
    wrong = [record(job("deepspeed", 2), 10.0, checked=check(0.4, passed=False)), record(job("layer-parallel", 2), 38.3)]
    reason = headline(wrong, "1.1").headline.verdict.parts[0].why
    assert reason.startswith("deepspeed's output differs by 40 %") and reason.endswith(
        "; not run (stack current): tensor-parallel, int8 and bminf; fewer than 5 runs: deepspeed and layer-parallel"
    )


def test_the_first_table_of_an_article_is_of_the_setting_that_tested_most_of_its_claims() -> None:
    untested = on_another_host([record(job(case, 2), ms) for case, ms in (("deepspeed", 10.0), ("layer-parallel", 38.3), ("tensor-parallel", 30.0))])
    groups = row_groups.build(untested + rows(10.0, 38.3), {ARTICLE.slug: ARTICLE})
    verdicts = judging.judge_article(groups, ARTICLE)
    told = [claim.headline for claim in verdicts.claims]
    assert [sum(judged.group is group for judged in told) for group in groups] == [4, 1], "more claims are told of the setting that tested none"
    assert page.nearest_of(groups, verdicts) is groups[1]


def test_verdicts_of_calls_of_another_length_are_no_twins() -> None:
    published, controlled = (group_of([record(job("deepspeed", 2, variant=variant))]) for variant in ("published", "controlled"))
    short, long, twin = (judging.Judged({"id": "1.5"}, Verdict(HOLDS), *of) for of in ((published, 1), (published, 128), (controlled, 128)))
    assert twin.is_twin_of(long) and not twin.is_twin_of(short)


def test_the_second_line_is_of_the_headline_s_own_setting() -> None:
    elsewhere = on_another_host(rows(10.0, 20.0, variant="controlled"))
    lines = headline(elsewhere + rows(10.0, 38.3) + rows(10.0, 12.0, variant="controlled"))
    assert lines.controlled.group.key.facts == lines.headline.group.key.facts and lines.controlled.verdict.parts[0].number.startswith("1.20")
    assert headline(elsewhere + rows(10.0, 38.3)).controlled.verdict.parts[0].number.startswith("2.00")


def test_the_second_line_is_never_of_another_stack_than_the_headline() -> None:
    lines = headline(rows(10.0, 38.3, stack="hopper") + rows(10.0, 20.0, variant="controlled"))
    assert lines.headline.group.key.stack == "hopper" and lines.controlled is None
    assert [one.group.key.stack for one in lines.others] == ["current"]


def test_of_settings_that_test_the_claim_the_one_on_the_article_s_number_of_gpus_is_the_headline() -> None:
    few = [run for row in on(1, 10.0, 9.0) for run in repeated(row)]
    many = rows(10.0, 38.3)
    for run in many:
        run.host["machine"] = {**run.host["machine"], "cpu_count": 64}
    lines = headline(few + [*few, *many])
    assert (lines.headline.verdict.word, lines.headline.verdict.gpus) == (HOLDS, "")
    assert [(one.verdict.word, one.verdict.gpus) for one in lines.others] == [(REFUTED, "on 1 GPU (the article: 2)")]


# ------------------------------------------------------------------------------------------------ version 1
def test_the_word_of_version_1_stands_beside_the_same_rows_and_no_other() -> None:
    groups = row_groups.build(rows(10.0, 38.3, recipe=1) + rows(10.0, 38.3), {ARTICLE.slug: ARTICLE})
    old = next(group for group in groups if group.key.weights == "random")
    earlier = {
        ("1.5", old.slug, 1): Frozen("1.5", old.slug, 1, "not reproduced", False),
        ("1.1", "elsewhere", 1): Frozen("1.1", "elsewhere", 1, "reproduced", True),
    }
    earlier |= {("1.5", group.slug, 1): Frozen("1.5", group.slug, 1, "reproduced", True) for group in groups if group is not old}
    judged = judging.judge_article(groups, ARTICLE, earlier)
    assert {one.group.key.weights: one.version_1 for one in judged.everywhere if one.claim["id"] == "1.5"} == {
        "random": "not reproduced",
        "random (recipe 2)": "reproduced",
    }
    assert {one.headline.claim["id"]: one.version_1 for one in judged.claims if one.version_1} == {"1.5": "reproduced"}, "the one that stood for the claim"


def test_the_word_of_version_1_on_rows_of_another_report_stands_for_their_claim_and_no_other() -> None:
    of_another = "another-article-hopper"
    earlier = {(claim, group, 1): Frozen(claim, group, 1, "reproduced", True) for claim, group in (("1.5", "beside"), ("1.1", of_another))}
    for beside, words in (({"beside"}, {"1.5": "reproduced"}), ((), {})):
        claims = judging.judge_article([], ARTICLE, earlier, beside).claims
        assert {one.headline.claim["id"]: one.version_1 for one in claims if one.version_1} == words


def test_the_words_of_version_1_are_read_by_claim_group_and_tokens_and_a_damaged_file_is_named(tmp_path) -> None:
    file = tmp_path / "reports" / "words.json"
    assert version_1.read(file) == {}, "a folder of results may have none"
    file.parent.mkdir()
    told = {"claim": "1.5", "group": "a-group", "new_tokens": 1, "word": "reproduced", "headline": True}
    file.write_text(json.dumps({"commit": "0" * 40, "verdicts": [told]}))
    assert version_1.read(file) == {("1.5", "a-group", 1): Frozen(**told)}
    file.write_text("{")
    with pytest.raises(KitError, match="^words.json is damaged: .*; try git checkout reports/words.json$"):
        version_1.read(file)


# ------------------------------------------------------------------------------------------------ the articles' files
@pytest.mark.parametrize(
    ("relation", "words"),
    [
        ({"case": "int8", "beauty": 1}, "a relation with the keys beauty, case has none of faster, .*check_passes.*; give it one"),
        ({**FASTER, "siz": 1.25}, "unknown field `siz`; allowed are part, faster, slower, size"),
        ({**FASTER, "ratio": "4.66"}, "Expected `float | null`, got `str`"),
        ({**FASTER, "size": 1.25, "ratio": 1.25}, "`size` is the published ratio"),
        ({**FASTER, "size": 1.25, "at_most": 1.25}, "one of `size`, `at_least` and `at_most`"),
        ({"fastest": "deepspeed", "than": []}, "`than` names at least one case"),
        ({"fastest": "deepspeed", "than": ["int8"], "ratios": [1.0, 2.0]}, "one for each of the 1 cases of `than`, found 2"),
        ({"fastest": "deepspeed", "than": ["int8"], "ratios": [1.0], "batch_sizes": [1]}, "`ratios` are of no batch size"),
        ({"case": "int8", "from_batch": 1, "to_batch": 8}, "one of `gain_at_least`"),
        ({"case": "int8", "check_passes": False}, "`check_passes` is false, allowed is true; leave the relation out"),
        ({**FASTER, "slower": FASTER["faster"]}, "'deepspeed' is compared with itself, allowed are two cases"),
        ({"fastest": "int8", "than": ["bminf", "int8"]}, "'int8' is compared with itself, allowed are two cases"),
        ({"case": "int8", "gains_more_than": "int8", "from_batch": 1, "to_batch": 8, "at_least": 2.0}, "'int8' is compared with itself"),
        ({"case": "int8", "from_batch": 8, "to_batch": 8, "gain_below": 2.0}, "`from_batch` is 8, allowed is a smaller batch than `to_batch`, which is 8"),
        ({"case": "int8", "gains_more_than": "bminf", "from_batch": 8, "to_batch": 1, "at_least": 2.0}, "`from_batch` is 8, allowed is a smaller batch"),
        ({**FASTER, "size": 0.4}, "`size` is 0.4, allowed is the time of `slower` over that of `faster`, which is above 1; write the reciprocal"),
        ({"case": "int8", "peak_memory_below_bytes": 24}, "`peak_memory_below_bytes` is 24, allowed are bytes; 24 GiB are 25769803776"),
    ],
)
def test_a_relation_that_the_article_s_file_has_wrong_is_named_with_what_is_allowed(relation: dict, words: str) -> None:
    wrong = dataclasses.replace(ARTICLE, claims=[{"id": "1.1", "text": "", "relations": [relation]}])
    with pytest.raises(KitError, match=f"^bench/articles/inference-tools.toml: claim 1.1.*{words}") as caught:
        judging.judge_article([], wrong)
    assert "\n" not in str(caught.value)


def test_two_parts_of_a_claim_have_names_of_their_own() -> None:
    twice = [{**FASTER, "part": "fast"}, {"case": "int8", "check_passes": True, "part": "fast"}]
    wrong = dataclasses.replace(ARTICLE, claims=[{"id": "1.1", "text": "", "relations": twice}])
    with pytest.raises(KitError, match="claim 1.1: the part 'fast' is there twice; give each part a name of its own"):
        rules.check(wrong)


def test_an_article_s_file_may_hold_the_keys_of_every_kind_of_relation_and_no_other() -> None:
    kinds = {field.name for kind in relations.KINDS for field in msgspec.structs.fields(kind)}
    assert set(shapes.Relation.__annotations__) == kinds


@pytest.mark.parametrize("article", articles.load_all().values(), ids=lambda article: article.slug)
def test_every_relation_of_the_kit_s_articles_can_be_judged(article: articles.Article) -> None:
    rules.check(article)


EVERY_RELATION = [(article, relation) for article in articles.load_all().values() for claim in article.claims for relation in claim["relations"]]


@pytest.mark.parametrize(("article", "table"), EVERY_RELATION, ids=str)
def test_a_relation_without_rows_has_its_parts_nevertheless(article: articles.Article, table: dict) -> None:
    (group,) = row_groups.build([record(job("of no article", article=article.slug))], {})
    relation = relations.of(table)
    judged = relation.judge(Rows(group, article, 1, most=8))
    assert len(judged) == len(relation.names()) and all(part.name and part.word == NOT_TESTED and part.why for part in judged)


# ------------------------------------------------------------------------------------------------ groups
@pytest.mark.parametrize("other", [{"stack": "2023-02"}, {"weights": "hub"}, {"recipe": 1}, {"variant": "controlled"}, {"scale": "tiny"}, {"device": "cpu"}])
def test_rows_of_different_settings_are_in_different_groups(other: dict) -> None:
    found = row_groups.build([record(job("deepspeed"), 10.0), record(job("int8", **other), 30.0)], articles.load_all())
    assert [len(group.rows) for group in found] == [1, 1]


def test_a_group_is_named_by_its_stack_its_machine_its_weights_and_what_its_jobs_ran_in() -> None:
    def heading(engine: str, **asked: object) -> str:
        run = record(job("deepspeed", 2, **asked))
        run.host["engine"] = engine
        return group_of([run]).heading

    assert heading("docker") == "current · 2 × SYNTHETIC GPU in a 2-core host · random (recipe 2) weights, full · in containers · published"
    assert "· without containers ·" in heading("host") and "· in containers of Podman ·" in heading("podman")
    assert heading("host", device="cpu").startswith("current · SYNTHETIC CPU · random"), "the host of a CPU is its own"
    assert group_of([record(job("deepspeed", 8)), record(job("int8"))]).devices == "1 and 8 × SYNTHETIC GPU"


def test_the_numbers_of_new_tokens_of_a_group_rise() -> None:
    assert group_of([record(job("deepspeed", new_tokens=(128, 1))), record(job("int8", new_tokens=(16,)))]).new_tokens == [1, 16, 128]


@pytest.mark.parametrize("cores", [(2, 16), (16, 2)])
def test_of_several_hosts_the_one_with_most_runs_comes_first(cores: tuple[int, int]) -> None:
    runs = [record(job(case, 2)) for case in ("deepspeed", "deepspeed", "layer-parallel")]
    for run, count in zip(runs, (cores[1], *[cores[0]] * 2), strict=True):
        run.host["machine"] = {**run.host["machine"], "cpu_count": count}
    assert [group.key.host for group in row_groups.build(runs, articles.load_all())] == [f"{count}-core host" for count in cores]


@pytest.mark.parametrize("facts", [{"gpu_name": "OTHER GPU"}, {"memory_gib": 48}])
def test_rows_of_different_gpus_are_in_different_groups(facts: dict) -> None:
    found = row_groups.build([record(job("deepspeed"), 10.0), record(job("int8"), 30.0, **facts)], articles.load_all())
    assert len(found) == 2 and len({group.slug for group in found}) == 2


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"device": "cpu"}, "full model on a CPU"),
        ({"device": "cpu", "scale": "tiny"}, "tiny model on a CPU"),
        ({"scale": "tiny"}, "tiny model on a GPU"),
        ({}, ""),
    ],
)
def test_a_cpu_or_a_tiny_model_judges_no_claim(facts: dict, reason: str) -> None:
    (group,) = row_groups.build([record(job("deepspeed", **facts))], articles.load_all())
    assert group.cannot_judge() == reason


# ------------------------------------------------------------------------------------------------ disturbed machines
HOT = "throttled: GPU 0 lowered its clock in 3 of 9 samples (hw_thermal_slowdown)"


def marked(runs: list[Record], *numbers: int, disturbed: bool = True, slower: float = 10.0) -> list[Record]:
    """The runs, of which these numbers are marked and took so many times as long."""
    for run in runs:
        if run.number in numbers:
            run.host["conditions"] = {"marks": [HOT], "disturbed": [HOT] if disturbed else []}
            for measurement in run.guest.measurements:
                measurement["timed_ms"] = [ms * slower for ms in measurement["timed_ms"]]
    return runs


def test_a_run_on_a_disturbed_machine_judges_nothing_and_the_others_do_as_if_it_was_not_there() -> None:
    fast, slow = pair(10.0, 30.0)
    alone = judge_runs([FASTER], [*repeated(fast), *repeated(slow)])
    beside = judge_runs([FASTER], [*marked(repeated(fast, 7), 6, 7), *repeated(slow)])
    assert alone.word == beside.word == HOLDS
    assert beside.parts[0].ratio.value == pytest.approx(3.0, rel=0.02)


def test_a_row_of_four_undisturbed_runs_is_not_tested_and_says_why() -> None:
    fast, slow = pair(10.0, 30.0)
    part = judge_runs([FASTER], [*marked(repeated(fast, 5), 3), *repeated(slow)]).parts[0]
    assert (part.word, part.why) == (NOT_TESTED, "4 runs beside 1 on a disturbed machine, 5 are needed")
    none_left = judge_runs([FASTER], [*marked(repeated(fast, 5), 1, 2, 3, 4, 5), *repeated(slow)]).parts[0]
    assert none_left.why == "0 runs beside 5 on a disturbed machine, 5 are needed"


def row_of(*runs: Record) -> Row:
    return Row(runs[0].job.case, runs[0].job.device_count, runs[0], runs)


def test_one_row_of_earlier_weights_keeps_all_compared_rows_from_judging() -> None:
    earlier, later = (row_of(*repeated(record(job("int8", recipe=recipe)))) for recipe in (1, 2))
    assert lookup.why_not([later], 1) == ""
    assert {lookup.why_not(rows, 1) for rows in ([earlier], [earlier, later], [later, earlier])} == {"weights of recipe 1, which judge nothing"}


def test_only_runs_with_calls_of_the_compared_length_count() -> None:
    short, long = (record(job("int8", new_tokens=(new_tokens,))) for new_tokens in (1, 128))
    most_are_short, few = row_of(*repeated(short), *repeated(long, 2)), row_of(*repeated(long, 3))
    assert lookup.why_not([most_are_short], 1) == lookup.why_not([most_are_short], None) == ""
    assert lookup.why_not([few, most_are_short], 128) == "2 runs, 5 are needed"


def test_a_disturbed_run_that_failed_is_not_told_beside_those_that_count() -> None:
    good, failed = repeated(record(job("int8")), 4), record(job("int8"), status="failed", reason="synthetic", number=5)
    failed.host["conditions"] = {"marks": [HOT], "disturbed": [HOT]}
    assert lookup.why_not([row_of(*good, failed)], 1) == "4 runs, 5 are needed"


def test_a_run_beside_others_judges_nothing_although_its_marks_are_gone() -> None:
    fast, slow = pair(10.0, 30.0)
    runs = repeated(fast, 5)
    runs[2].host.update(shared_with=1, conditions={"marks": [], "disturbed": []})
    assert judge_runs([FASTER], [*runs, *repeated(slow)]).parts[0].why == "4 runs beside 1 on a disturbed machine, 5 are needed"


def test_a_mark_that_disturbs_nothing_changes_no_verdict() -> None:
    fast, slow = pair(10.0, 30.0)
    runs = [*marked(repeated(fast), 1, 2, 3, 4, 5, disturbed=False, slower=1.0), *repeated(slow)]
    assert judge_runs([FASTER], runs).word == HOLDS


def test_the_peak_of_a_disturbed_run_may_hold_the_memory_of_others() -> None:
    runs = repeated(record(job("int8"), 50.0, peak_gib=10.0), 6)
    marked(runs, 6)[5].host["gpu_memory"][0]["peak_used_bytes"] = 40 * synthetic.GIB
    assert judge_runs([FITS], runs).word == HOLDS


def test_a_row_shows_the_memory_of_the_middle_run() -> None:
    """One load that took twice the memory, or a disturbed run, is not what the row shows; the verdict still takes the most of any run that counts."""
    runs = marked(repeated(record(job("int8"), 50.0, peak_gib=10.0), 6), 6)
    for run, gib in zip(runs, (10, 10, 20, 11, 12, 60), strict=True):
        run.host["gpu_memory"][0]["peak_used_bytes"] = gib * synthetic.GIB
        assert run.guest
        run.guest.memory = {"devices": [{"peak_allocated_bytes": gib - 1, "peak_reserved_bytes": gib}], "peak_rss_bytes": 7 * gib}
    (row,) = group_of(runs).rows
    assert (row.peak_of_a_gpu_bytes, row.peak_resident_bytes) == (11 * synthetic.GIB, 77)
    assert (row.torch_peak_bytes("peak_allocated_bytes"), row.torch_peak_bytes("peak_reserved_bytes")) == (10, 11)
    (of_four,) = group_of(runs[:4]).rows
    assert of_four.peak_of_a_gpu_bytes == 10 * synthetic.GIB, "the lower of two in the middle: a reading, no mean"
    assert of_four.peak_resident_bytes == 70
    (failed,) = group_of([*runs[:-1], dataclasses.replace(runs[-1], status="oom")]).rows
    assert failed.peak_of_a_gpu_bytes == 60 * synthetic.GIB, "a row whose latest run did not end well shows that run"


def test_an_engine_in_its_own_processes_shows_resident_memory_only_where_it_is_that_of_all_of_them() -> None:
    """Results of before told the first process's alone."""
    runs = repeated(record(job("vllm", 2), 50.0), 3)
    for run in runs:
        assert run.guest
        run.guest.used["engine_in_own_process"], run.guest.memory = True, {"devices": [], "peak_rss_bytes": 5}
    assert group_of(runs).rows[0].peak_resident_bytes is None
    assert runs[1].guest and runs[2].guest
    runs[1].guest.memory |= {"peak_rss_bytes": 70, "processes": 4}
    assert group_of(runs).rows[0].peak_resident_bytes == 70
    runs[2].guest.used["engine_in_own_process"] = False
    assert group_of(runs).rows[0].peak_resident_bytes == 5, "the lower of two in the middle"


def test_the_peak_of_a_gpu_is_that_of_the_fullest_in_the_middle_run() -> None:
    runs = repeated(record(job("deepspeed", 2), 50.0), 3)
    for run, (one, other) in zip(runs, ((9, 5), (4, 8), (7, 6)), strict=True):
        for gpu, gib in zip(run.host["gpu_memory"], (one, other), strict=True):
            gpu["peak_used_bytes"] = gib * synthetic.GIB
    runs[0].host["gpu_memory"][1]["peak_used_bytes"] = None
    (row,) = group_of(runs).rows
    assert row.peak_of_a_gpu_bytes == 8 * synthetic.GIB, "a run without a sample of its second GPU has a fullest GPU too"


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (parts.ABOVE_ONE, ""),
        (parts.below(1.5), "below 1.5"),
        (parts.Range(least=2, is_open=True), "above 2"),
        (parts.Range(least=102.4), "at least 102.4"),
        (parts.Range(most=1.25), "at most 1.25"),
        (parts.size(60), "48 to 75"),
        (parts.size(3.83), "3.06 to 4.79"),
        (parts.Range(), ""),
    ],
)
def test_what_a_claim_says_of_a_ratio_in_words(where: parts.Range, words: str) -> None:
    assert where.in_words == words


def test_the_run_that_counts_is_an_undisturbed_one() -> None:
    runs = marked(repeated(record(job("int8"), 50.0), 4), 2, 3, 4)
    (row,) = group_of(runs).rows
    assert row.record.number == 1 and len(row.run_means_ms(1)) == 1
    (every,) = group_of(marked(repeated(record(job("int8"), 50.0), 3), 1, 2, 3)).rows
    assert len(every.run_means_ms(1)) == 3, "a row of marked runs shows them"


def test_the_ratio_of_a_claim_is_that_of_its_first_part_that_was_measured() -> None:
    sized = relations.of({"faster": "deepspeed", "slower": "int8", "size": 3.83})
    untested, measured = Part("faster", NOT_TESTED, why="no row"), Part("3.83 times", HOLDS, ratio=stats.Estimate(4.0, 3.9, 4.1))
    shown = overview.published_part(judging.Judged({"id": "1.0"}, Verdict(HOLDS, judged=[(sized, [untested, measured])])))
    assert shown == overview.PublishedPart(relations.base.PublishedRatio(3.83, "int8"), measured)


def test_the_picture_has_a_dot_of_parts_that_agree_and_a_cell_no_ratio_of_too_few_runs() -> None:
    plain = relations.of({"faster": "deepspeed", "slower": "int8"})

    def of_parts(first: str, second: str) -> judging.Judged:
        words_over = ((first, 4.0, "int8"), (second, 2.0, "bminf"))
        made = [Part(over, word, ratio=stats.Estimate(ratio, ratio, ratio), cases=("deepspeed", over)) for word, ratio, over in words_over]
        return judging.Judged({"id": "1.0"}, Verdict(first, judged=[(plain, made)]))

    assert [dot.measured.value for dot in overview._dots(of_parts(HOLDS, HOLDS)) if dot.measured] == [4.0]
    assert matrix.short(of_parts(HOLDS, REFUTED)).count("×") == 2
    assert matrix.short(of_parts(HOLDS, NOT_TESTED)) == "● ● deepspeed 4.00 × int8"


def test_the_first_screens_count_the_claims_that_ran_on_fewer_gpus_than_in_the_article() -> None:
    runs = [*rows(10.0, 38.3), *repeated(record(job("int8"), peak_gib=9.0, memory_gib=80))]
    for count, told in ((2, 0), (1, 1)):
        of_count = [run for run in runs if run.job.case == "int8"] + [run for row in on(count, 10.0, 38.3) for run in repeated(row)]
        judged = judging.judge_article(row_groups.build(of_count, {ARTICLE.slug: ARTICLE}), ARTICLE)
        text = overview.section({ARTICLE.slug: judged}, False, Markdown(), Markdown())
        for screen in (text, overview.tally(judged.claims, "")):
            assert ("1 of the 1 tested claims ran on fewer GPUs than in the article." in screen) is bool(told), screen


# ------------------------------------------------------------------------------------------------ several machines
def on_machine(runs: list[Record], machine: str, day: int, factor: float = 1.0, gpus: tuple[int, ...] = (0, 1)) -> list[Record]:
    """These runs as another machine measured them: its own GPUs, a day, and times that differ by a factor."""
    found = []
    for run in runs:
        found.append(dataclasses.replace(run, id=f"{run.id[:-2]}{int(run.id[-2:]) + 10 * day:02d}"))
        run.host["gpus"] = [{**run.host["gpus"][0], "index": index, "uuid": f"GPU-{machine}-{index}"} for index in gpus]
        run.host["gpu_memory"] = [{**run.host["gpu_memory"][0], "uuid": gpu["uuid"]} for gpu in run.host["gpus"]]
        run.host["started_at"] = f"2026-11-2{day}T0{int(run.id[-2:])}:10:00Z"
        for measurement in run.guest.measurements:
            measurement["timed_ms"] = [ms * factor for ms in measurement["timed_ms"]]
    return found


def on_two_machines(factor: float = 1.0, slow_ms: float = 20.0, first: int = 2, first_slow: int = 2, scatter: float = 0.0) -> list[Record]:
    """Runs of DeepSpeed at 10 ms and of layer parallelism, the first ones on an older machine, where DeepSpeed takes `factor` times as long; three later."""
    fast, slow = (repeated(one, 3 + count, scatter) for one, count in zip(pair(10.0, slow_ms), (first, first_slow), strict=True))
    older = [*on_machine(fast[:first], "a", 1, factor), *on_machine(slow[:first_slow], "a", 1)]
    return [*on_machine(fast[first:], "b", 2), *on_machine(slow[first_slow:], "b", 2), *older]


def test_a_ratio_of_runs_from_several_machines_is_told_for_the_gpus_of_each() -> None:
    (part,) = judge_runs([FASTER], on_two_machines(1.25)).parts
    assert part.notes == ("by GPUs: 1.60 of 2 runs, 2.00 of 3 runs",), "the older machine first"
    assert "by GPUs: 1.60 of 2 runs, 2.00 of 3 runs)" in part.sentence
    (uneven,) = judge_runs([FASTER], on_two_machines(1.25, first=1, first_slow=2)).parts
    assert uneven.notes == ("by GPUs: 1.60 of 2 and 1 runs, 2.00 of 3 runs",), "the slower row's runs first"
    (single,) = judge_runs([FASTER], on_two_machines(1.25, first=1, first_slow=1)).parts
    assert single.notes == ("by GPUs: 1.60 of 1 run, 2.00 of 3 runs",)


def test_a_ratio_is_told_for_the_only_gpus_that_ran_both_rows_where_others_ran_one_alone() -> None:
    fast, slow = (repeated(one, 5, 0.0) for one in pair(10.0, 20.0))
    runs = [*on_machine(fast[:2], "a", 1, 1.25), *on_machine(fast[2:], "b", 2), *on_machine(slow, "b", 2)]
    (part,) = judge_runs([FASTER], runs).parts
    assert part.notes == ("on GPUs that ran both: 2.00 of 5 and 3 runs",)
    assert not part.is_of_a_mixture, "one ratio differs from no other"


@pytest.mark.parametrize(
    ("fast", "slow", "notes"),
    [
        ((0.5,), (0.125,), ("kernels alone: 0.750, outside of what is claimed",)),
        ((0.5,), (0.63,), ("kernels alone: 3.78",)),  # which is no doubt
        ((0.5,), (0.62,), ()),  # 3.72, and 3.75 would be 1.25 times as much
        ((0.5,), ("too-short",), ()),
        ((0.0,), (0.5,), ()),
        ((0.5, 0.5), (0.1, 0.1), ()),
    ],
)
def test_the_ratio_of_kernels_stands_beside_one_that_is_much_of_waiting(fast: tuple, slow: tuple, notes: tuple) -> None:
    rows = [record(job(case, len(shares)), ms, spread=0.0) for case, ms, shares in (("deepspeed", 10.0, fast), ("layer-parallel", 30.001, slow))]
    runs = [busy(run, *shares) for one, shares in zip(rows, (fast, slow), strict=True) for run in repeated(one, scatter=0.0)]
    (part,) = judge_runs([FASTER], runs).parts
    assert (part.word, part.notes) == (HOLDS, notes)
    assert part.doubts == tuple(note for note in notes if "outside of what is claimed" in note)


@pytest.mark.parametrize(
    ("kernels", "times", "side"),
    [
        (1.19, 2.79, ", within what is claimed"),
        (2.79, 1.19, ", outside of what is claimed"),
        (1.1, 1.2, ""),
        (2.0, 2.8, ""),
        (1.25, 1.26, ", within what is claimed"),
    ],
)
def test_the_ratio_of_kernels_says_where_it_alone_is_what_the_claim_says(kernels: float, times: float, side: str) -> None:
    of_kernels = pairs.OfKernels(kernels, times, "")
    assert of_kernels.in_words(Range(most=1.25)) == f"kernels alone: {stats.significant(kernels)}{side}"
    assert of_kernels.in_words() == f"kernels alone: {stats.significant(kernels)}"


def test_a_ratio_of_kernels_is_another_one_beyond_the_factor_of_a_size_on_either_side() -> None:
    assert not any(pairs.OfKernels(*ratios, "").is_another for ratios in ((1.25, 1.0), (1.0, 1.25)))
    assert all(pairs.OfKernels(*ratios, "").is_another for ratios in ((1.26, 1.0), (1.0, 1.26)))


def test_a_share_of_one_per_cent_is_the_least_that_is_known() -> None:
    assert run_facts.kernels_ms(busy(record(job("int8")), 0.01), 1, 500.0) == 5.0


def test_a_share_of_further_calls_is_one_of_their_own_mean() -> None:
    run = busy(record(job("int8")), 0.5)
    run.host["energy"] = [{"new_tokens": 1, "calls": 40, "gpus": [{"uuid": "GPU-0", "code": "ok", "seconds": 4.0}]}]
    assert run_facts.kernels_ms(run, 1, 60.0) == 50.0, "a call of 100 ms, and not one of 60"
    del run.host["energy"][0]["calls"]
    assert run_facts.kernels_ms(run, 1, 60.0) == 30.0, "without further calls the share is that of the timed ones"


@pytest.mark.parametrize("share", [0.0, 1e-320, 1e-300, 0.009])
def test_a_share_that_nvml_cannot_mean_is_not_known(share: float) -> None:
    fast, slow = (repeated(record(job(case, 1), ms, spread=0.0), scatter=0.0) for case, ms in (("deepspeed", 10.0), ("layer-parallel", 30.0)))
    for tiny, other in ((fast, slow), (slow, fast)):
        runs = [*(busy(run, share) for run in tiny), *(busy(run, 0.5) for run in other)]
        assert judge_runs([FASTER], runs).parts[0].notes == ()


def test_a_whole_share_may_be_an_integer_and_a_run_with_another_gpu_tells_nothing() -> None:
    fast, slow = (repeated(record(job(case, 1), ms, spread=0.0), scatter=0.0) for case, ms in (("deepspeed", 10.0), ("layer-parallel", 30.0)))
    for run in fast:
        busy(run, 1)
    runs = [*fast, *(busy(run, 0.5) for run in slow)]
    assert judge_runs([FASTER], runs).parts[0].notes == ("kernels alone: 1.50",)
    for run in fast:
        run.host["gpus"] = [*run.host["gpus"], {**run.host["gpus"][0], "uuid": "GPU-another"}]
    assert "kernels alone" not in judge_runs([FASTER], runs).parts[0].sentence


def test_the_ratio_of_kernels_is_held_against_that_of_the_same_runs() -> None:
    fast, slow = (repeated(record(job(case, 1), ms, spread=0.0), scatter=0.0) for case, ms in (("deepspeed", 10.0), ("layer-parallel", 30.0)))
    for run in fast[:3]:
        run.guest.measurements[0]["timed_ms"] = [2 * ms for ms in run.guest.measurements[0]["timed_ms"]]
    told = [*(busy(run, 0.5) for run in fast[:3]), *fast[3:], *(busy(run, 0.5) for run in slow[:2]), *slow[2:]]
    assert judge_runs([FASTER], told).parts[0].notes == (), "1.5 of these runs by both, 1.98 of all"
    told = [*(busy(run, 0.5) for run in fast[:3]), *fast[3:], *(busy(run, 0.25) for run in slow[:2]), *slow[2:]]
    assert judge_runs([FASTER], told).parts[0].notes == ("kernels alone: 0.750 of 2 and 3 runs, outside of what is claimed",)


def test_rows_on_one_machine_or_on_machines_that_ran_one_row_alone_have_one_ratio() -> None:
    assert part_of(FASTER, *pair(10.0, 20.0)).notes == ()
    fast, slow = (repeated(one, 5, 0.0) for one in pair(10.0, 20.0))
    (apart,) = judge_runs([FASTER], [*on_machine(fast, "a", 1), *on_machine(slow, "b", 2)]).parts
    (together,) = judge_runs([FASTER], [*on_machine(fast, "b", 1), *on_machine(slow, "b", 2)]).parts
    assert [(part.notes, part.on_gpus) for part in (apart, together)] == [((), ())] * 2


def test_runs_on_single_gpus_of_a_pair_belong_to_the_runs_on_both() -> None:
    relation = {"faster": "deepspeed", "slower": "int8"}
    fast, slow = repeated(record(job("deepspeed", 2), 10.0), 5, 0.0), repeated(record(job("int8"), 20.0), 5, 0.0)
    alone = [*on_machine(slow[:2], "a", 1, gpus=(0,)), *on_machine(slow[2:], "a", 1, gpus=(1,))]
    assert judge_runs([relation], [*alone, *on_machine(fast, "a", 2)]).parts[0].on_gpus == (), "GPUs 0 and 1 are one machine's, as the later runs tell"
    apart = [*alone, *on_machine(fast[:2], "a", 2, gpus=(0, 2)), *on_machine(fast[2:], "a", 2, gpus=(1, 3))]
    assert len(judge_runs([relation], apart).parts[0].on_gpus) == 2


def test_pairs_that_share_a_gpu_are_of_one_machine() -> None:
    fast, slow = (repeated(one, 5, 0.0) for one in pair(10.0, 20.0))
    first = [*on_machine(fast[:2], "a", 1), *on_machine(slow[:2], "a", 1)]
    later = [*on_machine(fast[2:], "a", 2, gpus=(1, 2)), *on_machine(slow[2:], "a", 2, gpus=(1, 2))]
    assert judge_runs([FASTER], [*first, *later]).parts[0].on_gpus == ()


def test_the_gpus_of_the_oldest_run_stand_first_whichever_row_it_is_of() -> None:
    fast, slow = (repeated(one, 2, 0.0) for one in pair(10.0, 20.0))
    on_a, on_b = [*on_machine(fast[:1], "a", 1, 2.0), *on_machine(slow[1:], "a", 4)], [*on_machine(slow[:1], "b", 2), *on_machine(fast[1:], "b", 3)]
    assert judge_runs([FASTER], [*on_a, *on_b]).parts[0].notes == ("by GPUs: 1.00 of 1 run, 2.00 of 1 run",)


@pytest.mark.parametrize(("ratios", "mixed"), [((1.0, 1.25), False), ((1.0, 1.26), True), ((2.0, 1.0), True), ((2.0,), False), ((), False)])
def test_ratios_on_several_gpus_that_differ_by_more_than_a_quarter_are_of_a_mixture(ratios: tuple[float, ...], mixed: bool) -> None:
    assert Part("faster", HOLDS, on_gpus=tuple(parts.OnGpus(ratio, (2, 2)) for ratio in ratios)).is_of_a_mixture is mixed


def test_a_note_names_four_sets_of_gpus_at_most() -> None:
    fast, slow = (repeated(one, 6, 0.0) for one in pair(10.0, 20.0))
    runs = [moved for place, both in enumerate(zip(fast, slow, strict=True)) for moved in on_machine(list(both), str(place), place)]
    note, over_sets = judge_runs([FASTER], runs).parts[0].notes
    assert note.count("2.00 of 1 run") == 4 and note.endswith(", and 2 more")
    assert over_sets == "over these 6 sets: 2.0000 to 2.0000"
    assert judge_runs([FASTER], runs).parts[0].doubts == (), "the sets say what the runs say"


def test_three_sets_of_gpus_have_an_interval_that_takes_each_as_one_number() -> None:
    """Of the ratios 1, 2 and 4 the logarithms are 0, log 2 and 2 log 2: mean and standard deviation are log 2, and Student's t is 4.303."""
    fast, slow = (repeated(one, 6, 0.0) for one in pair(10.0, 40.0))
    machines = [("a", slice(0, 1), 4.0), ("b", slice(1, 3), 2.0), ("c", slice(3, 6), 1.0)]
    runs = []
    for day, (name, which, factor) in enumerate(machines, 1):
        runs += [*on_machine(fast[which], name, day, factor), *on_machine(slow[which], name, day)]
    (part,) = judge_runs([FASTER], runs).parts
    assert part.notes == ("by GPUs: 1.00 of 1 run, 2.00 of 2 runs, 4.00 of 3 runs", "over these 3 sets: 0.36 to 11.19")
    assert (part.word, part.doubts) == (HOLDS, ("by 3 sets of GPUs undecided, 0.36 to 11.19",)), "what speaks against the word"
    for run in runs:
        run.job.model["recipe"] = 1
    (untested,) = judge_runs([FASTER], runs).parts
    assert (untested.word, untested.doubts) == (NOT_TESTED, ()), "there is no word"
    assert stats.over_sets([1.0, 2.0]) == stats.Estimate(pytest.approx(2**0.5)), "of two sets it would be of no use"


def test_the_digits_of_an_interval_over_sets_show_on_which_side_of_the_bound_its_end_lies() -> None:
    runs = [run for row in pair(10.0, 20.0) for run in repeated(row)]
    rows = [row for group in row_groups.build(runs, {ARTICLE.slug: ARTICLE}) for row in group.rows]
    of_sets = dataclasses.replace(pairs.of_times(*rows, 1), on_gpus=tuple(parts.OnGpus(ratio, (5, 5)) for ratio in (1.9, 2.0, 2.2)))
    claimed = Range(least=1.69)  # the interval begins at 1.6871
    assert of_sets.notes(claimed)[1] == "over these 3 sets: 1.687 to 2.442"
    assert of_sets.doubts(claimed) == ("by 3 sets of GPUs undecided, 1.687 to 2.442",)


def test_the_first_page_tells_of_what_stands_beside_a_number_only_what_speaks_against_its_word() -> None:
    fast, slow = (repeated(one, 6, 0.0) for one in pair(10.0, 40.0))
    runs = []
    for day, (name, which, factor) in enumerate([("a", slice(0, 1), 4.0), ("b", slice(1, 3), 2.0), ("c", slice(3, 6), 1.0)], 1):
        runs += [*on_machine(fast[which], name, day, factor), *on_machine(slow[which], name, day)]
    verdicts = judging.judge_article(row_groups.build(runs, {ARTICLE.slug: ARTICLE}), ARTICLE)
    of_article, of_first_page = (str(overview.claim_lines(of_page)) for of_page in (verdicts, overview.in_brief(verdicts)))
    assert "by GPUs: 1.00 of 1 run" in of_article and "over these 3 sets: 0.36 to 11.19" in of_article
    assert "by GPUs" not in of_first_page and "(by 3 sets of GPUs undecided, 0.36 to 11.19)" in of_first_page


def pages_of(runs: list[Record], folder) -> str:
    from scripts.report import document

    synthetic.write(folder / "runs", runs)
    document.write(folder / "runs", folder)
    return reports.text_of(folder)


def test_a_page_advises_no_more_runs_of_a_mixture_of_machines(tmp_path) -> None:
    told = pages_of(on_two_machines(1.4, slow_ms=38.3), tmp_path)
    assert "- Claim 1.5, 3.83 times: undecided over runs on 2 sets of GPUs, whose ratios differ by more than 1.25 times. Five runs" in told
    assert "(by GPUs: 2.74 of 2 runs, 3.83 of 3 runs)" in told and "would decide it" not in told


@pytest.mark.parametrize(("runs", "mixed"), [((5, 4), True), ((5, 5), False)])
def test_gpus_judge_alone_where_they_have_enough_runs_of_both_rows(runs: tuple[int, int], mixed: bool) -> None:
    part = Part("", UNDECIDED, on_gpus=(parts.OnGpus(1.0, runs), parts.OnGpus(2.0, (4, 5))))
    assert part.is_of_a_mixture == mixed


@pytest.mark.parametrize("typed", [{"factor": 1.0, "scatter": 0.3}, {"factor": 1.4, "first": 5, "first_slow": 5}])
def test_machines_that_agree_or_that_could_judge_alone_leave_the_advice(tmp_path, typed) -> None:
    (part,) = judge_runs([FASTER], on_two_machines(slow_ms=38.3, **typed)).parts
    assert part.on_gpus and not part.is_of_a_mixture
    told = pages_of(on_two_machines(slow_ms=38.3, **typed), tmp_path)
    assert "sets of GPUs, whose ratios" not in told
