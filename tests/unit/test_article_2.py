"""The second article in the report: its table over batch sizes, its claims at their edges, what it is made of."""

import dataclasses
import itertools
import re
import shlex
from pathlib import Path

import pytest

from bench import forms
from bench.job import Job
from scripts import articles, results
from scripts.errors import PreflightError, UsageError
from scripts.report import document
from scripts.report.plots import memory_dots, time_dots, token_curves
from scripts.report.views import VIEWS, claims, matrix, overview, systems, token_table
from scripts.results import Record, output
from scripts.run import outcome, plan
from scripts.run.engines import nsight
from scripts.verdicts import judging, row_groups, rules, run_facts, token_times
from scripts.verdicts.lacking import Lacking
from scripts.verdicts.parts import HOLDS, IN_PART, NOT_TESTED, REFUTED, Part
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group
from tests import reports, synthetic
from tests.synthetic import check
from tests.typed import chosen

ARTICLE = articles.find("deepspeed-inference")
SIZES = (1, 8, 16, 32, 64, 128)
CASES = {case.name: case for case in ARTICLE.cases}


def job(case: str, batch_size: int = 1, count: int = 8, new_tokens: int = 100, **changes: object) -> Job:
    variant = str(changes.pop("variant", "published"))
    asked = synthetic.job(case, count, article=ARTICLE.slug, variant=variant, new_tokens=(new_tokens,), timed_runs=5)
    options = {"tokens_times_ranks": True} if case.startswith("ds-zero") else {}
    return dataclasses.replace(
        asked, backend=CASES[case].backend, form=CASES[case].form, options=options, prompt={**asked.prompt, "batch_size": batch_size}, **changes
    )


def cell(case: str, batch_size: int, ms_per_token: float, count: int = 8, wrong: int = 0, **facts: object) -> Record:
    """A row of the table with a time that gives these ms/token by the article's formula; `wrong` tokens are padding behind an end token."""
    ranks = count if case.startswith("ds-zero") else 1
    counted = 100 * batch_size
    record = synthetic.record(job(case, batch_size, count), ms_per_token * counted * ranks, spread=0.001, **facts)
    if record.guest:
        record.guest.figures = {"cycles": {"sequences": batch_size, "counted_tokens": counted, "real_tokens": counted - wrong, "ranks": ranks}}
    return record


def published_cells(count: int = 8) -> list[Record]:
    """Every cell as the article printed it."""
    return [
        cell(name, size, case.published_at("ms_per_token", size), count)
        for name, case in CASES.items()
        if "ms_per_token" in (case.published or {})
        for size in SIZES
    ]


def group_of(records: list[Record]) -> Group:
    (group,) = row_groups.build(records, {ARTICLE.slug: ARTICLE})
    return group


def judge(claim_id: str, records: list[Record], runs: int = 5) -> rules.Verdict:
    """The verdict on a claim where each of these records ran so often."""
    claim = next(one for one in ARTICLE.claims if one["id"] == claim_id)
    every = [run for record in records for run in synthetic.repeated(record, runs, 0.001)]
    return rules.judge(claim, group_of(every), ARTICLE, claim["new_tokens"])


def told(verdict: rules.Verdict) -> str:
    """All sentences and reasons of its parts."""
    return "; ".join(part.explanation for part in verdict.parts)


def changed(records: list[Record], case: str, batch_size: int, record: Record | None) -> list[Record]:
    """The records with one cell in place of another, or without it."""
    kept = [one for one in records if (one.job.case, one.job.prompt["batch_size"]) != (case, batch_size)]
    return kept + ([record] if record else [])


# ------------------------------------------------------------------------------------------------ ms/token
def test_the_article_counts_padding_and_times_the_zero_rows_by_their_gpus_and_we_do_not() -> None:
    row = group_of([cell("ds-zero", 8, 18.56, wrong=400)]).rows[0]
    assert [token_times.tokens_of_a_call(row, formula) for formula in ("article", "once", "corrected")] == [6400, 800, 400]
    assert token_times.sizes_of([row], []) == [row.batch_size] and token_times.sizes_of([row], [CASES["ds-zero"]]) == sorted({row.batch_size, *SIZES})
    assert token_times.ms_per_token(row, "article").value == pytest.approx(18.56, rel=0.01)
    assert token_times.ms_per_token(row, "corrected").value == pytest.approx(18.56 * 16, rel=0.01)


def test_where_a_run_did_not_count_its_tokens_the_row_has_no_time_of_a_token() -> None:
    counted, uncounted = synthetic.repeated(cell("ds-zero", 8, 18.56), 2)
    uncounted.guest.figures = {}
    assert token_times.ms_per_token(group_of([counted, uncounted]).rows[0], "article") is None


def test_the_main_table_has_the_article_s_unit_and_sets_it_beside_the_article_s_number_on_as_many_gpus() -> None:
    def over_published(count: int) -> list[str]:
        text = systems.main_table(group_of(published_cells(count)), ARTICLE)
        head, _, *lines = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
        assert {line[head.index("ms/token")] for line in lines} >= {"34.0", "0.270"}
        return [line[head.index("measured ÷ published")] if "measured ÷ published" in head else "" for line in lines]

    assert set(over_published(8)) == {"1.00"}
    assert set(over_published(4)) == {""}
    noted = {count: "*Measured ÷ published*: only where" in systems.section(group_of(published_cells(count)), ARTICLE) for count in (8, 4)}
    assert noted == {8: True, 4: False}, "a dash of the column needs its reason"


def table_of(records: list[Record]) -> list[list[str]]:
    lines = token_table.section(group_of(records), ARTICLE).splitlines()
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines[: lines.index("", 2)] if line.startswith("|")]


def test_the_table_has_the_article_s_shape_with_published_measured_and_where_it_differs_corrected_lines() -> None:
    lines = table_of(changed(published_cells(), "ds-inference", 8, cell("ds-inference", 8, 2.42, wrong=400)))
    assert lines[0] == ["ms/token in batches of", "GPUs", "1", "8", "16", "32", "64", "128"]
    assert [line[0] for line in lines[2:]] == [
        *["accelerate-fp16, published", "accelerate-fp16, measured", "accelerate-int8, published", "accelerate-int8, measured"],
        *["ds-inference, published", "ds-inference, measured", "ds-inference, corrected"],
        *["ds-zero, published", "ds-zero, published, each token once", "ds-zero, measured", "ds-zero, corrected"],
    ]
    named = {line[0]: line[1:] for line in lines[2:]}
    assert named["accelerate-fp16, published"] == ["8", "34.04", "7.41", "5.12", "3.69", "3.54", "3.38"]
    assert named["ds-zero, published, each token once"][1] == "1165", "145.60 by eight GPUs"
    for name in ("accelerate-fp16", "accelerate-int8", "ds-inference", "ds-zero"):
        assert [float(one) for one in named[f"{name}, measured"][1:]] == pytest.approx([float(one) for one in named[f"{name}, published"][1:]], rel=0.02)


def test_the_notes_below_the_table_are_markdown() -> None:
    cells = changed(published_cells(), "ds-inference", 8, cell("ds-inference", 8, 2.42, wrong=400))
    text = token_table.section(group_of(changed(cells, "ds-zero", 32, cell("ds-zero", 32, 4.62, checked=check(0.4, passed=False)))), ARTICLE)
    assert 'lines "each token once" count such a token once. *Corrected* counts the tokens that were really made, once. ✗: the output failed' in text


def test_a_case_without_any_row_has_its_line_nevertheless() -> None:
    lines = {line[0]: line[1:] for line in table_of([one for one in published_cells() if one.job.case != "accelerate-int8"])}
    assert lines["accelerate-int8, measured"] == ["—", *["not run"] * 6]


def test_a_size_without_a_row_is_told_by_the_smallest_that_ran_out_of_memory_below_it() -> None:
    others = [one for one in published_cells() if one.job.case != "ds-inference"]
    lines = {line[0]: line[2:] for line in table_of([*others, *(cell("ds-inference", size, 1.0, status="oom") for size in (32, 64))])}
    assert lines["ds-inference, measured"] == [*["not run"] * 3, "**oom**", "**oom**", "oom at 32"]


def test_every_cell_is_a_number_or_says_why_there_is_none() -> None:
    records = changed(published_cells(), "accelerate-fp16", 64, cell("accelerate-fp16", 64, 1.0, status="oom", reason="CUDA out of memory"))
    records = changed(records, "accelerate-fp16", 128, None)
    records = changed(records, "ds-inference", 1, cell("ds-inference", 1, 1.0, status="failed", reason="no kernel"))
    for size in (32, 64):
        records = changed(records, "accelerate-int8", size, cell("accelerate-int8", size, 1.0, status="oom", reason="CUDA out of memory"))
    records = changed(records, "accelerate-int8", 128, None)
    records = changed(records, "ds-zero", 16, None)
    records = changed(records, "ds-zero", 32, cell("ds-zero", 32, 4.62, checked=check(0.4, passed=False)))
    lines = {line[0]: line[2:] for line in table_of(records)}
    assert lines["accelerate-fp16, measured"][4:] == ["**oom**", "oom at 64"]
    assert lines["accelerate-int8, measured"][3:] == ["**oom**", "**oom**", "oom at 32"], "the smallest that was too large"
    assert lines["ds-inference, measured"][0] == "**failed**"
    assert lines["ds-zero, measured"][2] == "not run" and lines["ds-zero, measured"][3] == "4.62 ✗"
    assert not any(cell == "" for cells in lines.values() for cell in cells)


def test_start_to_finish_is_loading_and_the_first_call() -> None:
    one = cell("ds-inference", 1, 10.0)
    one.guest.load_s, one.guest.measurements[0]["cold_ms"] = 3.5, 1250.0
    text = token_table.section(group_of([one]), ARTICLE)
    (header,) = [line for line in text.splitlines() if "start to finish, s" in line]
    (line,) = [line for line in text.splitlines()[text.splitlines().index(header) :] if line.startswith("| ds-inference")]
    told = dict(zip(*([one.strip() for one in shown.split("|")] for shown in (header, line)), strict=True))
    assert (told["start to ready, s"], told["first call, s"], told["start to finish, s"]) == ("3.50", "1.25", "4.75")


@pytest.mark.parametrize(("error", "right"), [(9e-4, True), (2e-3, False), (None, False)])
def test_a_row_whose_padded_output_is_another_one_is_marked_and_supports_no_claim(error: float | None, right: bool) -> None:
    record = cell("ds-zero", 128, 1.17)
    record.guest.figures["cycles"]["padded_logits_relative_error"] = error
    records = changed(published_cells(), "ds-zero", 128, record)
    shown = next(line[-1] for line in table_of(records) if line[0] == "ds-zero, measured")
    assert shown.endswith("✗") is not right
    verdict = judge("2.7", records)
    assert verdict.word == (HOLDS if right else NOT_TESTED) and (right or "when padded" in told(verdict))


def test_padding_that_changes_the_output_of_one_run_leaves_the_row_untested() -> None:
    records = [run for record in published_cells() for run in synthetic.repeated(record, 5, 0.001)]
    wrong = next(run for run in records if (run.job.case, run.job.prompt["batch_size"]) == ("ds-zero", 128))
    wrong.guest.figures["cycles"]["padded_logits_relative_error"] = 2e-3
    assert "when padded" in rules.judge(claim_of("2.7"), group_of(records), ARTICLE, 100).parts[0].why


def commands_of(records: list[Record]) -> list[str]:
    """The `make` lines below the table."""
    return [line for line in token_table.section(group_of(records), ARTICLE).splitlines() if "`make article-" in line]


def test_cells_that_were_not_run_have_the_command_that_measures_them_for_each_number_of_gpus() -> None:
    assert commands_of(published_cells()) == []
    without = changed(changed(published_cells(), "ds-zero", 64, None), "accelerate-int8", 128, None)
    line = "- on {}: `make article-deepspeed-inference VARIANT=published STACK=current WEIGHTS=random CASES={} GPUS={}`"
    assert commands_of(without) == [line.format("8 GPUs", "accelerate-int8,ds-zero", 8)]
    on_four = [cell("ds-inference", size, 5.0, count=4) for size in SIZES]
    assert commands_of(on_four) == [
        line.format("4 GPUs", "accelerate-fp16,accelerate-int8,ds-zero", 4),
        line.format("8 GPUs", "accelerate-fp16,accelerate-int8,ds-inference,ds-zero", 8),
    ]


def test_a_system_without_published_numbers_has_the_command_where_it_has_rows() -> None:
    today = [cell("vllm-fp16", 32, 0.2, count=1), *published_cells()]
    line = "- on 1 GPU: `make article-deepspeed-inference VARIANT=published STACK=current WEIGHTS=random CASES={} GPUS=1`"
    assert commands_of(today) == [line.format("accelerate-fp16,accelerate-int8,ds-inference,ds-zero,vllm-fp16")]


def to_test(records: list[Record], runs: int = 5) -> list[str]:
    """The commands below the table of claims of a setting whose records ran so often each."""
    group = group_of([run for record in records for run in synthetic.repeated(record, runs, 0.001)])
    shown = claims.of_group(group, judging.judge_group(group, ARTICLE), ARTICLE)
    return [line for line in shown.splitlines() if "`make article-" in line]


def to_type(claims: str, repeats: int = 5, gpus: int | None = None) -> str:
    on = f" GPUS={gpus}" if gpus else ""
    return f"- `make article-deepspeed-inference VARIANT=published STACK=current WEIGHTS=random CLAIMS={claims} REPEATS={repeats}{on}`"


def test_claims_that_are_not_tested_have_the_command_that_measures_what_they_lack() -> None:
    assert to_test(published_cells()) == [], "2.1 to 2.3 have no row here"
    assert to_test(published_cells(), runs=4) == [to_type("2.4,2.5,2.6,2.7")]
    on_one = [one for one in published_cells(1) if one.job.case != "ds-zero"]
    assert to_test(on_one) == [to_type("2.4,2.5,2.7", gpus=1)]


def test_a_table_of_claims_with_a_ratio_tells_of_which_means_it_is() -> None:
    told = "A ratio is one of geometric means over the runs; the arithmetic means of the tables may give another one."
    for records, with_ratio in ((published_cells(), True), ([cell("ds-zero", 1, 145.6)], False)):
        group = group_of([run for record in records for run in synthetic.repeated(record, 5, 0.001)])
        judged = judging.judge_group(group, ARTICLE)
        assert (told in claims.of_group(group, judged, ARTICLE)) is with_ratio


def test_a_row_that_a_repeat_would_leave_unusable_needs_no_command_and_hides_no_other_part() -> None:
    wrong = changed(published_cells(), "ds-zero", 1, cell("ds-zero", 1, 145.6, checked=check(0.4, passed=False)))
    assert to_test(wrong) == [], "2.4 and 2.7 rest on a row whose output is wrong"
    for status in ("oom", "unsupported"):
        assert to_test(changed(published_cells(), "ds-zero", 128, cell("ds-zero", 128, 1.0, status=status))) == []
    part = changed(published_cells(), "accelerate-fp16", 32, cell("accelerate-fp16", 32, 3.69, checked=check(0.4, passed=False)))
    assert to_test(changed(part, "ds-zero", 128, None)) == [to_type("2.5,2.7")], "what ds-zero gains is a part of its own"


@pytest.mark.parametrize(("status", "facts"), [("failed", {}), ("timeout", {}), ("oom", {"oom_killed": True})])
def test_what_may_end_otherwise_is_repeated(status: str, facts: dict) -> None:
    ended = cell("ds-zero", 128, 1.0, status=status)
    ended.host.update(facts)
    assert to_test(changed(published_cells(), "ds-zero", 128, ended)) == [to_type("2.4,2.5,2.7")]


def test_a_run_on_a_disturbed_machine_is_there_and_judges_nothing_so_one_more_is_asked_for() -> None:
    runs = [run for record in published_cells() for run in synthetic.repeated(record, 5, 0.001)]
    next(run for run in runs if run.job.case == "ds-zero").host["conditions"] = {"marks": ["hot"], "disturbed": ["hot"]}
    group = group_of(runs)
    shown = claims.of_group(group, judging.judge_group(group, ARTICLE), ARTICLE)
    assert to_type("2.4,2.7", repeats=6) in shown.splitlines()


def test_a_run_beside_others_is_none_of_those_that_are_there() -> None:
    records = published_cells()
    for one in records:
        one.host["shared_with"] = 1
    assert to_test(records) == [to_type("2.4,2.5,2.6,2.7")]


def test_a_row_of_other_calls_than_the_claim_s_is_measured_again() -> None:
    other = dataclasses.replace(cell("ds-zero", 128, 1.17), job=job("ds-zero", 128, new_tokens=32))
    other.guest.measurements[0]["new_tokens"] = 32
    assert to_test(changed(published_cells(), "ds-zero", 128, other)) == [to_type("2.4,2.5,2.7")]


@pytest.mark.parametrize("setting", [{"variant": "controlled"}, {"stack": "hopper"}, {"recipe": 1}])
def test_no_command_is_told_where_a_case_cannot_run_or_its_weights_judge_nothing(setting: dict) -> None:
    """2.4 compares all four systems. The variant controlled has no accelerate, the stack hopper no ZeRO; rows of recipe 1 are never those of a later run."""
    records = [one for one in published_cells() if one.job.case in ("ds-zero", "accelerate-fp16")]
    for place, one in enumerate(records):
        model = synthetic.job("x", recipe=setting.get("recipe", 2)).model
        changes = {name: value for name, value in setting.items() if name != "recipe"}
        records[place] = dataclasses.replace(one, job=dataclasses.replace(one.job, model=model, **changes))
    assert not [line for line in to_test(records, runs=2) if "2.4" in line]


def test_rows_that_load_in_another_way_since_are_measured_again() -> None:
    records = published_cells()
    for one in records:
        if one.job.case == "accelerate-fp16":
            one.job.load["device_map"] = "balanced_low_0"
    assert to_test(records) == [to_type("2.4,2.5,2.6,2.7")]


def test_claims_of_different_numbers_of_gpus_leave_them_to_the_article() -> None:
    names = (("pipeline-deepspeed-1", 1), ("pipeline-deepspeed-4", 4))
    assert to_test([synthetic.record(job(name, 1, count, new_tokens=42), 1000.0) for name, count in names], runs=2) == [to_type("2.2,2.3")]


@pytest.mark.parametrize(("batch_size", "repeats"), [(8, 5), (128, 6)])
def test_a_disturbed_run_asks_for_more_runs_only_in_a_batch_size_that_the_claim_names(batch_size: int, repeats: int) -> None:
    records = published_cells()
    for one in records:
        if (one.job.case, one.job.prompt["batch_size"]) == ("ds-zero", batch_size):
            one.host["conditions"] = {"marks": ["foreign load"], "disturbed": ["foreign load"]}
    assert rules.judge(claim_of("2.7"), group_of(records), ARTICLE, 100).lacking == Lacking(None, repeats)


def test_no_command_is_told_where_no_number_of_gpus_fits_all_rows_of_a_claim() -> None:
    gpus = {"accelerate-fp16": 1, "ds-inference": 4, "ds-zero": 8}
    article = dataclasses.replace(ARTICLE, cases=tuple(dataclasses.replace(CASES[name], gpus=count) for name, count in gpus.items()))
    claim = {"relations": [{"fastest": "ds-inference", "than": ["accelerate-fp16", "ds-zero"], "batch_sizes": [8]}]}

    def lacking(zero_on: int) -> Lacking | None:
        runs = [cell(name, 8, 5.0, count) for name, count in (gpus | {"ds-zero": zero_on}).items()]
        return rules.judge(claim, group_of(runs), article, 100).lacking

    assert (lacking(8), lacking(4)) == (Lacking(None, 5), None)


def test_sizes_above_an_oom_are_not_asked_for() -> None:
    full = [one for one in published_cells() if (one.job.case, one.job.prompt["batch_size"]) not in (("ds-zero", 64), ("ds-zero", 128))]
    assert commands_of([*full, cell("ds-zero", 64, 1.0, status="oom")]) == []


def test_what_is_typed_for_the_rest_of_a_table_measures_those_cases() -> None:
    (line,) = commands_of(changed(published_cells(), "ds-zero", 64, None))
    typed = dict(word.split("=", 1) for word in shlex.split(line.split("`")[1])[2:])
    asked = chosen(**{**typed, "ARTICLE": ARTICLE.slug})
    planned = plan.plan(list(dict.fromkeys(case.backend for case in ARTICLE.cases)), asked, every=True)
    assert [(one.case.name, one.variant, one.stack) for one in planned] == [("ds-zero", "published", "current")] and asked.gpus == 8


def test_a_table_measured_on_fewer_gpus_says_on_how_many() -> None:
    lines = table_of([*published_cells(), cell("ds-inference", 1, 5.0, count=2)])
    assert [line[1] for line in lines if line[0] == "ds-inference, measured"] == ["2", "8"]


def test_the_picture_has_a_line_for_each_case_and_is_the_same_each_time() -> None:
    group = group_of(published_cells())
    points = token_curves.measured_points(group, ARTICLE)
    assert set(points) == {(name, 8) for name in ("accelerate-fp16", "accelerate-int8", "ds-inference", "ds-zero")}
    assert list(points["ds-zero", 8]) == list(SIZES)
    picture = token_curves.batch_plot(group, ARTICLE)
    assert all(f">{name}</text>" in picture for name, _ in points) and picture == token_curves.batch_plot(group, ARTICLE)
    assert token_curves.batch_plot(group_of([cell("ds-zero", 1, 5.0)]), ARTICLE) is None


def test_the_picture_has_no_panel_of_published_points_alone() -> None:
    picture = token_curves.batch_plot(group_of([cell("ds-inference", size, 9.0 / size) for size in (1, 8)]), ARTICLE)
    assert ">ds-inference</text>" in picture and ">published ×8</text>" in picture and ">ds-zero</text>" not in picture


def test_a_point_whose_output_is_wrong_is_marked_in_the_picture_and_in_its_description() -> None:
    right = [cell("ds-inference", size, 9.0 / size) for size in (1, 8)]
    wrong = cell("ds-inference", 32, 0.2, checked=synthetic.check(0.5, passed=False))
    picture, clean = (token_curves.batch_plot(group_of(some), ARTICLE) for some in ([*right, wrong], right))
    assert picture and picture.count(">✗</text>") == 1 and "0.200 in batch 32 (output wrong or not checked)" in picture
    assert "; ✗: output wrong or not checked</text>" in picture and clean and "✗" not in clean


def test_lines_of_one_case_on_other_numbers_of_gpus_look_different() -> None:
    some = [cell("ds-inference", size, 9.0 / size, count=count) for size in (1, 8) for count in (1, 2)]
    one = token_curves.batch_plot(group_of([record for record in some if record.job.device_count == 1]), ARTICLE)
    both = token_curves.batch_plot(group_of(some), ARTICLE)
    named = [set(re.findall(r'class="(s\d) words small">(×\d)<', picture)) for picture in (one, both)]
    assert [{name for _, name in of_picture} for of_picture in named] == [{"×1"}, {"×1", "×2"}]
    assert len({style for style, _ in named[1]}) == 2, "each has a colour of its own, and its name at its end"


def test_a_sweep_over_many_gpus_does_not_fill_pages_with_dots() -> None:
    group = group_of([*published_cells(), gptj("gptj-transformers", 5357.65), gptj("gptj-deepspeed", 2413.18)])
    heights = [float(re.search(r'height="([0-9.]+)"', picture)[1]) for picture in (memory_dots.plot(group), time_dots.plot(group, ARTICLE))]
    assert heights[0] < 800 and heights[1] < 250, "26 rows and 2, not 194 dots; the sweep's times have a picture of their own"


# ------------------------------------------------------------------------------------------------ claims
@pytest.mark.parametrize("claim", ["2.4", "2.5", "2.6", "2.7"])
@pytest.mark.parametrize(("count", "beside"), [(8, ""), (4, "on 4 GPUs (the article: 8)")])
def test_the_article_s_own_table_holds_on_its_number_of_gpus_and_on_fewer_which_is_said(claim: str, count: int, beside: str) -> None:
    verdict = judge(claim, published_cells(count))
    assert (verdict.word, verdict.gpus) == (HOLDS, beside)


def test_the_closest_of_all_cells_tells_its_batch_how_many_there_are_and_how_many_share_no_gpu() -> None:
    (together,) = judge("2.4", published_cells()).parts
    assert together.notes[:2] == ("batch 1", "the closest of 18 comparisons") and "on different GPUs" not in str(together)
    elsewhere = [cell("ds-zero", size, 9.0) for size in (64, 128)]
    for record in elsewhere:
        record.host["gpus"] = [{**gpu, "uuid": f"{gpu['uuid']}-elsewhere"} for gpu in record.host["gpus"]]
    of_two = [one for one in published_cells() if one.job.case != "ds-zero" or one.job.prompt["batch_size"] < 64] + elsewhere
    (part,) = judge("2.4", of_two).parts
    assert part.word == HOLDS and part.notes[2] == "2 of the 18 on different GPUs" and part.sentence.endswith("batch 1; 2 of the 18 on different GPUs")
    (lower,) = judge("2.4", changed(of_two, "accelerate-fp16", 8, cell("accelerate-fp16", 8, 0.2))).parts
    assert lower.notes[0] == "batch 8" and "closest" not in str(lower.notes) and "the 18 on" not in str(lower), "the closest means nothing where one is lower"
    (missing,) = judge("2.4", changed(published_cells(), "accelerate-int8", 64, None)).parts
    assert missing.notes == ()


def test_one_cell_in_which_another_is_lower_refutes_the_lowest() -> None:
    verdict = judge("2.4", changed(published_cells(), "ds-zero", 128, cell("ds-zero", 128, 0.2)))
    assert verdict.word == REFUTED and "ds-zero" in told(verdict) and "batch 128; 17 of 18" in told(verdict)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (None, "accelerate-int8 in batch 64 was not run in this setting (stack current)"),
        (cell("accelerate-int8", 64, 1.0, status="oom", reason="full"), "b64 is oom"),
    ],
)
def test_a_cell_without_a_number_leaves_a_claim_over_all_of_them_untested(record: Record | None, words: str) -> None:
    verdict = judge("2.4", changed(published_cells(), "accelerate-int8", 64, record))
    assert verdict.word == NOT_TESTED and words in told(verdict)


def test_cases_on_different_numbers_of_gpus_are_not_compared() -> None:
    records = [one for one in published_cells() if one.job.case != "ds-zero"] + [cell("ds-zero", size, 1.0, count=4) for size in SIZES]
    verdict = judge("2.4", records)
    assert verdict.word == NOT_TESTED and told(verdict) == "ds-zero in batch 1 ran on 4 GPUs in this setting (stack current), not on 8"


def test_a_claim_is_judged_on_the_nearest_number_of_gpus_below_the_article_s_that_has_all_its_rows() -> None:
    some = [cell("ds-inference", 32, 9.0, count=8), cell("ds-inference", 128, 9.0, count=8)]
    for claim in ("2.4", "2.5"):
        verdict = judge(claim, published_cells(4) + published_cells(2) + some)
        assert (verdict.word, verdict.gpus) == (HOLDS, "on 4 GPUs (the article: 8)") and "8 GPUs" not in told(verdict)


def test_more_gpus_than_the_article_s_never_count() -> None:
    verdict = judge("2.5", published_cells(16) + published_cells(4))
    assert verdict.gpus == "on 4 GPUs (the article: 8)" and "16 GPUs" not in told(verdict)
    assert judge("2.5", published_cells(16)).word == NOT_TESTED
    assert judge("2.5", published_cells(16) + published_cells(8)).gpus == ""


def test_where_no_number_of_gpus_has_all_rows_the_one_with_most_rows_of_five_runs_is_told() -> None:
    zero = [run for record in published_cells(4) if record.job.case == "ds-zero" for run in synthetic.repeated(record, 5, 0.001)]
    verdict = rules.judge(claim_of("2.5"), group_of(published_cells(8) + zero), ARTICLE, 100)
    assert (verdict.gpus, verdict.parts[2].word) == ("on 4 GPUs (the article: 8)", HOLDS)


def test_a_row_that_ran_out_of_memory_was_measured() -> None:
    full = changed(published_cells(), "accelerate-int8", 128, cell("accelerate-int8", 128, 1.0, status="oom", reason="full"))
    assert judge("2.4", full + published_cells(4)).gpus == ""


def test_a_look_on_more_gpus_undoes_no_verdict() -> None:
    """Rows of one run, or of two timed calls, where fewer GPUs have rows of five runs; and the rows with most calls where none has."""
    looks = published_cells(8)
    for record in looks:
        for measurement in record.guest.measurements:
            measurement["timed_ms"] = measurement["timed_ms"][:2]
    below = [run for record in published_cells(4) for run in synthetic.repeated(record, 5, 0.001)]
    for claim in ("2.4", "2.5", "2.6", "2.7"):
        both = rules.judge(claim_of(claim), group_of(below + looks), ARTICLE, 100)
        assert (both.word, both.gpus) == (HOLDS, "on 4 GPUs (the article: 8)")
        assert judge(claim, published_cells(4) + looks, runs=1).gpus == "on 4 GPUs (the article: 8)"


def test_the_calls_of_all_runs_of_a_row_count_where_no_number_of_gpus_was_measured() -> None:
    four = [run for record in published_cells(4) for run in synthetic.repeated(record, 4, 0.001)]
    verdict = rules.judge(claim_of("2.5"), group_of(published_cells(8) + four), ARTICLE, 100)
    assert (verdict.gpus, verdict.parts[0].why) == ("on 4 GPUs (the article: 8)", "4 runs, 5 are needed"), "one run on 8 GPUs has fewer calls"


def claim_of(claim_id: str) -> dict:
    return next(one for one in ARTICLE.claims if one["id"] == claim_id)


def test_a_case_that_ran_in_other_batch_sizes_only_is_named() -> None:
    verdict = judge("2.7", [cell("ds-zero", 2, 9.0)])
    assert verdict.word == NOT_TESTED and verdict.parts[0].why == "ds-zero in batch 1 was not run in this setting (stack current)"


def test_a_case_that_never_ran_is_named() -> None:
    verdict = judge("2.4", [one for one in published_cells() if one.job.case != "accelerate-int8"])
    assert verdict.word == NOT_TESTED and told(verdict) == "not run (stack current): accelerate-int8 in batch 1, 8, 16, 32, 64, 128"


@pytest.mark.parametrize(("at_128", "word"), [(3.69 / 1.4, HOLDS), (3.69 / 1.6, REFUTED), (3.69 * 1.2, HOLDS)])
def test_accelerate_stops_gaining_below_the_bound(at_128: float, word: str) -> None:
    verdict = judge("2.5", changed(published_cells(), "accelerate-fp16", 128, cell("accelerate-fp16", 128, at_128)))
    part = verdict.parts[0]
    assert (part.name, part.word) == ("accelerate stops gaining", word) and "the bound is 1.5" in part.sentence
    assert verdict.word == (HOLDS if word == HOLDS else IN_PART)


def _lines_of(claim_id: str, verdicts: judging.ArticleVerdicts) -> list[str]:
    """The line of a claim, and those of its parts."""
    lines = str(overview.claim_lines(verdicts)).splitlines()
    begin = next(place for place, line in enumerate(lines) if f"[{claim_id}]" in line)
    parts = itertools.takewhile(lambda line: line.startswith("  "), lines[begin + 1 :])
    return [lines[begin], *parts]


def test_a_claim_whose_parts_came_out_differently_has_each_with_its_word_and_its_gain() -> None:
    records = changed(published_cells(), "accelerate-fp16", 128, cell("accelerate-fp16", 128, 3.69 / 1.6))
    verdicts = judging.judge_article(row_groups.build([run for one in records for run in synthetic.repeated(one)], {ARTICLE.slug: ARTICLE}), ARTICLE)
    line, first, second, third = _lines_of("2.5", verdicts)
    assert line.endswith("**holds in part**")
    assert re.fullmatch(
        r"    - ✖ accelerate stops gaining \(below 1\.5\): refuted, accelerate-fp16 b128 1\.6\S* \(.* to .*\) × accelerate-fp16 b32, published 1\.09",
        first,
    )
    assert re.fullmatch(
        r"    - ● ds-inference goes on \(at least 1\.5\): holds, ds-inference b128 2\.3\S* \(.* to .*\) × ds-inference b32, published 2\.33", second
    )
    assert third.startswith("    - ● ds-zero goes on (at least 1.5): holds, ds-zero b128 ") and third.endswith(" × ds-zero b32, published 3.95")
    (proportion,) = _lines_of("2.7", verdicts)
    assert re.search(r"near proportion: ds-zero b128 .* × ds-zero b1, published 124\.44", proportion)
    assert re.search(r"more than accelerate: ds-zero 8\.4\S* \(.*\) × the gain of accelerate-fp16, published 12\.36", proportion)


def test_a_cell_of_the_matrix_has_each_ratio_behind_the_signs_of_its_parts() -> None:
    def in_cell(records: list[Record], claim_id: str, count: int = 5) -> str:
        runs = [run for one in records for run in synthetic.repeated(one, count)]
        verdicts = judging.judge_article(row_groups.build(runs, {ARTICLE.slug: ARTICLE}), ARTICLE)
        return next(matrix.short(one.headline) for one in verdicts.claims if one.headline.claim["id"] == claim_id)

    goes_on = changed(published_cells(), "accelerate-fp16", 128, cell("accelerate-fp16", 128, 3.69 / 1.6))
    assert re.fullmatch(r"◆ ✖ 1\.6\d* × accelerate-fp16 b32; ● 2\.3\d* × ds-inference b32; ● 3\.9\d* × ds-zero b32", in_cell(goes_on, "2.5"))
    without_zero = [one for one in goes_on if one.job.case != "ds-zero"]
    assert re.fullmatch(r"◆ ✖ 1\.6\d* × accelerate-fp16 b32; ● 2\.3\d* × ds-inference b32", in_cell(without_zero, "2.5")), "what was not tested has no place"
    assert re.fullmatch(r"● 1\.09\d* × accelerate-fp16 b32", in_cell(published_cells(), "2.5")), "parts that agree need no signs, and the first ratio will do"
    untested = r"▼ 124\.?\d* × ds-zero b1; ds-zero 12\.\d* × the gain of accelerate-fp16"
    assert re.fullmatch(untested, in_cell(published_cells(), "2.7", 4)), "nobody knows which part will fail"


def test_parts_of_two_relations_keep_their_numbers_where_these_happen_to_be_equal() -> None:
    published = {(one.job.case, one.job.batch_size): one for one in published_cells()}
    of_128 = cell("accelerate-int8", 128, 3.38 * 89.6 / 34.04)
    records = [of_128 if place == ("accelerate-int8", 128) else one for place, one in published.items()]
    verdicts = judging.judge_article(row_groups.build([run for one in records for run in synthetic.repeated(one)], {ARTICLE.slug: ARTICLE}), ARTICLE)
    _, first, second = _lines_of("2.6", verdicts)
    assert re.match(r"    - ● slower in batch 1: holds, accelerate-fp16 2\.63 \(.*\) × accelerate-int8, published 2\.63", first)
    assert re.match(r"    - ✖ near in batch 128 .*: refuted, .* 2\.63 \(", second)
    (claim,) = [one.headline for one in verdicts.claims if one.headline.claim["id"] == "2.6"]
    assert re.search(r": slower in batch 1: holds, 2\.63 \(.*\); near in batch 128 \(at most 1\.25\): refuted, 2\.63 \(", overview.verdict(claim))
    shown = claim.verdict.parts[0].number
    assert "holds; near" in overview.verdict(claim, shown), "a number that stands beside the verdict is not said again"
    cell_of_table = claims.numbers(claim)
    assert re.search(r"^\*slower in batch 1: holds\* — accelerate-fp16 .*\. \*near in batch 128: refuted\* — accelerate-fp16 ", cell_of_table)
    assert cell_of_table.count("2.63 times") == 2


def test_a_part_without_rows_and_one_of_too_few_runs_say_so_beside_their_word() -> None:
    rows = [one for one in published_cells() if one.job.case != "ds-zero"]
    one_run = {("ds-inference", 32), ("ds-inference", 128)}
    runs = [run for one in rows for run in ([one] if (one.job.case, one.job.batch_size) in one_run else synthetic.repeated(one))]
    verdicts = judging.judge_article(row_groups.build(runs, {ARTICLE.slug: ARTICLE}), ARTICLE)
    (claim,) = [one.headline for one in verdicts.claims if one.headline.claim["id"] == "2.5"]
    first, second, third = str(claims.numbers(claim)).partition("*")[2].split(". *")
    assert first.startswith("accelerate stops gaining: holds* — accelerate-fp16 ")
    assert second.startswith("ds-inference goes on: not tested (1 run, 5 are needed)* — ds-inference ")
    assert third == "ds-zero goes on: not tested* — ds-zero in batch 32 was not run in this setting (stack current)"
    told_above = claims.numbers(claim, reason="1 run, 5 are needed")
    assert "ds-inference goes on: not tested* — ds-inference " in told_above


@pytest.mark.parametrize(("case", "at_32", "place"), [("ds-inference", 0.63, 1), ("ds-zero", 4.62, 2)])
@pytest.mark.parametrize(("gain", "word"), [(1.6, HOLDS), (1.4, REFUTED)])
def test_deepspeed_goes_on_gaining_above_the_bound(case: str, at_32: float, place: int, gain: float, word: str) -> None:
    assert judge("2.5", changed(published_cells(), case, 128, cell(case, 128, at_32 / gain))).parts[place].word == word


@pytest.mark.parametrize(
    ("int8_at_1", "int8_at_128", "words"),
    [(89.64, 3.38 * 1.24, [HOLDS, HOLDS]), (89.64, 3.38 * 1.26, [HOLDS, REFUTED]), (30.0, 3.82, [REFUTED, HOLDS]), (89.64, 3.0, [HOLDS, HOLDS])],
)
def test_int8_is_slower_at_one_and_near_at_128(int8_at_1: float, int8_at_128: float, words: list[str]) -> None:
    records = changed(published_cells(), "accelerate-int8", 1, cell("accelerate-int8", 1, int8_at_1))
    verdict = judge("2.6", changed(records, "accelerate-int8", 128, cell("accelerate-int8", 128, int8_at_128)))
    assert [part.word for part in verdict.parts] == words


def without_count(record: Record) -> Record:
    record.guest.figures = {}
    return record


def test_rows_of_which_some_count_tokens_and_others_do_not_are_not_compared() -> None:
    records = changed(published_cells(), "accelerate-fp16", 128, without_count(cell("accelerate-fp16", 128, 1.0)))
    verdict = judge("2.5", records)
    assert verdict.parts[0].word == NOT_TESTED and verdict.parts[0].why == "accelerate-fp16 b128 has a run without a count of its tokens"
    assert [part.word for part in verdict.parts[1:]] == [HOLDS, HOLDS]
    gain_over = judge("2.7", records).parts[1]
    assert gain_over.word == NOT_TESTED and "without a count" in gain_over.why, "of four rows, too, no two are compared by the call"


def test_a_row_of_which_one_run_counts_no_tokens_is_not_compared() -> None:
    every = [run for record in published_cells() for run in synthetic.repeated(record, 5, 0.001)]
    without_count(next(run for run in every if run.job.case == "accelerate-fp16" and run.job.batch_size == 128))
    part = rules.judge(claim_of("2.5"), group_of(every), ARTICLE, 100).parts[0]
    assert (part.word, part.why) == (NOT_TESTED, "accelerate-fp16 b128 has a run without a count of its tokens")


def test_calls_of_other_batch_sizes_are_not_compared_without_a_count() -> None:
    records = published_cells()
    for size in (32, 128):
        records = changed(records, "accelerate-fp16", size, without_count(cell("accelerate-fp16", size, 1.0)))
    part = judge("2.5", records).parts[0]
    assert (part.word, part.why) == (NOT_TESTED, "accelerate-fp16 b128 and accelerate-fp16 b32 differ in their batch sizes and count no tokens")


def test_a_gain_over_another_without_a_count_of_tokens_is_not_tested() -> None:
    part = judge("2.7", [without_count(one) for one in published_cells()]).parts[1]
    assert (part.word, part.why) == (NOT_TESTED, "ds-zero and ds-zero b128 differ in their batch sizes and count no tokens")


@pytest.mark.parametrize("asked", [{"prompt": {"text": "another", "batch_size": 128}}, {"model": {"name": "another"}}])
def test_a_gain_over_another_compares_four_rows_of_one_question(asked: dict) -> None:
    other = cell("accelerate-fp16", 128, 3.38)
    fields = {name: {**getattr(other.job, name), **table} for name, table in asked.items()}
    records = changed(published_cells(), "accelerate-fp16", 128, dataclasses.replace(other, job=dataclasses.replace(other.job, **fields)))
    proportion, more = judge("2.7", records).parts
    assert proportion.word == HOLDS
    assert (more.word, more.why) == (NOT_TESTED, "ds-zero and accelerate-fp16 b128 ran different models or prompts")


def test_a_part_knows_the_fewest_runs_of_the_rows_that_it_compares() -> None:
    assert [part.runs for claim in ("2.4", "2.5", "2.7") for part in judge(claim, published_cells(), runs=6).parts] == [6] * 6
    records = [run for record in published_cells() for run in synthetic.repeated(record, 9 if record.job.prompt["batch_size"] == 128 else 7, 0.001)]
    claim = next(one for one in ARTICLE.claims if one["id"] == "2.5")
    assert [part.runs for part in rules.judge(claim, group_of(records), ARTICLE, claim["new_tokens"]).parts] == [7, 7, 7]


def test_a_gain_beyond_what_the_batch_grew_says_so() -> None:
    def part(gain: float) -> Part:
        return judge("2.7", changed(published_cells(), "ds-zero", 128, cell("ds-zero", 128, 145.6 / gain))).parts[0]

    assert part(127.0).notes == ()
    beyond = part(131.0)
    assert (
        beyond.notes == ("more than the batch grew, 128 times",)
        and not beyond.on_gpus
        and "; more than the batch grew, 128 times), the bound is 102.4" in beyond.sentence
    )


def test_a_gain_of_kernels_is_by_the_token_and_stands_before_what_the_batch_grew() -> None:
    small, large = (
        synthetic.busy(cell("ds-zero", size, ms, count=1), share, new_tokens=100) for size, ms, share in ((1, 145.6, 0.05), (128, 145.6 / 131, 0.1))
    )
    records = changed(changed(published_cells(1), "ds-zero", 1, small), "ds-zero", 128, large)
    part = judge("2.7", records).parts[0]
    assert part.notes == ("kernels alone: 65.5, outside of what is claimed", "more than the batch grew, 128 times"), "131 / 2"


@pytest.mark.parametrize(("gain", "word"), [(0.81 * 128, HOLDS), (0.79 * 128, REFUTED)])
def test_zero_gains_four_fifths_of_the_batch_or_more(gain: float, word: str) -> None:
    assert judge("2.7", changed(published_cells(), "ds-zero", 128, cell("ds-zero", 128, 145.6 / gain))).parts[0].word == word


@pytest.mark.parametrize(("accelerate_gain", "word"), [(124.44 / 1.27, HOLDS), (124.44 / 1.23, REFUTED), (115.0, REFUTED)])
def test_zero_gains_a_quarter_more_than_accelerate_too(accelerate_gain: float, word: str) -> None:
    verdict = judge("2.7", changed(published_cells(), "accelerate-fp16", 128, cell("accelerate-fp16", 128, 34.04 / accelerate_gain)))
    assert [part.word for part in verdict.parts] == [HOLDS, word]
    assert f"is {124.44 / accelerate_gain:.2f}"[:6] in verdict.parts[1].sentence and "published 12.36" in verdict.parts[1].sentence


def test_the_interval_of_a_gain_over_another_has_the_scatter_of_all_four_rows() -> None:
    calm = judge("2.7", published_cells()).parts[1].ratio
    wild = [run for record in published_cells() for run in synthetic.repeated(record, 5, 0.05 if record.job.case == "accelerate-fp16" else 0.001)]
    ratio = rules.judge(claim_of("2.7"), group_of(wild), ARTICLE, 100).parts[1].ratio
    assert ratio.value == pytest.approx(calm.value, rel=0.01) and ratio.high / ratio.low > 1.1 > calm.high / calm.low


def test_a_gain_over_another_needs_five_runs_of_each_of_its_four_rows() -> None:
    every = [run for record in published_cells() for run in synthetic.repeated(record, 4 if record.job.case == "accelerate-fp16" else 5, 0.001)]
    assert rules.judge(claim_of("2.7"), group_of(every), ARTICLE, 100).parts[1].why == "4 runs, 5 are needed"


def gptj(case: str, mean_ms: float, count: int = 1, new_tokens: int = 128) -> Record:
    return synthetic.record(job(case, 1, count, new_tokens), mean_ms, spread=0.001)


@pytest.mark.parametrize(("fast_ms", "word"), [(2413.18, HOLDS), (5357.65 / 2.02, HOLDS), (5357.65 / 1.98, REFUTED)])
def test_double_is_two_or_more(fast_ms: float, word: str) -> None:
    verdict = judge("2.1", [gptj("gptj-transformers", 5357.65), gptj("gptj-deepspeed", fast_ms)])
    assert (verdict.word, verdict.parts[0].name) == (word, "at least 2 times as fast")


@pytest.mark.parametrize(
    ("four_ms", "words"),
    [
        (551.79, [HOLDS, HOLDS]),
        (1482.22 / 2.1, [HOLDS, REFUTED]),
        (1482.22 / 3.4, [HOLDS, REFUTED]),
        (1500.0, [REFUTED, REFUTED]),
    ],
)
def test_four_gpus_take_about_the_published_share_of_one(four_ms: float, words: list[str]) -> None:
    records = [gptj("pipeline-deepspeed-1", 1482.22, 1, 42), gptj("pipeline-deepspeed-4", four_ms, 4, 42)]
    assert [part.word for part in judge("2.3", records).parts] == words


def test_a_claim_about_four_gpus_is_not_judged_on_one() -> None:
    records = [gptj("pipeline-deepspeed-1", 1482.22, 1, 42), gptj("pipeline-deepspeed-4", 1482.22, 1, 42)]
    assert judge("2.3", records).parts[0].why == "pipeline-deepspeed-4 ran on 1 GPU in this setting (stack current), not on 4"


def test_each_claim_is_judged_for_its_own_number_of_new_tokens_only() -> None:
    judged = judging.judge_group(group_of([*published_cells(), gptj("gptj-transformers", 5357.65), gptj("gptj-deepspeed", 2413.18)]), ARTICLE)
    assert [(one.claim["id"], one.new_tokens) for one in judged] == [
        ("2.1", 128),
        ("2.2", 42),
        ("2.3", 42),
        ("2.4", 100),
        ("2.5", 100),
        ("2.6", 100),
        ("2.7", 100),
    ]


# ------------------------------------------------------------------------------------------------ what it is made of
def measured(case: str, figures: dict, **changes: object) -> Record:
    record = synthetic.record(job(case, 1, CASES[case].gpus, variant="controlled", **changes), 1.0)
    record.guest.measurements, record.guest.figures = [], figures
    record.guest.batch_size = record.job.prompt.get("batch_size") if forms.loads(forms.find(record.job.form)) else None
    return record


def region(implementation: str, us: list[float], **changes: object) -> dict:
    fields = {"region": "bias_residual", "implementation": implementation, "batch_size": 1, "us": us, "device_us": 2.0, "relative_error": 1e-4, "reason": ""}
    return {**fields, **changes}


FUSION = {
    "fusion": [
        region("eager", [30.0, 31.0, 30.0, 31.0, 30.0]),
        region("deepspeed", [10.0, 10.1, 10.0, 10.1, 10.0]),
        region("deepspeed", [], batch_size=2, reason="no nvcc"),
    ]
}
SCHEDULES = {
    "new_tokens": 10,
    "schedules": [
        {"schedule": "in turn", "stages": 2, "micro_batches": 2, "micro_batch_size": 4, "wall_ms": [1000.0], "busy_ms": [[500.0, 400.0]], "identical": 8},
        {"schedule": "rolling", "stages": 2, "micro_batches": 2, "micro_batch_size": 4, "wall_ms": [500.0], "busy_ms": [[500.0, 400.0]], "identical": 8},
    ],
}
CACHES = {
    "kv_offload": {
        "context_tokens": 1024, "memory_limit_bytes": 48 << 30,
        "caches": [
            {"cache": "default", "most_sequences": 30, "searched_to_the_end": False, "batch_size": 30, "first_ms": [100.0] * 5, "all_ms": [260.0] * 5, "new_tokens": 17, "identical": 30},
            {"cache": "offloaded", "most_sequences": 128, "searched_to_the_end": True, "batch_size": 30, "first_ms": [100.0] * 5, "all_ms": [1700.0] * 5, "new_tokens": 17, "identical": 30},
        ],
    }
}  # fmt: skip


def section_of(*records: Record) -> str:
    return "\n\n".join(view.section(group_of(list(records)), ARTICLE) for view in VIEWS if view.name in ("fusion", "schedules", "kv_cache", "scaling"))


def test_a_fused_region_stands_beside_pytorch_s_operators_and_the_article() -> None:
    text = section_of(measured("fusion-deepspeed", FUSION))
    assert re.search(r"\| bias \+ residual \| deepspeed \| 1 \| 30.4 \| 10.0 \| 3.03 \(2.99 to 3.07\) \| 1.2 \| 2.00 / 2.00 \| 0.01 \|", text), text
    assert "| bias + residual | deepspeed | 2 | — | no nvcc |" in text


@pytest.mark.parametrize(
    ("torch", "told"),
    [("2.1.2", True), ("2.3.0", True), ("2.4.0", False), ("2.4.0a0+f70bd71a48.nv24.06", False), ("2.11.0", False), ("", False), ("of my own", False)],
)
def test_the_times_of_kernels_say_where_torch_s_profiler_drops_their_fractions(torch: str, told: bool) -> None:
    row = measured("fusion-deepspeed", FUSION)
    row.guest.environment["packages"] = {"torch": torch}
    text = section_of(row)
    assert (f"The profiler of torch {torch} drops the fraction of a microsecond of each kernel" in text) is told
    assert ("| ≥ 2.00 / ≥ 2.00 |" in text) is told and ("| 2.00 / 2.00 |" in text) is not told


def test_schedules_have_tokens_a_second_and_the_share_that_stages_wait() -> None:
    text = section_of(measured("schedule-2", SCHEDULES))
    assert "GPU busy" in section_of(measured("fusion-deepspeed", FUSION)) and "GPU busy" not in text, "the notes of a table that is not there"
    assert "| schedule-2 | 2 | in turn | 2 × 4 | 80.0 (80.0 to 80.0) | 50 / 60 | 8 of 8 |" in text
    assert "| schedule-2 | 2 | rolling | 2 × 4 | 160 (160 to 160) | 0 / 20 | 8 of 8 |" in text
    uneven = {**SCHEDULES["schedules"][0], "wall_ms": [1000.0, 800.0], "busy_ms": [[500.0, 400.0], [400.0, 320.0]]}
    assert "| 2 × 4 | 90.0 (80.0 to 100) | 50 / 60 |" in section_of(measured("schedule-2", {**SCHEDULES, "schedules": [uneven]})), "the slowest call first"
    stopped = {**uneven, "wall_ms": [1000.0, 0.0], "busy_ms": [[500.0, 400.0], [0.0, 0.0]]}
    assert "| 2 × 4 | 80.0 (80.0 to 80.0) | 50 / 60 |" in section_of(measured("schedule-2", {**SCHEDULES, "schedules": [stopped]})), (
        "a clock that stood tells no rate"
    )


def schedules_with(**identical: int) -> dict:
    """SCHEDULES with a naive schedule beside them, where so many sequences of each schedule are those in turn."""
    naive = {**SCHEDULES["schedules"][1], "schedule": "naive", "micro_batches": 1, "micro_batch_size": 8}
    entries = [*SCHEDULES["schedules"], naive]
    return {**SCHEDULES, "schedules": [{**one, "identical": identical.get(one["schedule"], one["identical"])} for one in entries]}


def test_a_rolling_schedule_with_another_answer_than_in_turn_makes_the_row_s_output_wrong() -> None:
    right, wrong = measured("schedule-2", schedules_with(naive=5)), measured("schedule-2", schedules_with(rolling=7))
    (right_row,), (wrong_row,) = group_of([right]).rows, group_of([wrong]).rows
    assert right_row.output_is_right, "a larger batch may round otherwise"
    assert not wrong_row.output_is_right and wrong.guest.check["passed"]
    assert output.check_of(wrong)["reason"] == "under the rolling schedule 7 of 8 sequences are those in turn"
    unlike_itself = measured("schedule-2", schedules_with(**{"in turn": 7}))
    assert output.check_of(unlike_itself)["reason"] == "in turn 7 of 8 sequences are in every call those of the first"
    text = section_of(wrong)
    assert "| 0 / 20 | **output FAILED**: 7 of 8 |" in text and "FAILED" not in section_of(right)


@pytest.mark.parametrize(("identical", "title"), [({}, "rolling"), ({"rolling": 7}, "in turn")])
def test_a_schedule_with_a_wrong_output_is_marked_in_its_picture_and_does_not_lead_it(identical: dict, title: str) -> None:
    figure = {**SCHEDULES, "schedules": [{**one, "identical": identical.get(one["schedule"], one["identical"])} for one in SCHEDULES["schedules"]]}
    (picture,) = [view.plot(group_of([measured("schedule-2", figure)]), ARTICLE) for view in VIEWS if view.name == "schedules" and view.plot]
    assert picture and f"<title>{title} makes most tokens a second;" in picture
    assert ("output wrong" in picture, "hollow" in picture) == (bool(identical), bool(identical))


def test_the_offloaded_cache_has_its_reach_and_its_price() -> None:
    text = section_of(measured("kv-offload", CACHES))
    assert "| kv-offload | default | 48 | 1024 | 30 | 30720 | 30 | 10.000" in text
    assert "| kv-offload | offloaded | 48 | 1024 | 128 or more | 131072 | 30 | 100" in text


@pytest.mark.parametrize(("new_tokens", "further"), [(2, "160"), (1, "—")])
def test_two_tokens_have_a_further_one_and_one_has_none(new_tokens: int, further: str) -> None:
    figure = CACHES["kv_offload"]
    text = section_of(measured("kv-offload", {"kv_offload": {**figure, "caches": [{**figure["caches"][0], "new_tokens": new_tokens}]}}))
    assert f"| default | 48 | 1024 | 30 | 30720 | 30 | {further}" in text


def test_a_cache_with_another_answer_than_the_default_one_makes_the_row_s_output_wrong() -> None:
    def of(identical: int | None) -> Record:
        default, offloaded = CACHES["kv_offload"]["caches"]
        return measured("kv-offload", {"kv_offload": {**CACHES["kv_offload"], "caches": [default, {**offloaded, "identical": identical}]}})

    def row_of(record: Record) -> Row:
        (row,) = group_of([record]).rows
        return row

    assert row_of(of(30)).output_is_right and row_of(of(None)).output_is_right and not row_of(of(0)).output_is_right
    wrong = of(30)
    wrong.guest.figures["kv_offload"]["caches"][0] = {**CACHES["kv_offload"]["caches"][0], "identical": 29}
    assert output.check_of(wrong)["reason"] == "with the default cache 29 of 30 sequences are in every call those of the first"
    wrong = of(29)
    assert not row_of(wrong).output_is_right
    assert wrong.guest.check["passed"], "the guest's own check is of the model alone"
    words = "with the offloaded cache 29 of 30 sequences are those of the default cache"
    assert run_facts.wrong_output(output.check_of(wrong)) == f"output failed its check ({words})"
    assert "| **output FAILED**: 29 of 30 |" in section_of(wrong) and "FAILED" not in section_of(of(30))
    drawn = {view.name: view.plot(group_of([wrong]), ARTICLE) for view in VIEWS if view.plot and view.name in ("kv_cache", "memory")}
    assert all("output wrong" in str(picture) for picture in drawn.values()) and len(drawn) == 2
    assert outcome.line_of(wrong).endswith(f"(OUTPUT CHECK FAILED: {words})") and outcome.line_of(of(30)).endswith("(output as plain transformers')")


def test_efficiency_falls_where_more_gpus_help_less() -> None:
    text = section_of(cell("ds-inference", 1, 20.0, count=1), cell("ds-inference", 1, 12.5, count=2), cell("ds-inference", 1, 10.0, count=4))
    assert re.search(r"\| ds-inference \| 1 \| 100 \| 1 \| 200\d.* \| — \| 100 \|", text), text
    assert re.search(r"\| ds-inference \| 1 \| 100 \| 2 \| .* \| 1\.(60|59).* \| 80 \|", text) and re.search(r"\| 4 \| .* \| (2.00|1.99).* \| 50 \|", text)


def test_efficiency_is_that_of_the_fewest_gpus_on_which_the_system_ran() -> None:
    text = section_of(cell("ds-inference", 1, 20.0, count=2), cell("ds-inference", 1, 12.5, count=4))
    assert re.search(r"\| 2 \| .* \| — \| 100 \|", text) and re.search(r"\| 4 \| .* \| 80 \|", text), text


def test_a_row_with_a_wrong_output_has_no_efficiency() -> None:
    wrong = cell("ds-inference", 1, 10.0, count=4, checked=synthetic.check(0.5, passed=False))
    text = section_of(cell("ds-inference", 1, 20.0, count=1), cell("ds-inference", 1, 12.5, count=2), wrong)
    assert "| ds-inference | 1 | 100 | 2 |" in text and "| ds-inference | 1 | 100 | 4 |" not in text


def test_vllm_cuts_each_layer_over_its_gpus_too() -> None:
    assert "| vllm-fp16 | 1 | 100 | 2 |" in section_of(cell("vllm-fp16", 1, 4.9, count=1), cell("vllm-fp16", 1, 3.5, count=2))


def test_a_row_without_a_timed_call_is_kept_and_has_no_line_among_the_times(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [measured("fusion-deepspeed", FUSION), measured("schedule-2", SCHEDULES), measured("kv-offload", CACHES)])
    records, skipped = results.load_all(tmp_path / "runs")
    assert len(records) == 3 and not skipped
    document.write(tmp_path / "runs", tmp_path)
    text = reports.text_of(tmp_path)
    assert all(f"<summary>{summary}</summary>" in text for summary in ("Fused operators", "Pipeline schedules", "Key-value cache in host memory"))
    assert "| measured mean ± std, ms |" not in text and "| call, ms (mean ± std) |" not in text


def test_each_mechanism_has_a_picture_whose_title_is_its_finding() -> None:
    group = group_of([measured("fusion-deepspeed", FUSION), measured("schedule-2", SCHEDULES), measured("kv-offload", CACHES)])
    plots = {view.name: view.plot(group, ARTICLE) for view in VIEWS if view.plot and view.name in ("fusion", "schedules", "kv_cache", "padding")}
    titles = {name: re.search(r"<title>(.*?)</title>", picture)[1] for name, picture in plots.items() if picture}
    assert re.fullmatch(r"Fused regions are \S+ to \S+ times as fast", titles["fusion"]), titles
    assert re.fullmatch(r"\S.* makes most tokens a second; its stages wait .* % of the time", titles["schedules"]), titles
    assert titles["kv_cache"] == "default: 30 sequences fit; offloaded: 128 or more sequences fit" and plots["padding"] is None
    assert 'class="ink"' in plots["fusion"], "the published speed-ups stand beside the measured ones"


def test_neither_calls_nor_figures_is_a_damaged_result(tmp_path: Path) -> None:
    synthetic.write(tmp_path, [measured("fusion-deepspeed", {})])
    records, skipped = results.load_all(tmp_path)
    assert not records and "without a timed call" in skipped[0].reason


def test_nsight_systems_is_refused_around_a_container() -> None:
    with pytest.raises(UsageError, match="ENGINE is 'docker'.*type ENGINE=host, or PROFILER=torch"):
        nsight.wrapper("docker")


def test_nsight_systems_wraps_a_run_on_the_host_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match="nsys is not on the PATH"):
        nsight.wrapper("host")
    (tmp_path / "nsys").touch(0o755)
    assert nsight.wrapper("host")[:2] == [str(tmp_path / "nsys"), "profile"]


def test_a_profile_is_shown_with_its_kernels_and_is_no_row(tmp_path: Path) -> None:
    prompt = {**job("gptj-deepspeed", 1, 1).prompt, "batch_size": 32}
    asked = dataclasses.replace(job("gptj-deepspeed", 1, 1), kind="profile", form="generate", options={"profiler": "torch"}, prompt=prompt)
    record = synthetic.record(asked, 1.0, unchecked=True)
    record.guest.measurements = []
    devices = {"0": {"kernels": 50, "busy_ms": 6.0}, "1": {"kernels": 7}}
    top = [{"name": "gemm<half>", "count": 12, "ms": 3.25}]
    record.guest.figures = {
        "profile": {"profiler": "torch", "new_tokens": 8, "wall_ms": 12.0, "profiled_wall_ms": 15.0, "kernels": 50, "devices": devices, "top": top}
    }
    synthetic.write(tmp_path / "runs", [record])
    document.write(tmp_path / "runs", tmp_path)
    text = reports.text_of(tmp_path)
    assert "# Profiles" in text and "1 GPU, batch 32)" in text and "| 0 | 50 | 6.00 | 50 |" in text and "| gemm&lt;half&gt; | 12 | 3.25 |" in text
    assert "| 1 | 7 |" not in text, "a GPU of which no busy time is known has no line"
    assert "](profiles.md)" in text and "rows with the right output" not in text


def test_rows_of_a_case_that_loads_in_another_way_since_support_no_claim_and_stand_beside_no_published_number() -> None:
    records = published_cells()
    for one in records:
        if one.job.case == "accelerate-fp16" and one.job.prompt["batch_size"] == 32:
            one.job.load["device_map"] = "balanced_low_0"
    verdict = judge("2.5", records)
    assert verdict.parts[0].word == NOT_TESTED and "accelerate-fp16 b32 on 8 GPUs was loaded in another way" in told(verdict)
    assert verdict.parts[1].word == HOLDS
    head, _, *lines = [[cell.strip() for cell in line.split("|")] for line in systems.main_table(group_of(records), ARTICLE).splitlines()]
    over = {line[1]: line[head.index("measured ÷ published")] for line in lines}
    assert over["accelerate-fp16 b32"] == "—" and over["accelerate-fp16 b128"] == "1.00"
