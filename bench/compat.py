"""Every branch on a library's version, and nothing else.

Each function takes the version it depends on, so that both sides can be tested in any environment, and notes the
side it took in TAKEN, which the guest stores with its result.
"""

import re

#: {branch: side}, filled while a job runs.
TAKEN = {}


def release(version):
    """(major, minor) of a version string: "2.0.1+cu117" is (2, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _take(branch, side):
    TAKEN[branch] = side
    return side


def dtype_argument(transformers_version, dtype_name, dtype):
    """The argument of `from_pretrained` that sets the dtype.

    float32 was the default up to 4.x, where the articles passed nothing for it; 5.0 takes the checkpoint's dtype
    instead, and renamed the argument.
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

    `load_in_8bit=True` was an argument of its own until 5.0 took it away.
    """
    if release(transformers_version) >= (5, 0):
        _take("load_in_8bit", "quantization_config=")
        return {"quantization_config": make_config()}
    _take("load_in_8bit", "load_in_8bit=")
    return {"load_in_8bit": True}


def eight_bit_on_cpu(bitsandbytes_version, transformers_version):
    """Can these two quantise without a GPU? bitsandbytes has CPU kernels from 0.46 on, transformers lets them be used from 4.46 on."""
    able = release(bitsandbytes_version) >= (0, 46) and release(transformers_version) >= (4, 46)
    _take("eight_bit_on_cpu", "yes" if able else "no")
    return able


def length_arguments(transformers_version, arguments, prompt_tokens, new_tokens):
    """What to add to an article's `generate` arguments so that exactly `new_tokens` come out.

    With no length at all, the first article's way, transformers up to 4.38 went one token past a prompt longer than
    its default `max_length=20`, with a warning; later ones refuse and must be asked for the one token. Where an
    article gives a length, it is kept as it is.
    """
    if not arguments and new_tokens == 1 and prompt_tokens >= 20 and release(transformers_version) < (4, 39):
        _take("one_token", "default max_length=20")
        return {}
    if "max_new_tokens" in arguments or "max_length" in arguments:
        return {}
    _take("one_token", "max_new_tokens=")
    return {"max_new_tokens": new_tokens, "min_length": prompt_tokens + new_tokens}


def pipeline_arguments(transformers_version, arguments, prompt_tokens):
    """An article's arguments of a text-generation pipeline, so that they mean what they meant then.

    Later pipelines bring `max_new_tokens=256` of their own, which beats an article's `max_length`.
    """
    if release(transformers_version) < (4, 49) or "max_length" not in arguments:
        _take("pipeline_length", "as given")
        return dict(arguments)
    _take("pipeline_length", "max_new_tokens=")
    kept = {name: value for name, value in arguments.items() if name != "max_length"}
    return dict(kept, max_new_tokens=arguments["max_length"] - prompt_tokens)


def zero_config_class(transformers_version):
    """The class that tells `from_pretrained` of ZeRO stage 3; its module moved in 4.33."""
    import importlib

    module = "transformers.integrations.deepspeed" if release(transformers_version) >= (4, 33) else "transformers.deepspeed"
    _take("zero_config", module)
    return importlib.import_module(module).HfDeepSpeedConfig


def stops_row_by_row(transformers_version):
    """Does a stopping criterion answer for each row of a batch? It answered for the whole batch until 4.39."""
    able = release(transformers_version) >= (4, 39)
    _take("stopping", "row by row" if able else "whole batch")
    return able


def continuous_batching(transformers_version):
    """Can bench/forms/continuous.py drive this version's continuous batching? Its interface was another in every release before 5.17."""
    able = release(transformers_version) >= (5, 17)
    _take("continuous_batching", "yes" if able else "no")
    return able


def compiled_decoding(transformers_version):
    """Does `generate` compile its steps as bench/backends/compiled.py asks for? Earlier versions were not tried; BLOOM needs a mask of one size."""
    able = release(transformers_version) >= (5, 17)
    _take("compiled_decoding", "yes" if able else "no")
    return able


def offloaded_cache(transformers_version):
    """Can `generate` keep BLOOM's key-value cache in host memory? From 4.44 on."""
    able = release(transformers_version) >= (4, 44)
    _take("offloaded_cache", "yes" if able else "no")
    return able


def loads_straight(transformers_version):
    """Does `from_pretrained(device_map={"": device})` leave a model as `.to(device)` does? Earlier pins of accelerate hook into every layer."""
    able = release(transformers_version) >= (5, 0)
    _take("onto_device", "device_map" if able else "through host memory")
    return able


def meta_device(torch, accelerate):
    """A context in which modules are built without memory; torch has one of its own from 2.0 on."""
    if release(torch.__version__) >= (2, 0):
        _take("meta_device", "torch.device('meta')")
        return torch.device("meta")
    _take("meta_device", "accelerate.init_empty_weights")
    return accelerate.init_empty_weights()


def out_of_memory_errors(torch):
    """The exception types that mean "out of GPU memory"; torch gave it a type of its own in 1.13, at two places."""
    return tuple({getattr(torch.cuda, "OutOfMemoryError", MemoryError), getattr(torch, "OutOfMemoryError", MemoryError)})
