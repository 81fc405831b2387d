"""The backend `compiled` on real tiny models: right tokens from the compiled step itself, and nothing is compiled within a call."""

import json
import pathlib
import shutil

import pytest

from bench.backends import compiled
from bench.job import parse_result, to_json
from tests.guest.conftest import SHAPES
from tests.guest.samples import tiny_job

GREEDY = {"do_sample": False, "num_beams": 1}
FLOORS = {"regret_p90": 1e-3, "regret_max": 0.02, "logits_error": 1e-3}
RUNS = [{"new_tokens": 1, "arguments": GREEDY}, {"new_tokens": 12, "arguments": GREEDY}]
BATCH = {"text": "the quick brown fox", "tokens": 32, "batch_size": 3}


def compiled_job(architecture, checkpoints, compiler="eager", **changes):
    """A job whose step is one traced graph; "eager" runs that graph as it is, without the minute that writing its kernels takes."""
    load = {"dtype": "float32", "compiler": compiler}
    return tiny_job(architecture, checkpoints[architecture], **{"backend": "compiled", "load": load, "prompt": BATCH, "runs": RUNS, **changes})


def judged(guest, job, folder):
    """The judge's verdict on what a measuring job left in its folder."""
    options = {"dtype": "float32", "floors": FLOORS}
    fields = {"kind": "judge", "options": options, "reference": str(folder / "readings.npz"), "runs": job.runs}
    return guest.run(tiny_job(job.model["architecture"], job.model["path"], **fields)).check


@pytest.mark.parametrize("architecture", ["bloom", "llama", pytest.param("gptj", marks=pytest.mark.full)])
def test_a_batch_comes_out_as_plain_transformers_and_passes_check_and_judge(guest, checkpoints, references, tmp_path, architecture):
    job = compiled_job(architecture, checkpoints, reference=references[architecture])
    result = guest.run(job)
    assert result.status == "ok", result.reason
    assert result.check["passed"] and result.check["greedy_common_prefix_tokens"] == 4, result.check
    assert [one["new_tokens"] for one in result.measurements] == [1, 12]
    assert (result.used["graphs"], result.used["cache_tokens"], result.used["dtype"], result.used["loop"]) == (1, 48, "float32", "kit")
    assert 0 < result.used["compile_s"] < result.load_s
    verdict = judged(guest, job, tmp_path)
    assert verdict["passed"] and verdict["not_seen"] == [], verdict


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("g++"), reason="NOT TESTED: kernels for a CPU need a C++ compiler; install g++")
@pytest.mark.parametrize(
    "architecture, products", [("bloom", "ordered"), ("bloom", "vectors"), ("bloom", "waiting-combined"), ("gptj", "ordered"), ("llama", "ordered")]
)
def test_kernels_written_by_inductor_give_the_same(guest, checkpoints, references, tmp_path, architecture, products):
    # One row has sums in attention or its biases apart from its products.
    prompt = dict(BATCH, batch_size=1 if architecture == "bloom" else 3)
    load = {"dtype": "float32", "compiler": "inductor", "products": products}
    job = compiled_job(architecture, checkpoints, load=load, reference=references[architecture], prompt=prompt)
    result = guest.run(job)
    assert result.status == "ok" and result.check["passed"], (result.reason, result.check)
    assert (result.used["split_biases"], result.used["sums"]) == (products == "vectors", architecture == "bloom" and products != "vectors")
    assert result.used["graphs"] == 1 and judged(guest, job, tmp_path)["passed"]


SUMS = """
import json, torch
from bench.models import greedy_loop

def numbers(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)

one, many, keys, added = numbers(6, 1, 16), numbers(6, 3, 16), numbers(6, 16, 9), numbers(6, 1, 9)
holes = keys.clone().transpose(1, 2).contiguous().transpose(1, 2)
half, halves = numbers(6, 1, 16, dtype=torch.float16), numbers(6, 16, 9, dtype=torch.float16)
long, longs = numbers(6, 1, 16, dtype=torch.float64), numbers(6, 16, 9, dtype=torch.float64)
nothing = torch.full_like(added, float("nan"))
calls = {
    "sums": {
        "bmm": lambda: torch.bmm(one, keys),
        "bmm by name": lambda: torch.bmm(input=one, mat2=keys),
        "half": lambda: torch.bmm(half, halves),
        "not contiguous": lambda: torch.bmm(one, holes),
        "matmul": lambda: torch.matmul(one.view(2, 3, 1, 16), keys.view(2, 3, 16, 9)),
        "baddbmm": lambda: added.baddbmm(batch1=one, batch2=keys, beta=0.5, alpha=2.0),
        "baddbmm by place": lambda: added.baddbmm(one, keys),
        "without what is added": lambda: nothing.baddbmm(one, keys, beta=0),
    },
    "library": {
        "several rows": lambda: torch.bmm(many, keys),
        "several rows and one added": lambda: added.baddbmm(batch1=many, batch2=keys),
        "a vector": lambda: torch.matmul(one, keys[0, :, 0]),
        "a matrix for all": lambda: torch.matmul(one, keys[0]),
        "double": lambda: torch.bmm(long, longs),
        "given a place": lambda: torch.bmm(one, keys, out=torch.empty(6, 1, 9)),
    },
}

def tried(call):
    with torch.profiler.profile() as seen, greedy_loop.sums_for_rows():
        found = call()
    expected = call()
    library = any(event.key in ("aten::bmm", "aten::baddbmm", "aten::mm", "aten::mv") for event in seen.key_averages())
    return [found.shape == expected.shape and found.dtype == expected.dtype, (found - expected).abs().max().item(), library]

print(json.dumps({kind: {name: tried(call) for name, call in of_kind.items()} for kind, of_kind in calls.items()}))
"""


def test_sums_in_the_place_of_products_of_one_row_change_nothing_but_who_computes_them(guest):
    found = guest.code(SUMS)
    for name, (alike, error, library) in found["sums"].items():
        assert alike and error < (1e-2 if name == "half" else 1e-5) and not library, name
    for name, (alike, error, library) in found["library"].items():
        assert alike and error == 0 and library, name


def job_layers(job):
    config = json.loads((pathlib.Path(job.model["path"]) / "config.json").read_text())
    return config.get("n_layer") or config["num_hidden_layers"]


GRAPHS = """
import json, torch
from bench.__main__ import read_job
from bench.backends import compiled

found = []

@torch._dynamo.register_backend(name="counts-products")
def counts_products(graph, inputs):
    names = [str(getattr(node.target, "__name__", node.target)) for node in graph.graph.nodes]
    found.append(sum(name in ("bmm", "baddbmm", "matmul") for name in names))
    return graph.forward

job = read_job({job!r})
job.load["compiler"] = "counts-products"
used = compiled.load(job).used
print(json.dumps([found[0], used["sums"]]))
"""


@pytest.mark.parametrize("sums", [True, pytest.param(False, marks=pytest.mark.full)])
@pytest.mark.parametrize("architecture", sorted(SHAPES))
def test_with_sums_the_compiled_step_has_no_product_of_one_row(guest, checkpoints, tmp_path, architecture, sums):
    job = compiled_job(architecture, checkpoints, load={"dtype": "float32", "sums": sums})
    path = tmp_path / "job.json"
    path.write_text(to_json(job))
    products, told = guest.code(GRAPHS.format(job=str(path)))
    of_products = architecture != "llama"  # whose attention is one operator; its one product is that of the rotary embedding
    assert told is (sums and of_products)
    assert products == (1 if not of_products else 0 if sums else 2 * job_layers(job)), "attention makes two products a layer"


def test_a_name_of_products_chooses_settings_for_one_row_and_each_may_be_given():
    def settings(rows=1, attention="eager", **load):
        return compiled.settings_of(load, rows, attention)

    ours = {"coordinate_descent_tuning": False}
    assert settings() == {"products": "ordered", "mode": "default", "inductor": ours, "split_biases": False, "sums": True, "waits": False}
    assert settings(waits=True)["waits"] is True
    assert settings(products="cublas")["inductor"] == dict(ours, **{"triton.enable_pdl": True})
    assert settings(rows=8)["sums"] is False and settings(attention="sdpa")["sums"] is False and settings(rows=8, sums=True)["sums"] is True
    chosen = settings(products="waiting-combined")
    assert chosen["inductor"] == dict(ours, combo_kernels=True, **{"triton.enable_pdl": True}) and chosen["waits"] is True
    vectors = settings(products="vectors")
    assert vectors["inductor"] == {"coordinate_descent_tuning": True} and vectors["split_biases"] is True and vectors["sums"] is False
    assert settings(products="tuned", inductor={"max_autotune": False})["inductor"] == {"coordinate_descent_tuning": False, "max_autotune": False}
    assert settings(products="tuned")["mode"] == "max-autotune-no-cudagraphs" and settings(products="vectors", rows=8)["split_biases"] is False


WAITS = """
import json, types
from torch._inductor import scheduler
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.virtualized import V
from bench.backends import compiled

TritonKernel._enable_pdl_codegen = staticmethod(lambda: True)  # asks for a GPU
kernel = TritonKernel.__new__(TritonKernel)
kernel.inside_reduction = False
kernel.current_node = types.SimpleNamespace(mutation_renames={})
ahead = types.SimpleNamespace(read_writes=types.SimpleNamespace(reads=[], writes=[types.SimpleNamespace(name="of_the_kernel_ahead")]))
graph = types.SimpleNamespace(scheduler=types.SimpleNamespace(previous_node=ahead))


def waits(name):
    code = IndentedBuffer()
    with V.set_graph_handler(graph), V.set_kernel_handler(kernel):
        kernel._handle_pdl_before_access(code, name)
    return "gdc_wait" in code.getvalue()


found = {"by_itself": [waits("of_the_kernel_ahead"), waits("of_another")]}
with compiled.waiting_kernels():
    found["within"] = [waits("of_the_kernel_ahead"), waits("of_another")]
    graph.scheduler = None
    found["in_a_template"] = waits("of_another")
    graph.scheduler = types.SimpleNamespace(previous_node=ahead)
found["afterwards"] = [waits("of_another"), graph.scheduler.previous_node is ahead]
print(json.dumps(found))
"""


def test_an_overlapping_kernel_waits_before_it_reads_anything_where_it_is_told_to(guest):
    """Of Inductor itself, which lets it wait only for what it takes for the work of the kernel ahead."""
    assert guest.code(WAITS) == {"by_itself": [True, False], "within": [True, True], "in_a_template": True, "afterwards": [False, True]}


ENTERED = """
import contextlib, json, types
from bench.backends import compiled

entered = []

@contextlib.contextmanager
def waiting_kernels():
    entered.append("in")
    yield

compiled.waiting_kernels = waiting_kernels
compiled._compile = lambda *arguments: {}
compiled._prepare_loop = lambda job, loaded, compiler, **settings: (None, {"waits": settings["waits"]})
compiled._prepare_transformers = lambda *arguments: (None, {})
compiled.pretrained.dtype_of = lambda model: "float16"
model, found = types.SimpleNamespace(config=types.SimpleNamespace(_attn_implementation="eager")), []
for device, load in (
    ("cuda", {"loop": "kit", "products": "waiting-combined"}),
    ("cuda", {"loop": "kit", "products": "ordered"}),
    ("cuda", {"loop": "kit", "products": "waiting-combined", "compiler": "eager"}),
    ("cuda", {"loop": "transformers", "products": "waiting-combined"}),
    ("cpu", {"loop": "kit", "products": "waiting-combined"}),
):
    entered.clear()
    job = types.SimpleNamespace(device=device, load=dict(load, cache_tokens=8), runs=[], prompt={"batch_size": 1})
    ids = types.SimpleNamespace(shape=(1, 4), device=device)
    told = compiled.of_model(job, model, ids).used.get("waits", False)
    found.append([entered == ["in"], told])
print(json.dumps(found))
"""


def test_only_a_step_of_inductor_on_a_gpu_is_compiled_with_waiting_kernels(guest):
    assert guest.code(ENTERED) == [[True, True]] + [[False, False]] * 4


SPOILT = """
from bench.__main__ import main, read_job
import torch
import torch._dynamo

# The step has its own logits: those of the prompt come from the model as it is.
def spoilt(graph, inputs):
    for node in graph.graph.nodes:
        if node.target == "masked_fill":
            with graph.graph.inserting_before(node):
                node.replace_input_with(node.args[0], graph.graph.call_function(torch.mul, (node.args[0], 1.5)))
    graph.recompile()
    return graph

torch._dynamo.register_backend(spoilt, name="spoilt")
main(read_job({job!r}), {job!r}, {result!r})
print("null")
"""


def test_the_judge_sees_a_step_that_computes_something_else(guest, checkpoints, references, tmp_path):
    """The prompt is read by the model as it is, so the check of the prompt's logits alone passes."""
    job = compiled_job("gptj", checkpoints, compiler="spoilt", reference=references["gptj"])
    (tmp_path / "job.json").write_text(to_json(job))
    guest.code(SPOILT.format(job=str(tmp_path / "job.json"), result=str(tmp_path / "result.json")))
    assert parse_result((tmp_path / "result.json").read_text()).check["passed"]
    assert not judged(guest, job, tmp_path)["passed"]


COMPILES_AGAIN = """
import json
from bench.job import parse_job
from bench.backends import compiled
loaded = compiled.load(parse_job({job!r}))
try:
    {call}
    print(json.dumps("no error"))
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
OTHER_SIZE = "loaded.model.generate(__import__('torch').ones((1, 8), dtype=int), do_sample=False, max_new_tokens=4)"
OTHER_TYPE = "loaded.loop.token = loaded.loop.token.int(); loaded.loop.next()"


@pytest.mark.parametrize("loop, call", [("transformers", OTHER_SIZE), ("kit", OTHER_TYPE)])
def test_what_would_be_compiled_within_a_call_is_an_error_there(guest, checkpoints, loop, call):
    job = compiled_job("gptj", checkpoints, load={"dtype": "float32", "compiler": "eager", "loop": loop})
    assert "recompile" in guest.code(COMPILES_AGAIN.format(job=to_json(job), call=call))


LIKE_GENERATE = """
import json, torch, transformers
from bench.models import greedy_loop

torch.set_num_threads(1)
model = transformers.AutoModelForCausalLM.from_pretrained({path!r}, dtype=torch.float32).eval()
greedy, pad, wrong = {{"do_sample": False, "num_beams": 1, "pad_token_id": 3}}, 3, []


class Streamer:
    def __init__(self):
        self.put_, self.ended = [], 0

    def put(self, tokens):
        self.put_.append(tokens.tolist())

    def end(self):
        self.ended += 1


class Watch(transformers.LogitsProcessor):
    def __init__(self, banned):
        self.banned, self.seen, self.ids = banned, [], []

    def __call__(self, ids, scores):
        self.seen.append(scores)
        self.ids.append(ids.tolist())
        return scores if self.banned is None else scores.index_fill(1, torch.tensor([self.banned]), float("-inf"))


for padding, split in (([0], False), ([0], True), ([0, 3, 5], False)):
    torch._dynamo.reset()
    if split:
        greedy_loop.split_biases(model)
    loop = greedy_loop.GreedyLoop(model, len(padding), 40, "cpu", {sums})
    loop.prepare("eager", None, capture=False)
    ids = torch.randint(4, model.config.vocab_size, (len(padding), 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        ids[row, :count], mask[row, :count] = pad, 0

    def both(mask, streamers=(None, None), watches=(None, None), **asked):
        answers = []
        for generate, streamer, watch in zip((model.generate, loop.generate), streamers, watches):
            more = dict(greedy, **asked)
            more.update({{}} if mask is None else {{"attention_mask": mask}})
            more.update({{}} if streamer is None else {{"streamer": streamer}})
            more.update({{}} if watch is None else {{"logits_processor": transformers.LogitsProcessorList([watch])}})
            answers.append(generate(ids, **more))
        answers[0] = answers[0][:, 9:]
        if answers[0].tolist() != answers[1].tolist():
            wrong.append([padding, split, asked, answers[0].tolist(), answers[1].tolist()])
        return answers[1]

    plain = both(mask, max_new_tokens=20, eos_token_id=2**31 - 1)
    middle = sorted({{int(row[3]) for row in plain}})  # every row ends at its fourth token or before
    ends = [int(plain[0, 4]), int(plain[-1, 7])]
    last_new = max(place for place, token in enumerate(plain[0].tolist()) if token not in plain[0, :place].tolist())
    for given in (mask, None):
        both(given, max_new_tokens=1)
        both(given, max_new_tokens=20, min_new_tokens=last_new + 1, eos_token_id=int(plain[0, last_new]))  # forbidden where it comes first
        both(given, max_new_tokens=20, min_new_tokens=20, eos_token_id=ends)
        both(given, max_length=25, min_length=25, eos_token_id=ends)
        both(given, max_new_tokens=20, eos_token_id=ends[0])
        both(given, max_new_tokens=20, eos_token_id=ends, pad_token_id=None)
        both(given, max_new_tokens=31, eos_token_id=middle)
        both(given, max_new_tokens=20, min_length=16, eos_token_id=ends)
    for asked in ({{"eos_token_id": ends}}, {{"eos_token_id": middle}}, {{"eos_token_id": None}}, {{"eos_token_id": ends, "min_new_tokens": 6}}):
        streamers, watches = (Streamer(), Streamer()), (Watch(None), Watch(None))
        both(mask, streamers, max_new_tokens=20, **asked)
        both(mask, watches=watches, max_new_tokens=20, **asked)
        if streamers[0].put_ != streamers[1].put_ or streamers[1].ended != 1:
            wrong.append([padding, asked, "streamed", streamers[0].put_, streamers[1].put_])
        seen = list(zip(watches[0].seen, watches[1].seen))
        if watches[0].ids != watches[1].ids or not all(torch.allclose(one, two, atol=1e-4) for one, two in seen[:2]):
            wrong.append([padding, asked, "logits"])
        both(mask, watches=(Watch(int(plain[0, 2])), Watch(int(plain[0, 2]))), max_new_tokens=20, **asked)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    if graphs != 1:
        wrong.append([padding, graphs])
    torch._dynamo.utils.counters.clear()
print(json.dumps(wrong))
"""


@pytest.mark.parametrize(
    ("architecture", "sums"),
    [("bloom", True), *(pytest.param(*longest, marks=pytest.mark.full) for longest in (("bloom", False), ("gptj", True), ("llama", True)))],
)
def test_the_loop_makes_the_tokens_of_transformers_generate(guest, checkpoints, architecture, sums):
    """One row and three padded ones; minimum lengths, end tokens, padding, streamers and logits processors; one graph for all of it."""
    assert guest.code(LIKE_GENERATE.format(path=str(checkpoints[architecture]), sums=sums)) == []


REFUSED = """
import json
from bench.job import parse_job
from bench.backends import compiled
loaded = compiled.load(parse_job({job!r}))
reasons = []
for asked in (dict(do_sample=True, max_new_tokens=2), dict(repetition_penalty=1.5, max_new_tokens=2), dict(), dict(max_new_tokens=41)):
    try:
        loaded.generate(__import__("torch").ones((3, 8), dtype=int), **asked)
        reasons.append("")
    except ValueError as error:
        reasons.append(str(error))
print(json.dumps(reasons))
"""


def test_the_loop_refuses_what_it_cannot_follow(guest, checkpoints):
    assert guest.code(REFUSED.format(job=to_json(compiled_job("gptj", checkpoints)))) == [
        "the loop cannot follow tokens that are sampled or searched",
        "the loop cannot follow repetition_penalty in the arguments or in the model's generation config",
        "the loop cannot follow no length in the arguments",
        "prompt and answer have 49 tokens, the cache has room for 48: give the case load.cache_tokens = 49",
    ]


def test_a_job_goes_through_the_loop_of_transformers_where_it_asks_for_that_or_samples(guest, checkpoints, references, tmp_path):
    load = {"dtype": "float32", "compiler": "eager", "loop": "transformers"}
    job = compiled_job("llama", checkpoints, load=load, reference=references["llama"])
    result = guest.run(job)
    assert result.status == "ok" and result.check["passed"], (result.reason, result.check)
    assert (result.used["loop"], result.used["mode"], result.used["graphs"]) == ("transformers", "reduce-overhead", 1)
    assert judged(guest, job, tmp_path)["passed"]
    sampled = [{"new_tokens": 6, "arguments": {"do_sample": True, "top_k": 5, "max_new_tokens": 6, "min_new_tokens": 6}}]
    result = guest.run(compiled_job("llama", checkpoints, runs=sampled))
    assert (result.status, result.used["loop"]) == ("ok", "transformers"), result.reason


def test_settings_of_load_reach_torch(guest, checkpoints):
    load = {"dtype": "float32", "compiler": "eager", "mode": "max-autotune", "attention": "eager", "inductor": {"epilogue_fusion": False}}
    result = guest.run(compiled_job("llama", checkpoints, load=load, kind="profile", runs=RUNS[:1]))
    assert result.status == "ok", result.reason
    assert (result.used["loop"], result.used["mode"], result.used["cuda_graph_by"]) == ("kit", "max-autotune", "nobody")


def test_a_padded_batch_of_uneven_sentences_is_one_graph_too(guest, checkpoints):
    sentences = ["the quick brown fox", "jumps", "over the lazy dog and further on"]
    prompt = {"text": sentences[0], "texts": sentences, "tokens": 4, "batch_size": 3}
    load = {"dtype": "float32", "compiler": "eager", "cache_tokens": 16}
    runs = [{"new_tokens": 6, "arguments": {"do_sample": False, "max_new_tokens": 6}}]
    result = guest.run(compiled_job("bloom", checkpoints, form="padded-sentences", prompt=prompt, load=load, runs=runs))
    assert result.status == "ok", result.reason
    assert result.figures["cycles"]["counted_tokens"] == 18 and result.figures["cycles"]["padded_logits_relative_error"] < 1e-4


def test_a_batch_of_texts_is_answered_and_judged(guest, checkpoints, references, tmp_path):
    runs = [{"new_tokens": 12, "arguments": {"do_sample": False}}]
    job = compiled_job(
        "llama", checkpoints, form="batch", runs=runs, options={"texts": "prompt"}, reference=references["llama"], prompt={**BATCH, "tokens": None}
    )
    result = guest.run(job)
    assert result.status == "ok", result.reason
    assert result.figures["calls"] == [{"new_tokens": 12, "timed_tokens": [36, 36, 36]}]
    assert judged(guest, job, tmp_path)["passed"]


def test_a_profile_makes_its_calls_with_the_compiled_step(guest, checkpoints):
    result = guest.run(compiled_job("gptj", checkpoints, kind="profile", runs=RUNS[:1]))
    assert result.status == "ok", result.reason
    assert result.figures["profile"]["new_tokens"] == 8 and result.used["graphs"] == 1


def test_the_kernels_of_a_process_go_with_it(guest):
    folder = guest.code(
        "import json, os; from bench.backends import compiled; compiled.own_cache_of_kernels(); print(json.dumps(os.environ['TRITON_CACHE_DIR']))"
    )
    assert not pathlib.Path(folder).parent.exists()


def test_a_form_that_works_on_the_model_itself_is_refused_before_anything_is_loaded(guest, checkpoints):
    result = guest.run(compiled_job("bloom", checkpoints, form="kv-offload"))
    assert result.status == "unsupported" and result.reason.startswith("the form 'kv-offload' needs module, and the backend 'compiled' gives ")
    assert result.load_s is None


SLIDING = """
import json, types, torch, transformers
from bench.backends import compiled

torch.set_num_threads(1)
sizes = dict(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2, vocab_size=64)
config = transformers.MistralConfig(sliding_window=8, **sizes)
model = transformers.MistralForCausalLM(config).eval()
greedy = {"do_sample": False, "num_beams": 1}
job = types.SimpleNamespace(device="cpu", load={"compiler": "eager"}, runs=[{"new_tokens": 12, "arguments": greedy}], prompt={"batch_size": 1})
ids = torch.arange(4, 16).view(1, 12)
expected = model.generate(ids, max_new_tokens=12, **greedy)[:, 12:].tolist()
loaded = compiled.of_model(job, model, ids)
print(json.dumps([loaded.used["loop"], loaded.generate(ids, max_new_tokens=12, **greedy).tolist() == expected]))
"""


def test_a_model_whose_layers_see_a_window_goes_through_transformers_own_loop(guest):
    assert guest.code(SLIDING) == ["transformers", True]
