"""What the guest counts and times, call by call, with real torch: which products, which calls, which seeds and which prompts."""

import pytest

from bench.job import to_json
from scripts import articles
from tests.guest.samples import tiny_job

OPTIONS = articles.find("batch-generate").options

PRODUCTS = """
import json, torch
from bench.measuring import roof, work
from bench.models import weights
model = work.model_of(weights.config_of("bloomz-7b1", "tiny"))
roof.IN_TURN_BYTES = 2 * roof._layer_bytes(model)
linear, seen = torch.nn.functional.linear, []
torch.nn.functional.linear = lambda values, weight, bias=None: seen.append([list(weight.shape), bias is not None, weight.data_ptr()]) or linear(values, weight, bias)
once = lambda call, *arguments, **named: call() is None and [1.0]
roof.clock.call_times_us = once
roof.products_alone(model, 2, "cpu")
layers = [[matrix.outputs, matrix.inputs] for matrix in model.matrices]
shapes, biases, places = zip(*seen)
found = [list(shapes) == layers * model.layers + [[model.output.outputs, model.output.inputs]], list(biases), len(set(places))]
fastest = []
for times in ([5.0, 3.0], [3.0, 5.0]):
    left = list(times)
    roof.clock.call_times_us = lambda *arguments, **named: [left.pop(0)]
    best = roof.read("cpu", 1 << 20, widths=(64, 256))
    fastest.append([best["read_width"], best["read_us"]])
print(json.dumps([found, fastest]))
"""


def test_a_step_s_products_are_all_matrices_of_all_layers_once_with_their_biases_and_the_fastest_width_counts(guest):
    (right, biases, weights), fastest = guest.code(PRODUCTS)
    assert right and biases == [True] * 16 + [False] and weights == 2 * 4 + 1, "two layers in turn"
    assert fastest == [[256, [3.0]], [64, [3.0]]]


KERNEL = """
import json, torch
from bench.__main__ import run
from bench.forms import fixed_kernel
from bench.job import parse_job
job = parse_job({text!r})
result = run(job)
size = fixed_kernel.SIZES["cpu"]
matrix = (torch.randn(size, size, generator=torch.Generator().manual_seed(0)) / size**0.5).bfloat16()
right = matrix @ matrix @ matrix @ matrix @ matrix
made = fixed_kernel.kernel(job)()
print(json.dumps([result.status, result.reason, [one["cold_ms"] is None for one in result.measurements], bool(torch.equal(made, right)), result.figures["kernel"]]))
"""


def test_the_fixed_kernel_makes_its_products_in_the_job_s_dtype(guest):
    runs = [{"new_tokens": 1, "arguments": {}}, {"new_tokens": 2, "arguments": {}}]
    job = tiny_job("bloom", "", form="fixed-kernel", load={"dtype": "bfloat16"}, options={"kernel": "product"}, runs=runs)
    status, reason, without_cold, right, told = guest.code(KERNEL.format(text=to_json(job)))
    assert status == "ok" and right, reason
    assert without_cold == [False, True] and (told["products"], told["dtype"]) == (4, "bfloat16")


TIMED = """
import json, types, torch
from bench.models import texts
texts.terminators = lambda job, tokenizer: [9]
tokenizer = types.SimpleNamespace(pad_token_id=0)
lengths, seeds, kept = iter({lengths!r}), [], []

def call(arguments):
    seeds.append(torch.initial_seed())
    torch.manual_seed(5)
    return [[1] * count for count in next(lengths)]

job = types.SimpleNamespace(device="cpu", warmup_runs=1, timed_runs=2, runs=[{{"new_tokens": 4, "up_to": {up_to}, "arguments": {{}}}}])
try:
    _, rows, figures = texts.time_runs(job, tokenizer, call, lambda **event: None, kept)
    print(json.dumps([figures["calls"], kept[0].calls, seeds[0], len(rows)]))
except AssertionError as error:
    print(json.dumps(str(error)))
"""


def test_the_tokens_of_timed_calls_alone_are_counted_and_kept_each_as_its_call_made_them(guest):
    lengths = [[4, 4], [3, 3], [2, 1], [1, 1]]
    (calls,), kept, seed, rows = guest.code(TIMED.format(lengths=lengths, up_to=True))
    assert calls == {"new_tokens": 4, "timed_tokens": [3, 2]} and kept == [[[1, 1], [1]], [[1], [1]]]
    assert seed == 0 and rows == 2, "sampled tokens are the same in every run"


@pytest.mark.parametrize(
    ("up_to", "lengths", "said"), [(True, [5, 1], "4 new tokens were asked for, 1 came"), (False, [4, 3], "4 new tokens were asked for, 3 came")]
)
def test_a_row_that_is_too_long_or_too_short_has_no_time(guest, up_to, lengths, said):
    assert guest.code(TIMED.format(lengths=[lengths] * 4, up_to=up_to)) == said


REGRETS = """
import json, types, torch
from bench.checking import judge, regret
logits = torch.tensor([[0.0, 2.0, 6.0], [0.0, 2.0, 6.0], [0.0, 2.0, 6.0]])
found = [regret.regrets(logits, [1, 0, 2], ends).tolist() for ends in ((), (2,))]
asked = []

def generate(ids, **arguments):
    asked.append([arguments["min_length"], arguments["max_new_tokens"]])
    return torch.cat([ids, ids], dim=1)

plain = types.SimpleNamespace(device="cpu", model=types.SimpleNamespace(generate=generate))
for stops in ([], [2]):
    judge._decode(plain, [5, 6, 7], {{"late_step": 2, "stop_tokens": stops}}, 4)
print(json.dumps([found, asked, float(logits[0].std())]))
"""


def test_a_forbidden_end_token_is_no_better_choice_and_changes_no_scale(guest):
    (allowed, forbidden), asked, deviation = guest.code(REGRETS.format())
    assert allowed == pytest.approx([4 / deviation, 6 / deviation, 0]) and forbidden == pytest.approx([0, 2 / deviation, 0])
    assert asked == [[7, 4], [0, 4]], "plain transformers too makes all tokens where an end token is forbidden"


SCHEDULES = """
import json, torch
from bench.__main__ import run
from bench.forms import pipeline_stages
from bench.job import parse_job
generate, seen = pipeline_stages.generate, []

def watched(stages, batches, new_tokens, in_flight):
    if new_tokens == 4:  # not the call of the output check
        rows = torch.cat(list(batches)).tolist()
        seen.append([len(batches), in_flight, len(set(map(tuple, rows))), [sorted(row) == sorted(rows[0]) for row in rows]])
    return generate(stages, batches, new_tokens, in_flight)

pipeline_stages.generate = watched
result = run(parse_job({text!r}), {folder!r})
print(json.dumps([result.status, result.reason, seen, [[len(one["wall_ms"]), len(one["busy_ms"])] for one in result.figures["schedules"]]]))
"""


def test_schedules_differ_in_what_is_in_the_pipeline_at_once_and_warm_ups_enter_no_time(guest, checkpoints, tmp_path):
    runs = [{"new_tokens": 4, "arguments": {"do_sample": False}}]
    job = tiny_job(
        "gptj", checkpoints["gptj"], form="pipeline-parallel", device_count=2, options={"micro_batch_size": 2}, runs=runs, warmup_runs=1, timed_runs=2
    )
    status, reason, seen, counts = guest.code(SCHEDULES.format(text=to_json(job), folder=str(tmp_path)))
    assert status == "ok", reason
    assert [call[:3] for call in seen] == [[2, 1, 4]] * 3 + [[2, 2, 4]] * 3 + [[1, 1, 4]] * 3, "four prompts, each another one"
    assert all(all(turned) for *_, turned in seen) and counts == [[2, 2]] * 3


FUSION = """
import json
from bench.__main__ import run
from bench.forms import fused_regions
from bench.job import parse_job
make, sizes = fused_regions.make_activations, []
fused_regions.make_activations = lambda hidden, batch_size, *rest: sizes.append(batch_size) or make(hidden, batch_size, *rest)
result = run(parse_job({text!r}))
print(json.dumps([result.reason, sizes, [[row["batch_size"], row["relative_error"]] for row in result.figures["fusion"]]]))
"""


def test_the_error_of_a_fused_region_is_that_of_its_dtype_in_each_batch_size(guest):
    options = {"implementations": ["eager"], "batch_sizes": [1, 3], "past_tokens": 8, "samples": 1, "calls_per_sample": 1}
    reason, sizes, rows = guest.code(FUSION.format(text=to_json(tiny_job("bloom", "", form="fusion", options=options, load={"dtype": "bfloat16"}))))
    assert reason == "" and sizes == [1, 3]
    assert [size for size, _ in rows] == [1] * 4 + [3] * 4 and all(1e-5 < error < 0.05 for _, error in rows), rows


CONTINUOUS = """
import json
from bench import actions, backends, forms
from bench.forms import continuous
from bench.job import Result, parse_job
import transformers.generation.continuous_batching.continuous_api as library
job, seen, began = parse_job({text!r}), [], []
add = library.ContinuousBatchingManager.add_request
keep = continuous.keep

def watched(manager, ids, request_id=None, **named):
    seen.append([request_id, list(ids)])
    return add(manager, ids, request_id=request_id, **named)

def timed(finished, *rest):
    began.append(len(seen))
    return keep(finished, *rest)

library.ContinuousBatchingManager.add_request, continuous.keep = watched, timed
result, form = Result(id="x", status="ok"), forms.find(job.form)
with actions.opened(job, result, actions.Phases(), {folder!r}) as loaded:
    before = loaded.model.config._attn_implementation
    form.run(job, loaded, lambda **event: None)
    after = loaded.model.config._attn_implementation
print(json.dumps([seen, began, before, after, result.used["continuous"]]))
"""


def workload(checkpoints, form):
    lengths = {"median": 3, "sigma": 0.8, "least": 2, "most": 6}
    options = {**OPTIONS, "order": "naive", "attention": "paged|sdpa", "items": 5, "prompt_tokens": lengths, "answer_tokens": lengths, "terminators": []}
    prompt, runs = {"text": "a fox", "tokens": None, "batch_size": 2}, [{"new_tokens": 3, "arguments": {"do_sample": False}}]
    return tiny_job("llama", checkpoints["llama"], form=form, options=options, prompt=prompt, runs=runs, warmup_runs=0)


def test_continuous_batching_is_timed_after_a_warm_up_on_turned_prompts_with_as_many_texts_at_once_as_a_batch_has(guest, checkpoints, tmp_path):
    seen, began, before, after, settings = guest.code(CONTINUOUS.format(text=to_json(workload(checkpoints, "continuous")), folder=str(tmp_path)))
    assert began == [2] and [name for name, _ in seen] == ["warm-up 0", "warm-up 1", "0", "1", "2", "3", "4"]
    assert [ids[::-1] for _, ids in seen[:2]] == [ids for _, ids in seen[2:4]]
    assert all(ids != ids[::-1] for _, ids in seen[:2]), "a prompt that reads the same backwards would show nothing"
    assert before == after != settings["attention"] and settings["max_requests_per_batch"] == 2


DECODED = """
import json
from transformers import PreTrainedTokenizerBase
from bench.__main__ import run
from bench.job import parse_job
from bench.measuring import measure
decode, elapsed, decoded, calls = PreTrainedTokenizerBase.decode, measure.elapsed_ms, [], []

def seen_decode(tokenizer, ids, **named):
    decoded.append(named.get("skip_special_tokens"))
    return decode(tokenizer, ids, **named)

def timed(action, *rest):
    decoded.clear()
    ms, made = elapsed(lambda: [action(), len(decoded)], *rest)
    calls.append(made[1])
    return ms, made[0]

PreTrainedTokenizerBase.decode, measure.elapsed_ms = seen_decode, timed
result = run(parse_job({text!r}), {folder!r})
print(json.dumps([result.status, result.reason, calls[:3]]))
"""


def test_a_timed_call_of_a_batch_holds_the_decoding_of_every_row(guest, checkpoints, tmp_path):
    options = {**OPTIONS, "texts": "prompt"}
    prompt, runs = {"text": "a fox", "tokens": None, "batch_size": 3}, [{"new_tokens": 2, "arguments": {"do_sample": False}}]
    job = tiny_job("llama", checkpoints["llama"], form="batch", options=options, prompt=prompt, runs=runs, warmup_runs=0, timed_runs=2)
    assert guest.code(DECODED.format(text=to_json(job), folder=str(tmp_path))) == ["ok", "", [3, 3, 3]]


PROMPTS = """
import json
from bench import actions, forms
from bench.job import Result, parse_job
job, result = parse_job({text!r}), Result(id="x", status="ok")
with actions.opened(job, result, actions.Phases(), {folder!r}) as loaded:
    _, _, figures = forms.find(job.form).run(job, loaded, lambda **event: None)
    print(json.dumps([figures["prompt_tokens"], loaded.prompt_ids.numel(), loaded.input_ids.numel()]))
"""


@pytest.mark.parametrize("form", ["batch", "transformers-pipeline"])
def test_the_judge_s_calls_have_the_prompt_of_the_timed_calls_with_its_chat_template(guest, checkpoints, tmp_path, form):
    options = {**OPTIONS, "texts": "prompt", "templated": True}
    prompt, runs = {"text": "a fox", "tokens": None, "batch_size": 1}, [{"new_tokens": 2, "arguments": {"do_sample": False}}]
    job = tiny_job("llama", checkpoints["llama"], form=form, options=options, prompt=prompt, runs=runs, warmup_runs=0, timed_runs=1)
    timed, judged, own = guest.code(PROMPTS.format(text=to_json(job), folder=str(tmp_path)))
    assert timed == judged > own


SEEDED = """
import json, torch
from bench.__main__ import run
from bench.job import parse_job
torch.manual_seed(1)
result = run(parse_job({text!r}), {folder!r})
print(json.dumps([result.status, result.reason, torch.initial_seed(), result.figures["pipeline"]["tokens_by_call"]]))
"""


def test_a_pipeline_s_sequences_are_drawn_from_the_article_s_seed(guest, checkpoints, tmp_path):
    runs = [{"new_tokens": 3, "arguments": {"max_new_tokens": 3, "do_sample": True}}]
    prompt = {"text": "a fox", "tokens": 4, "batch_size": 1}
    job = tiny_job("gptj", checkpoints["gptj"], form="transformers-pipeline-sequences", options={"seed": 42}, prompt=prompt, runs=runs, timed_runs=2)
    assert guest.code(SEEDED.format(text=to_json(job), folder=str(tmp_path))) == ["ok", "", 42, [3, 3]]


CONTEXT = """
import json, types, torch
from bench.forms import kv_offload
prompt = kv_offload._prompt(types.SimpleNamespace(input_ids=torch.arange(4, 20).repeat(2, 1)), 3, 24)
print(json.dumps(prompt.tolist()))
"""


def test_a_context_has_exactly_its_tokens_in_every_sequence(guest):
    assert guest.code(CONTEXT) == [[*range(4, 20), *range(4, 12)]] * 3


IDENTICAL = """
import json, types, torch
from bench.forms import kv_offload
answers = {"default": torch.tensor([[1, 2], [3, 4], [5, 6]]), "offloaded": torch.tensor([[1, 2], [3, 9], [5, 6]])}
kv_offload._timed = lambda job, loaded, prompt, cache, new_tokens: ([1.0], [answers[cache]])
kv_offload._fits = lambda loaded, prompt, cache, new_tokens: True
job = types.SimpleNamespace(options={"context_tokens": 8, "most_sequences": 3, "new_tokens": 2})
figures = kv_offload._compared(job, types.SimpleNamespace(input_ids=torch.arange(8)[None]), lambda **event: None)[2]
print(json.dumps([one["identical"] for one in figures["kv_offload"]["caches"]]))
"""


def test_a_sequence_with_one_other_token_is_not_identical(guest):
    assert guest.code(IDENTICAL) == [3, 2]
