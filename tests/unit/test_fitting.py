"""An instrument says which job it examines, before it loads a library or a model, and refuses any other."""

import dataclasses
import runpy
import sys

import pytest

from bench.job import to_json
from tests import synthetic


def refusal(tmp_path, instrument, job):
    """What an instrument says of a job as it ends, in an interpreter without torch."""
    (tmp_path / "job.json").write_text(to_json(job))
    arguments, module = [instrument, str(tmp_path / "job.json"), str(tmp_path / "out.json")], f"bench.instruments.{instrument}"
    with pytest.MonkeyPatch.context() as patched, pytest.raises((SystemExit, ModuleNotFoundError)) as ended:
        patched.setattr(sys, "argv", arguments)
        patched.setitem(sys.modules, "torch", None)
        patched.delitem(sys.modules, module, raising=False)
        runpy.run_module(module, run_name="__main__")
    return f"No module named {ended.value.name!r}" if isinstance(ended.value, ModuleNotFoundError) else ended.value.code


@pytest.mark.parametrize(
    ("instrument", "case", "gpus", "allowed"),
    [
        ("collectives", "int8", 2, "deepspeed on at least 2 GPUs"),
        ("collectives", "deepspeed", 1, "deepspeed on at least 2 GPUs"),
        ("equal_calls", "deepspeed", 1, "plain transformers, such as long-prompts, case transformers"),
        ("new_lengths", "vllm", 1, "plain transformers, such as long-prompts, case transformers"),
        ("device_map", "transformers", 2, "a case with a device map, such as layer-parallel or int8, on at least 2 GPUs"),
        ("device_map", "int8", 1, "a case with a device map, such as layer-parallel or int8, on at least 2 GPUs"),
        ("float32_rotary", "transformers", 1, "GPT-J with random weights"),
        ("clocks_tokens", "transformers", 1, "deepspeed-inference, case accelerate-fp16 or accelerate-int8 or ds-inference"),
        ("clocks_batches", "transformers", 1, "batch-generate, case batch"),
        ("threads", "layer-parallel", 2, "tensor-parallel on at least 2 GPUs"),
        ("threads", "tensor-parallel", 1, "tensor-parallel on at least 2 GPUs"),
        ("layers", "deepspeed", 2, "one GPU, which is one process"),
        ("clocks_latency", "deepspeed", 2, "one GPU, which is one process"),
    ],
)
def test_a_job_that_an_instrument_does_not_examine_is_one_line(tmp_path, instrument, case, gpus, allowed):
    job = synthetic.job(case, gpus)
    job.load.update({"device_map": "auto"} if case == "int8" else {})
    told = f"the job is of inference-tools/{case} (backend {case}, random weights, GPUS={gpus}); take a job of {allowed}"
    assert refusal(tmp_path, instrument, job) == told


def test_new_lengths_asks_for_a_case_in_which_torch_may_choose_cudnn_s_attention(tmp_path):
    job = synthetic.job("transformers")
    assert "cudnn_attention" not in job.load and "No module named" in refusal(tmp_path, "new_lengths", job)
    job.load["cudnn_attention"] = False
    assert refusal(tmp_path, "new_lengths", job).endswith(
        "take a job of a case in which torch may choose cuDNN's attention, such as long-prompts, case transformers"
    )
    for instrument, allowed in (("new_lengths", True), ("equal_calls", False)):
        job.load["cudnn_attention"] = allowed
        assert "No module named" in refusal(tmp_path, instrument, job)


@pytest.mark.parametrize(
    ("instrument", "case", "name", "value"), [("layers", "transformers", "cudnn_attention", "no"), ("clocks_latency", "compiled", "attention", "groupd")]
)
def test_a_value_that_the_backend_of_a_job_refuses_is_one_line_as_well(tmp_path, instrument, case, name, value):
    job = synthetic.job(case)
    job.load[name] = value
    told = refusal(tmp_path, instrument, job)
    assert told.startswith(f"load.{name} is {value!r}, allowed are ") and "\n" not in told


@pytest.mark.parametrize(
    ("instrument", "case", "gpus", "change", "told"),
    [
        ("threads", "tensor-parallel", 2, {"architecture": "llama"}, "tensor_parallel 2.0.0 cannot cut Llama's attention of transformers 4.36 and later"),
        ("layers", "deepspeed", 1, {"device": "cpu"}, "DeepSpeed's injected kernels are CUDA code: they need an NVIDIA GPU"),
        ("clocks_latency", "vllm", 1, {"device": "cpu"}, "vLLM's wheel holds CUDA code: it needs an NVIDIA GPU"),
    ],
)
def test_a_job_that_its_backend_cannot_run_here_is_one_line_as_well(tmp_path, instrument, case, gpus, change, told):
    job = dataclasses.replace(synthetic.job(case, gpus), device=change.get("device", "cuda"))
    job.model.update({name: value for name, value in change.items() if name != "device"})
    said = refusal(tmp_path, instrument, job)
    assert said.startswith(told) and "\n" not in said


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_job_of_a_backend_that_does_not_exist_is_one_line_as_well(tmp_path, gpus):
    told = "backend 'transformer' has no module bench/backends/transformer.py; did you mean 'transformers'?"
    assert refusal(tmp_path, "layers", synthetic.job("transformer", gpus)) == told


def test_an_instrument_that_loads_no_backend_examines_a_job_that_the_backend_cannot_run_here(tmp_path):
    job = dataclasses.replace(synthetic.job("deepspeed"), device="cpu")
    job.model["architecture"] = "gptj"
    assert "No module named" in refusal(tmp_path, "float32_rotary", job)


@pytest.mark.parametrize(("case", "form"), [("vllm-fp16", "padded-sentences"), ("accelerate-fp16", "generate")])
def test_the_second_article_s_benchmark_takes_its_own_systems_only(tmp_path, case, form):
    job = dataclasses.replace(synthetic.job("transformers"), case=case, form=form)
    assert "take a job of deepspeed-inference" in refusal(tmp_path, "clocks_tokens", job)


def test_the_third_article_s_loop_takes_plain_transformers_only(tmp_path):
    job = dataclasses.replace(synthetic.job("vllm"), form="batch")
    assert "take a job of batch-generate, case batch" in refusal(tmp_path, "clocks_batches", job)


def test_the_third_article_s_loop_samples_so_the_kit_s_calls_beside_it_must_too(tmp_path):
    job = dataclasses.replace(synthetic.job("transformers"), form="batch", runs=[{"new_tokens": 8, "arguments": {"do_sample": False}}])
    assert refusal(tmp_path, "clocks_batches", job).endswith("take a job of a variant that samples, as the article's loop does: published")
    sampled = dataclasses.replace(job, runs=[{"new_tokens": 8, "up_to": True, "arguments": {"do_sample": True}}])
    assert "No module named" in refusal(tmp_path, "clocks_batches", sampled)


def test_the_rotary_kernel_has_no_random_weights_in_a_job_with_real_ones(tmp_path):
    job = synthetic.job("transformers", weights="hub")
    job.model["architecture"] = "gptj"
    assert "(backend transformers, hub weights, GPUS=1)" in refusal(tmp_path, "float32_rotary", job)


@pytest.mark.parametrize(("instrument", "case", "gpus"), [("layers", "deepspeed", 1), ("layers", "int8", 2), ("clocks_latency", "transformers", 1)])
def test_a_job_that_fits_goes_on_to_the_libraries(tmp_path, instrument, case, gpus):
    assert "No module named" in refusal(tmp_path, instrument, synthetic.job(case, gpus))
