"""All branches on a library's version, and nothing else.

Each function gets the version as an argument, so both sides can be tested in any environment. It notes the side that it took in
TAKEN, which the guest stores in its result.
"""

import re

#: {branch: side}, filled while a job runs.
TAKEN = {}


def release(version):
    """(major, minor) of a version string: "2.0.1+cu117" is (2, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _take(branch, side):
    TAKEN[branch] = side


def _able(branch, able, yes="yes", no="no"):
    _take(branch, yes if able else no)
    return able


def dtype_argument(transformers_version, dtype_name, dtype):
    """The argument of `from_pretrained` that sets the dtype.

    Up to 4.x the default was float32, for which the articles passed no argument. 5.0 uses the checkpoint's dtype by default and renamed the
    argument.
    """
    if release(transformers_version) >= (5, 0):
        _take("dtype", "dtype=")
        return {"dtype": dtype}
    if dtype_name == "float32":
        _take("dtype", "the library's default")
        return {}
    _take("dtype", "torch_dtype=")
    return {"torch_dtype": dtype}


def eight_bit_arguments(transformers_version, make_config):
    """The arguments of `from_pretrained` that load 8-bit weights; `make_config` builds a BitsAndBytesConfig.

    `load_in_8bit=True` was an argument of `from_pretrained` until 5.0 removed it.
    """
    if release(transformers_version) >= (5, 0):
        _take("load_in_8bit", "quantization_config=")
        return {"quantization_config": make_config()}
    _take("load_in_8bit", "load_in_8bit=")
    return {"load_in_8bit": True}


def eight_bit_on_cpu(bitsandbytes_version, transformers_version):
    """Can these versions quantise without a GPU? bitsandbytes has CPU kernels from 0.46 on, and transformers allows them from 4.46 on."""
    return _able("eight_bit_on_cpu", release(bitsandbytes_version) >= (0, 46) and release(transformers_version) >= (4, 46))


def length_arguments(transformers_version, arguments, prompt_tokens, new_tokens):
    """The arguments to add to an article's `generate` arguments, so that a call makes exactly `new_tokens`.

    The first article gives no length. Up to 4.38 transformers then made one token after a prompt longer than its default
    `max_length=20`, with a warning; later versions refuse, so the kit asks for the one token. A length that an article gives stays.
    """
    if not arguments and new_tokens == 1 and prompt_tokens >= 20 and release(transformers_version) < (4, 39):
        _take("one_token", "default max_length=20")
        return {}
    if "max_new_tokens" in arguments or "max_length" in arguments:
        return {}
    _take("one_token", "max_new_tokens=")
    return {"max_new_tokens": new_tokens, "min_length": prompt_tokens + new_tokens}


def pipeline_arguments(transformers_version, arguments, prompt_tokens):
    """An article's arguments of a text-generation pipeline, translated so that they keep their meaning.

    Later pipelines have a default `max_new_tokens=256`, which overrides an article's `max_length`.
    """
    if release(transformers_version) < (4, 49) or "max_length" not in arguments:
        _take("pipeline_length", "as given")
        return dict(arguments)
    _take("pipeline_length", "max_new_tokens=")
    kept = {name: value for name, value in arguments.items() if name != "max_length"}
    return dict(kept, max_new_tokens=arguments["max_length"] - prompt_tokens)


def zero_config_class(transformers_version):
    """The class that makes `from_pretrained` load with ZeRO stage 3; its module moved in 4.33."""
    import importlib

    module = "transformers.integrations.deepspeed" if release(transformers_version) >= (4, 33) else "transformers.deepspeed"
    _take("zero_config", module)
    return importlib.import_module(module).HfDeepSpeedConfig


def stops_row_by_row(transformers_version):
    """Does a stopping criterion end each row of a batch by itself? Before 4.39 it ended the whole batch."""
    return _able("stopping", release(transformers_version) >= (4, 39), "row by row", "whole batch")


def continuous_batching(transformers_version):
    """Can bench/forms/continuous.py drive this version's continuous batching? Its interface differed in every release before 5.17."""
    return _able("continuous_batching", release(transformers_version) >= (5, 17))


def compiled_decoding(transformers_version):
    """Can `generate` compile its steps for bench/backends/compiled.py? Earlier versions than 5.17 were not tried; BLOOM needs a mask of one size."""
    return _able("compiled_decoding", release(transformers_version) >= (5, 17))


def streams_tokens(transformers_version):
    """Does `generate` hand each step's tokens to a `streamer`? From 4.28 on; before, a stopping criterion sees them."""
    return _able("token_times", release(transformers_version) >= (4, 28), "streamer", "stopping criterion")


def records_collectives(torch_version):
    """Does torch keep a record of each collective, for the case that one hangs? From 2.2 on."""
    return release(torch_version) >= (2, 2)


def cudnn_attention(torch_version):
    """Can torch be told not to take cuDNN's attention kernel (`torch.backends.cuda.enable_cudnn_sdp`)? From 2.3 on."""
    return _able("cudnn_attention", release(torch_version) >= (2, 3))


def offloaded_cache(transformers_version):
    """Can `generate` keep BLOOM's key-value cache in host memory? From 4.44 on."""
    return _able("offloaded_cache", release(transformers_version) >= (4, 44))


def loads_straight(transformers_version):
    """Does `from_pretrained(device_map={"": device})` leave a model as `.to(device)` does? Earlier pins of accelerate hook into every layer."""
    return _able("onto_device", release(transformers_version) >= (5, 0), "device_map", "through host memory")


def safe_pickles(torch_version):
    """Does `torch.load(weights_only=True)` run no code of a pickle? Before 2.6 it could be tricked into it (CVE-2025-32434)."""
    return _able("pickles", release(torch_version) >= (2, 6), "weights_only", "refused")


def meta_device(torch, accelerate):
    """A context in which modules are built without memory: torch's own from 2.0 on, else accelerate's."""
    if release(torch.__version__) >= (2, 0):
        _take("meta_device", "torch.device('meta')")
        return torch.device("meta")
    _take("meta_device", "accelerate.init_empty_weights")
    return accelerate.init_empty_weights()


def out_of_memory_errors(torch):
    """The exception types that mean "out of GPU memory"; torch has a type for it since 1.13, under two names."""
    return tuple({getattr(torch.cuda, "OutOfMemoryError", MemoryError), getattr(torch, "OutOfMemoryError", MemoryError)})
