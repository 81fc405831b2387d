"""How far rows are from their GPUs' limits, when tokens come, what they cost in energy, and the same work with the systems of today."""

import dataclasses
import re

import pytest

from bench.measuring import roof, work
from bench.models import weights
from scripts import articles
from scripts.errors import UsageError
from scripts.report import document
from scripts.report.views import around, energy, limits, same_work, token_times
from scripts.surroundings import Surroundings
from scripts.verdicts import limits as distances
from scripts.verdicts import row_groups
from tests import reports, synthetic
from tests.synthetic import job, record

CONTROLLED = {"variant": "controlled", "new_tokens": (1, 128)}
BLOOM = work.model_of(weights.config_of("bloom-7b1", "full"))


def group_of(*records):
    (group,) = row_groups.build(list(records), articles.load_all())
    return group


def float16(one):
    one.guest.used["dtype"] = "float16"
    return one


def cells_of(text, case):
    """{header: cell} of the line of a case in each table of a section."""
    found = []
    header = []
    for line in str(text).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| case") or line.startswith("| system"):
            header = cells
        elif line.startswith("|") and case in cells[0]:
            found.append(dict(zip(header, cells, strict=True)))
    return found


def test_bloom_7b1_reads_14_14_gb_a_token():
    assert work.weight_bytes(BLOOM, "float16") == pytest.approx(14.136e9, rel=1e-3)
    assert work.weight_bytes(BLOOM, "float32") == 2 * work.weight_bytes(BLOOM, "float16")
    layers = sum(matrix.parameters for matrix in BLOOM.matrices)
    assert work.weight_bytes(BLOOM, "int8") == pytest.approx(layers + 2 * BLOOM.output.parameters, rel=1e-3)


def test_an_int8_matrix_has_a_float16_bias_and_the_output_matrix_stays_float16():
    layers = work.Matrix("layer", outputs=3, inputs=5, bias=True, layers=2)
    model = work.Model([layers], work.Matrix("output", outputs=7, inputs=5, bias=False, layers=1), 2, 5, 5)
    assert work.weight_bytes(model, "int8") == 2 * 3 * (5 + 2) + 7 * 5 * 2


@pytest.mark.parametrize(("shape", "parameters"), [("bloom-7b1", 7.069e9), ("gpt-j-6B", 6.051e9), ("llama-3-8B", 8.030e9)])
def test_the_products_hold_all_parameters_that_the_models_are_published_with_but_the_embedding(shape, parameters):
    model = work.model_of(weights.config_of(shape, "full"))
    embedding = model.output.outputs * model.output.inputs if shape != "bloom-7b1" else 0  # BLOOM's output matrix is its embedding
    assert work.weight_bytes(model, "float16") / 2 + embedding == pytest.approx(parameters, rel=1e-3)


def test_the_cache_grows_with_rows_and_context_and_is_smaller_for_grouped_keys():
    assert work.cache_bytes(BLOOM, "float16", 1, 128) == 2 * 30 * 4096 * 2 * 128
    assert work.cache_bytes(BLOOM, "int8", 8, 128) == 8 * work.cache_bytes(BLOOM, "float16", 1, 128)
    llama = work.model_of(weights.config_of("llama-3-8B", "full"))
    assert work.cache_bytes(llama, "bfloat16", 1, 1) == 2 * 32 * 1024 * 2


def test_a_step_computes_two_operations_for_each_weight_and_a_prompt_so_many_for_each_token():
    parameters = sum(matrix.layers * matrix.outputs * matrix.inputs for matrix in BLOOM.matrices)
    output = BLOOM.output.outputs * BLOOM.output.inputs
    assert work.step_flop(BLOOM, 4, 0) == 4 * 2 * (parameters + output)
    assert work.step_flop(BLOOM, 4, 100) - work.step_flop(BLOOM, 4, 0) == 4 * 4 * 30 * 4096 * 100, "the products with keys and with values"
    assert work.prompt_flop(BLOOM, 1, 1) == pytest.approx(work.step_flop(BLOOM, 1, 1), rel=1e-4)
    assert work.prompt_flop(BLOOM, 2, 100) == 2 * (100 * 2 * parameters + 2 * output + 2 * 30 * 4096 * 100**2)


def test_a_model_or_a_dtype_without_a_known_size_is_refused_by_name():
    with pytest.raises(ValueError, match="model_type is 'gpt2', allowed are bloom, gptj, llama"):
        work.model_of({"model_type": "gpt2"})
    with pytest.raises(ValueError, match="dtype is 'nf4', allowed are float32"):
        work.weight_bytes(BLOOM, "nf4")


def test_a_further_token_is_told_beside_the_run_s_own_roof_the_nominal_rate_and_the_products_alone():
    run = synthetic.probed(float16(record(job("transformers", **CONTROLLED), (10.0, 10.0 + 127 * 10.0), gpu_name="NVIDIA H200", spread=0)))
    step, prompt = cells_of(limits.section(group_of(run), None), "transformers")
    assert step["ms a token, run of the median step"] == "10.0"
    assert step["weights + cache to read, GB"] == "14.14 + 0.04"
    assert step["reading takes, ms: roof"] == "3.54", "14.17 GB at 4 TB/s"
    assert step["share of the roof (MBU), %"] == "35" and step["share of the nominal rate, %"] == "30"
    assert step["products alone, ms"] == "4.00" and step["ms a token / products alone"] == "2.50"
    assert prompt["prompt and one token, ms, run of the median prompt"] == "10.0" and prompt["operations, TFLOP"] == "0.099"
    assert prompt["computing takes, ms: matrix rate"] == "0.126", "at 786 TFLOP/s"
    assert (step["share of the matrix rate (MFU), %"], prompt["share of the memory's rate (MBU), %"]) == ("0.18", "35"), "of the rates that were measured"


@pytest.mark.parametrize(
    ("form", "told"),
    [
        *((form, True) for form in ("generate", "batch", "transformers-pipeline", "transformers-pipeline-sequences", "padded-sentences")),
        *((form, False) for form in ("workload", "continuous", "engine-queue", "kv-offload")),
    ],
)
def test_a_step_is_told_of_the_forms_whose_calls_make_the_steps_of_one_batch(form, told):
    run = float16(record(dataclasses.replace(job("transformers", **CONTROLLED), form=form), (10.0, 1280.0), gpu_name="NVIDIA H200", spread=0))
    assert (distances.steps(group_of(run).rows[0]) is not None) is told


def test_the_time_between_tokens_goes_before_the_difference_of_calls_where_the_run_has_it_for_so_many_tokens():
    run = float16(record(job("transformers", **CONTROLLED), (10.0, 10.0 + 127 * 10.0), gpu_name="NVIDIA H200", spread=0))
    stamped = synthetic.probed(run, between_ms=8.0)
    step, _ = cells_of(limits.section(group_of(stamped), None), "transformers")
    assert step["ms a token, run of the median step"] == "8.00" and step["ms a token / products alone"] == "2.00"
    stamped.guest.figures["token_times"]["new_tokens"] = 7
    step, _ = cells_of(limits.section(group_of(stamped), None), "transformers")
    assert step["ms a token, run of the median step"] == "10.0"


def test_calls_of_one_length_have_no_further_token():
    def row_of(new_tokens, *means_ms):
        run = float16(record(job("transformers", variant="controlled", new_tokens=new_tokens), means_ms, gpu_name="NVIDIA H200", spread=0))
        return group_of(run).rows[0]

    assert distances.steps(row_of((1,), 10.0)) is None and distances.prompt(row_of((1,), 10.0)).ms == pytest.approx(10.0)
    whole = distances.steps(row_of((128,), 1280.0))
    assert (whole.ms, whole.further) == (pytest.approx(10.0), False) and distances.prompt(row_of((128,), 1280.0)) is None
    assert distances.steps(row_of((16, 128), 400.0, 1280.0)).further is False
    assert distances.steps(row_of((1, 128), 10.0, 9.0)) is None, "a longer call that took less time"


@pytest.mark.parametrize(
    ("new_tokens", "means_ms", "answered"), [((1, 128), (10.0, 1280.0), 64.5), ((128,), (1280.0,), 64), ((16, 128), (160.0, 1280.0), 64), ((2,), (20.0,), 1)]
)
def test_the_cache_is_that_of_the_middle_of_the_steps_that_are_timed(new_tokens, means_ms, answered):
    run = float16(record(job("transformers", variant="controlled", new_tokens=new_tokens), means_ms, gpu_name="NVIDIA H200", spread=0))
    step = distances.steps(group_of(run).rows[0])
    context = run.guest.prompt_tokens + answered
    assert (step.cache_bytes, step.flop) == (work.cache_bytes(BLOOM, "float16", 1, context), work.step_flop(BLOOM, 1, context))


def ending_early(batch_size, timed_tokens, new_tokens=256, call_ms=2560.0, **figures):
    """A row whose answers may end before `new_tokens`, with the tokens of each timed call; each call takes a tenth longer than the one before."""
    prompt = {"text": "hey", "batch_size": batch_size}
    asked = dataclasses.replace(job("single", article="batch-generate", new_tokens=(new_tokens,), timed_runs=len(timed_tokens)), form="batch", prompt=prompt)
    run = float16(record(asked, (call_ms,), gpu_name="NVIDIA H200", spread=0))
    run.job.runs[0]["up_to"] = True
    run.guest.measurements[0]["timed_ms"] = [call_ms * (1 + 0.1 * number) for number in range(len(timed_tokens))]
    run.guest.batch_size = batch_size
    run.guest.figures = {"calls": [{"new_tokens": new_tokens, "timed_tokens": timed_tokens}], **figures}
    return distances.steps(group_of(run).rows[0])


def test_answers_that_may_end_earlier_count_only_in_calls_whose_tokens_show_that_all_steps_were_made():
    assert ending_early(1, [256, 256]).ms == pytest.approx(10.5)
    assert ending_early(1, [255, 256]).ms == pytest.approx(11.0), "the first call ended one token early"
    assert ending_early(1, [255, 17]) is None
    assert ending_early(4, [4 * 255 + 1, 4 * 255]).ms == pytest.approx(10.0), "four answers of 255 tokens need no last step"
    assert ending_early(4, [4 * 255, 900]) is None


@pytest.mark.parametrize("calls", [None, [], [{"new_tokens": 128, "timed_tokens": [256, 256]}]])
def test_answers_that_may_end_earlier_and_were_not_counted_tell_no_step(calls):
    assert ending_early(1, [256, 256], calls=calls) is None


def test_the_tokens_of_the_longest_calls_tell_which_of_them_made_all_steps():
    calls = [{"new_tokens": 1, "timed_tokens": [1, 1]}, {"new_tokens": 256, "timed_tokens": [255, 256]}]
    assert ending_early(1, [255, 256], calls=calls).ms == pytest.approx(11.0)


def test_one_run_of_a_job_whose_answers_may_end_earlier_is_enough_to_count_them():
    asked = dataclasses.replace(job("single", article="batch-generate", new_tokens=(1, 128), timed_runs=2), form="batch")
    run = float16(record(asked, (10.0, 1280.0), gpu_name="NVIDIA H200", spread=0))
    run.job.runs[1]["up_to"] = True
    run.guest.measurements[1]["timed_ms"] = [1280.0, 1407.0]
    run.guest.figures = {"calls": [{"new_tokens": 1, "timed_tokens": [1, 1]}, {"new_tokens": 128, "timed_tokens": [100, 128]}]}
    assert distances.steps(group_of(run).rows[0]).ms == pytest.approx(11.0), "1397 ms for 127 further tokens"


def test_longer_calls_that_took_no_longer_than_calls_of_one_token_tell_no_step():
    assert distances.steps(group_of(float16(record(job("transformers", **CONTROLLED), (10.0, 10.0), gpu_name="NVIDIA H200", spread=0))).rows[0]) is None


def answering_thrice(products_of_rows=3, new_tokens=(42,)):
    """A row of the pipeline object that answers a prompt with three sequences, in 10 ms a token."""
    asked = dataclasses.replace(job("transformers", variant="controlled", new_tokens=new_tokens), form="transformers-pipeline-sequences")
    run = synthetic.probed(float16(record(asked, tuple(10.0 * tokens for tokens in new_tokens), gpu_name="NVIDIA H200", spread=0)))
    del run.guest.figures["token_times"]
    run.guest.figures["products"]["rows"] = products_of_rows
    run.guest.figures["pipeline"] = {"sequences": 3, "prompt_tokens": 8, "tokens_by_call": [42] * 10}
    return run


def test_a_step_of_several_answers_to_one_prompt_is_that_of_as_many_sequences():
    run = answering_thrice()
    step = distances.steps(group_of(run).rows[0])
    context = run.guest.prompt_tokens + 21
    assert (step.ms, step.products_ms) == (pytest.approx(10.0), 4.0)
    assert (step.cache_bytes, step.flop) == (work.cache_bytes(BLOOM, "float16", 3, context), work.step_flop(BLOOM, 3, context))


def test_a_prompt_of_several_answers_is_read_for_each_of_them():
    """`generate` repeats the prompt before it reads it."""
    run = answering_thrice(new_tokens=(1, 42))
    assert distances.prompt(group_of(run).rows[0]).flop == work.prompt_flop(BLOOM, 3, run.guest.prompt_tokens)


@pytest.mark.parametrize("rows", [1, None])
def test_products_of_another_number_of_sequences_stand_beside_no_row(rows):
    assert distances.steps(group_of(answering_thrice(products_of_rows=rows)).rows[0]).products_ms is None


@pytest.mark.parametrize(("arguments", "sequences"), [({"num_return_sequences": 4}, 8), ({}, 2)])
def test_the_guest_measures_the_products_of_as_many_sequences_as_a_step_has(arguments, sequences):
    asked = job("transformers", variant="controlled", new_tokens=(42,))
    runs = [{"new_tokens": 1, "arguments": {"num_return_sequences": 9}}, {"new_tokens": 42, "arguments": arguments}]
    asked = dataclasses.replace(asked, prompt={**asked.prompt, "batch_size": 2}, runs=runs)
    assert asked.answers == sequences


def test_the_products_that_the_guest_times_are_those_of_all_answers_of_a_step(monkeypatch):
    monkeypatch.setattr(roof, "_free_memory", lambda: None)
    monkeypatch.setattr(roof, "room_bytes", lambda index, elsewhere_bytes: 10**12)
    monkeypatch.setattr(roof, "products_alone", lambda model, rows, device: {"rows": rows})
    asked = dataclasses.replace(job("transformers"), runs=[{"new_tokens": 42, "arguments": {"num_return_sequences": 4}}])
    assert roof._products(asked, weights.config_of("bloom-7b1", "full"), 0) == {"rows": 4}


def test_stamped_tokens_go_first_also_where_all_calls_have_one_length():
    run = float16(record(job("transformers", variant="controlled", new_tokens=(128,)), (1280.0,), gpu_name="NVIDIA H200", spread=0))
    step = distances.steps(group_of(synthetic.probed(run, between_ms=8.0)).rows[0])
    assert (step.ms, step.further, step.stamped) == (8.0, True, True)
    assert step.cache_bytes == work.cache_bytes(BLOOM, "float16", 1, run.guest.prompt_tokens + 64.5)


def test_the_prompt_of_padded_sentences_is_that_of_one_sequence_with_its_padding():
    run = float16(record(job("transformers", variant="controlled"), 10.0, gpu_name="NVIDIA H200"))
    run.job.prompt["batch_size"], run.guest.figures["padded_prompt_tokens"] = 4, 4 * 32
    assert distances.prompt(group_of(run).rows[0]).flop == work.prompt_flop(BLOOM, 4, 32)


def stamped(number, between_ms, products_ms, prompt_ms=10.0):
    run = record(
        job("transformers", **CONTROLLED), (prompt_ms, 1280.0), gpu_name="NVIDIA H200", spread=0, number=number, started_at=f"2026-11-2{number}T10:00:00Z"
    )
    return synthetic.probed(float16(run), between_ms=between_ms, step_ms=products_ms)


def test_of_several_runs_the_one_with_the_median_time_is_told_with_its_own_products():
    """The prompt's time does not choose the run of a step, nor the step's the run of a prompt."""
    runs = stamped(1, 5.0, 4.0, prompt_ms=20.0), stamped(2, 4.2, 4.1, prompt_ms=30.0), stamped(3, 4.6, 3.9, prompt_ms=40.0)
    step, prompt = cells_of(limits.section(group_of(*runs), None), "transformers")
    assert (step["ms a token, run of the median step"], step["products alone, ms"], step["ms a token / products alone"]) == ("4.60", "3.90", "1.18")
    assert prompt["prompt and one token, ms, run of the median prompt"] == "30.0"


def test_of_two_runs_the_later_is_told():
    step, _ = cells_of(limits.section(group_of(stamped(1, 4.2, 4.0), stamped(2, 5.0, 4.0)), None), "transformers")
    assert step["ms a token, run of the median step"] == "5.00"
    step, _ = cells_of(limits.section(group_of(stamped(1, 5.0, 4.0), stamped(2, 4.2, 4.0)), None), "transformers")
    assert step["ms a token, run of the median step"] == "4.20"


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_row_with_one_wrong_output_has_no_line(wrong):
    runs = [stamped(1, 5.0, 4.0), stamped(2, 4.2, 4.0), stamped(3, 4.6, 4.0)]
    assert limits.section(group_of(*runs), None)
    runs[wrong].guest.check["passed"] = False
    assert not limits.section(group_of(*runs), None)


def test_a_disturbed_run_and_one_without_stamps_are_not_the_median_run():
    disturbed, unstamped = stamped(3, 4.9, 4.0), stamped(4, 4.9, 4.0)
    disturbed.host["conditions"] = {"marks": ["hot"], "disturbed": ["hot"]}
    del unstamped.guest.figures["token_times"]
    runs = [stamped(1, 4.2, 4.0), stamped(2, 4.6, 4.0), disturbed, unstamped, stamped(5, 5.0, 4.0)]
    step, _ = cells_of(limits.section(group_of(*runs), None), "transformers")
    assert step["ms a token, run of the median step"] == "4.60"


def test_a_reason_for_no_probe_is_told_of_the_run_that_the_table_tells():
    """The median prompt is that of the second run, the median step that of the first."""
    runs = [stamped(1, 4.6, 4.0, prompt_ms=20.0), stamped(2, 4.2, 4.0, prompt_ms=30.0), stamped(3, 5.0, 4.0, prompt_ms=40.0)]
    runs[1].guest.figures["products"] = {"reason": "no room"}
    assert "no products alone" not in str(limits.section(group_of(*runs), None))
    runs[0].guest.figures["products"] = {"reason": "no room"}
    assert "no products alone: no room" in str(limits.section(group_of(*runs), None))


def test_a_row_without_the_time_of_its_products_stands_beside_one_that_has_it():
    one = stamped(1, 4.2, 4.0)
    without = dataclasses.replace(one, id=one.id.replace("transformers", "int8"), job=dataclasses.replace(one.job, case="int8"))
    del without.guest.figures["products"]
    text = limits.section(group_of(stamped(1, 4.6, 4.0), without), None)
    assert [cells_of(text, case)[0]["ms a token / products alone"] for case in ("transformers", "int8")] == ["1.15", "—"]


def test_the_driver_s_nominal_rate_goes_before_the_data_sheet_s():
    run = float16(record(job("transformers", **CONTROLLED), (10.0, 1280.0), gpu_name="NVIDIA H200"))
    (row,) = group_of(run).rows
    assert distances.nominal(row) == distances.Rates(4.8e12, 989e12)
    run.host["gpus"][0]["memory_bytes_per_s"] = 4_814_304_000_000
    (row,) = group_of(run).rows
    assert distances.nominal(row) == distances.Rates(4_814_304_000_000, 989e12)
    both = float16(record(job("deepspeed", 2, **CONTROLLED), (10.0, 1280.0), gpu_name="NVIDIA H200"))
    both.host["gpus"][0]["memory_bytes_per_s"] = 4_000_000_000_000
    assert distances.nominal(group_of(both).rows[0]).bytes_per_s == 8e12, "as if both were as slow as the slower"


def test_a_result_without_a_probe_has_only_the_share_of_the_nominal_rate():
    run = float16(record(job("transformers", **CONTROLLED), (10.0, 1280.0), gpu_name="NVIDIA H200"))
    step, _ = cells_of(limits.section(group_of(run), None), "transformers")
    assert "share of the roof (MBU), %" not in step and step["share of the nominal rate, %"] == "30"
    unknown = float16(record(job("transformers", **CONTROLLED), (10.0, 1280.0), gpu_name="SOME GPU"))
    step, _ = cells_of(limits.section(group_of(unknown), None), "transformers")
    assert step["share of the nominal rate, %"] == "—"


def test_several_gpus_count_with_their_rates_together_and_empty_ones_not():
    both = synthetic.probed(float16(record(job("deepspeed", 2, **CONTROLLED), (10.0, 1280.0), gpu_name="NVIDIA H200")))
    (row,) = group_of(both).rows
    assert distances.measured(row).bytes_per_s == pytest.approx(8e12) and distances.nominal(row).bytes_per_s == 9.6e12
    both.guest.figures["roof"]["devices"][1] |= {"read_us": [1250.0] * 3, "matrix_us": [2000.0] * 3}
    slower = distances.measured(row)
    assert (slower.bytes_per_s, slower.flop_per_s) == (pytest.approx(6.4e12), pytest.approx(1.1e15)), "as if both were as slow as the slower"
    both.guest.figures["roof"]["devices"][1]["read_us"] = [1000.0] * 3
    both.guest.used["parameters_per_device"] = {"cuda:0": 7}
    (row,) = group_of(both).rows
    assert distances.measured(row).bytes_per_s == pytest.approx(4e12)


def test_a_gpu_without_a_known_rate_leaves_that_of_all_unknown():
    both = record(job("deepspeed", 2), gpu_name="NVIDIA H200")
    both.host["gpus"][1]["name"] = "SOME GPU"
    (row,) = group_of(both).rows
    assert distances.nominal(row) == distances.Rates(None, None)


@pytest.mark.parametrize(
    "run",
    [
        record(job("transformers", **CONTROLLED), (10.0, 1280.0), checked=synthetic.check(0.4, passed=False)),
        record(job("transformers", **CONTROLLED, device="cpu"), (10.0, 1280.0)),
        record(job("transformers", **CONTROLLED, scale="tiny"), (10.0, 1280.0)),
        record(dataclasses.replace(job("transformers", **CONTROLLED), form="workload"), (10.0, 1280.0)),
        record(dataclasses.replace(job("transformers"), runs=[{"new_tokens": 256, "arguments": {}, "up_to": True}]), 50.0),
        record(job("transformers", **CONTROLLED), status="oom", reason="too large"),
    ],
)
def test_a_row_whose_work_is_not_known_or_whose_output_is_wrong_has_no_line(run):
    assert not limits.section(group_of(run), None)


def test_why_a_probe_measured_nothing_stands_below_the_tables():
    run = float16(record(job("transformers", **CONTROLLED), (10.0, 1280.0), gpu_name="NVIDIA H200"))
    run.guest.figures |= {"roof": {"devices": [], "reason": "RuntimeError: 0.5 GiB <are> free"}, "products": {"reason": "no room"}}
    other = float16(record(job("int8", **CONTROLLED), (10.0, 1280.0), gpu_name="NVIDIA H200"))
    other.guest.figures |= {"products": {"reason": "no room"}}
    text = limits.section(group_of(run, other), None)
    assert "- transformers on 1 GPU: no roof: RuntimeError: 0.5 GiB &lt;are&gt; free" in text
    assert (
        "- int8 on 1 GPU, transformers on 1 GPU: no products alone: no room" in text
        or "- transformers on 1 GPU, int8 on 1 GPU: no products alone: no room" in text
    )


def test_times_between_tokens_of_all_runs_of_a_row_are_one_distribution():
    one = float16(record(job("transformers", **CONTROLLED), (10.0, 1280.0)))
    runs = synthetic.repeated(one, 2)
    for run, between_ms in zip(runs, (10.0, 14.0), strict=True):
        run.guest.figures["token_times"] = {"new_tokens": 3, "first_ms": [between_ms * 2], "between_ms": [[between_ms, between_ms]]}
    (line,) = cells_of(token_times.section(group_of(*runs), None), "transformers")
    assert line["calls"] == "2"
    assert line["to the first token, ms: median / p95 / p99"] == "24.0 / 27.6 / 27.9" and line["new tokens"] == "3"
    assert line["between tokens, ms: median / p95 / p99"] == "12.0 / 14.0 / 14.0"
    runs[1].host["conditions"] = {"marks": ["hot"], "disturbed": ["hot"]}
    (undisturbed,) = cells_of(token_times.section(group_of(*runs), None), "transformers")
    assert undisturbed["calls"] == "1" and undisturbed["between tokens, ms: median / p95 / p99"] == "10.0 / 10.0 / 10.0"


def test_times_between_tokens_and_joules_of_a_wrong_output_say_that_it_failed():
    run = synthetic.probed(float16(record(job("deepspeed", 2, **CONTROLLED), (300.0, 1280.0), spread=0)), joules=1280.0)
    run.guest.figures["token_times"] = {"new_tokens": 3, "first_ms": [20.0], "between_ms": [[10.0, 10.0]]}

    def cases():
        sections = (view.section(group_of(run), None) for view in (energy, token_times, around))
        return [{line["case"] for line in cells_of(section, "deepspeed")} for section in sections]

    assert cases() == [{"deepspeed"}] * 3
    run.guest.check = None
    assert cases() == [{"deepspeed"}] * 3, "an output that was not checked did not fail"
    run.guest.check = synthetic.check(0.2, passed=False)
    assert cases() == [{"deepspeed, **output FAILED**"}] * 3


def test_joules_a_token_stand_beside_idle_power_and_the_sampled_power():
    run = synthetic.probed(record(job("deepspeed", 2, **CONTROLLED), (300.0, 1280.0), spread=0), joules=1280.0)
    short, long = cells_of(energy.section(group_of(run), None), "deepspeed")
    assert long["new tokens"] == "128" and long["J a token"] == "2.00", "2 × 1280 J for ten calls of 128 tokens"
    assert long["J a token by sampled power"] == "2.04" and long["power / before the calls, W"] == "200 / 168"
    assert short["J a token"] == "256"


def test_a_row_without_energy_has_dashes_beside_one_that_has_it():
    told = synthetic.probed(record(job("deepspeed", 2, **CONTROLLED), (300.0, 1280.0), spread=0), joules=1280.0)
    text = energy.section(group_of(told, record(job("layer-parallel", 2, **CONTROLLED), (300.0, 1280.0))), None)
    assert not cells_of(text, "layer-parallel"), "a row of which no GPU told anything has no line"
    (row,) = group_of(record(job("layer-parallel", 2))).rows
    nothing = energy.Spent(row, 1, [])
    assert (nothing.joules(), nothing.idle_w, nothing.watts, nothing.per_token()) == (None, None, None, None)


def test_joules_are_of_the_tokens_that_were_made_where_the_run_counted_them():
    run = synthetic.probed(record(job("deepspeed", 2, **CONTROLLED), (300.0, 1280.0), spread=0), joules=1280.0)
    run.guest.figures["calls"] = [{"new_tokens": 128, "timed_tokens": [64] * 10}]
    _, long = cells_of(energy.section(group_of(run), None), "deepspeed")
    assert long["J a token"] == "4.00", "each answer ended after 64 of 128 tokens"


def test_joules_of_several_answers_to_one_text_are_of_all_their_tokens():
    run = synthetic.probed(record(job("deepspeed", 2, **CONTROLLED), (300.0, 1280.0), spread=0), joules=1280.0)
    run.guest.figures["pipeline"] = {"sequences": 4}
    of_further_calls = energy.Spent(row_groups.build([run], {})[0].rows[0], 128, [{"code": "ok", "joules": 5120.0}], calls=10)
    assert of_further_calls.per_token() == 1.0
    section = energy.section(group_of(run), None)
    assert energy.ALL_SEQUENCES in section
    _, long = cells_of(section, "deepspeed")
    assert long["J a token"] == "0.500", "four answers of 128 tokens a call"
    run.guest.figures["pipeline"] = {"sequences": 1}
    assert energy.ALL_SEQUENCES not in energy.section(group_of(run), None)


def test_a_window_that_does_not_count_has_its_code_in_place_of_joules():
    run = synthetic.probed(record(job("transformers", **CONTROLLED), (10.0, 1280.0)), code="too-short")
    for line in cells_of(energy.section(group_of(run), None), "transformers"):
        assert line["J a token"] == "too-short" and line["J a token by sampled power"] == "—"


def test_joules_are_those_of_the_middle_run_that_has_them():
    one = synthetic.probed(record(job("deepspeed", 2, **CONTROLLED), (300.0, 1280.0), spread=0), joules=1280.0)
    runs = synthetic.repeated(one, 5, 0.1)
    for run in runs[1:4]:
        run.host["energy"] = synthetic.probed(record(run.job, (300.0, 1280.0)), code="too-short").host["energy"]
    _, long = cells_of(energy.section(group_of(*runs), None), "deepspeed")
    assert long["J a token"] == "2.00", "three of five runs have none, the middle one among them"


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_of_runs_with_other_joules_the_middle_one_by_time_is_shown_wherever_it_stands(order):
    runs = []
    for number, place in enumerate(order, 1):
        one = record(job("deepspeed", 2, **CONTROLLED), (300.0, 1280.0 + 100 * place), spread=0, number=number)
        runs.append(synthetic.probed(one, joules=1280.0 * (3, 2, 7)[place]))
    _, long = cells_of(energy.section(group_of(*runs), None), "deepspeed")
    assert long["J a token"] == "4.00" and long["least to most of the runs, J a token"] == "4.00 to 14.0 in 3 runs"


def test_joules_of_which_a_gpu_s_do_not_count_are_none():
    run = synthetic.probed(record(job("deepspeed", 2, **CONTROLLED), (300.0, 1280.0)))
    for window in run.host["energy"]:
        window["gpus"][1]["code"] = "few-updates"
    assert [line["J a token"] for line in cells_of(energy.section(group_of(run), None), "deepspeed")] == ["few-updates"] * 2


def test_a_price_is_reckoned_only_where_one_is_given(monkeypatch):
    run = record(job("deepspeed", 2, **CONTROLLED), (100.0, 3600.0), spread=0)
    assert not energy.section(group_of(run), None)
    monkeypatch.setenv("COST_PER_GPU_HOUR", "2.5")
    _, line = cells_of(energy.section(group_of(run), None), "deepspeed")
    assert line["a million new tokens at 2.5 a GPU's hour"] == "39.1", "3.6 s of two GPUs for 128 tokens: 0.005 / 128 × 1e6"


@pytest.mark.parametrize("typed", ["free", "-1", "0", "1e3", "nan", "2,5"])
def test_a_price_that_is_none_is_refused_in_one_line(typed):
    with pytest.raises(UsageError, match=r"COST_PER_GPU_HOUR is .* allowed is a price above 0 .* try COST_PER_GPU_HOUR=2.5"):
        _ = Surroundings({"COST_PER_GPU_HOUR": typed}).cost_per_gpu_hour


def test_systems_of_today_are_those_that_an_articles_own_stack_lacks_whatever_other_articles_have():
    assert {"compiled", "vllm"} <= same_work.later_than("2023-02") and "deepspeed" not in same_work.later_than("2023-02")
    assert {"compiled", "vllm"} <= same_work.later_than("2023-05") and "bminf" not in same_work.later_than("2023-05"), "an earlier stack has it"
    assert not same_work.later_than("current"), "an article on today's stack has no later system"


def same_work_lines(*records):
    known = articles.load_all()
    groups = row_groups.build([one for first in records for one in synthetic.repeated(first)], known)
    return same_work.section(groups, known["inference-tools"])


def test_the_same_work_stands_in_one_table_fastest_first():
    hopper = float16(record(job("deepspeed", 2, stack="hopper", **CONTROLLED), (9.0, 9.0 + 127 * 9.0), spread=0))
    plain = float16(record(job("transformers", **CONTROLLED), (16.0, 16.0 + 127 * 16.0), spread=0))
    today = float16(record(job("compiled", **CONTROLLED), (6.0, 6.0 + 127 * 6.0), spread=0, peak_gib=15.0))
    text = same_work_lines(hopper, plain, today)
    order = [line.split("|")[1].strip().split("]")[0].lstrip("[") for line in str(text).splitlines() if line.startswith("| [")]
    assert order == ["compiled", "deepspeed", "transformers"]
    (line,) = cells_of(text, "compiled")
    assert (line["origin"], line["stack"], line["ms a step"], line["allocated, GiB"]) == ("today", "current", "6.00", "8.00")
    assert line["items/s"] == "1.30", "one answer of 128 tokens in 768 ms"
    assert cells_of(text, "deepspeed")[0]["origin"] == "the article's"


def test_the_same_work_on_two_gpu_models_has_a_table_for_each():
    def on(gpu, case, ms):
        one = float16(record(job(case, **CONTROLLED), (ms, 128 * ms), spread=0))
        for found in one.host["gpus"]:
            found["name"] = gpu
        return one

    slower = [on("Slower GPU", "transformers", 16.0), on("Slower GPU", "compiled", 6.0)]
    faster = [on("Faster GPU", "transformers", 12.0), on("Faster GPU", "vllm", 4.0), on("Third GPU", "transformers", 1.0)]
    text = same_work_lines(*slower, *faster)
    faster_one, _, slower_one = str(text).partition("bloomz-7b1 on Slower GPU, batch 1, 128 new tokens:")
    told = [[line["ms a step"] for case in ("vllm", "compiled", "transformers") for line in cells_of(part, case)] for part in (faster_one, slower_one)]
    assert told == [["4.00", "12.0"], ["6.00", "16.0"]] and "bloomz-7b1 on Faster GPU, batch 1, 128 new tokens:" in faster_one and "Third GPU" not in text


def test_the_same_work_in_two_batch_sizes_has_a_table_for_each_and_the_smaller_one_goes_first():
    def of(case, batch_size, ms):
        of_job = job(case, **CONTROLLED)
        prompt = {**of_job.prompt, "batch_size": batch_size}
        return float16(record(dataclasses.replace(of_job, prompt=prompt), (ms, 128 * ms), spread=0))

    text = same_work_lines(*(of(case, batch_size, ms) for case, ms in (("transformers", 16.0), ("compiled", 6.0)) for batch_size in (32, 1)))
    titles = [line for line in str(text).splitlines() if line.endswith(" new tokens:")]
    assert titles == ["bloomz-7b1 on SYNTHETIC GPU, batch 1, 128 new tokens:", "bloomz-7b1 on SYNTHETIC GPU, batch 32, 128 new tokens:"]
    assert len(cells_of(text, "compiled")) == 2 and "batch size" not in cells_of(text, "compiled")[0]


def test_the_order_is_that_of_the_timed_calls_and_not_of_stamped_tokens():
    slower, faster = (float16(record(job(case, **CONTROLLED), (20.0, ms), spread=0)) for case, ms in (("vllm", 2800.0), ("transformers", 2700.0)))
    stamped = synthetic.probed(slower, between_ms=5.0)
    text = same_work_lines(stamped, faster)
    order = [line.split("|")[1].strip().split("]")[0].lstrip("[") for line in str(text).splitlines() if line.startswith("| [")]
    assert order == ["transformers", "vllm"] and cells_of(text, "vllm")[0]["ms a step"] == "5.00"


def test_a_row_of_which_some_runs_stamp_no_token_tells_its_step_by_the_calls_of_all_runs():
    runs = [float16(record(job("vllm", **CONTROLLED), (20.0, 2560.0), spread=0, number=number)) for number in (1, 2)]
    plain = float16(record(job("transformers", **CONTROLLED), (20.0, 2700.0), spread=0))
    groups = row_groups.build([runs[0], synthetic.probed(runs[1], between_ms=5.0), plain], articles.load_all())
    (line,) = cells_of(same_work.section(groups, articles.load_all()["inference-tools"]), "vllm")
    assert (line["runs"], line["ms a step"], line["items/s"]) == ("2", "20.0 with the prompt", "0.391"), "5 ms is of one run, items/s of both"


def test_a_row_whose_output_is_wrong_is_left_out_of_the_same_work_and_named_below_it():
    plain, today = (float16(record(job(case, **CONTROLLED), (ms, 128 * ms), spread=0)) for case, ms in (("transformers", 16.0), ("vllm", 6.0)))
    wrong = [
        float16(record(job("vllm", 2, **CONTROLLED), (4.0, 512.0), spread=0, checked=synthetic.check(passed=number < 2), number=number)) for number in (1, 2)
    ]
    groups = row_groups.build([plain, today, *wrong], articles.load_all())
    text = str(same_work.section(groups, articles.load_all()["inference-tools"]))
    assert [line["GPUs"] for line in cells_of(text, "vllm")] == ["1"]
    told = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", text.splitlines()[-1])
    assert told == "- left out, as its output is wrong: vllm on 2 × SYNTHETIC GPU, 2-core host (1 of 2 runs)"
    alone = row_groups.build([*wrong, plain], articles.load_all())
    assert not same_work.section(alone, articles.load_all()["inference-tools"]), "no table is there that it could stand in"


def test_where_torch_tells_no_peak_the_same_work_tells_what_a_gpu_held():
    today, plain = (float16(record(job(case, **CONTROLLED), (ms, 128 * ms), spread=0, peak_gib=15.0)) for case, ms in (("vllm", 6.0), ("transformers", 16.0)))
    today.guest.memory["devices"] = []
    text = same_work_lines(today, plain)
    assert [cells_of(text, case)[0]["allocated, GiB"] for case in ("vllm", "transformers")] == ["15.00 held", "8.00"]
    today.host["gpu_memory"] = []
    assert cells_of(same_work_lines(today, plain), "vllm")[0]["allocated, GiB"] == "—"


def test_a_row_of_disturbed_runs_alone_is_marked_among_the_same_work():
    today, plain = (float16(record(job(case, **CONTROLLED), (ms, 128 * ms))) for case, ms in (("vllm", 6.0), ("transformers", 16.0)))
    assert "disturbed" not in same_work_lines(today, plain)
    today.host["conditions"] = {"marks": ["busy"], "disturbed": ["busy"]}
    text = same_work_lines(today, plain)
    assert [cells_of(text, case)[0]["runs"] for case in ("vllm", "transformers")] == ["5, disturbed", "5"] and "- *disturbed*: " in text


def test_weights_of_recipe_1_stand_in_for_a_system_without_later_ones():
    earlier = [float16(record(job(case, recipe=1, **CONTROLLED), (9.0, 1152.0), number=number)) for case in ("transformers", "deepspeed") for number in (1, 2)]
    later = [float16(record(job(case, **CONTROLLED), (16.0, 2048.0))) for case in ("transformers", "compiled")]
    text = same_work_lines(*earlier, *later)
    assert [(line["weights"], line["ms a step"]) for line in cells_of(text, "transformers")] == [("random (recipe 2)", "16.0")], (
        "though the others have more runs"
    )
    assert [line["weights"] for line in cells_of(text, "deepspeed")] == ["random"]


def test_of_equal_weights_the_host_of_today_s_systems_goes_first_then_the_most_runs_and_real_weights_are_other_work():
    elsewhere = [float16(record(job("transformers", **CONTROLLED), (9.0, 1152.0), number=number)) for number in (1, 2)]
    for run in elsewhere:
        run.host["machine"]["cpu_count"] = 64
    here = [float16(record(job("transformers", **CONTROLLED), (16.0, 2048.0)))]
    here[0].host["engine"] = "host"
    today = float16(record(job("compiled", **CONTROLLED), (6.0, 768.0)))
    assert [line["ms a step"] for line in cells_of(same_work_lines(*elsewhere, *here, today), "transformers")] == ["16.0"]
    once = float16(record(job("transformers", **CONTROLLED), (12.0, 1536.0)))
    twice = [*here, float16(record(job("transformers", **CONTROLLED), (16.0, 2048.0), number=2))]
    twice[1].host["engine"] = "host"
    for runs in ([once, *twice], [*twice, once]):
        assert [line["ms a step"] for line in cells_of(same_work_lines(*runs, today), "transformers")] == ["16.0"]
    real = float16(record(job("deepspeed", weights="hub", **CONTROLLED), (9.0, 1152.0)))
    assert not cells_of(same_work_lines(real, today), "deepspeed")


def test_later_weights_go_before_the_host_of_today_s_systems():
    earlier = float16(record(job("transformers", recipe=1, **CONTROLLED), (9.0, 1152.0)))
    later = float16(record(job("transformers", **CONTROLLED), (16.0, 2048.0)))
    later.host["machine"]["cpu_count"] = 64
    text = same_work_lines(earlier, later, float16(record(job("compiled", **CONTROLLED), (6.0, 768.0))))
    assert [(line["ms a step"], line["host"]) for line in cells_of(text, "transformers")] == [("16.0", "64-core")]
    assert "All rows: variant controlled; weights random (recipe 2); in containers." in text, "what all rows share is said once"
    assert "| host |" in text and "| weights |" not in text, "what differs is a column"


def test_a_batch_is_so_many_items_and_a_row_whose_step_is_not_known_has_its_whole_call_over_its_tokens():
    def in_batch(case, dtype):
        one = job(case, **CONTROLLED)
        run = record(dataclasses.replace(one, prompt={**one.prompt, "batch_size": 8}), (16.0, 2048.0), spread=0)
        run.guest.used["dtype"] = dtype
        return run

    text = same_work_lines(in_batch("transformers", "nf4"), in_batch("compiled", "float16"))
    lines = [cells_of(text, case)[0] for case in ("transformers", "compiled")]
    assert [(line["ms a step"], line["items/s"]) for line in lines] == [("16.0 with the prompt", "3.91"), ("16.0", "3.91")]
    lines = cells_of(same_work_lines(in_batch("transformers", "nf4"), in_batch("compiled", "nf4")), "compiled")
    assert [line["ms a step with the prompt"] for line in lines] == ["16.0"], "the head says what is true of every line"


@pytest.mark.parametrize(
    ("case", "count", "published"),
    [
        *(("ds-zero", 8, "1160 ms"), ("ds-inference", 8, "19.3 ms"), ("gptj-transformers", 1, "53.6 ms")),
        *(("ds-inference", 4, "19.3 ms, 8 GPUs"), ("ds-zero", 1, "1160 ms, 8 GPUs"), ("gptj-transformers", 2, "53.6 ms, 1 GPU")),
        *(("compiled-fp16", 1, "—"), ("compiled-fp16", 2, "—")),
    ],
)
def test_a_published_time_is_of_one_token_that_was_made_once_and_names_its_gpus_where_the_row_has_another_number(case, count, published):
    article = articles.find("deepspeed-inference")
    group = group_of(record(job(case, count, article=article.slug, new_tokens=(100,)), 5000.0))
    assert same_work.Line(group, group.rows[0], article).published == published


def test_a_published_time_of_one_text_is_of_no_batch():
    article = articles.find("deepspeed-inference")
    asked = job("gptj-transformers", article=article.slug, new_tokens=(100,))
    group = group_of(record(dataclasses.replace(asked, prompt={**asked.prompt, "batch_size": 8}), 5000.0))
    assert same_work.Line(group, group.rows[0], article).published == "—"


def test_a_published_time_of_a_prompt_and_one_token_is_of_no_step():
    group = group_of(record(job("deepspeed", 2), 10.0))
    assert same_work.Line(group, group.rows[0], articles.find("inference-tools")).published == "—"


def test_without_a_system_of_today_or_with_its_output_wrong_there_is_no_such_table():
    plain = float16(record(job("transformers", **CONTROLLED), (16.0, 2048.0)))
    assert not same_work_lines(plain)
    wrong = float16(record(job("compiled", **CONTROLLED), (6.0, 768.0), checked=synthetic.check(0.4, passed=False)))
    assert not same_work_lines(plain, wrong)


def test_rows_that_did_other_work_stay_out():
    today = float16(record(job("compiled", **CONTROLLED), (6.0, 768.0)))
    published = float16(record(job("transformers"), 16.0))
    batch = dataclasses.replace(job("layer-parallel", **CONTROLLED), prompt={"text": "synthetic", "tokens": 8, "batch_size": 8})
    text = same_work_lines(today, published, float16(record(batch, (16.0, 2048.0))))
    assert not cells_of(text, "transformers") and not cells_of(text, "layer-parallel")


def test_the_table_of_the_same_work_and_the_distances_stand_in_the_page(tmp_path):
    systems = [
        record(job(name, **CONTROLLED), times_ms, gpu_name="NVIDIA H200") for name, times_ms in (("transformers", (16.0, 2048.0)), ("compiled", (6.0, 768.0)))
    ]
    synthetic.write(tmp_path / "runs", [synthetic.probed(float16(run)) for system in systems for run in synthetic.repeated(system)])
    document.write(tmp_path / "runs", tmp_path)
    page = reports.text_of(tmp_path)
    assert '<a id="same-work-inference-tools"></a>' in page and "## The same work, years later" in page
    assert [page.count(f"\n{words}") for words in ("What a token must read", "When tokens come:", "Energy of the timed calls")] == [1, 1, 1]
