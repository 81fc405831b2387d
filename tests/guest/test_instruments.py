"""The scripts behind reports/instruments that a CPU can run."""

import json
import re

import pytest

from bench.instruments import compiled_step
from bench.job import to_json
from bench.models import offloaded_cache
from tests.guest.conftest import Guest
from tests.guest.samples import tiny_job


def test_the_right_rotation_gives_the_model_s_logits_and_the_kernel_s_does_not(guest, checkpoints):
    code = (
        "import json, torch, transformers; from bench.instruments import float32_rotary as r; ids = torch.arange(8)[None] + 10; "
        f"m = transformers.AutoModelForCausalLM.from_pretrained({str(checkpoints['gptj'])!r}).eval(); "
        "off = lambda a, b: float((a - b).norm() / b.norm()); torch.set_grad_enabled(False); expected = m(ids).logits[:, -1]; "
        "print(json.dumps([off(found, expected) for found in r.last_logits('gpt-j-6B', 'tiny', 0, ids, 2)]))"
    )
    right, in_place = guest.code(code)
    assert right == pytest.approx(0, abs=1e-5) and in_place > 1e-3


def test_tensor_parallel_s_ways_leave_out_what_they_say_and_put_it_back(python_tensor_parallel, tmp_path, checkpoints):
    """Without meetings the first part of the model answers from its own numbers, whoever else works beside it."""
    job = tiny_job("bloom", checkpoints["bloom"], backend="tensor-parallel", device_count=2)
    guest = Guest(python_tensor_parallel, tmp_path)
    (tmp_path / "asked.json").write_text(to_json(job))
    code = (
        "import importlib, json, torch; from bench import backends; from bench.job import parse_job; from bench.instruments import threads as t; "
        f"loaded = backends.find('tensor-parallel').load(parse_job(open({str(tmp_path / 'asked.json')!r}).read())); "
        "modules = [importlib.import_module('tensor_parallel.' + name) for name in ('tensor_parallel', 'communications')]; "
        "ids = torch.arange(8)[None] + 10; torch.set_grad_enabled(False)\n"
        "def answer(way):\n"
        "    with t.done(way, *modules): return loaded.model(ids, attention_mask=torch.ones_like(ids)).logits[0, -1].tolist()\n"
        "print(json.dumps([answer(way) for way in (*t.WAYS, 'library')]))"
    )
    library, switching, left_out, one_thread, alone, again = guest.code(code)
    assert library == switching == again
    assert left_out == one_thread == alone
    assert max(abs(right - wrong) for right, wrong in zip(library, left_out, strict=True)) > 1e-3


def test_attention_is_timed_with_and_without_a_mask(guest, tmp_path):
    done = guest.command("-m", "bench.instruments.masked_attention", "2", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["masked"] for row in rows] == [False, True] and all(us > 0 for row in rows for us in row["us"])


def test_settings_of_the_compiled_step_are_timed_and_a_failure_is_a_line(guest, tmp_path):
    out = tmp_path / "out.json"
    tiny = ["bloom-7b1", "--scale", "tiny", "--layers", "1", "--dtype", "float32", "--device", "cpu", "--out", str(out)]
    # Medians of several calls of several steps: on a busy machine a single short call takes no longer than the prompt alone did.
    short = ["--prompt-tokens", "8", "--new-tokens", "16", "--calls", "5", "--equal-calls", "3", "--profile", "none"]
    variants = {"eager": {"loop": "kit", "compiler": "eager"}, "wrong": {"loop": "kit", "compiler": "of-nobody"}}
    guest.code(f"from bench.instruments import compiled_step as c; c.VARIANTS = {variants}; c.run(c.parse({tiny + short})); print('null')")
    table = json.loads(out.read_text())
    eager, wrong = table["variants"]
    assert eager["split_biases"] is False and eager["tokens_equal"] and len(eager["tokens"]) == 16 and eager["ms_a_further_token"] > 0
    assert eager["times_the_products"] > 0 and len(table["products"]["step_us"]) > 1
    assert eager["of_equal_calls"] == {"answers": 1, "last_logits": 1}
    assert "of-nobody" in wrong["reason"] and "tokens" not in wrong
    assert table["choice"] == "eager"


def test_other_settings_are_taken_only_where_they_are_faster_by_the_rule_and_equal_calls_stay_equal():
    def line(variant, ms, answers=1, logits=1, tokens_equal=True, **load):
        equal = {"answers": answers, "last_logits": logits}
        return {"variant": variant, "load": load, "ms_a_further_token": ms, "of_equal_calls": equal, "tokens_equal": tokens_equal}

    first, failed = line("first", 2.03), {"variant": "failed", "load": {}, "reason": "RuntimeError"}
    assert compiled_step.choice([first, failed, line("little", 2.01)]) == "first"
    assert compiled_step.choice([first, line("fast", 2.0), line("faster", 1.98)]) == "faster"
    assert compiled_step.choice([first, line("edge", 2.0)]) == "edge"
    for wrong in ({"answers": 2}, {"logits": 4}, {"tokens_equal": False}):
        assert compiled_step.choice([first, line("wrong", 1.0, **wrong)]) == "first"
        assert compiled_step.choice([line("first", 2.03, **wrong), line("fast", 1.0)]) is None
    assert compiled_step.choice([failed, first]) is None and compiled_step.choice([]) is None
    assert compiled_step.choice([first, line("fast", 1.98), line("waiting", 1.96, waits=True)]) == "fast"
    assert compiled_step.choice([first, line("fast", 1.98), line("waiting", 1.95, waits=True)]) == "waiting"
    assert compiled_step.choice([first, line("waiting", 1.95, waits=True)]) == "waiting"
    assert compiled_step.choice([first, line("not enough", 2.005), line("waiting", 1.995, waits=True)]) == "first"


def test_a_trace_tells_where_the_time_of_a_step_goes():
    def trace(*kernels):
        events = [{"cat": category, "name": name, "ts": ts, "dur": dur} for category, name, ts, dur in kernels]
        return compiled_step.found_in({"traceEvents": [{"cat": "cpu_op", "name": "host", "ts": 0, "dur": 9}, *events]}, "cuda")

    prompt = [("kernel", "prompt", 0, 50), ("gpu_memset", "zero", 50, 1)]
    steps = [("kernel", "product", 110, 6), ("kernel", "norm", 117, 1), ("kernel", "norm", 127, 1), ("kernel", "product", 120, 6)]
    found = compiled_step.steps_of(trace(*prompt), trace(*prompt, *steps), steps=2)
    assert (found["device_us"], found["traced_gaps_us"], found["kernels"]) == (7, 2, 2)
    assert found["top"] == [{"name": "product", "us": 6, "count": 1}, {"name": "norm", "us": 1, "count": 1}]
    with pytest.raises(ValueError, match="no kernels"):
        compiled_step.steps_of(trace(*prompt), trace(*prompt), steps=2)


def test_equal_calls_that_differ_are_counted(guest):
    made, loaded = "lambda count: torch.full((1, count), next(odd))", "types.SimpleNamespace(loop=types.SimpleNamespace(logits=torch.zeros(1, 4)))"
    code = "import itertools, json, torch, types; from bench.instruments import compiled_step; odd = itertools.cycle([0, 1]); "
    assert guest.code(f"{code}print(json.dumps(compiled_step.repeated({loaded}, {made}, 3, 4)))") == {"answers": 2, "last_logits": 1}


@pytest.mark.parametrize(
    ("words", "gpus", "low_zero", "filled"),
    [(1024, 2, True, ["1"]), (1024, 4, True, ["1", "2"]), (1024, 2, False, ["0", "1"]), (100_000, 8, True, ["7"]), (100_000, 8, False, ["7"])],
)
def test_balanced_low_0_leaves_the_first_gpu_empty_and_where_the_embedding_exceeds_a_share_both_maps_fill_the_last(guest, words, gpus, low_zero, filled):
    code = (
        "import json; from bench.instruments import device_map as d; fields = d.weights.config_of('bloom-7b1', 'tiny'); "
        f"d.weights.config_of = lambda shape, scale: dict(fields, vocab_size={words}); model = d.empty_model('bloom-7b1', 'tiny'); "
        f"shares, places = d.shares_and_places(model, 'float16', {gpus}, {low_zero}); "
        "print(json.dumps([shares, d.parameters_on(model, places), sum(p.numel() for p in model.parameters())]))"
    )
    shares, counts, parameters = guest.code(code)
    assert (shares["0"] == 0) == low_zero and len(shares) == gpus
    assert sorted(counts) == filled and sum(counts.values()) == parameters


def test_caches_are_compared_with_the_default_one_and_a_failure_is_a_line(guest, tmp_path):
    out = tmp_path / "out.json"
    small = ["--scale", "tiny", "--dtype", "float32", "--device", "cpu", "--rows", "3", "--context-tokens", "16", "--new-tokens", "4", "--calls", "2", "--out"]
    done = guest.command("-m", "bench.instruments.offloaded_cache", "bloom-7b1", *small, str(out))
    assert done.returncode == 0, done.stderr
    table = json.loads(out.read_text())
    default, *others, again = table["ways"]
    assert (default["rows_alike"], default["logits_error"]) == (again["rows_alike"], again["logits_error"]) == ([3, 3], [0.0, 0.0])
    assert [line["way"] for line in others] == ["offloaded", "waiting", "synchronized", "offloaded again"]
    assert all(line["reason"] and not line["rows_alike"] for line in others), "a CPU has no stream of copies"


def test_a_cache_that_answers_otherwise_is_seen(guest):
    code = (
        "import json, torch; from bench.instruments import offloaded_cache as o; tokens = torch.tensor([[1, 2], [1, 2]]); logits = torch.ones(2, 2, 5); "
        "other = (torch.tensor([[1, 2], [1, 3]]), torch.stack([torch.ones(2, 5), 1.5 * torch.ones(2, 5)])); o.answer = lambda *call: other; "
        "line, _ = o.line_of('offloaded', None, None, o.parse(['bloom-7b1', '--calls', '1', '--out', 'x']), (tokens, logits)); print(json.dumps(line))"
    )
    line = guest.code(code)
    assert (line["rows_alike"], line["logits_error"]) == ([1], [pytest.approx(0.5)])


def test_logits_are_compared_as_long_as_the_tokens_before_them_are_the_same(guest):
    code = (
        "import json, torch; from bench.instruments.offloaded_cache import largest_error as e; tokens = torch.tensor([[1, 2, 3], [1, 2, 3]]); "
        "ones = torch.ones(3, 2, 5); other = ones.clone(); other[2, 1] = 9; one = torch.tensor([[1, 2, 3], [1, 8, 3]]); both = torch.tensor([[7, 2, 3]] * 2); "
        "print(json.dumps([e((one, other), (tokens, ones)), e((both, other), (tokens, ones)), e((tokens, other), (tokens, ones))]))"
    )
    one_row_parts, both_part_at_once, same_tokens = guest.code(code)
    assert (one_row_parts, both_part_at_once) == (0.0, 0.0) and same_tokens == pytest.approx(8 / 2**0.5)


def test_a_copy_waits_for_the_work_before_it_and_no_longer_once_the_way_was_tried():
    log = []

    class Cache:
        def prefetch(self, layer):
            log.append(f"copy {layer}")

    with pytest.raises(RuntimeError, match="a way failed"), offloaded_cache.before_each_copy(Cache, lambda cache: log.append("wait")):
        Cache().prefetch(1)
        raise RuntimeError("a way failed")
    Cache().prefetch(2)
    assert log == ["wait", "copy 1", "copy 2"]


#: What `equal_calls` says of a tiny model whose layers, and whose last norm, change their outputs as `change` does, and the hooks that it leaves.
EQUAL_CALLS = """import collections, json, torch, transformers
from bench.instruments import equal_calls
from bench.models import pretrained
torch.set_grad_enabled(False)
model = transformers.AutoModelForCausalLM.from_pretrained({path!r}).eval()
layers, norm, turns = list(pretrained.layers_of(model)), model.transformer.ln_f, collections.Counter()
def change(part, arguments, output):
    turn = turns[part]
    turns[part] += 1
    hidden = (output[0] if isinstance(output, tuple) else output).clone()
    {change}
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden
for part in (*layers, norm):
    part.register_forward_hook(change)
heard = []
answers = equal_calls.examine(model, torch.arange(8).repeat(3, 1) + 10, lambda answers: heard.append(len(answers)))
left = sum(len(layer._forward_hooks) - 1 for layer in layers)
print(json.dumps([answers["chosen"], sorted(answers), heard, len(layers), left]))"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("pass", ("one", None, 0, None)),
        ("hidden += turn * (part is layers[1])", ("each its own", 1, 0, None)),
        ("hidden += turn % 2 * (part is layers[0]) + turn * (part is layers[1])", ("each its own", 0, 0, None)),
        ("hidden += 7 * (turn in (1, 5)) * (part is layers[1])", ("an odd first one", 1, 0, None)),
        ("hidden += 7 * (turn % 2) * (part is layers[1])", ("two in turn", 1, 0, None)),
        ("hidden[:, -1] += turn * (part is norm)", ("each its own", "the norm", 0, None)),
        ("hidden[2] += part is layers[1]", ("one", None, 1, 1)),
        ("hidden[1] += part is layers[1]; hidden[2] += part is layers[0]", ("one", None, 2, 0)),
    ],
)
def test_calls_and_rows_that_differ_are_found_with_their_first_layer(either, checkpoints, change, expected):
    told, kernels, heard, layers, hooks_left = either.code(EQUAL_CALLS.format(path=str(checkpoints["gptj"]), change=change))
    outputs, first_layer, rows, first_layer_of_rows = expected
    for name, calls in (("prompt", 4), ("token", 10)):
        of_calls = {"calls": calls, "differing_calls": {"one": 0, "two in turn": calls // 2}.get(outputs, calls - 1)}
        of_calls["different_outputs"] = {"one": 1, "an odd first one": 2, "two in turn": 2, "each its own": calls}[outputs]
        of_calls["first_layer"] = layers if first_layer == "the norm" else first_layer
        assert told[name] == {**of_calls, "differing_rows": rows, "first_layer_of_rows": first_layer_of_rows}
    assert {"chosen", "MATH"} <= set(kernels) and heard == [*range(1, len(kernels) + 1)] and hooks_left == 0


def test_a_kernel_that_cannot_compute_the_attention_has_a_reason(guest, checkpoints):
    change = "raise RuntimeError('no kernel ' * 100)"
    told, kernels, heard, *_ = guest.code(EQUAL_CALLS.format(path=str(checkpoints["gptj"]), change=change))
    assert told == {"reason": "no kernel " * 30} and len(heard) == len(kernels) > 1


#: Which of torch's kernels {instrument} allows in each choice, where torch knows all of them but {unknown}; none if it has no list of kernels.
KERNELS = """import json, sys, types
import torch.nn.attention
from torch.backends import cuda
from bench.instruments import attention_kernels, {instrument}
names, allowed = dict(zip(attention_kernels.KERNELS, ("flash", "cudnn", "mem_efficient", "math"))), {{}}
known = {{name: getattr(torch.nn.attention.SDPBackend, name) for name in names if name != {unknown!r}}}
stub = types.SimpleNamespace(SDPBackend=types.SimpleNamespace(**known), sdpa_kernel=torch.nn.attention.sdpa_kernel)
sys.modules["torch.nn.attention"] = None if {unknown!r} == "any" else stub
for name, only in {instrument}.choices().items():
    with only():
        allowed[name] = [name for name in names if getattr(cuda, names[name] + "_sdp_enabled")()]
print(json.dumps(allowed))"""

FLASH, CUDNN, EFFICIENT, MATH = ALL = ["FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH"]


@pytest.mark.parametrize(
    ("instrument", "unknown", "allowed"),
    [
        ("equal_calls", "", {"chosen": ALL, **{name: [name] for name in ALL}}),
        ("equal_calls", CUDNN, {"chosen": ALL, **{name: [name] for name in (FLASH, EFFICIENT, MATH)}}),
        ("equal_calls", "any", {"chosen": ALL}),
        ("new_lengths", "", {"chosen": ALL, "cudnn": [CUDNN], "without_cudnn": [FLASH, EFFICIENT, MATH]}),
        ("new_lengths", EFFICIENT, {"chosen": ALL, "cudnn": [CUDNN], "without_cudnn": [FLASH, MATH]}),
        ("new_lengths", CUDNN, {"chosen": ALL}),
        ("new_lengths", "any", {"chosen": ALL}),
    ],
)
def test_each_choice_allows_its_kernels_of_torch_alone_and_one_choice_is_torch_s_own(guest, instrument, unknown, allowed):
    assert guest.code(KERNELS.format(instrument=instrument, unknown=unknown)) == allowed


def test_equal_calls_of_a_job_are_written_with_its_prompt_and_the_libraries(guest, tmp_path, checkpoints):
    job, out = tmp_path / "job.json", tmp_path / "out.json"
    job.write_text(to_json(tiny_job("gptj", checkpoints["gptj"], prompt={"text": "the quick brown fox", "tokens": 32, "batch_size": 2})))
    done = guest.command("-m", "bench.instruments.equal_calls", str(job), str(out))
    assert done.returncode == 0, done.stderr
    told = json.loads(out.read_text())
    assert told["shape"] == [2, 32] and {"torch", "transformers"} < set(told)
    assert {name: (call["calls"], call["differing_calls"]) for name, call in told["kernels"]["MATH"].items()} == {"prompt": (4, 0), "token": (10, 0)}


#: What `new_lengths` says of a tiny model whose second layer fails where `fails`, with one token before three lengths, in `rounds` rounds; `heard` is
#: [tokens, the places that the mask hides, length with the call] of each call, `lengths` are those of the cache after each call. `order` has an s where
#: the program waits for the device, a c where it reads the clock, by which each token takes longer than the one before, and an m where it calls the model.
NEW_LENGTHS = """import itertools, json, torch, transformers, types
from bench.instruments import new_lengths
from bench.models import pretrained
model = transformers.AutoModelForCausalLM.from_pretrained({path!r}).eval()
new_lengths.BEFORE, new_lengths.LENGTHS, new_lengths.ROUNDS = 1, 3, {rounds}
heard, body, forward = [], model.base_model, model.base_model.forward
def listening(input_ids, attention_mask, **named):
    order.append("m")
    heard.append([input_ids.shape[1], attention_mask.eq(0).nonzero().tolist(), attention_mask.shape[1]])
    output = forward(input_ids, attention_mask=attention_mask, **named)
    lengths.append(output.past_key_values.get_seq_length() if hasattr(output.past_key_values, "get_seq_length") else None)
    return output
def failing(*arguments):
    if {fails}:
        raise RuntimeError("no kernel " * 100)
ticks, order, lengths = itertools.count(), [], []
new_lengths.time = types.SimpleNamespace(monotonic=lambda: order.append("c") or next(ticks) ** 3)
body.forward = listening
pretrained.layers_of(model)[1].register_forward_pre_hook(failing)
answers = new_lengths.examine(model, torch.arange(8).repeat(3, 1) + 10, lambda: order.append("s"))
print(json.dumps([answers, heard, lengths, "".join(order)]))"""

HIDDEN = [[0, 0], [2, 0]]


def test_each_length_of_a_cache_is_timed_new_and_seen_and_no_two_choices_share_one(either, checkpoints):
    answers, heard, lengths, order = either.code(NEW_LENGTHS.format(path=str(checkpoints["gptj"]), rounds=2, fails="False"))
    assert heard.pop(0) == [8, [], 8] and re.fullmatch("m(scm(sc)?)+", order), "the clock is read while the device has nothing to do"
    assert {"chosen"} <= set(answers) <= {"chosen", "cudnn", "without_cudnn"}
    length, grown, names, clock = 8, [8], list(answers), 0
    for number, order in enumerate((names, names[1:] + names[:1])):
        for kernels, name in [(kernels, name) for kernels in order for name in ("unmasked", "masked")]:
            told = answers[kernels][name]
            of_round = told[number]
            if "reason" in of_round:
                assert kernels == "cudnn", "no CPU has this kernel"
                heard.pop(0)
                clock += 1
                continue
            assert len(told) == 2 and of_round["first_length"] == length + 1
            ms = [1000 * ((clock + read + 1) ** 3 - (clock + read) ** 3) for read in range(2, 14, 2)]
            assert (of_round["new_ms"], of_round["seen_ms"], of_round["extra_ms"]) == (ms[:3], ms[3:], ms[1] - ms[4])
            clock += 14
            of_choice, heard = heard[:7], heard[7:]
            expected = [length + 1, *[length + 2, length + 3, length + 4] * 2]
            assert of_choice == [[1, HIDDEN * (name == "masked"), with_call] for with_call in expected]
            grown, length = grown + expected, length + 4
    assert not heard
    if lengths[0] is not None:
        assert lengths == grown


def test_new_lengths_of_a_round_that_fails_have_a_reason_and_leave_no_token_in_the_cache_and_other_rounds_stay(guest, checkpoints):
    second_masked_token = f"heard[-1][1:] == [{HIDDEN}, 14]"
    answers, _, lengths, _ = guest.code(NEW_LENGTHS.format(path=str(checkpoints["gptj"]), rounds=3, fails=second_masked_token))
    failed, second, third = answers["chosen"]["masked"]
    assert failed == {"reason": "no kernel " * 30} and len(second["new_ms"]) == len(third["seen_ms"]) == 3
    assert lengths[7:11] == [12, 13, 13, 14]
    assert answers["cudnn"]["unmasked"][0]["first_length"] == 13


#: The kernels that attention_kernels.heard names for an attention with these `arguments` beside query, key and value, by a torch that lacks what
#: `lacks` deletes.
HEARD = """import json, torch
from bench.instruments import attention_kernels
functional, query, mask = torch.nn.functional, torch.ones(1, 1, 2, 8), torch.zeros(2, 2)
{lacks}
before = vars(functional).get("scaled_dot_product_attention")
with attention_kernels.only("MATH")(), attention_kernels.heard() as kernels:
    assert before is None or functional.scaled_dot_product_attention(query, query, query, {arguments}).equal(query)
assert vars(functional).get("scaled_dot_product_attention", "none") is (before or "none")
print(json.dumps(sorted(kernels)))"""


@pytest.mark.parametrize(
    ("lacks", "arguments", "kernels"),
    [
        ("", "", ["MATH"]),
        ("", "None", ["MATH"]),
        ("", "mask", ["MATH with a mask"]),
        ("", "attn_mask=mask", ["MATH with a mask"]),
        ("del torch._fused_sdp_choice", "", ["unknown"]),
        ("del torch._fused_sdp_choice", "mask", ["unknown with a mask"]),
        ("del functional.scaled_dot_product_attention", "", []),
    ],
)
def test_the_kernels_of_attention_are_told_or_said_to_be_unknown(guest, lacks, arguments, kernels):
    assert guest.code(HEARD.format(lacks=lacks, arguments=arguments)) == kernels


def test_new_lengths_of_a_job_are_written_with_its_prompt_the_kernels_and_the_libraries(guest, tmp_path, checkpoints):
    job, out = tmp_path / "job.json", tmp_path / "out.json"
    job.write_text(to_json(tiny_job("llama", checkpoints["llama"], prompt={"text": "the quick brown fox", "batch_size": 2})))
    done = guest.command("-m", "bench.instruments.new_lengths", str(job), str(out))
    assert done.returncode == 0, done.stderr
    told = json.loads(out.read_text())
    assert told["shape"] == [2, 192], "this job names no length"
    assert {"torch", "transformers"} < set(told)
    without = told["kernels"]["without_cudnn"]
    assert [len(without[name]) for name in ("unmasked", "masked")] == [3, 3] and len(without["masked"][0]["new_ms"]) == 16
    kernels = {name: [kernels for of_round in without[name] for kernels in of_round["kernels"]] for name in without}
    assert kernels["masked"] and all(kernel.endswith(" with a mask") for kernel in kernels["masked"])
    assert kernels["unmasked"] and not any(kernel.endswith(" with a mask") for kernel in kernels["unmasked"]), "transformers drops a mask that hides nothing"


WAITING = """import json
from bench.instruments import new_lengths
waits = []
new_lengths.measure.synchronizer = lambda job: lambda: waits.append(job.device)
new_lengths.BEFORE, new_lengths.LENGTHS, new_lengths.ROUNDS = 1, 1, 1
new_lengths.main({job!r}, {out!r})
print(json.dumps(sorted(set(waits))))"""


def test_new_lengths_of_a_job_are_timed_while_its_device_has_nothing_to_do(guest, tmp_path, checkpoints):
    job = tmp_path / "job.json"
    job.write_text(to_json(tiny_job("llama", checkpoints["llama"])))
    assert guest.code(WAITING.format(job=str(job), out=str(tmp_path / "out.json"))) == ["cpu"]
