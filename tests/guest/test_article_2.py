"""The second article's ways to call a model, each on a real tiny one."""

import gzip
import json
import os
import shutil

import pytest

from bench import compat
from bench.job import to_json
from tests.guest.conftest import Guest
from tests.guest.samples import tiny_job

SENTENCES = ["DeepSpeed is a machine learning framework", "He has a", "In the far far distance from our galaxy,"]
HUNDRED = {"max_new_tokens": 5, "do_sample": False}


def cycles_job(path, **changes):
    prompt = {"text": SENTENCES[0], "texts": SENTENCES, "tokens": 6, "batch_size": 4}
    fields = {"form": "padded-sentences", "backend": "layer-parallel", "load": {"dtype": "float32", "device_map": "auto"}, "prompt": prompt}
    return tiny_job("bloom", path, **{**fields, "runs": [{"new_tokens": 5, "arguments": HUNDRED}], "warmup_runs": 1, "timed_runs": 5, **changes})


def test_sentences_of_different_lengths_are_one_batch_and_every_token_of_it_is_counted(either, checkpoints):
    result = either.run(cycles_job(checkpoints["bloom"]))
    assert result.status == "ok", result.reason
    (one,) = result.measurements
    assert one["new_tokens"] == 5 and len(one["timed_ms"]) == 5 and one["cold_ms"] > 0
    cycles = result.figures["cycles"]
    assert (cycles["sequences"], cycles["counted_tokens"], cycles["ranks"]) == (4, 20, 1)
    assert 4 <= cycles["real_tokens"] <= 20
    assert 0 <= cycles["padded_logits_relative_error"] < 1e-5


def test_the_first_sentence_of_a_padded_batch_continues_as_it_does_alone(guest, checkpoints, tmp_path):
    """Left padding with its mask leaves the answer as it is; the check compares it with plain transformers' for the sentence alone."""
    reference = str(tmp_path / "reference.npz")
    job = cycles_job(checkpoints["bloom"], reference=reference)
    alone = tiny_job("bloom", checkpoints["bloom"], kind="reference", reference=reference, runs=job.runs, prompt={**job.prompt, "batch_size": 1})
    assert guest.run(alone).status == "ok"
    check = guest.run(job).check
    assert check["passed"], check
    assert (check["greedy_common_prefix_tokens"], check["greedy_tokens"]) == (5, 5)


def test_tokens_behind_an_end_token_are_counted_by_the_article_and_not_by_us(guest):
    code = "import json; from bench.models import texts; print(json.dumps([sum(texts.lengths_of(rows, {2})) for rows in {!r}]))"
    code = code.replace("{!r}", "[[[5, 2, 3, 3], [5, 5, 5, 5]], [[2, 2, 2, 2]], [[5, 5, 5, 2]], []]")
    assert guest.code(code) == [6, 1, 4, 0]


BLIND = """
import json, transformers
from bench.backends import Loaded
from bench.forms import padded_sentences
path = {path!r}
model = transformers.AutoModelForCausalLM.from_pretrained(path).eval()
tokenizer = transformers.AutoTokenizer.from_pretrained(path)
blind = Loaded(device="cpu", model=lambda input_ids, attention_mask: model(input_ids))
print(json.dumps(padded_sentences.padding_error(blind, tokenizer, {texts!r}, True)))
"""


def test_a_model_that_does_not_see_the_padding_is_seen(guest, checkpoints):
    assert guest.code(BLIND.format(path=str(checkpoints["bloom"]), texts=SENTENCES)) > 1e-2


def test_a_batch_repeats_its_sentences(guest):
    code = "import json; from bench.forms import padded_sentences; print(json.dumps([padded_sentences.batch_of(['a', 'b'], n) for n in (1, 2, 5)]))"
    assert guest.code(code) == [["a"], ["a", "b"], ["a", "b", "a", "b", "a"]]


def test_a_text_pads_on_the_left_and_is_cut_to_its_words_where_the_tokenizer_is_a_stand_in(guest, checkpoints):
    code = (
        "import json, transformers; from bench.forms import padded_sentences; "
        f"t = transformers.AutoTokenizer.from_pretrained({str(checkpoints['bloom'])!r}); "
        "print(json.dumps([{name: tensor.tolist() for name, tensor in padded_sentences.padded(t, ['a b, c', 'x'], cut).items()} for cut in (True, False)]))"
    )
    cut, whole = guest.code(code)
    assert [len(row) for row in cut["input_ids"]] == [4, 4] and cut["attention_mask"] == [[1, 1, 1, 1], [0, 0, 0, 1]]
    assert [len(row) for row in whole["input_ids"]] == [6, 6] and whole["attention_mask"][1] == [0] * 5 + [1]
    assert cut["input_ids"][1][:3] == [3, 3, 3], "padding is the tokenizer's own token"


def test_the_pipeline_object_makes_its_sequences_up_to_the_article_s_length(either, checkpoints):
    arguments = {"max_length": 20, "num_return_sequences": 4, "do_sample": True, "temperature": 1.0}
    prompt = {"text": "Hello, I'm a language model,", "tokens": 8, "batch_size": 1}
    job = tiny_job(
        "gptj",
        checkpoints["gptj"],
        form="transformers-pipeline-sequences",
        prompt=prompt,
        options={"seed": 42},
        runs=[{"new_tokens": 12, "arguments": arguments}],
    )
    result = either.run(job)
    assert result.status == "ok", result.reason
    assert result.figures["pipeline"] == {"sequences": 4, "prompt_tokens": 8, "tokens_by_call": [12, 12, 12]}
    five = result.environment["packages"]["transformers"].startswith("5")
    assert result.compat["pipeline_length"] == ("max_new_tokens=" if five else "as given") and len(result.measurements[0]["timed_ms"]) == 3


def test_the_fused_regions_are_timed_without_a_model_and_what_cannot_run_says_why(guest):
    options = {"implementations": ["eager", "deepspeed"], "batch_sizes": [1, 2], "past_tokens": 8, "samples": 3, "calls_per_sample": 2}
    result = guest.run(tiny_job("bloom", "", form="fusion", options=options))
    assert result.status == "ok" and result.measurements == [] and result.check is None, result.reason
    rows = result.figures["fusion"]
    assert len(rows) == 2 * 2 * 4
    eager = [row for row in rows if row["implementation"] == "eager"]
    assert all(len(row["us"]) == 3 and min(row["us"]) > 0 and row["relative_error"] < 1e-6 for row in eager)
    absent = [row for row in rows if row["implementation"] == "deepspeed"]
    assert all(row["us"] == [] and "deepspeed" in row["reason"] for row in absent)


FUSED = """
import json, types, torch
from bench.forms import fused_regions
from bench.checking import check
layer = fused_regions.make_weights(32, torch.float32, "cpu")
found = {}
for batch in (1, 3):
    inputs = fused_regions.make_activations(32, batch, 5, torch.float32, "cpu")
    calls = fused_regions.eager_calls(layer, inputs, heads=4)
    # the attention of the new token alone, by torch's own operator over the whole sequence
    query, key, value = fused_regions._heads_first(torch.cat([inputs.past_qkv, inputs.new_qkv], dim=1), 4)
    right = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)[:, :, -1:].transpose(1, 2).reshape(batch, 1, 32)
    function, arguments = calls["attention"]
    found[batch] = check.tensor_error(function(*arguments), right)
print(json.dumps(found))
"""


def test_the_attention_region_is_attention(guest):
    found = guest.code(FUSED)
    assert all(error is not None and error < 1e-5 for error in found.values()), found


OPERATORS = """
import json, torch
from bench.forms import fused_regions
from bench.checking import check
from tests.fakes import deepspeed_operators
deepspeed_operators.install(old={old!r})
layer = fused_regions.make_weights(32, torch.float32, "cpu")
inputs = fused_regions.make_activations(32, 3, 5, torch.float32, "cpu")
exact, found = fused_regions.exact_answers(layer, inputs, 4), {{}}
for region, (function, arguments) in fused_regions.calls_of("deepspeed", layer, inputs, 4).items():
    found[region] = check.tensor_error(function(*arguments), exact[region])
    if region == "attention":
        found["attention again"] = check.tensor_error(function(*arguments), exact[region])
print(json.dumps(found))
"""


@pytest.mark.parametrize("old", [True, False], ids=["0.9.2", "0.19"])
def test_the_operators_of_each_deepspeed_get_the_arguments_that_it_takes(guest, old):
    """On a stand-in of the operators; their kernels are CUDA code."""
    found = guest.code(OPERATORS.format(old=old))
    assert set(found) == {"layernorm_qkv_bias", "attention", "attention again", "bias_residual", "layernorm_ff_gelu"}
    assert all(error is not None and error < 1e-5 for error in found.values()), found


COMPILED = """
import json, torch
from bench.forms import fused_regions
from bench.checking import check
layer, inputs = fused_regions.make_weights(32, torch.float32, "cpu"), fused_regions.make_activations(32, 3, 5, torch.float32, "cpu")
results = []
for calls in (fused_regions.eager_calls(layer, inputs, heads=4), fused_regions.calls_of("compile", layer, inputs, 4)):
    function, arguments = calls["bias_residual"]
    results.append(function(*arguments))
print(json.dumps(check.tensor_error(*results)))
"""


def test_a_compiled_region_computes_the_same(guest):
    if not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("NOT TESTED: torch.compile needs a C++ compiler; install g++")
    assert guest.code(COMPILED) < 1e-5


def test_a_pipeline_parallel_job_compares_three_schedules_and_its_stages_logits_pass_the_check(either, checkpoints, references):
    job = tiny_job(
        "bloom", checkpoints["bloom"], form="pipeline-parallel", device_count=2, options={"micro_batch_size": 2}, reference=references["bloom"],
        runs=[{"new_tokens": 4, "arguments": {"do_sample": False}}], warmup_runs=0, timed_runs=2,
    )  # fmt: skip
    result = either.run(job)
    assert result.status == "ok" and result.check["passed"], (result.reason, result.check)
    assert result.check["greedy_common_prefix_tokens"] == 4, "the first sequence is the job's own prompt"
    schedules = {one["schedule"]: one for one in result.figures["schedules"]}
    assert {name: (one["micro_batches"], one["micro_batch_size"], one["identical"]) for name, one in schedules.items()} == {
        "in turn": (2, 2, 4), "rolling": (2, 2, 4), "naive": (1, 4, 4)
    }  # fmt: skip
    assert all(len(one["wall_ms"]) == 2 and all(len(busy) == 2 for busy in one["busy_ms"]) for one in schedules.values())


ZEROS = """
import json
from bench.__main__ import run
from bench.forms import pipeline_stages
from bench.job import parse_job
moved = pipeline_stages._moved
pipeline_stages._moved = lambda value, device: moved(value * 0 if {zeros} and value.is_floating_point() else value, device)
result = run(parse_job({text!r}), {folder!r})
schedules = [[one["schedule"], one["identical"]] for one in result.figures["schedules"]]
print(json.dumps([result.status, result.reason, result.check["passed"], result.check["reason"], schedules]))
"""


@pytest.mark.parametrize("architecture", ["bloom", "gptj", "llama"])
def test_a_stage_that_hands_on_zeros_fails_the_output_check(guest, checkpoints, references, tmp_path, architecture):
    """Every schedule makes the same wrong tokens, and the uncut model is right: only the stages' own logits tell."""
    job = tiny_job(
        architecture, checkpoints[architecture], form="pipeline-parallel", device_count=2, options={"micro_batch_size": 2},
        runs=[{"new_tokens": 4, "arguments": {"do_sample": False}}], warmup_runs=0, timed_runs=1, reference=references[architecture],
    )  # fmt: skip
    for zeros in (False, True):
        status, reason, passed, said, schedules = guest.code(ZEROS.format(zeros=zeros, text=to_json(job), folder=str(tmp_path)))
        assert status == "ok" and passed is not zeros, (reason, said)
        assert schedules == [["in turn", 4], ["rolling", 4], ["naive", 4]]
    assert "off" in said or "not finite" in said


def test_one_stage_is_no_pipeline_and_the_offloaded_cache_needs_a_gpu(guest, checkpoints):
    one = guest.run(tiny_job("bloom", checkpoints["bloom"], form="pipeline-parallel", options={"micro_batch_size": 2}))
    assert one.status == "unsupported" and "two stages" in one.reason
    cache = guest.run(tiny_job("bloom", checkpoints["bloom"], form="kv-offload"))
    assert cache.status == "unsupported" and "NVIDIA GPU" in cache.reason


def test_the_offloaded_cache_needs_a_transformers_that_has_one(either):
    code = "import json, types; from bench.forms import kv_offload; print(json.dumps(kv_offload.unsupported(types.SimpleNamespace(device='cuda'))))"
    why = "transformers 4.43.4 has no offloaded cache for this model, 4.44 and later have"
    assert either.code(code) == (why if "tensor-parallel" in str(either.python) else "")
    assert (compat.offloaded_cache("4.43.4"), compat.offloaded_cache("4.44.0"), compat.offloaded_cache("5.17.0")) == (False, True, True)


@pytest.mark.parametrize("room", [0, 1, 2, 3, 5, 11, 16, 17, 40])
def test_the_largest_batch_that_fits_is_found(guest, room):
    code = f"import json; from bench.forms import kv_offload; print(json.dumps(kv_offload.largest(lambda n: n <= {room}, 16)))"
    assert guest.code(code) == min(room, 16)


SEARCH = """
import json, types, torch, transformers
from bench.forms import kv_offload
model = transformers.AutoModelForCausalLM.from_pretrained({path!r}).eval()
loaded = types.SimpleNamespace(model=model, device="cpu", input_ids=torch.arange(4, 20)[None])
room = {{"default": 4, "offloaded": 8}}
real = kv_offload._generate

def generate(loaded, prompt, cache, new_tokens):
    if prompt.shape[0] > room[cache] - (new_tokens > 2):
        raise torch.cuda.OutOfMemoryError("full")
    return real(loaded, prompt, "default", new_tokens)

kv_offload._generate = generate
job = types.SimpleNamespace(device="cpu", timed_runs=2, options={{"context_tokens": 24, "most_sequences": 16, "new_tokens": 3}})
print(json.dumps(kv_offload.run(job, loaded, lambda **event: None)[2]))
"""


def test_each_cache_s_reach_is_searched_and_both_are_timed_where_both_fit(guest, checkpoints):
    """On a CPU there is no offloaded cache: here it is the default one with more room. Room for two new tokens is not room for the three that are timed."""
    found = guest.code(SEARCH.format(path=str(checkpoints["bloom"])))["kv_offload"]
    default, offloaded = found["caches"]
    assert (found["context_tokens"], default["most_sequences"], offloaded["most_sequences"]) == (24, 3, 7)
    for one in (default, offloaded):
        assert (one["batch_size"], one["new_tokens"], len(one["first_ms"]), len(one["all_ms"]), one["identical"]) == (3, 3, 2, 2, 3)
        assert not one["searched_to_the_end"]


LIMITED = """
import json, types, torch, transformers
from bench.forms import kv_offload
model = transformers.AutoModelForCausalLM.from_pretrained({path!r}).eval()
loaded = types.SimpleNamespace(model=model, device="cpu", input_ids=torch.arange(4, 20)[None])
fractions, within = [], set()
torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(total_memory=1000)
torch.cuda.set_per_process_memory_fraction = lambda fraction, device: fractions.append(fraction)
real = kv_offload._generate

def generate(loaded, prompt, cache, new_tokens):
    within.add(fractions[-1])
    if prompt.shape[0] > 3:
        raise RuntimeError({words!r})
    return real(loaded, prompt, "default", new_tokens)

kv_offload._generate = generate
options = {{"context_tokens": 24, "most_sequences": 16, "new_tokens": 3, "memory_limit_bytes": 250}}
job = types.SimpleNamespace(device="cpu", timed_runs=1, options=options)
try:
    told = [cache["most_sequences"] for cache in kv_offload.run(job, loaded, lambda **event: None)[2]["kv_offload"]["caches"]]
except RuntimeError as error:
    told = str(error)
print(json.dumps([told, fractions, list(within)]))
"""

CUBLAS = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


@pytest.mark.parametrize(("words", "told"), [(CUBLAS, [3, 3]), ("a kernel broke", "a kernel broke")])
def test_the_limit_of_a_smaller_gpu_ends_with_the_form_and_cublas_without_memory_means_full(guest, checkpoints, words, told):
    """What comes after the form, such as the probes of the GPU, has the whole GPU again, after a failure too."""
    assert guest.code(LIMITED.format(path=str(checkpoints["bloom"]), words=words)) == [told, [0.25, 1.0], [0.25]]


ARGUMENTS = """
import json, types, torch, transformers
from bench.forms import kv_offload
prefetch = transformers.cache_utils.Cache.prefetch
calls, seen = [], []

def generate(prompt, max_new_tokens, cache_implementation=None, **more):
    calls.append((cache_implementation, transformers.cache_utils.Cache.prefetch is prefetch))
    return torch.cat([prompt, prompt[:, :max_new_tokens]], dim=1)

loaded = types.SimpleNamespace(model=types.SimpleNamespace(generate=generate), device="cpu", input_ids=torch.arange(4, 20)[None])
options = {"context_tokens": 24, "most_sequences": 1, "new_tokens": 3}
for more in ({}, {"copies_wait": True}):
    figures = kv_offload.run(types.SimpleNamespace(device="cpu", timed_runs=1, options=dict(options, **more)), loaded, lambda **event: None)[2]
    seen.append([[cache["cache"] for cache in figures["kv_offload"]["caches"]], sorted(set(calls), key=str)])
    calls.clear()
print(json.dumps(seen))
"""


def test_copies_wait_in_the_remedy_alone_and_in_no_call_after_it(guest):
    own, remedy = guest.code(ARGUMENTS)
    assert own == [["default", "offloaded"], [["offloaded", True], [None, True]]]
    assert remedy == [["default", "offloaded, copies wait"], [["offloaded", False], [None, True]]]


def test_zero_is_told_to_need_a_gpu_and_gets_the_script_s_settings(guest, checkpoints):
    job = tiny_job("bloom", checkpoints["bloom"], backend="deepspeed-zero")
    result = guest.run(job)
    assert result.status == "unsupported" and "NVIDIA GPU" in result.reason
    code = "import json; from bench.backends import deepspeed_zero as z; print(json.dumps([z.settings(10, 'float16', 4), z.settings(10, 'bfloat16', 1, True)]))"
    first, second = guest.code(code)
    assert (first["fp16"], first["bf16"], first["train_batch_size"]) == ({"enabled": True}, {"enabled": False}, 4)
    assert first["zero_optimization"]["stage3_prefetch_bucket_size"] == 90 and "offload_param" not in first["zero_optimization"]
    assert second["bf16"] == {"enabled": True} and second["zero_optimization"]["offload_param"] == {"device": "cpu", "pin_memory": True}


def test_a_profile_tells_the_longest_operators_and_leaves_a_trace(python, tmp_path, checkpoints):
    guest = Guest(python, tmp_path)
    job = tiny_job("bloom", checkpoints["bloom"], kind="profile", options={"profiler": "torch"})
    result = guest.run(job)
    assert result.status == "ok" and result.measurements == [], result.reason
    found = result.figures["profile"]
    assert found["new_tokens"] == 8 and found["wall_ms"] > 0 and found["top"][0]["ms"] >= found["top"][1]["ms"] > 0
    trace = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    assert any("aten::" in str(event.get("name")) for event in trace["traceEvents"])


def test_under_another_profiler_the_call_is_made_and_no_trace_is_left(python, tmp_path, checkpoints):
    result = Guest(python, tmp_path).run(tiny_job("bloom", checkpoints["bloom"], kind="profile", options={"profiler": "nsys"}))
    assert result.status == "ok" and result.figures["profile"]["profiled_wall_ms"] > 0
    assert not (tmp_path / "trace.json.gz").exists()


KEPT = """
import gc, json, sys, types, torch, transformers
from bench import compat
from bench.models import pretrained
from bench.backends import deepspeed_zero
from bench.job import parse_job

class Engine:
    def __init__(self, model):
        self.module, model.hooked = model, True

    def __del__(self):
        self.module.hooked = False

model = torch.nn.Linear(2, 2)
for parameter in model.parameters():
    parameter.ds_tensor = parameter.data
compat.zero_config_class = lambda version: dict
pretrained.load_model = lambda job: model
torch.cuda.set_device = lambda index: None
job = parse_job({job!r})
transformers.AutoConfig.from_pretrained(job.model["path"])  # what it imports looks for DeepSpeed, so before the stand-in is there
sys.modules["deepspeed"] = types.SimpleNamespace(init_distributed=lambda backend: None, initialize=lambda model, config: (Engine(model),))
loaded = deepspeed_zero.load(job)
gc.collect()
print(json.dumps([loaded.model.hooked, loaded.used["ranks"], loaded.used["weights_of_first_rank_bytes"]]))
"""


def test_the_engine_of_zero_lives_as_long_as_its_model(guest, checkpoints):
    """A stand-in for DeepSpeed, whose engine takes its hooks off the model where nothing holds it any more."""
    job = tiny_job("bloom", checkpoints["bloom"], backend="deepspeed-zero", device="cuda", load={"dtype": "bfloat16"})
    assert guest.code(KEPT.format(job=to_json(job))) == [True, 1, 24]
