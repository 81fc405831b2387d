import dataclasses

import msgspec
import pytest

from scripts import articles
from scripts.articles import shapes
from scripts.errors import KitError
from scripts.results import Record
from scripts.verdicts import judging, relations, row_groups, rules
from scripts.verdicts.row_groups import Row
from scripts.verdicts.rules import NOT_REPRODUCED, NOT_TESTED, REPRODUCED, Verdict
from tests import synthetic
from tests.synthetic import check, job, record

FASTER = {"faster": "deepspeed", "slower": "int8"}


def row(asked: Record) -> Row:
    return Row(asked.job.case, asked.job.device_count, asked, (asked,))


def judge(relation: dict, *records: Record) -> Verdict:
    return rules.judge({"relations": [relation]}, {one.job.case: row(one) for one in records}, 1)


def pair(fast_ms: float, slow_ms: float, **facts: object) -> tuple[Record, Record]:
    return record(job("deepspeed"), fast_ms, **facts), record(job("int8"), slow_ms, seed=3, **facts)


def test_an_interval_above_one_reproduces_and_tells_the_ratio() -> None:
    verdict = judge({**FASTER, "ratio": 4.66}, *pair(10.0, 30.0))
    assert verdict.word == REPRODUCED
    assert verdict.reason.startswith("deepspeed (1 GPU, float32) is 3.0") and "published 4.66" in verdict.reason


def test_a_ratio_of_rows_on_different_gpus_says_so() -> None:
    fast, slow = pair(10.0, 30.0)
    assert "different GPUs" not in judge(FASTER, fast, slow).reason
    slow.host["gpus"][0]["uuid"] = "GPU-another"
    assert judge(FASTER, fast, slow).reason.endswith("; on different GPUs)")


def test_an_interval_that_reaches_one_does_not_reproduce() -> None:
    assert judge(FASTER, *pair(100.0, 100.2, spread=0.05)).word == NOT_REPRODUCED


def judge_runs(fast_runs_ms: list[float], slow_ms: float) -> Verdict:
    """A case that ran several times, the last one counting, against one that ran once."""
    runs = tuple(record(job("deepspeed"), mean_ms, number=number) for number, mean_ms in enumerate(fast_runs_ms, start=1))
    slow = record(job("int8"), slow_ms, seed=3)
    rows = {"deepspeed": Row("deepspeed", runs[-1].job.device_count, runs[-1], runs), "int8": row(slow)}
    return rules.judge({"relations": [FASTER]}, rows, 1)


def test_the_ratios_of_repeated_runs_stand_beside_the_interval_of_one() -> None:
    verdict = judge_runs([15.0, 10.0], 30.0)
    assert verdict.word == REPRODUCED and "2.00 to 3.00 over repeated runs" in verdict.reason


def test_a_direction_that_another_run_of_the_same_case_turns_does_not_reproduce() -> None:
    assert judge_runs([31.0, 10.0], 30.0).word == NOT_REPRODUCED


def test_exactly_one_does_not_reproduce() -> None:
    assert judge(FASTER, *pair(100.0, 100.0, spread=0.0)).word == NOT_REPRODUCED


def test_the_other_direction_does_not_reproduce() -> None:
    assert judge(FASTER, *pair(30.0, 10.0)).word == NOT_REPRODUCED


@pytest.mark.parametrize(("slow_ms", "word"), [(25.0, REPRODUCED), (16.0, REPRODUCED), (15.9, NOT_REPRODUCED), (25.1, NOT_REPRODUCED)])
def test_a_size_counts_as_near_up_to_its_factor_on_both_sides(slow_ms: float, word: str) -> None:
    assert judge({**FASTER, "ratio": 2.0, "within": 1.25}, *pair(10.0, slow_ms, spread=0.0)).word == word


def test_few_timed_calls_test_nothing() -> None:
    verdict = judge(FASTER, record(job("deepspeed", timed_runs=4), 10.0), record(job("int8"), 30.0))
    assert verdict.word == NOT_TESTED and "fewer than 5 timed calls" in verdict.reason


def test_a_wrong_output_supports_no_claim() -> None:
    verdict = judge(FASTER, record(job("deepspeed"), 10.0, checked=check(0.33, passed=False)), record(job("int8"), 30.0))
    assert verdict == Verdict(NOT_TESTED, "deepspeed's output differs by 33 % from transformers': its numbers do not count")


def test_an_unchecked_output_supports_no_claim() -> None:
    assert "was not checked" in judge(FASTER, record(job("deepspeed"), 10.0, unchecked=True), record(job("int8"), 30.0)).reason


@pytest.mark.parametrize("status", ["oom", "timeout", "unsupported", "failed"])
def test_a_row_that_did_not_run_supports_no_claim(status: str) -> None:
    verdict = judge(FASTER, record(job("deepspeed"), status=status, reason="synthetic"), record(job("int8"), 30.0))
    assert verdict == Verdict(NOT_TESTED, f"deepspeed is {status}: synthetic")


def test_a_missing_row_tests_nothing() -> None:
    assert judge(FASTER, record(job("deepspeed"), 10.0)) == Verdict(NOT_TESTED, "int8 was not run here")


def test_rows_that_were_asked_different_things_are_not_compared() -> None:
    verdict = judge(FASTER, record(job("deepspeed"), 10.0), record(job("int8", prompt="another"), 30.0))
    assert verdict.word == NOT_TESTED and "different models or prompts" in verdict.reason


def test_a_row_without_calls_of_that_length_tests_nothing() -> None:
    rows = {one.job.case: row(one) for one in (record(job("deepspeed", new_tokens=(1, 16)), (10.0, 90.0)), record(job("int8"), 30.0))}
    assert rules.judge({"relations": [FASTER]}, rows, 16) == Verdict(NOT_TESTED, "int8 has no run of 16 new tokens")


FITS = {"case": "int8", "peak_memory_below_bytes": 24 * synthetic.GIB}


@pytest.mark.parametrize(("peak_gib", "word"), [(23.99, REPRODUCED), (24.0, NOT_REPRODUCED), (30.0, NOT_REPRODUCED)])
def test_memory_has_to_stay_below_the_bound(peak_gib: float, word: str) -> None:
    verdict = judge(FITS, record(job("int8"), peak_gib=peak_gib, memory_gib=80))
    assert verdict.word == word and f"{peak_gib:.2f} GiB" in verdict.reason


@pytest.mark.parametrize(("memory_gib", "word"), [(24, NOT_REPRODUCED), (16, NOT_TESTED)])
def test_running_out_of_memory_speaks_against_fitting_only_where_there_was_enough(memory_gib: int, word: str) -> None:
    assert judge(FITS, record(job("int8"), status="oom", reason="synthetic", memory_gib=memory_gib)).word == word


def test_memory_that_was_not_sampled_tests_nothing() -> None:
    assert judge(FITS, record(job("int8", device="cpu"))).word == NOT_TESTED


def test_a_claim_about_the_output_takes_a_wrong_one_as_its_answer() -> None:
    right = {"case": "bminf", "check_passes": True}
    assert judge(right, record(job("bminf"))).word == REPRODUCED
    assert judge(right, record(job("bminf"), checked=check(0.2, passed=False))).word == NOT_REPRODUCED
    assert judge(right, record(job("bminf"), unchecked=True)).word == NOT_TESTED


def test_a_claim_holds_where_all_its_relations_hold_and_tells_the_barest() -> None:
    rows = {one.job.case: row(one) for one in (record(job("deepspeed"), 10.0), record(job("int8"), 30.0), record(job("bminf"), 90.0))}
    both = [{"faster": "deepspeed", "slower": "bminf"}, FASTER]
    assert "as fast as int8" in rules.judge({"relations": both}, rows, 1).reason
    untested = [*both, {"faster": "deepspeed", "slower": "layer-parallel"}]
    assert rules.judge({"relations": untested}, rows, 1).word == NOT_TESTED
    assert "2 of its 3 parts hold" in rules.judge({"relations": untested}, rows, 1).reason
    against = [*untested, {"faster": "bminf", "slower": "int8"}]
    assert rules.judge({"relations": against}, rows, 1).word == NOT_REPRODUCED


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        ({"case": "int8", "beauty": 1}, "relation of beauty, case is of no kind; each has one of faster, .*check_passes"),
        ({**FASTER, "withn": 1.25}, "unknown field `withn`; allowed are faster, slower, ratio, within"),
        ({**FASTER, "ratio": "4.66"}, "Expected `float | null`, got `str`"),
        ({**FASTER, "within": 1.25}, "`within` stands beside the `ratio`"),
        ({"case": "int8", "from_batch": 1, "to_batch": 8}, "one of `gain_at_least`"),
        ({"faster": "deepspeed", "slower": "int9"}, "names the case 'int9', known are bminf"),
    ],
)
def test_a_relation_that_the_article_s_file_has_wrong_is_named_with_what_is_allowed(relation: dict, words: str) -> None:
    article = articles.load_all()["inference-tools"]
    wrong = dataclasses.replace(article, claims=[{"id": "1.1", "text": "", "relations": [relation]}])
    with pytest.raises(KitError, match=f"^inference-tools.toml: claim 1.1.*{words}") as caught:
        judging.judge_article([], wrong)
    assert "\n" not in str(caught.value)


def test_an_article_s_file_may_hold_the_keys_of_every_kind_of_relation_and_no_other() -> None:
    kinds = {field.name for kind in relations.KINDS for field in msgspec.structs.fields(kind)}
    assert {field.name for field in msgspec.structs.fields(shapes.Relation)} == kinds


@pytest.mark.parametrize("article", articles.load_all().values(), ids=lambda article: article.slug)
def test_every_relation_of_the_kit_s_articles_can_be_judged(article: articles.Article) -> None:
    rules.check(article)


@pytest.mark.parametrize(
    "other",
    [
        {"stack": "2023-02"},
        {"weights": "hub"},
        {"variant": "controlled"},
        {"scale": "tiny"},
        {"device": "cpu"},
    ],
)
def test_rows_of_different_settings_are_in_different_groups(other: dict) -> None:
    found = row_groups.build([record(job("deepspeed"), 10.0), record(job("int8", **other), 30.0)], articles.load_all())
    assert [len(group.rows) for group in found] == [1, 1]


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


def test_a_case_on_another_number_of_gpus_than_the_article_s_judges_no_claim() -> None:
    known = articles.load_all()
    (group,) = row_groups.build([record(job("deepspeed", 1), 10.0), record(job("layer-parallel", 2), 30.0)], known)
    rows = rules.rows_by_case(group, known["inference-tools"])
    assert rows["deepspeed"] == "deepspeed ran on 1 GPU here, on 2 in the article"
    assert isinstance(rows["layer-parallel"], Row)


def test_how_many_parts_hold_is_said_in_good_english() -> None:
    rows = {one.job.case: row(one) for one in (*pair(10.0, 30.0), record(job("bminf"), 90.0, seed=5))}
    holds, fails = {"faster": "int8", "slower": "bminf"}, {"faster": "bminf", "slower": "int8"}

    def reason(*relations: dict) -> str:
        return rules.judge({"relations": list(relations)}, rows, 1).reason

    assert reason(FASTER, holds).startswith("both parts hold, the closest: ")
    assert reason(FASTER, holds, FASTER).startswith("all 3 parts hold, the closest: ")
    assert "; 1 of its 2 parts holds: " in reason(FASTER, fails)
    assert "; 2 of its 3 parts hold, the closest: " in reason(FASTER, holds, fails)
