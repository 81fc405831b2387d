"""Numbers that the guest hands out: what is counted, of which call, and in which order. Without torch, whose part stand-ins take."""

import contextlib
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from bench import actions, profile
from bench.backends import vllm
from bench.checking import judge
from bench.forms import fusion, generate, kept_answers, kv_offload, pipeline_parallel, workload
from bench.measuring import recorder, timed_tokens
from bench.measuring.answers_file import Outputs
from bench.models import greedy_loop, offloaded_cache, pretrained, texts

ROOT = Path(__file__).resolve().parents[2]


def test_the_time_of_a_line_of_answers_begins_with_the_line_before_it(tmp_path, monkeypatch):
    moments = iter([0.0, 5.0, 7.0, 12.0])
    monkeypatch.setattr(kept_answers, "time", types.SimpleNamespace(perf_counter=lambda: next(moments)))
    outputs, done = Outputs(str(tmp_path), "a job"), []
    tokenizer = types.SimpleNamespace(decode=lambda tokens, skip_special_tokens: "")
    kept_answers.keep(iter([(0, [6]), (1, [6, 7]), (2, [8])]), outputs, tokenizer, {0: 3, 1: 4, 2: 5}, done.append)
    assert [(line["ms"], line["prompt_tokens"], line["decode_rows"]) for line in outputs.batches] == [(5000, 3, 1), (2000, 4, 2), (5000, 5, 1)]
    assert done == [1, 1, 1], "items since the line before"


class Tokens:
    shape = (1, 2)

    def __init__(self, number):
        self.tolist = lambda: [[number, number]]


def test_the_judge_gets_the_tokens_of_the_timed_calls_and_of_no_call_before_them(monkeypatch):
    calls = iter(range(20))
    monkeypatch.setattr(generate, "timed_call", lambda job, loaded, run: lambda: Tokens(next(calls)))
    job = types.SimpleNamespace(runs=[{"new_tokens": 2}], warmup_runs=2, timed_runs=3, device="cpu")
    loaded = types.SimpleNamespace(answers=[])
    _, longest, _ = generate.run(job, loaded, lambda **event: None)
    (timed,) = loaded.answers
    assert timed.calls == [[[3, 3]], [[4, 4]], [[5, 5]]] and longest.tolist() == [[5, 5]], "after the cold call and two warm-ups"


def test_the_time_of_a_batch_of_a_workload_is_that_of_the_whole_batch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(no_grad=contextlib.nullcontext))
    kept, items = [], [types.SimpleNamespace(number=number) for number in range(4)]
    monkeypatch.setattr(workload, "opened", lambda job, loaded: (None, types.SimpleNamespace(add=kept.append, resumed=False), items))
    monkeypatch.setattr(workload, "arguments_of", lambda job, tokenizer: {})
    monkeypatch.setattr(workload, "answer", lambda *arguments: {})
    monkeypatch.setattr(workload.measure, "elapsed_ms", lambda action, synchronize: (8.0, action()))
    monkeypatch.setattr(workload, "result", lambda job, outputs: None)
    job = types.SimpleNamespace(prompt={"batch_size": 2}, options={"items": 4}, runs=[{"new_tokens": 1}], device="cpu")
    workload.run(job, None, lambda **event: None)
    assert kept == [{"ms": 8.0}] * 2


@pytest.mark.parametrize("templated", [True, False])
def test_a_text_within_a_chat_template_gets_no_special_tokens_a_second_time(templated):
    """The template of Llama 3 writes the token that begins a text; its tokenizer would write another before it."""
    asked = {}
    texts.encode(types.SimpleNamespace(options={"templated": templated}), lambda given, **named: asked.update(named), ["a text"])
    assert asked["add_special_tokens"] is not templated


def of_a_workload(**options):
    lengths = {"prompt_tokens": {"median": 12, "sigma": 0.5, "least": 4, "most": 20}, "answer_tokens": {"median": 3, "sigma": 0.8, "least": 1, "most": 6}}
    prompt = {"batch_size": 3, "text": "hey"}
    return types.SimpleNamespace(options={"seed": 0, **lengths, **options}, runs=[{"new_tokens": 5}], prompt=prompt)


#: A tokenizer of which the words that begin with u have three tokens, and all others have one.
OF_WORDS = types.SimpleNamespace(encode=lambda text, add_special_tokens: [0] * (3 if text.startswith(" u") else 1))


def test_a_workload_has_texts_and_answers_of_the_lengths_that_its_seed_draws_and_begins_a_longer_one():
    items = texts.workload(of_a_workload(), OF_WORDS, 200)
    assert [item.number for item in items] == list(range(200))
    tokens = [sum(3 if word.startswith("u") else 1 for word in item.text.split()) for item in items]
    assert 4 <= min(tokens) < 6 and 18 <= max(tokens) <= 20 + 2, "the last word may have two tokens more than were drawn"
    assert {item.new_tokens for item in items} == {1, 2, 3, 4, 5}, "no answer is longer than the run allows"
    told = [(item.text, item.new_tokens) for item in texts.workload(of_a_workload(), OF_WORDS, 3)]
    assert told == [(item.text, item.new_tokens) for item in items[:3]] and told[1] == ("runs bright bird lamp quiet bright over window", 5)
    assert [item.text for item in texts.workload(of_a_workload(seed=1), OF_WORDS, 3)] != [text for text, _ in told]


def test_a_batch_repeats_the_job_s_prompt_or_begins_its_workload():
    assert texts.batch_of(of_a_workload(texts="prompt"), OF_WORDS) == ["hey"] * 3
    assert texts.batch_of(of_a_workload(texts="workload"), OF_WORDS) == [item.text for item in texts.workload(of_a_workload(), OF_WORDS, 3)]


class Values:
    def __init__(self, dtype, count):
        self.dtype, self.numel = dtype, lambda: count


def test_the_dtype_of_a_model_is_that_of_most_numbers_and_not_of_most_tensors():
    """It decides the bounds of the output check."""
    parameters = [Values("torch.float16", 900), Values("torch.float32", 4), Values("torch.float32", 4)]
    assert pretrained.dtype_of(types.SimpleNamespace(parameters=lambda: parameters)) == "float16"


def test_the_time_of_kernels_is_that_of_one_call_of_several(monkeypatch):
    calls = []
    monkeypatch.setattr(fusion.profile, "trace", lambda several: several())
    monkeypatch.setattr(fusion.profile, "kernels", lambda trace: [(0, "a", 0.0, 30.0), (0, "b", 30.0, 10.0)])
    assert fusion._device_us(lambda: calls.append(1), "cuda:0", calls=20) == 2.0 and len(calls) == 20
    assert fusion._device_us(None, "cpu") is None
    monkeypatch.setattr(fusion.profile, "kernels", lambda trace: [])
    assert fusion._device_us(lambda: None, "cuda:0") is None


def test_memory_that_runs_out_in_a_fused_region_ends_the_job_and_any_other_error_is_a_row(monkeypatch):
    class Full(RuntimeError):
        pass

    def fails(error):
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
        monkeypatch.setattr(fusion.compat, "out_of_memory_errors", lambda torch: (Full,))

        def broken():
            raise error

        monkeypatch.setattr(fusion.fused_regions, "calls_of", lambda *arguments: dict.fromkeys(fusion.fused_regions.REGIONS, (broken, ())))
        return fusion._rows("eager", None, None, 4, dict.fromkeys(fusion.fused_regions.REGIONS), "cpu", {})

    assert {row["reason"] for row in fails(ValueError("no kernel"))} == {"ValueError: no kernel"}
    with pytest.raises(Full):
        fails(Full("out of memory"))


def test_further_calls_of_a_batch_load_no_tokenizer_within_their_times(monkeypatch):
    loads, made = [], []

    def load(path):
        loads.append(path)
        return types.SimpleNamespace(pad_token="<pad>", pad_token_id=3, eos_token_id=2, add_special_tokens=lambda tokens: None)

    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(AutoTokenizer=types.SimpleNamespace(from_pretrained=load)))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(ones_like=lambda ids: ids))
    job = types.SimpleNamespace(model={"path": "/a checkpoint"}, options={})
    tokenizer = texts.tokenizer_of(job)
    tokenizer.padding_side = "right"  # as the form `padding` leaves it
    loaded = types.SimpleNamespace(generate=lambda ids, mask, **arguments: made.append(arguments))
    texts.generate(job, loaded, {"new_tokens": 4, "arguments": {}}, [[5, 6]], streamer="told")
    assert loads == ["/a checkpoint"] and made == [{"max_new_tokens": 4, "pad_token_id": 3, "eos_token_id": texts.NO_TOKEN, "streamer": "told"}]
    assert texts.tokenizer_of(job).padding_side == "left"
    chat = {"chat": {"template": "a template", "special_tokens": ["<|end|>"]}}
    assert texts.tokenizer_of(types.SimpleNamespace(model={"path": "/a checkpoint"}, options=chat)).chat_template == "a template"
    assert not hasattr(texts.tokenizer_of(job), "chat_template") and texts.tokenizer_of(types.SimpleNamespace(model={"path": "/b"}, options={}))
    assert loads == ["/a checkpoint"] * 3 + ["/b"]


class Sequences:
    """Rows of token ids, as far as two forms ask a tensor for them."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, places):
        return Sequences(self.rows[places])

    def split(self, count):
        return [Sequences(self.rows[start : start + count]) for start in range(0, len(self.rows), count)]

    def roll(self, places):
        return self

    def to(self, device):
        return self

    def tolist(self):
        return self.rows


RIGHT, WRONG = [[1, 2], [3, 4], [5, 6], [7, 8]], [[1, 2], [3, 9], [5, 6], [7, 8]]


@pytest.mark.parametrize(
    ("default", "offloaded", "identical"),
    [([RIGHT] * 2, [RIGHT] * 2, [4, 4]), ([RIGHT] * 2, [WRONG, RIGHT], [4, 3]), ([RIGHT] * 2, [RIGHT, WRONG], [4, 3]), ([RIGHT, WRONG], [RIGHT] * 2, [3, 4])],
)
def test_every_timed_call_with_a_cache_is_held_against_the_default_cache(monkeypatch, default, offloaded, identical):
    calls = {kv_offload.DEFAULT: default, kv_offload.OFFLOADED: offloaded}
    monkeypatch.setattr(kv_offload, "_prompt", lambda *arguments: None)
    monkeypatch.setattr(kv_offload, "_fits", lambda *arguments: True)
    monkeypatch.setattr(kv_offload, "_timed", lambda job, loaded, prompt, cache, new_tokens: ([1.0] * 2, [Sequences(call) for call in calls[cache]]))
    job = types.SimpleNamespace(options={"context_tokens": 24, "most_sequences": 4, "new_tokens": 2})
    assert [cache["identical"] for cache in kv_offload._compared(job, None, lambda **event: None)[2]["kv_offload"]["caches"]] == identical


@pytest.mark.parametrize(("wrong_run", "identical"), [(None, 4), (0, 4), (1, 3), (2, 3)])
def test_every_timed_run_of_a_schedule_is_held_against_the_micro_batches_in_turn(monkeypatch, wrong_run, identical):
    runs_of = {"in turn": [RIGHT] * 3, "rolling": [WRONG if number == wrong_run else RIGHT for number in range(3)], "naive": [RIGHT] * 3}
    left = iter(run for runs in runs_of.values() for run in runs)
    stage = types.SimpleNamespace(caches={})
    monkeypatch.setattr(pipeline_parallel.pipeline_stages, "cut", lambda model, devices: [stage, stage])
    monkeypatch.setattr(pipeline_parallel.pipeline_stages, "generate", lambda *arguments: (Sequences(next(left)).split(2), 1.0, [0.5, 0.5]))
    joined = types.SimpleNamespace(
        stack=lambda rows: Sequences([row.rows for row in rows]), cat=lambda parts: Sequences([row for part in parts for row in part.rows])
    )
    monkeypatch.setitem(sys.modules, "torch", joined)
    job = types.SimpleNamespace(
        device="cpu", device_count=2, options={"micro_batch_size": 2}, runs=[{"new_tokens": 2}], warmup_runs=1, timed_runs=2
    )  # fmt: skip
    loaded = types.SimpleNamespace(model=None, input_ids=[Sequences([5, 6])])
    figures = pipeline_parallel.run(job, loaded, lambda **event: None)[2]["schedules"]
    assert {one["schedule"]: one["identical"] for one in figures} == {"in turn": 4, "rolling": identical, "naive": 4}


def test_calls_of_one_token_and_of_all_are_timed_apart_with_the_largest_batch_that_fits_both(monkeypatch):
    asked, most = [], {kv_offload.DEFAULT: 3, kv_offload.OFFLOADED: 8}

    def timed(job, loaded, prompt, cache, new_tokens):
        asked.append((prompt, cache, new_tokens))
        return [float(new_tokens)], [Sequences([[0] * new_tokens] * 3)]

    monkeypatch.setattr(kv_offload, "_prompt", lambda loaded, sequences, context: (sequences, context))
    monkeypatch.setattr(kv_offload, "_fits", lambda loaded, prompt, cache, new_tokens: prompt[0] <= most[cache])
    monkeypatch.setattr(kv_offload, "_timed", timed)
    job = types.SimpleNamespace(options={"context_tokens": 24, "most_sequences": 8, "new_tokens": 5})
    default, offloaded = kv_offload._compared(job, None, lambda **event: None)[2]["kv_offload"]["caches"]
    assert asked == [((3, 24), cache, count) for cache in (kv_offload.DEFAULT, kv_offload.OFFLOADED) for count in (1, 5)]
    assert (default["first_ms"], default["all_ms"]) == ([1.0], [5.0])
    assert (default["searched_to_the_end"], offloaded["searched_to_the_end"]) == (False, True)
    most[kv_offload.OFFLOADED] = 7
    assert not kv_offload._compared(job, None, lambda **event: None)[2]["kv_offload"]["caches"][1]["searched_to_the_end"]


@pytest.mark.parametrize(("dtype", "loaded"), [("float16", ["float16"]), ("float32", [])])
def test_a_row_is_judged_beside_plain_transformers_in_its_own_dtype(monkeypatch, dtype, loaded):
    asked, decoded = [], []
    monkeypatch.setattr(judge, "_model", lambda job, dtype: asked.append(dtype) or f"model in {dtype}")
    monkeypatch.setattr(judge, "_decode", lambda plain, prompt, answers, new_tokens: decoded.append((plain, prompt)))
    readings = types.SimpleNamespace(float32=lambda: "model in float32")
    judge._decoded(types.SimpleNamespace(options={"dtype": dtype}, device="cpu"), {"prompts": [[5], [6]]}, 3, readings)
    assert asked == loaded and decoded == [(f"model in {dtype}", [5]), (f"model in {dtype}", [6])]


def test_the_worst_prompt_of_plain_transformers_counts(monkeypatch):
    import numpy

    logits = {0: numpy.array([3.0, 4.0]), 1: numpy.array([3.0, 8.0])}
    monkeypatch.setattr(judge, "_decoded", lambda *arguments: [([1], {"prompt": logits[row], "late": logits[row]}) for row in (1, 0)])
    right = numpy.array([[3.0, 4.0], [3.0, 4.0]])
    readings = types.SimpleNamespace(read=lambda answers, prompt, tokens: (numpy.array([0.5]), right), get=lambda name, make: make())
    answers = {"runs": [{"new_tokens": 1}], "prompts": [[5], [6]], "stop_tokens": [], "forbidden_tokens": [], "late_step": 0}
    plain = judge._plain(types.SimpleNamespace(options={"dtype": "float32"}), answers, readings)
    assert plain == {"regret_p90": 0.5, "regret_max": 0.5, "prompt": 0.8, "late": 0.8}


def test_vllm_counts_gpus_as_the_indices_do_that_it_is_given(monkeypatch):
    uuids = {"GPU-a": 0, "GPU-b": 1}
    driver = types.SimpleNamespace(
        nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetHandleByUUID=uuids.get, nvmlDeviceGetIndex=lambda handle: handle
    )
    monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.third_party", types.SimpleNamespace(pynvml=driver))
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a", "TRITON_CACHE_DIR": "/kernels/triton"})
    vllm._set_environment(own_process=True)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,0" and os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"], os.environ["VLLM_CACHE_ROOT"]) == ("1", "/kernels/vllm")


KERNELS = """
import os
from bench.backends import compiled
for _ in range(2):
    compiled.own_cache_of_kernels()
    print(os.environ["TRITON_CACHE_DIR"])
"""


def test_each_load_compiles_into_an_empty_folder_that_goes_with_the_process(tmp_path):
    """Kernels of a run before would make `compile_s` and `load_s` those of a cache."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", KERNELS], cwd=ROOT, env=environment, capture_output=True, text=True)
    first, second = done.stdout.split()
    assert first != second and all(Path(path).parent.parent == tmp_path for path in (first, second))
    assert list(tmp_path.iterdir()) == []


def a_model(vocabulary=10, diff=None, **config):
    """As much of a model as the compiled loop asks about a call: `diff` is what its generation config has beside the library's defaults."""
    settings = {"do_sample": False, "min_length": 0, "eos_token_id": 2, "pad_token_id": None, **config}
    generation_config = types.SimpleNamespace(**settings, to_diff_dict=lambda: diff or {})
    embeddings = types.SimpleNamespace(weight=types.SimpleNamespace(shape=(vocabulary, 4)))
    return types.SimpleNamespace(generation_config=generation_config, get_output_embeddings=lambda: embeddings)


@pytest.mark.parametrize(
    ("arguments", "config", "asked"),
    [
        ({"max_new_tokens": 4}, {}, {"new_tokens": 4, "least": 0, "ends": [2], "pad": 2, "may_end": True}),
        ({"max_length": 12}, {}, {"new_tokens": 4, "least": 0}),
        ({"max_new_tokens": 4, "min_length": 12}, {}, {"least": 12, "may_end": False}),
        ({"max_new_tokens": 4, "min_length": 11}, {}, {"least": 11, "may_end": True}),
        ({"max_new_tokens": 4}, {"min_length": 12}, {"least": 12, "may_end": False}),
        ({"max_new_tokens": 4, "min_length": 12, "min_new_tokens": 1}, {}, {"least": 9, "may_end": True}),
        ({"max_new_tokens": 4, "eos_token_id": [7, 3], "pad_token_id": 5}, {}, {"ends": [3, 7], "all_ends": [7, 3], "pad": 5}),
        ({"max_new_tokens": 4, "eos_token_id": [7, 3]}, {}, {"pad": 7}),
        ({"max_new_tokens": 4, "eos_token_id": [10, 9]}, {}, {"ends": [9], "all_ends": [10, 9], "may_end": True}),
        ({"max_new_tokens": 4, "eos_token_id": texts.NO_TOKEN}, {}, {"ends": [], "may_end": False}),
        ({"max_new_tokens": 4}, {"eos_token_id": None}, {"ends": [], "pad": None, "may_end": False}),
    ],
)
def test_the_compiled_loop_reads_lengths_and_end_tokens_from_a_call_or_from_the_model_s_settings(arguments, config, asked):
    found = greedy_loop.asked_for(a_model(**config), 8, arguments)
    assert {name: getattr(found, name) for name in asked} == asked


def test_the_compiled_loop_refuses_a_call_without_a_new_token():
    with pytest.raises(ValueError, match="^0 new tokens were asked for$"):
        greedy_loop.asked_for(a_model(), 8, {"max_length": 8})


@pytest.mark.parametrize(
    ("arguments", "settings", "reason"),
    [
        ({"max_new_tokens": 4, "min_length": 2, "eos_token_id": 2, "pad_token_id": 2, "do_sample": False, "num_beams": 1}, {}, ""),
        ({"max_length": 4}, {"diff": {"temperature": 0.6, "eos_token_id": 2, "repetition_penalty": None}}, ""),
        ({"max_new_tokens": 4, "repetition_penalty": 1.2}, {}, "repetition_penalty in the arguments or in the model's generation config"),
        ({"max_new_tokens": 4}, {"diff": {"suppress_tokens": [5]}}, "suppress_tokens in the arguments or in the model's generation config"),
        ({"max_new_tokens": 4, "do_sample": True}, {}, "tokens that are sampled or searched"),
        ({"max_new_tokens": 4}, {"do_sample": True}, "tokens that are sampled or searched"),
        ({"max_new_tokens": 4, "do_sample": False}, {"do_sample": True}, ""),
        ({"max_new_tokens": 4, "num_beams": 2}, {}, "tokens that are sampled or searched"),
        ({"max_new_tokens": 4, "num_beams": None}, {"diff": {"return_dict_in_generate": False}}, ""),
        ({"max_new_tokens": 4, "top_h": 1}, {"diff": {"penalty_alpha": 0.6}}, "penalty_alpha, top_h in the arguments or in the model's generation config"),
        ({"max_new_tokens": None, "max_length": 9}, {}, ""),
        ({"max_new_tokens": None, "max_length": None}, {}, "no length in the arguments"),
        ({}, {}, "no length in the arguments"),
    ],
)
def test_the_compiled_loop_follows_no_call_that_would_give_other_tokens(arguments, settings, reason):
    assert greedy_loop.why_not(a_model(**settings), arguments) == reason


class Rows(list):
    """Token ids [rows, tokens] as the batch of a call uses them."""

    def tolist(self):
        return [list(row) for row in self]

    new_tensor = staticmethod(lambda rows: Rows(rows))


def test_a_batch_of_unseen_prompts_turns_the_tokens_of_each_row_and_leaves_its_padding():
    batch = timed_tokens.Batch(Rows([[1, 2, 3, 4], [9, 9, 5, 6]]), Rows([[1, 1, 1, 1], [0, 0, 1, 1]]))
    turned = batch.rotated(1)
    assert turned.rows == [[4, 1, 2, 3], [9, 9, 6, 5]] and turned.prompts == [[4, 1, 2, 3], [6, 5]]


def test_no_call_that_an_end_token_may_end_tells_when_each_token_came():
    def form(**more):
        return types.SimpleNamespace(TIMES_RUNS=True, call=None, **more)

    assert actions.tells_tokens(form()) and not actions.tells_tokens(form(STOPS=True))


def test_a_model_is_recorded_within_its_block_alone():
    model = types.SimpleNamespace(generate=len)
    with pytest.raises(ValueError, match="broke"), recorder.recording(model):
        assert model.generate is not len
        raise ValueError("broke")
    assert model.generate is len


def test_the_copies_of_a_cache_wait_for_the_model_and_not_the_model_for_them(monkeypatch):
    waited = []
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=types.SimpleNamespace(current_stream=lambda: "the model's")))
    cache = types.SimpleNamespace(prefetch_stream=types.SimpleNamespace(wait_stream=waited.append))
    offloaded_cache.after_what_was_asked_for(cache)
    assert waited == ["the model's"]


def test_the_wall_time_of_a_profile_is_the_median_of_five_calls_after_two(monkeypatch):
    times = iter([90.0, 80.0, 1.0, 5.0, 2.0, 4.0, 3.0, 7.0])
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(__version__="5.17.0"))
    monkeypatch.setattr(profile.measure, "elapsed_ms", lambda action, synchronize: (next(times), None))
    monkeypatch.setattr(profile, "_marked", lambda call: call())
    job = types.SimpleNamespace(runs=[{"arguments": {}}], device="cpu", options={"profiler": "nsys"})
    loaded = types.SimpleNamespace(input_ids=types.SimpleNamespace(shape=(1, 32)))
    assert profile.profile(job, loaded) == {"profiler": "nsys", "new_tokens": 8, "wall_ms": 3.0, "profiled_wall_ms": 7.0}
