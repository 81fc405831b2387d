"""What backends ask of libraries that need a GPU, and what they tell of it: on stand-ins of the libraries."""

import contextlib
import os
import sys
import types

import pytest

from bench.backends import Loaded, bminf, compiled, deepspeed, deepspeed_zero, int8, layer_parallel, tensor_parallel, transformers, vllm
from bench.measuring import ranks
from bench.models import pretrained, weights


class Torch(types.SimpleNamespace):
    def __init__(self):
        self.current = []
        super().__init__(float16="float16", bfloat16="bfloat16", cuda=types.SimpleNamespace(set_device=self.current.append))


@pytest.fixture
def torch(monkeypatch):
    made = Torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


class DeepSpeedTransformerInference:
    pass


class DeepSpeedBloomInference(DeepSpeedTransformerInference):
    pass


class BloomBlock:
    pass


@pytest.fixture
def deepspeed_load(monkeypatch, torch):
    """load(layer, **load): (the engine, DeepSpeed's arguments) in the third of four ranks."""
    monkeypatch.setenv("LOCAL_RANK", "2")
    for name in deepspeed.NO_RECORDS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pretrained, "load_model", lambda job, **arguments: "the model")
    monkeypatch.setattr(pretrained, "dtype_of", lambda model: f"dtype of {model}")
    monkeypatch.setattr(deepspeed, "_load_kernels", lambda: 0.5)

    def load(layer, **more):
        asked = {}

        def init_inference(**arguments):
            asked.update(arguments, records={name: os.environ.get(name) for name in deepspeed.NO_RECORDS}, device=list(torch.current))
            generation = types.SimpleNamespace(generation_config=types.SimpleNamespace(eos_token_id=[7, 3]))
            return types.SimpleNamespace(module=generation, layers=[layer()])

        monkeypatch.setitem(sys.modules, "deepspeed", types.SimpleNamespace(init_inference=init_inference))
        monkeypatch.setattr(pretrained, "layers_of", lambda engine: engine.layers)
        job = types.SimpleNamespace(device="cuda", device_count=4, load={"dtype": "bfloat16", **more})
        return deepspeed.load(job), asked

    return load


def test_each_rank_of_deepspeed_loads_its_part_onto_its_own_gpu_in_the_job_s_dtype(deepspeed_load):
    loaded, asked = deepspeed_load(DeepSpeedBloomInference)
    assert (asked["mp_size"], asked["dtype"], asked["replace_with_kernel_inject"], asked["device"]) == (4, "bfloat16", True, [2])
    assert loaded.device == "cuda:2" and loaded.end_tokens() == [3, 7]
    assert (loaded.used["layer_class"], loaded.used["ranks"], loaded.used["kernels_ready_s"]) == ("DeepSpeedBloomInference", 4, 0.5)
    assert "torch_records" not in loaded.used and set(asked["records"].values()) == {None}


def test_records_of_collectives_are_off_before_the_ranks_form_their_group_where_a_case_asks_for_it(deepspeed_load, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    loaded, asked = deepspeed_load(DeepSpeedBloomInference, torch_records=False)
    assert asked["records"] == deepspeed.NO_RECORDS and loaded.used["torch_records"] is False


def test_layers_without_deepspeed_s_kernels_have_no_time(deepspeed_load):
    with pytest.raises(RuntimeError, match="the layers are BloomBlock, not DeepSpeedTransformerInference: no kernel was injected"):
        deepspeed_load(BloomBlock)


class TransformerBlockList:
    def __init__(self, layers, *fixed):
        self.layers, self._scheds = layers, [types.SimpleNamespace(_fixed_layers=one) for one in fixed]

    def __len__(self):
        return self.layers


@pytest.mark.parametrize(("quantization", "dtype"), [(False, "float16"), (True, "int8")])
def test_bminf_gets_the_job_s_limit_and_the_layers_that_it_copies_are_told(monkeypatch, quantization, dtype):
    asked = {}
    wrapped = types.SimpleNamespace(modules=lambda: [types.SimpleNamespace(), TransformerBlockList(30, {0, 1, 2, 3}, {4, 5})])
    monkeypatch.setattr(pretrained, "load_model", lambda job, **arguments: "the model")
    monkeypatch.setattr(pretrained, "dtype_of", lambda model: "float16")
    monkeypatch.setitem(sys.modules, "bminf", types.SimpleNamespace(wrapper=lambda model, **arguments: asked.update(arguments, model=model) or wrapped))
    loaded = bminf.load(types.SimpleNamespace(load={"dtype": "float16", "memory_limit_bytes": 4000, "quantization": quantization}))
    assert asked == {"model": "the model", "quantization": quantization, "memory_limit": 4000}
    assert loaded.model is wrapped and loaded.device == "cuda:0"
    assert loaded.used == {"dtype": dtype, "memory_limit_bytes": 4000, "fixed_layers": 6, "scheduled_layers": 24}


class Linear8bitLt:
    pass


@pytest.mark.parametrize(
    ("library", "modules", "said"),
    [
        ("libbitsandbytes_cuda118.so", [Linear8bitLt()], ""),
        ("libbitsandbytes_cpu.so", [Linear8bitLt()], "bitsandbytes loaded libbitsandbytes_cpu.so and no CUDA library"),
        ("libbitsandbytes_cuda118.so", [types.SimpleNamespace()], "no layer became Linear8bitLt"),
    ],
)
def test_a_time_of_int8_needs_a_cuda_library_and_quantised_layers(monkeypatch, library, modules, said):
    asked = {}
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(__version__="4.26.0"))
    monkeypatch.setattr(int8, "library_file", lambda: library)
    model = types.SimpleNamespace(modules=lambda: modules, parameters=list, device="cuda:0")
    monkeypatch.setattr(pretrained, "load_model", lambda job, **arguments: asked.update(arguments) or model)
    job = types.SimpleNamespace(device="cuda", load={"dtype": "int8"})
    if said:
        with pytest.raises(RuntimeError, match=said):
            int8.load(job)
    else:
        assert int8.load(job).used["quantised_layers"] == 1
        assert asked == {"dtype_name": "float16", "load_in_8bit": True, "device_map": "auto"}


def test_a_rank_of_plain_transformers_lies_on_its_own_gpu(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(pretrained, "load_onto", lambda job, device: types.SimpleNamespace(on=device))
    monkeypatch.setattr(pretrained, "dtype_of", lambda model: "float16")
    loaded = transformers.load(types.SimpleNamespace(device="cuda", load={}))
    assert (loaded.model.on, loaded.device, ranks.local()) == ("cuda:3", "cuda:3", 3)


@pytest.mark.parametrize(("torch", "refused"), [("1.13.1", True), ("2.2.2+cu118", True), ("2.3.0", False), ("2.11.0+cu130", False)])
def test_a_torch_without_a_switch_for_cudnn_s_attention_is_refused_before_anything_is_loaded(monkeypatch, torch, refused):
    monkeypatch.setattr(transformers.metadata, "version", lambda name: torch)
    words = "has no switch for cuDNN's attention kernel, 2.3 and later do: leave load.cudnn_attention out, or take a later stack"
    for allowed in (False, True):
        job = types.SimpleNamespace(load={"dtype": "bfloat16", "cudnn_attention": allowed})
        assert transformers.unsupported(job) == (f"torch {torch} {words}" if refused else "")
    assert transformers.unsupported(types.SimpleNamespace(load={"dtype": "bfloat16"})) == ""


@pytest.mark.parametrize("value", ["no", 0, 1, None, []])
def test_a_switch_of_cudnn_s_attention_is_true_or_false(value):
    assert transformers.mistake_in({"cudnn_attention": value}) == f"load.cudnn_attention is {value!r}, allowed are true and false"
    assert [transformers.mistake_in(load) for load in ({}, {"cudnn_attention": True}, {"cudnn_attention": False})] == [""] * 3


@pytest.mark.parametrize("value", ["groupd", "", "GROUPED", "paged|sdpa", 5, True, None, [], {}, ["sdpa"]])
def test_an_attention_of_compiled_is_eager_sdpa_or_grouped(value):
    assert compiled.mistake_in({"attention": value}) == f"load.attention is {value!r}, allowed are eager, sdpa, grouped"


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("products", "cubals", "ordered, cublas, vectors, tuned, waiting-combined"),
        ("products", ["ordered"], "ordered, cublas, vectors, tuned, waiting-combined"),
        ("loop", "vllm", "kit, transformers"),
        ("loop", "", "kit, transformers"),
    ],
)
def test_the_products_and_the_loop_of_compiled_are_names_that_it_knows(option, value, allowed):
    assert compiled.mistake_in({"attention": "sdpa", option: value}) == f"load.{option} is {value!r}, allowed are {allowed}"
    assert [compiled.mistake_in({option: name}) for name in allowed.split(", ")] == [""] * len(allowed.split(", "))
    assert [compiled.mistake_in(load) for load in ({}, {"attention": "eager"}, {"attention": "sdpa"}, {"attention": "grouped"})] == [""] * 4


@pytest.mark.parametrize(
    ("device", "mode", "compiler", "captured", "told"),
    [
        ("cuda", "default", "inductor", True, "the kit"),
        ("cuda", "max-autotune", "inductor", False, "torch"),
        ("cuda", "reduce-overhead", "inductor", False, "torch"),
        ("cuda", "max-autotune", "eager", True, "the kit"),
        ("cpu", "default", "inductor", False, "nobody"),
    ],
)
def test_a_step_s_cuda_graph_is_recorded_once_by_the_kit_or_by_torch(monkeypatch, device, mode, compiler, captured, told):
    asked = {}

    class Loop:
        def __init__(self, *arguments):
            pass

        def prepare(self, compiler, options, capture):
            asked.update(capture=capture)

    monkeypatch.setattr(compiled.greedy_loop, "GreedyLoop", Loop)
    monkeypatch.setattr(compiled, "_inductor_options", lambda mode, inductor: inductor)
    loaded = types.SimpleNamespace(model=None, batch_size=1, cache_tokens=8, device=device)
    settings = {"mode": mode, "inductor": {}, "split_biases": False, "sums": False, "waits": False, "products": "ordered"}
    _, used = compiled._prepare_loop(types.SimpleNamespace(device=device), loaded, compiler, **settings)
    assert (asked["capture"], used["cuda_graph_by"]) == (captured, told)


class Cut:
    """A model that tensor_parallel has cut."""

    def eval(self):
        return self


@pytest.mark.parametrize(("architecture", "slicing"), [("BloomForCausalLM", "predefined"), ("UnheardOf", "automatic")])
def test_tensor_parallel_cuts_the_model_over_all_devices_of_the_job(monkeypatch, architecture, slicing):
    asked = []
    library = types.SimpleNamespace(
        slicing_configs=types.SimpleNamespace(PREDEFINED_CONFIGS={"BloomForCausalLM": None}),
        tensor_parallel=lambda model, devices: asked.append(devices) or Cut(),
    )
    monkeypatch.setitem(sys.modules, "tensor_parallel", library)
    config = types.SimpleNamespace(architectures=[architecture], model_type="x")
    monkeypatch.setattr(pretrained, "load_model", lambda job, **arguments: types.SimpleNamespace(config=config))
    monkeypatch.setattr(pretrained, "dtype_of", lambda model: "float16")
    monkeypatch.setattr(pretrained, "devices_of", lambda model: {"cuda:0": 1, "cuda:1": 1})
    loaded = tensor_parallel.load(types.SimpleNamespace(device="cuda", device_count=2, load={"dtype": "float16"}))
    assert asked == [["cuda:0", "cuda:1"]] and loaded.device == "cuda:0" and loaded.used["slicing_config"] == slicing


@pytest.mark.parametrize(("load", "device_map"), [({}, "auto"), ({"device_map": "balanced_low_0"}, "balanced_low_0")])
def test_layers_are_spread_by_the_map_of_the_job(monkeypatch, load, device_map):
    asked = {}
    model = types.SimpleNamespace(device="cuda:0", parameters=list)
    monkeypatch.setattr(pretrained, "load_model", lambda job, **arguments: asked.update(arguments) or model)
    monkeypatch.setattr(pretrained, "dtype_of", lambda model: "float16")
    monkeypatch.setattr(pretrained, "inputs_device", lambda model: "cuda:0")
    layer_parallel.load(types.SimpleNamespace(load={"dtype": "float16", **load}))
    assert asked == {"device_map": device_map}


@pytest.mark.parametrize("offload", [True, False])
def test_each_rank_of_zero_works_on_its_own_gpu_and_says_where_the_weights_rest(monkeypatch, torch, offload):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    evaluated, configured = [], []
    piece = types.SimpleNamespace(numel=lambda: 5, element_size=lambda: 2)
    module = types.SimpleNamespace(eval=lambda: evaluated.append(True), parameters=lambda: [types.SimpleNamespace(ds_tensor=piece)] * 3)
    engine = types.SimpleNamespace(module=module)
    library = types.SimpleNamespace(init_distributed=lambda backend: None, initialize=lambda model, config: configured.append(config) or (engine,))
    monkeypatch.setitem(sys.modules, "deepspeed", library)
    of_path = types.SimpleNamespace(from_pretrained=lambda path: types.SimpleNamespace(hidden_size=10))
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(AutoConfig=of_path, __version__="4.29.2"))
    monkeypatch.setattr(deepspeed_zero.compat, "zero_config_class", lambda version: dict)
    monkeypatch.setattr(pretrained, "load_model", lambda job: "the model")
    monkeypatch.setattr(pretrained, "dtype_of", lambda model: "bfloat16")
    job = types.SimpleNamespace(device="cuda", model={"path": "/nowhere"}, load={"dtype": "bfloat16", "cpu_offload": offload})
    loaded = deepspeed_zero.load(job)
    assert torch.current == [1] and loaded.device == "cuda:1" and evaluated == [True], "engines of DeepSpeed begin in training mode"
    assert (loaded.used["ranks"], loaded.used["cpu_offload"], loaded.used["weights_of_first_rank_bytes"]) == (2, offload, 30)
    assert configured == [deepspeed_zero.settings(10, "bfloat16", 2, offload)]


def test_the_loop_of_transformers_gets_the_cache_that_the_result_tells_of(monkeypatch):
    asked = {}
    monkeypatch.setattr(compiled, "_compile_config", lambda job, mode, compiler: (mode, compiler))
    loaded = types.SimpleNamespace(
        cache_tokens=48, model=types.SimpleNamespace(generation_config=types.SimpleNamespace(update=lambda **given: asked.update(given)))
    )
    compiled._prepare_transformers(types.SimpleNamespace(load={}), loaded, "inductor")
    assert asked == {"cache_implementation": "static", "max_cache_len": 48, "compile_config": ("reduce-overhead", "inductor")}


@pytest.mark.parametrize(
    ("arguments", "least", "most"),
    [
        ({"max_new_tokens": 6, "min_length": 13}, 3, 6),
        ({"max_new_tokens": 6, "min_length": 99}, 6, 6),
        ({"max_length": 14, "min_new_tokens": 2}, 2, 4),
        ({"max_new_tokens": 6, "min_length": 4}, 0, 6),
    ],
)
def test_lengths_of_prompt_and_answer_together_become_vllm_s_of_the_answer_alone(monkeypatch, arguments, least, most):
    monkeypatch.setitem(sys.modules, "vllm", types.SimpleNamespace(SamplingParams=lambda **given: types.SimpleNamespace(**given)))
    asked = vllm.Vllm(ends=[3, 500], vocabulary=100)._asked(10, arguments)
    assert (asked.min_tokens, asked.max_tokens, asked.stop_token_ids) == (least, most, [3])


def test_the_new_tokens_of_an_answer_that_ended_early_hold_nothing_of_the_prompt(monkeypatch):
    import numpy

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(no_grad=contextlib.nullcontext))
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(__version__="5.17.0"))
    model = types.SimpleNamespace(generate=lambda ids, **arguments: numpy.array([[5, 6, 7, 1, 2]]))
    assert Loaded(model=model).generate(numpy.array([[5, 6, 7]]), max_new_tokens=5).tolist() == [[1, 2]]


@pytest.mark.parametrize(("rows", "at_once"), [(4, vllm.LEAST_STEP_TOKENS), (64, 64 * 128)])
def test_vllm_reads_all_prompts_of_a_batch_in_one_step(rows, at_once):
    """In several steps equal calls would work on unlike batches."""
    ids = types.SimpleNamespace(shape=(rows, 128), numel=lambda: rows * 128)
    job = types.SimpleNamespace(model={"path": "/nowhere"}, load={"dtype": "float16"}, device_count=1, runs=[{"new_tokens": 8}])
    settings = vllm.settings_of(job, weights.config_of("bloomz-7b1", "tiny"), ids)
    assert (settings["max_num_batched_tokens"], settings["max_num_seqs"]) == (at_once, rows)
