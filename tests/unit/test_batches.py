"""The third article's rows: rates, hours, tables, plot and verdicts, on made-up runs."""

import csv
import dataclasses
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts import articles, results, stats
from scripts.report import comparison, document
from scripts.report.plots import throughput
from scripts.report.views import claims, fastest, many_texts, overview, padding, same_work, workload
from scripts.report.views import rate as rate_view
from scripts.verdicts import judging, rates, relations, row_groups, rules
from scripts.verdicts.parts import HOLDS, NOT_TESTED, REFUTED, UNDECIDED, Part
from scripts.verdicts.row import Row
from tests import reports, synthetic
from tests.synthetic import check, job, record

ARTICLE = articles.find("batch-generate")
FORMS = {case.name: case.form for case in ARTICLE.cases}
PADDING = {
    "new_tokens": 64,
    "prompt_tokens": [10, 20, 30],
    "left": {"first_different_token": [None, 7, None], "logits_relative_error": [0.01, 0.02, 0.0]},
    "right": {"first_different_token": [0, 0, None], "logits_relative_error": [0.6, 0.7, 0.0]},
}
WORKLOAD = {
    "items": 2000,
    "order": "naive",
    "new_tokens": 200_000,
    "prompt_tokens": 90_000,
    "padded_prompt_tokens": 120_000,
    "decode_rows": 500_000,
    "seconds": 100.0,
    "batches": 8,
    "resumed": True,
}


def a_run(case: str, mean_ms: float = 6400.0, batch_size: int = 1, *, figures: dict | None = None, tolerance: float = 0.08, **facts: object) -> results.Record:
    """A run of a case of the article; `figures` in place of those of calls that made 256 tokens for each text."""
    of_job = {name: facts.pop(name) for name in ("variant", "device", "scale", "timed_runs") if name in facts}
    asked = job(case, article="batch-generate", new_tokens=(64 if case == "padding" else 256,), **{"timed_runs": 5, "variant": "controlled", **of_job})
    prompt = {"text": "hey", "batch_size": batch_size}
    one = record(dataclasses.replace(asked, form=FORMS[case], prompt=prompt, tolerance=tolerance), mean_ms, **facts)
    if one.guest:
        calls = {"calls": [{"new_tokens": 256, "timed_tokens": [256 * batch_size] * len(one.guest.measurements[0]["timed_ms"])}]}
        one.guest.figures, one.guest.batch_size = figures or calls, batch_size
        last_as_the_figure_says(one.guest.measurements[0]["timed_ms"], one.guest.figures.get("workload"))
    return one


FIGURES = {"workload": WORKLOAD}


def last_as_the_figure_says(calls_ms: list[float], workload: dict | None) -> None:
    """The batches of a workload take its seconds together."""
    if workload and isinstance(workload["seconds"], float):
        whole_ms = sum(calls_ms)
        calls_ms[:] = [1000 * workload["seconds"] * ms / whole_ms for ms in calls_ms]


def sweep(*rates: float) -> list[results.Record]:
    """Batches of 1, 2, 4… with that many items a second."""
    return [a_run("batch", 1000 * (1 << place) / rate, 1 << place) for place, rate in enumerate(rates)]


def group_of(records: list[results.Record]) -> row_groups.Group:
    (group,) = row_groups.build(records, {"batch-generate": ARTICLE})
    return group


def judge(relation: dict, *records: results.Record, runs: int = 5, new_tokens: int = 256) -> list[Part]:
    return judged(relation, *records, runs=runs, new_tokens=new_tokens).parts


def judged(relation: dict, *records: results.Record, runs: int = 5, new_tokens: int = 256) -> rules.Verdict:
    """The verdict on a claim of one relation where each of these records ran so often; one with its own number of runs is given run by run."""
    every = [run for one in records for run in (synthetic.repeated(one, runs, 0.002) if one.number == 1 else [one])]
    return rules.judge({"relations": [relation]}, group_of(every), ARTICLE, new_tokens)


def row_of(*runs: results.Record) -> Row:
    return group_of(runs).rows[0]


def test_a_rate_is_the_batch_over_the_mean_call_with_its_interval_turned_round() -> None:
    row = row_of(*synthetic.repeated(a_run("batch", 8000.0, 64), scatter=0.1))
    rate, mean = rates.items_per_s(row), row.summary(256).interval
    assert (rate.value, rate.low, rate.high) == pytest.approx(
        (64_000 / mean.value, 64_000 / mean.high, 64_000 / mean.low)
    ) and rate.low < rate.value < rate.high
    assert rates.tokens_per_s(row) == pytest.approx(8 * 256, rel=0.01)


def test_a_rate_of_few_runs_is_that_of_all_and_has_no_interval() -> None:
    calls = [{"calls": [{"new_tokens": 256, "timed_tokens": [tokens] * 5}]} for tokens in (100, 200)]
    runs = [a_run("single", (5000.0, 15000.0)[number - 1], figures=made, number=number) for number, made in enumerate(calls, 1)]
    row = row_of(*runs)
    rate = rates.items_per_s(row)
    assert (rate.low, rate.high) == (None, None) and rate.value == pytest.approx(0.1, rel=0.01)
    assert rates.tokens_per_s(row) == pytest.approx(15, rel=0.01)


def test_the_published_seven_hours_and_seven_minutes_are_rates_of_ten_thousand_items() -> None:
    assert rates.hours(10_000 / (7 * 3600)) == pytest.approx(7)
    assert [rate_view.published_minutes(ARTICLE, case) for case in ("single", "batch", "pipeline")] == [7 * 60, 7, None]


def test_a_workload_s_rate_is_of_all_its_batches() -> None:
    row = row_of(a_run("workload-naive", figures={"workload": WORKLOAD}))
    assert (rates.items_per_s(row).value, rates.tokens_per_s(row)) == (20.0, 2000.0)


def test_of_several_runs_a_workload_s_rate_is_over_the_mean_of_their_times() -> None:
    seconds = (100.0, 90.0, 110.0, 95.0, 155.0)
    runs = [a_run("workload-naive", figures={"workload": {**WORKLOAD, "seconds": one}}, number=number) for number, one in enumerate(seconds, 1)]
    row = row_of(*runs)
    rate, time = rates.items_per_s(row), stats.over_runs(seconds)
    assert (rate.value, rate.low, rate.high) == pytest.approx((2000 / 110, 2000 / time.high, 2000 / time.low))
    assert rates.tokens_per_s(row) == pytest.approx(200_000 / 110)
    assert (rates.items_per_s(row_of(*runs[:4])).value, rates.items_per_s(row_of(*runs[:4])).low) == (pytest.approx(2000 / 98.75), None)
    runs[4].host["conditions"] = {"marks": ["foreign load"], "disturbed": ["foreign load"]}
    assert rates.items_per_s(row_of(*runs)).value == pytest.approx(2000 / 98.75)


def test_a_rate_has_no_bound_where_the_time_s_interval_reaches_zero() -> None:
    runs = [a_run("workload-naive", figures={"workload": {**WORKLOAD, "seconds": one}}, number=number) for number, one in enumerate([10.0] * 4 + [100.0], 1)]
    rate = rates.items_per_s(row_of(*runs))
    assert rate.value == pytest.approx(2000 / 28) and rate.high is None and 0 < rate.low < rate.value


def test_a_workload_that_tells_no_figure_has_no_rate_and_one_that_ran_out_of_time_none_either() -> None:
    lost = a_run("workload-naive", figures={"calls": []})
    assert (rates.items_per_s(row_of(lost)), rates.tokens_per_s(row_of(lost))) == (None, None)
    timeout = a_run("workload-naive", status="timeout", reason="too long", number=2, started_at="2026-11-29T04:10:00Z")
    row = row_of(a_run("workload-naive", figures={"workload": WORKLOAD}), timeout)
    assert (rates.items_per_s(row), rates.tokens_per_s(row)) == (None, None)
    without = a_run("workload-naive", figures={"calls": []}, number=2)
    told = [a_run("workload-naive", figures={"workload": WORKLOAD}, number=number) for number in (1, 3, 4)]
    assert rates.items_per_s(row_of(*told, without)).value == 20.0


def test_sampled_answers_that_ended_sooner_lower_the_tokens_and_not_the_items() -> None:
    calls = {"calls": [{"new_tokens": 256, "timed_tokens": [100] * 5}]}
    row = row_of(a_run("single", 5000.0, figures=calls))
    assert rates.tokens_per_s(row) == pytest.approx(20, rel=0.01) and rates.items_per_s(row).value == pytest.approx(0.2, rel=0.01)


def test_where_a_run_did_not_count_its_tokens_the_row_tells_no_tokens_a_second() -> None:
    uncounted = a_run("single", 5000.0, figures={"calls": []}, number=2)
    assert rates.tokens_per_s(row_of(a_run("single", 5000.0), uncounted)) is None


SIXTY = {"single": "single", "batched": "batch", "size": 60}


def test_the_best_batch_size_is_held_against_one_at_a_time() -> None:
    direction, size = judge(SIXTY, a_run("single", 1000.0), *sweep(1, 50, 70, 65))
    assert (direction.name, direction.word, size.name, size.word) == ("faster in batches", HOLDS, "60 times", HOLDS)
    assert size.sentence.startswith("batch b4 makes 69.8") and "published 60" in size.sentence and "2.39 min instead of 2.77 h" in size.sentence
    assert relations.of(SIXTY).published(size) == (60, "single"), "what the first page shows beside it"
    assert relations.of({"single": "single", "batched": "batch"}).published(direction) is None


@pytest.mark.parametrize(("in_hours", "words"), [(14.24, "14.2 h"), (1.0, "1.00 h"), (0.999, "59.9 min"), (0.043, "2.58 min")])
def test_a_time_is_in_hours_from_a_whole_hour_on(in_hours: float, words: str) -> None:
    assert rates.duration(in_hours) == words


@pytest.mark.parametrize(
    ("rate", "words"), [(60, [HOLDS, HOLDS]), (391, [HOLDS, REFUTED]), (30, [HOLDS, REFUTED]), (0.9, [REFUTED, REFUTED]), (75, [HOLDS, UNDECIDED])]
)
def test_a_gain_of_391_refutes_a_size_of_60_as_one_of_30_does(rate: float, words: list[str]) -> None:
    batch = a_run("batch", 1000 * 2 / rate, 2, spread=0.0)
    assert [part.word for part in judge(SIXTY, a_run("single", 1000.0, spread=0.0), batch)] == words


def test_a_batch_with_a_wrong_output_is_not_the_best() -> None:
    wrong = a_run("batch", 10.0, 8, checked=check(0.3, passed=False))
    assert "batch b2 makes 29.9" in judge(SIXTY, a_run("single", 1000.0), *sweep(1, 30), wrong)[0].sentence


def test_without_both_sides_nothing_is_tested() -> None:
    assert judge(SIXTY, *sweep(1, 70))[0].why == "single was not run in this setting (stack current)"
    assert judge(SIXTY, a_run("single"))[1].why == "batch was not run in this setting (stack current)"
    assert judge(SIXTY, a_run("single", 1000.0), *sweep(1, 70), runs=4)[0].why == "4 runs, 5 are needed"


def test_batches_of_another_model_or_prompt_are_not_held_against_one_at_a_time() -> None:
    for fields in ({"model": {"revision": "later"}}, {"prompt": {"text": "another"}}):
        single, batch = a_run("single", 1000.0), a_run("batch", 1000.0, 64)
        for name, changes in fields.items():
            getattr(batch.job, name).update(changes)
        faster, size = judge(SIXTY, single, batch)
        assert (faster.word, size.word) == (NOT_TESTED, NOT_TESTED) and faster.why == "single and batch b64 ran different models or prompts"


def test_the_best_batch_size_is_that_of_the_most_items_over_all_time_and_not_in_the_middle_run() -> None:
    uneven = [a_run("batch", ms, 2, number=number) for number, ms in enumerate((20.0, 20.0, 20.0, 20.0, 220.0), 2)]
    assert judge(SIXTY, a_run("single", 1000.0), a_run("batch", 80.0, 4), *uneven)[0].sentence.startswith("batch b4 makes 50.")


def a_look(mean_ms: float, batch_size: int) -> results.Record:
    """One run of a batch: its number keeps it from being repeated."""
    return a_run("batch", mean_ms, batch_size, number=2)


def test_a_batch_of_fewer_runs_judges_nothing() -> None:
    assert "batch b2 makes 29.9" in judge(SIXTY, a_run("single", 1000.0), *sweep(1, 30), a_look(10.0, 8))[0].sentence
    (part,) = judge(GROWS, *sweep(10, 19), a_look(9000.0, 8))
    assert part.word == HOLDS and part.sentence.endswith("; too few runs to judge: 8")
    (few,) = judge(GROWS, *sweep(10), a_look(500.0, 2))
    assert (few.word, few.why) == (NOT_TESTED, "1 run, 5 are needed") and few.sentence.startswith("batch size 2 makes"), "of fewer than two all count"
    wrong = a_run("batch", 9000.0, 8, checked=synthetic.check(0.4, passed=False))
    assert "too few" not in judge(GROWS, *sweep(10, 19), wrong)[0].sentence


GROWS = {"case": "batch", "rate_grows_with_batch": True}


def test_every_larger_batch_has_to_gain() -> None:
    (part,) = judge(GROWS, *sweep(10, 19, 30, 33))
    assert part.word == HOLDS and "from batch size 1 to 8 the least gain: batch size 8 makes 1.099 times" in part.sentence
    assert part.cases == ("batch b8", "batch b4"), "the first page names what its ratio is of"
    (part,) = judge(GROWS, *sweep(10, 19, 18, 33))
    assert part.word == REFUTED and "batch size 4 makes 0.9" in part.sentence and part.sentence.endswith("; 2 of 3 steps hold")


def test_batch_sizes_of_another_model_or_prompt_are_no_steps() -> None:
    records = sweep(10, 19, 30)
    for fields in ({"model": {**records[2].job.model, "revision": "later"}}, {"prompt": {**records[2].job.prompt, "text": "another"}}):
        other = dataclasses.replace(records[2], job=dataclasses.replace(records[2].job, **fields))
        (part,) = judge(GROWS, *records[:2], other)
        assert (part.word, part.why) == (NOT_TESTED, "batch and batch b4 ran different models or prompts")


def test_a_ratio_without_a_published_one_is_told_with_what_its_rows_differ_in() -> None:
    (part,) = judge(GROWS, *sweep(10, 19))
    part = dataclasses.replace(part, name="x", differs=("dtype",), is_apart=True, notes=("a note",))
    judged = judging.Judged({"id": "1.0", "text": "x"}, rules.Verdict(HOLDS, judged=[(relations.of(GROWS), [part])]))
    assert overview._facts(judged) == [f"batch b2 {part.number} × batch (the rows differ in dtype; on different GPUs; a note)"]


def test_the_batch_that_ran_out_of_memory_is_no_step() -> None:
    assert judge(GROWS, *sweep(10, 19), a_run("batch", batch_size=4, status="oom", reason="synthetic"))[0].word == HOLDS


def test_one_batch_size_tests_nothing() -> None:
    assert judge(GROWS, *sweep(10))[0].why == "batch has 1 batch size with a right output, two or more are needed"


LEFT = {"case": "padding", "left_padding_needed": True}


@pytest.mark.parametrize(
    ("side", "errors", "word"),
    [
        ("left", [0.01, 0.08, 0.0], HOLDS),
        ("left", [0.01, 0.081, 0.0], REFUTED),
        ("right", [0.6, 0.081, 0.0], HOLDS),
        ("right", [0.6, 0.08, 0.0], REFUTED),
    ],
)
def test_left_padding_has_to_be_within_the_tolerance_and_right_padding_beyond_it(side: str, errors: list[float], word: str) -> None:
    found = {**PADDING, side: {**PADDING[side], "logits_relative_error": errors}}
    right, other = (a_run("padding", figures={"padding": figure}) for figure in (PADDING, found))
    assert judge(LEFT, other, new_tokens=64)[0].word == word
    runs = [*synthetic.repeated(right, 4), synthetic.repeated(other, 5)[4]]
    (part,) = rules.judge({"relations": [LEFT]}, group_of(runs), ARTICLE, 64).parts
    assert part.word == word, "in every run"


def test_fewer_than_five_runs_say_nothing_of_padding() -> None:
    (part,) = judge(LEFT, a_run("padding", figures={"padding": PADDING}), runs=4, new_tokens=64)
    assert (part.word, part.why) == (NOT_TESTED, "4 runs, 5 are needed")


def test_texts_of_one_length_say_nothing_of_padding() -> None:
    (part,) = judge(LEFT, a_run("padding", figures={"padding": {**PADDING, "prompt_tokens": [9, 9, 9]}}), new_tokens=64)
    assert part.word == NOT_TESTED and part.why == "padding has no padded text or no tolerance"


def test_the_only_variant_that_has_a_claim_s_case_judges_it_and_says_so() -> None:
    runs = synthetic.repeated(a_run("padding", figures={"padding": PADDING}), 5)
    of_today = [*runs, *synthetic.repeated(a_run("single", variant="published"), 5)]

    def lines(records: list[results.Record]) -> dict[str, judging.Lines]:
        groups = row_groups.build(records, {"batch-generate": ARTICLE})
        return {one.headline.claim["id"]: one for one in judging.judge_article(groups, ARTICLE).claims}

    judged = lines(of_today)
    assert (judged["3.3"].headline.verdict.word, judged["3.3"].controlled) == (HOLDS, None)
    assert str(claims.word(judged["3.3"].headline)) == "**holds** (judged by the variant controlled)"
    assert judged["3.1"].headline.group.key.variant == "published" and str(claims.word(judged["3.1"].headline)) == NOT_TESTED
    none = lines(synthetic.repeated(a_run("single", variant="published"), 5))["3.3"].headline
    assert (none.verdict.word, none.verdict.reason) == (NOT_TESTED, "the variant controlled was not run at full size on a GPU")
    few = lines(synthetic.repeated(a_run("single"), 5))["3.3"].headline
    assert str(claims.word(few)) == "not tested (judged by the variant controlled)"
    told = str(overview.claim_lines(judging.judge_article(row_groups.build([a_run("single")], {"batch-generate": ARTICLE}), ARTICLE)))
    assert "not tested (judged by the variant controlled): padding was not run in this setting (stack current)" in told


def test_the_variants_that_judge_a_claim_have_all_its_cases_and_the_published_one_goes_first() -> None:
    padding_in, single_in = (dataclasses.replace(ARTICLE.case(name), variants=None) for name in ("padding", "single"))

    def with_cases(*others: object, **changes: object) -> articles.Article:
        kept = [case for case in ARTICLE.cases if case.name not in {other.name for other in others}]
        return dataclasses.replace(ARTICLE, cases=[*kept, *others], **changes)

    assert ARTICLE.judging_variants("3.3") == ["controlled"] and ARTICLE.judging_variants("3.1") == ["published"]
    assert with_cases(padding_in).judging_variants("3.3") == ["published"]
    more = {**ARTICLE.variants, "another": ARTICLE.variants["controlled"]}
    in_both = dataclasses.replace(padding_in, variants=["controlled", "another"])
    assert with_cases(in_both, variants=more).judging_variants("3.3") == ["controlled", "another"]
    apart = with_cases(dataclasses.replace(single_in, variants=["controlled"]), dataclasses.replace(ARTICLE.case("batch"), variants=["published"]))
    assert apart.judging_variants("3.1") == []
    groups = row_groups.build(synthetic.repeated(a_run("batch", variant="published"), 5), {"batch-generate": apart})
    verdict = next(one for one in judging.judge_article(groups, apart).claims if one.headline.claim["id"] == "3.1").headline.verdict
    assert (verdict.word, verdict.parts[0].why) == (NOT_TESTED, "single is no case of the variant published")


def whole() -> list[results.Record]:
    oom = a_run("batch", batch_size=16, status="oom", reason="CUDA out of memory. Tried to allocate 1.00 GiB")
    return [
        a_run("pipeline", 6600.0),
        a_run("single", 6400.0),
        *sweep(0.156, 0.31, 0.61, 1.2),
        oom,
        a_run("padding", 1600.0, figures={"padding": PADDING}),
        a_run("workload-naive", 12_500.0, 256, figures={"workload": WORKLOAD}),
        a_run(
            "workload-continuous", 12_500.0, 256, figures={"workload": {**WORKLOAD, "seconds": 40.0, "decode_rows": 200_000, "padded_prompt_tokens": 90_000}}
        ),
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("whole")
    synthetic.write(folder / "runs", whole())
    document.write(folder / "runs", folder)
    return reports.text_of(folder)


def line_of(page: str, start: str) -> str:
    return next(line for line in page.splitlines() if line.startswith(start))


def test_the_article_s_time_stands_beside_the_nearest_rate_whether_that_is_slower_or_faster() -> None:
    for rate_of in ((1, 23, 90), (1, 25, 90)):
        told = rate_view.section(group_of(sweep(*rate_of)), ARTICLE).splitlines()
        assert [line.split("|")[1].strip() for line in told if "7 min" in line] == ["batch b2"]


def test_each_form_and_batch_size_is_a_row_with_its_rate_and_hours_beside_the_published(page: str) -> None:
    assert "| form | status | batch size | items/s (95 % interval over runs) | tokens/s | 10,000 items take | published |" in page
    assert "| 17.7 h | 7 h |" in line_of(page, "| single | ok | 1 | 0.157")
    assert "| 17.8 h | — | 10.00 | 8.00 |" in line_of(page, "| batch | ok | 1 |")
    assert "| 2.31 h | 7 min |" in line_of(page, "| batch b8 | ok | 8 | 1.2"), "once, beside the nearest, since the article names no batch size"
    assert line_of(page, "| pipeline | ok |").count("| — |") == 1
    assert line_of(page, "| batch b16 | **oom** | 16 |")


def test_a_workload_tells_its_padding_and_what_it_decoded_in_vain(page: str) -> None:
    assert "| workload-naive b256 | 256 | 2,000 | 20.0 | 2000 | 8.33 min | 25.0 | 60.0 | yes |" in page
    around = next(line for line in page.split("Around the calls")[1].splitlines() if line.startswith("| workload-naive b256 |"))
    assert around.endswith("| — | — | — | — |"), "parts of a workload are no calls that can drift"
    assert "| workload-continuous b256 | 256 | 2,000 | 50.0 | 5000 | 3.33 min | 0.0 | 0.0 | yes |" in page


LATENCY = {
    "arrivals_per_s": 4,
    "items": 400,
    "median_ms": 1000.0,
    "p95_ms": 3000.0,
    "p99_ms": 4000.0,
    "longest_ms": 5000.0,
    "offered_s": 99.0,
    "finished_s": 100.0,
}
SERVED = {"workload": {**WORKLOAD, "items": 400, "seconds": 100.0, "resumed": False}, "latency": LATENCY}


def serving(case: str = "serving-static", number: int = 1, **latency: object) -> results.Record:
    """A run whose items arrived over time; only these latencies differ."""
    one = a_run(case, 12_500.0, 64, figures={**SERVED, "latency": {**LATENCY, **latency}}, number=number)
    return dataclasses.replace(one, job=dataclasses.replace(one.job, options={"arrivals_per_s": 4}))


OVER_TIME_HEADS = "| requests/s offered | latency, s: median / p95 / p99 |"


def test_what_arrived_over_time_tells_its_load_and_its_latencies(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [*whole(), serving(), serving(number=2, median_ms=2000.0)])
    document.write(tmp_path / "runs", tmp_path)
    text = reports.text_of(tmp_path)
    assert OVER_TIME_HEADS in text and str(workload.OVER_TIME) in text
    assert line_of(text, "| serving-static b64 | 64 | 400 | 4.00 | 2000 | — |").endswith("| 4 | 1.50 / 3.00 / 4.00 |"), (
        "of two runs the mean; no time of 10,000"
    )
    assert line_of(text, "| workload-naive b256 | 256 |").endswith("| — | — |")
    rows = {line["case"]: line for line in csv.DictReader((tmp_path / "results.csv").open())}
    names = ("items_per_s", "offered_per_s", "latency_median_ms", "latency_p95_ms", "latency_p99_ms")
    assert [rows["serving-static"][name] for name in names] == ["4.0", "4.0", "1500.0", "3000.0", "4000.0"]
    assert [rows["workload-naive"][name] for name in names] == ["20.0", "", "", "", ""]


def test_where_nothing_arrives_over_time_no_column_says_so(page: str) -> None:
    assert OVER_TIME_HEADS not in page and str(workload.OVER_TIME) not in page


def test_a_run_that_went_on_after_a_stop_has_its_load_and_no_latencies() -> None:
    stopped = serving()
    stopped.guest.figures["latency"] = {"arrivals_per_s": 4, "items": 400, "reason": "it went on after a stop"}
    alone, both = (str(workload.section(group_of(runs), ARTICLE)) for runs in ([stopped], [stopped, serving(number=2)]))
    assert line_of(alone, "| serving-static b64 |").endswith("| 4 | — |")
    assert line_of(both, "| serving-static b64 |").endswith("| 4 | 1.00 / 3.00 / 4.00 |"), "the other run's"
    assert both.index(str(workload.WORDS)) < both.index("| serving-static b64 |") < both.index(str(workload.OVER_TIME)), "the first words end in a colon"


def test_of_several_runs_a_latency_is_the_mean() -> None:
    runs = [serving(number=number, median_ms=median_ms) for number, median_ms in enumerate((1000.0, 1000.0, 2500.0), 1)]
    assert rates.latency(row_of(*runs))["median_ms"] == 1500.0


def test_a_number_of_latencies_that_a_newer_kit_tells_in_some_runs_alone_is_left_out() -> None:
    runs = [serving(number=1, p999_ms=4500.0), serving(number=2)]
    assert rates.latency(row_of(*runs)) == rates.latency(row_of(runs[1]))


def test_a_row_whose_items_arrived_over_time_wins_no_table_and_no_claim() -> None:
    """Its rate is that of its arrivals: here it would be far ahead of every batch."""
    others = [run for one in (a_run("single", 6400.0), *sweep(0.156, 0.31)) for run in synthetic.repeated(one, 5, 0.002)]
    today = [run for case in ("batch-compiled", "batch-vllm") for run in synthetic.repeated(by_its_backend(a_run(case, 6000.0, 2)), 5, 0.002)]
    ahead = [run for case in ("serving-static", "serving-vllm") for number in range(1, 6) for run in [fast(case, number)]]
    without, beside = ([*others, *today], [*others, *today, *ahead])

    def told(records: list[results.Record]) -> list[str]:
        groups = row_groups.build(records, {"batch-generate": ARTICLE})
        verdicts = [(one.headline.claim["id"], one.headline.verdict) for one in judging.judge_article(groups, ARTICLE).claims]
        return [str(fastest.section(groups)), str(same_work.section(groups, ARTICLE)), rate_view.section(groups[0], ARTICLE), str(verdicts)]

    assert rates.items_per_s(row_of(*ahead[:5])).value == 400
    assert told(beside) == told(without) and "batch" in told(without)[0] and "batch-vllm" in told(without)[1]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("serving-static", "answers what has arrived"),
        ("serving-vllm", "answers what has arrived"),
        ("workload-continuous", "one writing of answers to the next"),
    ],
)
def test_calls_of_no_fixed_work_are_not_compared(case: str, words: str) -> None:
    """Twice as fast a system would answer smaller batches of the same arrivals, and write twice as much at once."""
    of_case = (lambda number: fast(case, number)) if "serving" in case else (lambda number: a_run(case, 12_500.0, 256, figures=FIGURES, number=number))
    before, after = ([of_case(number) for number in numbers] for numbers in (range(1, 6), range(6, 11)))
    groups = [row_groups.build(side, {"batch-generate": ARTICLE}) for side in (before, after)]
    (difference,) = comparison.compare(*groups)
    assert (difference.word, words in difference.reason, difference.ratio) == ("not comparable", True, None), difference


def test_static_batches_of_texts_that_are_all_there_are_compared() -> None:
    sides = [[a_run("workload-naive", 12_500.0, 256, figures=FIGURES, number=number) for number in numbers] for numbers in (range(1, 6), range(6, 11))]
    (difference,) = comparison.compare(*(row_groups.build(side, {"batch-generate": ARTICLE}) for side in sides))
    assert difference.word != comparison.NOT_COMPARABLE and difference.ratio.value == pytest.approx(1.0)


def fast(case: str, number: int) -> results.Record:
    """400 items a second."""
    one = a_run(case, 100.0, 2, figures={**SERVED, "workload": {**SERVED["workload"], "seconds": 1.0}}, number=number)
    return by_its_backend(dataclasses.replace(one, job=dataclasses.replace(one.job, options={"arrivals_per_s": 4})))


def by_its_backend(one: results.Record) -> results.Record:
    return dataclasses.replace(one, job=dataclasses.replace(one.job, backend=ARTICLE.case(one.job.case).backend))


def test_padding_on_both_sides_stands_beside_the_text_alone(page: str) -> None:
    assert "| left | float32 | 3 | 64 | 67 | 8 / 8 | 1 / 2 (8) |" in page
    assert "| right | float32 | 3 | 64 | 33 | 1 / 1 | 60 / 70 (8) |" in page


def test_the_picture_of_the_padding_tells_how_far_the_logits_are_off_on_each_side() -> None:
    picture = padding.plot(group_of(whole()), None)
    assert "The logits are off by 1.00 % padded on the left, by 60.0 % padded on the right" in picture and "67 % of the answers as alone" in picture


def test_the_claims_are_judged_once_each_for_their_own_number_of_tokens(page: str) -> None:
    told = [line for line in page.splitlines() if line.startswith("| 3.") and "new tokens" in line and (", controlled |" in line or "| 3.3 " in line)]
    assert [line.split(" ")[1] for line in told[:3]] == ["3.1,", "3.2,", "3.3"] and "64 new tokens" in told[2]
    assert page.count("| not tested | the variant published was not run at full size on a GPU |") == 2
    assert page.count("*Not tested*, unless a line gives another reason: 1 run, 5 are needed.") == 2, "above the first tables, and in the group"


def test_a_tiny_model_on_a_cpu_has_rates_and_no_published_numbers(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [a_run("single", device="cpu", scale="tiny")])
    document.write(tmp_path / "runs", tmp_path)
    text = reports.text_of(tmp_path)
    assert "10,000 items take |" in text and "| published |" not in text.replace("| variant | published |", "")
    assert text.count("| not tested | so far only: tiny model on a CPU |") == 3


def test_the_rate_and_latencies_of_a_workload_with_a_wrong_output_say_that_it_failed() -> None:
    runs = [a_run(case, 12_500.0, 256, figures=FIGURES) for case in ("workload-naive", "workload-continuous")]
    runs[0].guest.check = synthetic.check(0.2, passed=False)
    text = str(workload.section(group_of(runs), ARTICLE))
    assert "| workload-naive b256, **output FAILED** | 256 |" in text and "| workload-continuous b256 | 256 |" in text


def test_the_index_has_all_workloads_the_fastest_first_and_requests_over_time_behind_them() -> None:
    def told(*records: results.Record) -> list[list[str]]:
        text = str(many_texts.section(row_groups.build(list(records), {"batch-generate": ARTICLE})))
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| [")]

    faster = {"workload": {**WORKLOAD, "seconds": 50.0}}
    texts = [a_run("workload-naive", 12_500.0, 256, figures=FIGURES), a_run("workload-continuous", 6250.0, 256, figures=faster)]
    lines = told(*texts, fast("serving-vllm", 1), a_run("single"))
    assert [cells[0].split("]")[0] for cells in lines] == ["[workload-continuous b256", "[workload-naive b256", "[serving-vllm b2"]
    assert [cells[4:8] for cells in lines[:2]] == [["256", "2,000", "1", "40.0"], ["256", "2,000", "1", "20.0"]]
    assert lines[0][9] == "4.17 min" and lines[2][9:11] == ["—", "4"]
    texts[0].host["conditions"] = {"marks": ["busy"], "disturbed": ["busy"]}
    assert [cells[6] for cells in told(*texts)] == ["1", "1, disturbed"]
    assert "- *disturbed*: " in str(many_texts.section(row_groups.build(texts, {"batch-generate": ARTICLE})))
    texts[1].guest.check = synthetic.check(0.2, passed=False)
    assert len(told(*texts)) == 1, "a wrong output is no answer"
    groups = row_groups.build(texts, {"batch-generate": ARTICLE})
    assert "[batch-generate](#many-texts-batch-generate)" in str(many_texts.pointer(groups))
    assert not many_texts.pointer(row_groups.build([a_run("single")], {"batch-generate": ARTICLE}))
    assert not many_texts.section(row_groups.build([a_run("single")], {"batch-generate": ARTICLE}))


def test_the_batches_of_a_workload_are_no_calls_to_wait_for(page: str) -> None:
    lines = [line for line in page.splitlines() if "workload-naive b256 | ok | float32 |" in line]
    assert lines == [], "no line in the table of milliseconds a call"
    timed = [row.case for row in group_of(whole()).rows if row.is_workload]
    assert timed == ["workload-naive", "workload-continuous"]


def test_rows_on_other_numbers_of_gpus_are_lines_of_their_own() -> None:
    two = [dataclasses.replace(one, job=dataclasses.replace(one.job, device_count=2)) for one in sweep(2.0, 3.0)]
    group = group_of([*sweep(1.0, 1.5), *two])
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in rate_view.section(group, ARTICLE).splitlines() if line.startswith("| batch")]
    assert [(line[0], line[1], line[4].split()[0]) for line in lines] == [
        ("batch", "1", "1.00"), ("batch b2", "1", "1.50"), ("batch", "2", "2.00"), ("batch b2", "2", "3.01"),
    ]  # fmt: skip
    picture = throughput.draw(group)
    assert picture and "batch ×1" in picture and "batch ×2 makes most items a second in batch 2" in picture
    assert "×" not in (throughput.draw(group_of(sweep(1.0, 1.5))) or "")


def test_the_plot_is_a_whole_svg_and_the_same_each_time() -> None:
    group = group_of(whole())
    picture = throughput.draw(group)
    ElementTree.fromstring(picture)
    assert picture == throughput.draw(group) and "fill:#ffffff" in picture
    assert throughput.draw(group_of([a_run("single")])) is None


def test_a_wrong_output_does_not_lead_the_picture_of_rates():
    right, wrong = sweep(1.0, 2.0), a_run("batch", 1000.0, 4, checked=check(0.5, passed=False))
    picture = throughput.draw(group_of([*right, wrong]))
    assert "<title>batch makes most items a second in batch 2: 2.00</title>" in picture
    assert "<desc>batch: 1.00 in batch 1, 2.00 in batch 2, 4.00 in batch 4 (output wrong or not checked)</desc>" in picture and picture.count(">✗<") == 1
    wrongs = [a_run("batch", 1000.0, size, checked=check(0.5, passed=False)) for size in (1, 2)]
    assert "<title>No row has a right output</title>" in throughput.draw(group_of(wrongs))


def test_damaged_figures_are_skipped_and_named(tmp_path: Path) -> None:
    damaged = a_run("workload-naive", figures={"workload": {**WORKLOAD, "seconds": "long"}})
    synthetic.write(tmp_path / "runs", [damaged, a_run("single")])
    document.write(tmp_path / "runs", tmp_path)
    _, skipped = results.load_all(tmp_path / "runs")
    assert [one.reason for one in skipped] == ["damaged result.json: guest.figures.workload.seconds: Expected `float`, got `str`"]


def lacks(*records: results.Record, runs: int = 5) -> bool:
    """Would more runs test what the claim “a larger batch goes on helping” lacks?"""
    return judged(GROWS, *records, runs=runs).lacking is not None


def test_a_sweep_lacks_runs_in_any_batch_size_and_sizes_until_memory_runs_out() -> None:
    too_large = a_run("batch", 1.0, 2, status="oom")
    assert lacks(*sweep(10, 19), runs=4) and lacks(*sweep(10)) and not lacks(*sweep(10, 19))
    assert not lacks(*sweep(10), too_large), "a repeat finds no second size"
    assert lacks(a_look(100.0, 1), *sweep(10, 19)[1:])
