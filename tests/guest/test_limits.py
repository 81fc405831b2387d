"""The probes of the GPU's roof and of the model's products alone, and the times of single tokens: on tiny shapes and this machine's CPU."""

import dataclasses
import statistics

import pytest

from bench.measuring import roof, work
from bench.models import weights
from tests.guest.conftest import SHAPES
from tests.guest.samples import tiny_job

COUNTED = """
import dataclasses
import json
from bench import backends
from bench.backends import layer_parallel
from bench.job import parse_job
from bench.measuring import work
from bench.models import weights
found = {{}}
for architecture, shape, folder in {cases!r}:
    loaded = weights.parameters_of(weights.config_of(shape, "tiny"))
    model = work.model_of(weights.config_of(shape, "tiny"))
    left_out = sum(extents[0] * (extents[1] if len(extents) > 1 else 1) for name, extents in loaded if "ln_" in name or "norm" in name)
    embedding = sum(extents[0] * extents[1] for name, extents in loaded if "wte" in name or "embed_tokens" in name)
    every = sum(extents[0] * (extents[1] if len(extents) > 1 else 1) for name, extents in loaded)
    found[architecture] = [every - left_out - embedding, work.weight_bytes(model, "float16") // 2]
print(json.dumps(found))
"""


def test_the_bytes_of_a_step_are_those_of_the_models_own_parameters(guest):
    cases = [(architecture, shape, "") for architecture, shape in SHAPES.items()]
    found = guest.code(COUNTED.format(cases=cases))
    assert {architecture: counts[0] == counts[1] for architecture, counts in found.items()} == dict.fromkeys(SHAPES, True), found


PROBED = """
import json
from bench.measuring import roof, work
from bench.models import weights
model = work.model_of(weights.config_of("bloomz-7b1", "tiny"))
found = {
    "read": roof.read("cpu", 1 << 20, widths=(64, 256), samples=3, calls_per_sample=2),
    "multiply": roof.multiply("cpu", 64, samples=3, calls_per_sample=2),
    "products": roof.products_alone(model, 2, "cpu", samples=3, calls_per_sample=2),
}
print(json.dumps(found))
"""


def test_probes_tell_what_they_read_and_multiplied_with_their_raw_times(guest):
    found = guest.code(PROBED)
    assert found["read"]["read_bytes"] == 1 << 20 and found["read"]["read_width"] in (64, 256)
    assert found["multiply"]["matrix_flop"] == 2 * 64**3
    assert found["products"]["rows"] == 2 and found["products"]["weight_bytes"] == 2 * (4 * 12 * 128 * 128 + 4 * 9 * 128 + 1024 * 128)
    for times in (found["read"]["read_us"], found["multiply"]["matrix_us"], found["products"]["step_us"]):
        assert len(times) == 3 and min(times) > 0


def test_the_products_take_so_many_layers_in_turn_that_no_cache_holds_them():
    bloom = work.model_of(weights.config_of("bloomz-7b1", "full"))
    assert roof.layers_in_turn(bloom) == 3, "a layer has 403 MB"
    assert roof.layers_in_turn(work.model_of(weights.config_of("bloomz-7b1", "tiny"))) == 4, "a tiny model has four layers"


RELEASED = """
import gc, json, weakref
from bench import actions, backends, forms
from bench.job import Result, parse_job
job = parse_job({text!r})
module, models = backends.find(job.backend), []
load = module.load
def kept(job):
    loaded = load(job)
    models.append(weakref.ref(loaded.model))
    return loaded
module.load = kept
result = Result(id="x", status="ok")
actions.measure_loaded(job, result, actions.Phases(), forms.find(job.form), {folder!r})
gc.collect()
print(json.dumps([len(models), models[0]() is None, result.figures["token_times"]]))
"""


@pytest.mark.parametrize("backend", ["transformers", "compiled"])
def test_nothing_holds_the_model_once_its_calls_are_made(guest, checkpoints, tmp_path, backend):
    from bench.job import to_json

    load = {"dtype": "float32", "compiler": "eager"} if backend == "compiled" else {"dtype": "float32"}
    job = tiny_job("bloom", checkpoints["bloom"], backend=backend, load=load)
    count, freed, _ = guest.code(RELEASED.format(text=to_json(job), folder=str(tmp_path)))
    assert (count, freed) == (1, True), "the probes would find no free memory"


@pytest.mark.parametrize("backend", ["transformers", "compiled"])
def test_controlled_rows_tell_when_each_token_came(guest, checkpoints, references, backend):
    load = {"dtype": "float32", "compiler": "eager"} if backend == "compiled" else {"dtype": "float32"}
    prompt = {"text": "the quick brown fox", "tokens": 32, "batch_size": 2}
    job = tiny_job("llama", checkpoints["llama"], backend=backend, load=load, prompt=prompt, reference=references["llama"])
    result = guest.run(job)
    assert result.status == "ok", result.reason
    told = result.figures["token_times"]
    assert told["new_tokens"] == 4 and len(told["first_ms"]) == 5
    assert [len(between) for between in told["between_ms"]] == [3] * 5
    assert min(told["first_ms"] + sum(told["between_ms"], [])) > 0
    call_ms = told["first_ms"][-1] + sum(told["between_ms"][-1])
    assert call_ms < 20 * statistics.median(result.measurements[1]["timed_ms"])
    began, ended = result.measurements[1]["timed_at"]
    assert (ended - began) * 1000 >= sum(result.measurements[1]["timed_ms"])
    assert "roof" not in result.figures, "a CPU has no such limits"


def test_published_rows_are_left_as_the_article_called_them(guest, checkpoints):
    result = guest.run(tiny_job("bloom", checkpoints["bloom"], variant="published"))
    assert result.status == "ok" and "token_times" not in result.figures


OLDER = """
import json
from bench import compat
from bench.measuring import token_times
from bench.backends import transformers
from bench.job import parse_job
import torch
from transformers import StoppingCriteriaList
job = parse_job({text!r})
loaded = transformers.load(job)
ids = torch.arange(8).repeat(2, 1)

def no_longer_asked(criteria, input_ids, scores, **kwargs):
    done = torch.zeros(len(input_ids), dtype=torch.bool)
    for criterion in criteria:
        done = done | criterion(input_ids, scores, **kwargs)
        if done.all():
            break
    return done

class Kept(token_times.Stamps):
    def put(self, tokens):
        if self.saw_prompt:
            streamed.append(tokens.tolist())
        super().put(tokens)

real, all_asked, told = compat.streams_tokens, StoppingCriteriaList.__call__, {{}}
ways = {{"streamer": (real, all_asked), "criterion": (lambda version: False, all_asked), "as in 4.26": (lambda version: False, no_longer_asked)}}
for name, (streams, StoppingCriteriaList.__call__) in ways.items():
    compat.streams_tokens, stamps, streamed = streams, Kept(), []
    rows = loaded.generate(ids, do_sample=False, max_new_tokens=5, min_new_tokens=5, streamer=stamps).tolist()
    told[name] = [len(stamps.moments), rows, list(zip(*streamed))]
print(json.dumps(told))
"""


def test_a_library_without_streamers_is_told_by_a_stopping_criterion(guest, checkpoints):
    from bench.job import to_json

    told = guest.code(OLDER.format(text=to_json(tiny_job("gptj", checkpoints["gptj"]))))
    count, rows, streamed = told["streamer"]
    assert count == 5 and streamed == rows, "each step's tokens, in their order"
    assert told["criterion"] == told["streamer"]
    assert told["as in 4.26"] == told["streamer"], "the criterion of the length ends the call before the last token is told"


REFUSED = """
import json
from bench.measuring import token_times
from bench.job import parse_job
class Form:
    @staticmethod
    def call(job, loaded, run, ids, **more):
        raise ValueError("the engine cannot follow ['streamer']")
class Loaded:
    prompt_ids = None
job = parse_job({text!r})
print(json.dumps(token_times.measure_tokens(job, Loaded, Form, [{{"new_tokens": 4, "timed_ms": [1.0]}}])))
"""


def test_an_engine_that_refuses_a_streamer_keeps_its_run(guest):
    from bench.job import to_json

    told = guest.code(REFUSED.format(text=to_json(tiny_job("bloom", "/nowhere"))))
    assert told == {"reason": "ValueError: the engine cannot follow ['streamer']"}


LONGER = """
import json, time
from bench.measuring import longer
from bench.job import parse_job
class Form:
    calls = []
    @staticmethod
    def timed_call(job, loaded, run):
        def one_call():
            Form.calls.append(run["new_tokens"])
            if {fails!r}:
                raise ValueError("the driver is gone")
            time.sleep(0.02)
        return one_call
job = parse_job({text!r})
longer.LEAST_S = 0.1
timed = [{{"new_tokens": 1, "timed_ms": [40.0, 20.0]}}, {{"new_tokens": 4, "timed_ms": [60.0] * 2}}]
print(json.dumps([longer.windows(job, None, Form, timed), Form.calls]))
"""


def test_calls_that_were_too_short_for_slow_counters_are_made_for_longer(guest):
    from bench.job import to_json

    ((window,), calls) = guest.code(LONGER.format(text=to_json(tiny_job("bloom", "/nowhere")), fails=False))
    assert calls == [1] * 5 and (window["new_tokens"], window["calls"]) == (1, 5), "the calls of 4 tokens were long enough"
    assert 0.1 <= window["at"][1] - window["at"][0] < 1


AS_TIMED = """
import json
from transformers import PreTrainedTokenizerBase
from bench import backends, forms
from bench.job import parse_job
from bench.measuring import longer
from bench.models import prompts
job = parse_job({text!r})
form, loaded, seen = forms.find(job.form), backends.find(job.backend).load(job), []
loaded.input_ids, loaded.answers = prompts.token_ids(job.prompt, job.model["path"]), []
generate, decode, tokenise = loaded.generate, PreTrainedTokenizerBase.batch_decode, PreTrainedTokenizerBase.__call__

def seen_generate(*inputs, **named):
    told = [*enumerate(inputs), *named.items()]
    seen.append(["generate", [[name, value.tolist() if hasattr(value, "tolist") else value] for name, value in told]])
    return generate(*inputs, **named)

def seen_decode(*inputs, **named):
    seen.append(["decode", inputs[1].tolist()])
    return decode(*inputs, **named)

def seen_tokenise(*inputs, **named):
    seen.append(["tokenise", inputs[1]])
    return tokenise(*inputs, **named)

loaded.generate, PreTrainedTokenizerBase.batch_decode, PreTrainedTokenizerBase.__call__ = seen_generate, seen_decode, seen_tokenise
measurements, _, _ = form.run(job, loaded, lambda **event: None)
timed = seen[: {steps}]
seen.clear()
longer.LEAST_S = 2 * sum(measurements[0]["timed_ms"]) / 1000
(told,) = longer.windows(job, loaded, form, measurements)
print(json.dumps([told["calls"], timed, seen]))
"""


@pytest.mark.parametrize("form", ["generate", "padded-sentences"])
def test_a_longer_call_does_what_the_clock_timed(guest, checkpoints, form):
    from bench.job import to_json

    prompt = {"text": "He has a", "texts": ["He has a", "In the far far distance"], "tokens": 6, "batch_size": 2}
    run = {"new_tokens": 4, "arguments": {"do_sample": False, "max_new_tokens": 4}}
    steps = ["tokenise", "generate", "decode"] if form == "padded-sentences" else ["generate"]
    text = to_json(tiny_job("bloom", checkpoints["bloom"], form=form, prompt=prompt, runs=[run]))
    (calls, timed, seen) = guest.code(AS_TIMED.format(text=text, steps=len(steps)))
    assert [what for what, _ in timed] == steps, "what a form's first call does"
    assert calls > 3 and seen == timed * calls


def test_a_longer_call_that_fails_leaves_the_run_its_times(guest):
    from bench.job import to_json

    (told, _) = guest.code(LONGER.format(text=to_json(tiny_job("bloom", "/nowhere")), fails=True))
    assert told == [{"new_tokens": 1, "reason": "ValueError: the driver is gone"}]


def test_a_longer_call_that_fails_in_one_of_several_ranks_ends_them_all(guest):
    from bench.job import to_json

    text = "import os; os.environ['WORLD_SIZE'] = '2'\n" + LONGER.format(text=to_json(tiny_job("bloom", "/nowhere")), fails=True)
    done = guest.command("-c", text)
    assert done.returncode == 1 and "ValueError: the driver is gone" in done.stderr, "the others would wait for its part of a call"


WITHOUT_GPU = """
import json
from bench.job import parse_job
from bench.measuring import roof
from bench.models import weights
job = parse_job({text!r})
from bench import backends
print(json.dumps(dict(roof.measure(job, weights.config_of("bloomz-7b1", "tiny"), products=True), memory=backends.process_memory(job))))
"""


def test_a_probe_that_cannot_measure_says_why_and_fails_nothing(guest):
    from bench.job import to_json

    told = guest.code(WITHOUT_GPU.format(text=to_json(tiny_job("bloom", "/nowhere", device="cuda"))))
    assert told["roof"] == {"reason": "RuntimeError: torch sees no GPU"}
    assert told["products"] == told["roof"]
    assert told["memory"]["devices"] == [] and told["memory"]["peak_rss_bytes"] > 0, "this process touched no GPU"


ROOM = """
import contextlib, json, torch
from bench.job import parse_job
from bench.measuring import ranks, roof
from bench.models import weights
job = parse_job({text!r})
cuda, taken = torch.cuda, []
ranks.gpus = lambda: [0]
cuda.is_initialized, cuda.device, cuda.synchronize, cuda.empty_cache = (lambda: {here}), (lambda index: contextlib.nullcontext()), (lambda: None), (lambda: None)
roof.read = lambda device, read_bytes: taken.append(read_bytes) or {{"read_bytes": read_bytes}}
roof.multiply = lambda device, side: {{}}
roof.products_alone = lambda model, rows, device: {{"rows": rows}}
found = []
for peak, held, free in {cases!r}:
    cuda.max_memory_reserved, cuda.memory_reserved, cuda.mem_get_info = (lambda i: peak), (lambda i: held), (lambda i: (free, free))
    figures = roof.measure(job, {config}, products=True)
    found.append([figures["roof"].get("reason"), figures["products"].get("reason"), taken.pop() if taken else 0])
print(json.dumps(found))
"""

GIB = 1 << 30
BLOOM = 'weights.config_of("bloomz-7b1", "full")'


def test_a_probe_takes_no_more_memory_than_the_run_had_and_gave_back(guest):
    from bench.job import to_json

    cases = [(14 * GIB, 0, 100 * GIB), (3 * GIB, GIB, 100 * GIB), (14 * GIB, 13 * GIB, 100 * GIB), (14 * GIB, 0, GIB)]
    large, small, held, short = guest.code(ROOM.format(text=to_json(tiny_job("bloom", "/nowhere")), cases=cases, here=True, config=BLOOM))
    assert large == [None, None, 4 * GIB]
    assert small == [None, "RuntimeError: 2.00 GiB are below the run's peak and free, the products need 3.29", 2 * GIB * 9 // 10]
    for refused in (held, short):
        assert refused[0] == "RuntimeError: 0.90 GiB of cuda:0 are below the run's peak and free, the probe needs 1.00"
        assert refused[1] and refused[2] == 0


@pytest.mark.parametrize(
    "config, load, devices, taken",
    [
        (BLOOM, {"dtype": "float16"}, 1, 4 * GIB),
        (BLOOM, {"dtype": "float16"}, 8, 1_767_000_000 * 9 // 10),
        (BLOOM, {}, 1, 0),
        (BLOOM, {"dtype": "auto"}, 1, 0),
        ("None", {"dtype": "float16"}, 1, 0),
    ],
)
def test_where_the_engine_worked_in_processes_of_its_own_a_probe_takes_no_more_than_its_share_of_the_weights(guest, config, load, devices, taken):
    from bench.job import to_json

    job = tiny_job("bloom", "/nowhere", device="cuda", device_count=devices, load=load)
    ((roof, products, room),) = guest.code(ROOM.format(text=to_json(job), cases=[(0, 0, 100 * GIB)], here=False, config=config))
    assert (roof is None, products is None) == (taken > 0, taken == 4 * GIB), (roof, products)
    assert abs(room - taken) < (8 << 20)


SEVERAL = """
import contextlib, json, torch
from bench.job import parse_job
from bench.measuring import ranks, roof
job, cuda = parse_job({text!r}), torch.cuda
ranks.gpus = lambda: [0, 1, 2]
cuda.is_initialized, cuda.device, cuda.synchronize, cuda.empty_cache = (lambda: True), (lambda index: contextlib.nullcontext()), (lambda: None), (lambda: None)
cuda.memory_reserved, cuda.mem_get_info = (lambda i: 0), (lambda i: (100 << 30, 100 << 30))
cuda.max_memory_reserved = lambda i: {peaks!r}[i]
roof.read, roof.multiply = (lambda device, read_bytes: {{"read_bytes": read_bytes}}), (lambda device, side: {{}})
print(json.dumps(roof.measure(job, None, products=False)["roof"]))
"""


def test_a_gpu_that_a_library_left_empty_has_no_roof_and_takes_none_from_the_others(guest):
    from bench.job import to_json

    def told(*peaks):
        return guest.code(SEVERAL.format(text=to_json(tiny_job("bloom", "/nowhere")), peaks=list(peaks)))

    assert [one["device"] for one in told(0, 4 * GIB, 4 * GIB)["devices"]] == ["cuda:1", "cuda:2"]
    assert told(0, GIB, GIB // 2) == {"reason": "RuntimeError: 0.90 GiB of cuda:1 are below the run's peak and free, the probe needs 1.00"}


ASKED = """
import json
from bench import actions
from bench.job import Result, parse_job
from bench.measuring import roof
asked = []
roof.measure = lambda job, config, products: asked.append([config is not None, products]) or {{}}
for text in {texts!r}:
    actions.measure_limits(parse_job(text), Result(id="x", status="ok"), actions.Phases())
print(json.dumps(asked))
"""


def test_products_are_measured_where_a_row_decodes_and_the_shape_is_known(guest):
    from bench.job import to_json

    run = {"arguments": {"do_sample": False}}
    jobs = [tiny_job("bloom", "/nowhere", variant="published", runs=[{**run, "new_tokens": count}]) for count in (1, 100)]
    unknown = tiny_job("bloom", "/nowhere")
    unknown.model["shape"] = "some-model"
    split = dataclasses.replace(jobs[1], device_count=2)
    asked = guest.code(ASKED.format(texts=[to_json(job) for job in [*jobs, unknown, split]]))
    assert asked == [[True, False], [True, True], [False, True], [True, False]], "the products are those of one GPU"
