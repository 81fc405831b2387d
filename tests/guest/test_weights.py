"""Random checkpoints: whole, the same to the bit anywhere, loaded without a missing or an unknown tensor."""

import json
import re

import pytest

from bench.job import to_json
from bench.models import weights
from tests.guest.conftest import SHAPES
from tests.guest.samples import tiny_job


def test_from_pretrained_takes_it_without_a_missing_or_unexpected_tensor(guest, checkpoints):
    folders = {architecture: str(folder) for architecture, folder in checkpoints.items()}
    code = (
        "import json, transformers; load = lambda path: transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)[1]; "
        f"print(json.dumps({{a: sorted(map(str, [*i['missing_keys'], *i['unexpected_keys'], *i['mismatched_keys']])) for a, i in ((a, load(p)) for a, p in {folders!r}.items())}}))"
    )
    found = guest.code(code)
    found["bloom"] = [key for key in found["bloom"] if key != "lm_head.weight"]  # tied to the embeddings
    assert found == {architecture: [] for architecture in SHAPES}


def test_values_do_not_depend_on_chunks_and_do_depend_on_name_and_seed(guest):
    code = (
        "import json, torch; from bench.models.weights import random_tensor as r; a = r('x.weight', (40, 50), 0, torch.float32, 'cpu'); "
        "print(json.dumps([bool((a == r('x.weight', (40, 50), 0, torch.float32, 'cpu', chunk=7)).all()), "
        "bool((a == r('y.weight', (40, 50), 0, torch.float32, 'cpu')).any()), bool((a == r('x.weight', (40, 50), 1, torch.float32, 'cpu')).any()), "
        "float(a.std()), float(a.mean()), float(r('input_layernorm.weight', (1000,), 0, torch.float32, 'cpu').mean())]))"
    )
    same, other_name, other_seed, std, mean, norm = guest.code(code)
    assert same and not other_name and not other_seed
    assert std == pytest.approx(0.02, rel=0.05) and abs(mean) < 0.002 and norm == pytest.approx(1, abs=0.01)


#: The first values of a named tensor, so that the same seed gives the same weights in every release of the kit.
FIRST_VALUES = [-0.030529150739312172, -0.015765368938446045, 0.0014850494917482138]


def test_the_generator_is_the_one_that_earlier_results_used(guest):
    code = "import json, torch; from bench.models.weights import random_tensor as r; print(json.dumps(r('transformer.word_embeddings.weight', (3,), 0, torch.float32, 'cpu').tolist()))"
    assert guest.code(code) == FIRST_VALUES, "the values changed: add a recipe in bench/models/weights.py, so that old and new runs are told apart"


def test_a_role_is_multiplied_before_rounding(guest):
    code = (
        "import json, torch; from bench.models.weights import random_tensor as r; a = r('x.weight', (500,), 0, torch.float32, 'cpu'); "
        "b = r('x.weight', (500,), 0, torch.float16, 'cpu', times=1.6); print(json.dumps([bool((b == (a * 1.6).half()).all()), bool((b == a.half()).any())]))"
    )
    assert guest.code(code) == [True, False]


@pytest.mark.parametrize("shape", sorted(SHAPES.values()))
def test_each_layer_has_its_roles_and_nothing_else_has(guest, shape):
    """Of each layer queries and keys, which BLOOM has in one matrix, and the outputs of attention and of the MLP."""
    code = (
        f"import json; from bench.models import weights as w; names = [n for n, _ in w.parameters_of(w.config_of({shape!r}, 'tiny'))]; "
        "print(json.dumps({f: sorted(n for n in names if w.multiplier(n, {f: 7}) == 7) for f in w.ROLES}))"
    )
    found = guest.code(code)
    assert [len(found[role]) for role in "qam"] == [4 if shape.startswith("bloom") else 8, 4, 4]
    assert all(re.search(r"\.[0-3]\..*\.weight$", name) for names in found.values() for name in names)


def test_a_job_without_a_recipe_is_of_the_first(guest, tmp_path):
    assert weights.recipe_of({"weights": "random"}) == 1
    assert weights.factors_of({"model_type": "bloom"}, "full", 1) == {}
    with pytest.raises(ValueError, match="recipe is 3, allowed are 1, 2"):
        weights.factors_of({"model_type": "bloom"}, "full", 3)


def test_shards_are_cut_by_size_and_a_larger_tensor_has_its_own():
    parameters = [("a", (10,)), ("b", (10,)), ("c", (100,)), ("d", (10,))]
    assert weights._shards(parameters, 2, 40) == [parameters[:2], parameters[2:3], parameters[3:]]


def test_several_shards_have_an_index_that_from_pretrained_follows(guest, tmp_path):
    code = (
        "import json, transformers; from bench.models import weights; "
        f"facts = weights.write_checkpoint({str(tmp_path)!r}, 'gpt-j-6B', 'tiny', 0, shard_bytes=1 << 20); "
        f"m, info = transformers.AutoModelForCausalLM.from_pretrained({str(tmp_path)!r}, output_loading_info=True); "
        "print(json.dumps([facts, sorted(map(str, info['missing_keys']))]))"
    )
    facts, missing = guest.code(code)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert facts["shards"] == len(set(index["weight_map"].values())) > 1
    assert index["metadata"]["total_size"] == facts["bytes"] == facts["parameters"] * 4
    assert missing == []


#: As the hub's model cards give them.
PARAMETERS = {"bloomz-7b1": 7_069_016_064, "gpt-j-6B": 6_050_882_784, "llama-3-8B": 8_030_261_248}


def test_the_full_shapes_have_the_real_models_numbers_of_parameters(guest):
    code = (
        "import json, math; from bench.models import weights; count = lambda shape: sum(math.prod(s) for _, s in weights.parameters_of(weights.config_of(shape, 'full'))); "
        f"print(json.dumps({{shape: count(shape) for shape in {sorted(PARAMETERS)!r}}}))"
    )
    assert guest.code(code) == PARAMETERS


def test_an_unknown_shape_is_named_with_what_is_allowed():
    with pytest.raises(ValueError, match="shape is 'gpt-5', allowed are bloom-7b1"):
        weights.config_of("gpt-5", "full")


STRAIGHT = """
import json, torch
from bench.job import parse_job
from bench.models import pretrained
job = parse_job(open({path!r}).read())
straight, copied = pretrained.straight(job, "cpu"), pretrained.load_model(job, low_cpu_mem_usage=True).to("cpu")
left, right = straight.state_dict(), copied.state_dict()
same = list(left) == list(right) and all(torch.equal(left[name], right[name]) and left[name].dtype == right[name].dtype for name in left)
attributes = sorted(set(vars(straight)) ^ set(vars(copied)))
print(json.dumps({{"same": same, "attributes": attributes, "training": straight.training}}))
"""


@pytest.mark.parametrize("architecture", ["bloom", "gptj", "llama"])
def test_a_model_loaded_straight_onto_a_device_is_the_one_that_is_moved_there(guest, checkpoints, tmp_path, architecture):
    path = tmp_path / "straight.json"
    path.write_text(to_json(tiny_job(architecture, checkpoints[architecture])))
    assert guest.code(STRAIGHT.format(path=str(path))) == {"same": True, "attributes": [], "training": False}
