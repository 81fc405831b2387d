"""The kit's attention function for a compiled step: the numbers of transformers' own functions, without a copy of the cache."""

import shutil

import pytest

from tests.guest.test_compiled import BATCH, compiled_job, judged

GROUPED = {"dtype": "float32", "compiler": "eager", "attention": "grouped"}

FUNCTIONS = """
import json, types, torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.llama.modeling_llama import eager_attention_forward
from bench.models import grouped_attention


def numbers(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.{dtype})


heads, key_heads, rows, length, size = {heads}, {key_heads}, 3, 40, 16
module = types.SimpleNamespace(num_key_value_groups=heads // key_heads, training=False)
query, key, value = numbers(1, rows, 1, heads, size).transpose(1, 2), numbers(2, rows, key_heads, length, size), numbers(3, rows, key_heads, length, size)
kept = torch.arange(length) < torch.tensor([40, 25, 31]).view(3, 1, 1, 1)
kept[1, ..., :5] = False  # padding on the left
added = torch.zeros(kept.shape, dtype=query.dtype).masked_fill(~kept, torch.finfo(query.dtype).min)
bias = numbers(4, 1, heads, 1, length)


def error(of_kit, of_other):
    (output, weights), (expected, _) = of_kit, of_other
    alike = output.shape == expected.shape == (rows, 1, heads, size) and output.dtype == expected.dtype and weights is None
    return (output.float() - expected.float()).abs().max().item() if alike else "another shape"


found = {{}}
for scaling in (None, 0.7):
    for name, mask in (("none", None), ("kept", kept), ("of one row for all", kept[1:2]), ("added", added)):
        given = (module, query, key, value, mask)
        found["sdpa", scaling, name] = error(grouped_attention.forward(*given, scaling=scaling), sdpa_attention_forward(*given, scaling=scaling))
        if name in ("none", "added") and scaling:
            found["eager", scaling, name] = error(grouped_attention.forward(*given, scaling=scaling), eager_attention_forward(*given, scaling=scaling))
for name, more in (("a bias", {{"position_bias": bias, "scaling": 0.7}}), ("dropout of all", {{"dropout": 1.0}})):
    given = (module, query, key, value, kept)
    found["sdpa", name] = error(grouped_attention.forward(*given, **more), sdpa_attention_forward(*given, **more))
print(json.dumps({{", ".join(map(str, name)): error for name, error in found.items()}}))
"""


@pytest.mark.parametrize(("dtype", "most"), [("float32", 2e-6), ("bfloat16", 0.03)])
@pytest.mark.parametrize(("heads", "key_heads"), [(8, 2), (6, 1), (4, 4)])
def test_a_step_has_the_numbers_of_sdpa_and_eager_with_and_without_a_mask(guest, heads, key_heads, dtype, most):
    found = guest.code(FUNCTIONS.format(heads=heads, key_heads=key_heads, dtype=dtype))
    assert len(found) == 12
    assert {name: error for name, error in found.items() if not (isinstance(error, float) and error <= most)} == {}


IN_GENERATE = """
import json, torch, transformers
from bench.backends import compiled
from transformers.integrations import sdpa_attention

torch.set_num_threads(1)
model = transformers.AutoModelForCausalLM.from_pretrained({path!r}, dtype=torch.float32).eval()
lengths, theirs = [], sdpa_attention.sdpa_attention_forward


def of_sdpa(module, query, *arguments, **more):
    lengths.append(query.shape[2])
    return theirs(module, query, *arguments, **more)


ids = torch.randint(4, model.config.vocab_size, (3, 9), generator=torch.Generator().manual_seed(1))
mask = torch.ones_like(ids)
for row, count in enumerate((0, 3, 5)):
    mask[row, :count] = 0
asked = dict(attention_mask=mask, do_sample=False, max_new_tokens=12, min_new_tokens=12, return_dict_in_generate=True, output_logits=True, pad_token_id=3)


caches, found = ({{}}, {{"cache_implementation": "static", "disable_compile": True}}), []
compiled.set_attention(model, "grouped")
sdpa_attention.sdpa_attention_forward = of_sdpa
ours = [model.generate(ids, **asked, **cache) for cache in caches]
sdpa_attention.sdpa_attention_forward = theirs
for other in ("sdpa", "eager"):
    model.set_attn_implementation(other)
    for answer, cache in zip(ours, caches):
        expected = model.generate(ids, **asked, **cache)
        errors = [(one - two).abs().max().item() for one, two in zip(answer.logits, expected.logits)]
        found.append([other, answer.sequences.tolist() == expected.sequences.tolist(), errors[0], max(errors)])
print(json.dumps([found, sorted(set(lengths)), len(lengths) // model.config.num_hidden_layers]))
"""


def test_padded_rows_get_the_tokens_and_logits_of_sdpa_and_eager_and_a_prompt_goes_through_sdpa(guest, checkpoints):
    found, lengths, calls = guest.code(IN_GENERATE.format(path=str(checkpoints["llama"])))
    for other, same_tokens, of_prompt, of_all in found:
        assert same_tokens and of_all < 1e-4, (other, of_all)
        assert of_prompt == 0 or other == "eager", "the prompt's logits are those of sdpa itself"
    assert (lengths, calls) == ([9], 2), "of each answer the prompt alone"


COPIES = """
import json, types, torch, transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from bench.backends import compiled

torch.set_num_threads(1)
sizes = dict(hidden_size=64, intermediate_size=64, num_attention_heads=8, num_key_value_heads=2, num_hidden_layers=2, vocab_size=64)
model, greedy, found = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval(), dict(do_sample=False, num_beams=1), {}


class New(TorchDispatchMode):
    # The sizes of tensors with memory of their own, neither a view nor written in place.
    def __init__(self):
        super().__init__()
        self.elements = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        output = function(*arguments, **(named or {}))
        given = {one.untyped_storage().data_ptr() for one in tree_leaves([arguments, named]) if isinstance(one, torch.Tensor)}
        made = [one for one in tree_leaves(output) if isinstance(one, torch.Tensor)]
        self.elements += [one.numel() for one in made if one.untyped_storage().data_ptr() not in given]
        return output


@torch._dynamo.register_backend(name="watched")
def watched(graph, inputs):
    def step(*inputs):
        with New() as new:
            answer = graph.forward(*inputs)
        found[attention] = max(new.elements)
        return answer
    return step


for attention in ("grouped", "sdpa"):
    load = {"compiler": "watched", "attention": attention, "cache_tokens": 64}
    job = types.SimpleNamespace(device="cpu", load=load, runs=[{"new_tokens": 12, "arguments": greedy}], prompt={"batch_size": 3})
    loaded = compiled.of_model(job, model, torch.arange(4, 16).repeat(3, 1))
    found["keys of a layer"] = loaded.loop.cache.layers[0].keys.numel()
    loaded.close()
print(json.dumps(found))
"""


def test_a_compiled_step_makes_no_tensor_as_large_as_the_keys_of_a_layer(guest):
    found = guest.code(COPIES)
    keys = found["keys of a layer"]
    assert found["grouped"] == 3 * 8 * 64 < keys == 3 * 2 * 64 * 8, "its largest are the scores: rows x heads x tokens of the cache"
    assert found["sdpa"] == 4 * keys, "sdpa repeats each key head for its four query heads"


@pytest.mark.parametrize("rows", [1, 3])
def test_a_job_with_grouped_attention_passes_check_and_judge_and_its_result_tells_it(guest, checkpoints, references, tmp_path, rows):
    job = compiled_job("llama", checkpoints, load=GROUPED, reference=references["llama"], prompt=dict(BATCH, batch_size=rows))
    result = guest.run(job)
    assert result.status == "ok" and result.check["passed"], (result.reason, result.check)
    assert (result.used["attention"], result.used["graphs"], result.used["loop"], result.used["sums"]) == ("grouped", 1, "kit", False)
    verdict = judged(guest, job, tmp_path)
    assert verdict["passed"] and verdict["not_seen"] == [], verdict


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("g++"), reason="NOT TESTED: kernels for a CPU need a C++ compiler; install g++")
def test_kernels_written_by_inductor_give_the_same(guest, checkpoints, references, tmp_path):
    job = compiled_job("llama", checkpoints, load=dict(GROUPED, compiler="inductor", products="ordered"), reference=references["llama"])
    result = guest.run(job)
    assert result.status == "ok" and result.check["passed"], (result.reason, result.check)
    assert (result.used["attention"], result.used["graphs"]) == ("grouped", 1) and judged(guest, job, tmp_path)["passed"]


def test_results_with_an_attention_of_transformers_tell_what_they_told_before(guest, checkpoints):
    result = guest.run(compiled_job("llama", checkpoints, load=dict(GROUPED, attention="sdpa")))
    assert result.status == "ok" and "attention" not in result.used, result.reason


@pytest.mark.parametrize(
    ("architecture", "name", "attention"),
    [("bloom", "BloomForCausalLM", "grouped"), ("gptj", "GPTJForCausalLM", "grouped"), ("gptj", "GPTJForCausalLM", "sdpa")],
)
def test_a_model_whose_layers_take_no_other_function_is_refused(guest, checkpoints, architecture, name, attention):
    """transformers itself would warn, and go on with the layers' own attention."""
    result = guest.run(compiled_job(architecture, checkpoints, load=dict(GROUPED, attention=attention)))
    words = f"{name} computes its attention itself and takes no other function: give load another attention than {attention!r}, or leave attention out"
    assert result.status == "failed" and words in result.reason
