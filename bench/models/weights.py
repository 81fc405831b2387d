"""Random checkpoints of a model's full architecture, for machines that cannot have the real weights.

A counter-based generator in integer arithmetic (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014), keyed by the tensor's name, makes the values. So a checkpoint is the same to the bit on CPUs and GPUs and under every torch
version, and every stack measures the same weights.

The files are those of `save_pretrained`: config.json, safetensors shards with their index, a tokenizer. One shard is in memory at a time.
"""

import hashlib
import json
import math
import os
import re
from typing import Any, Mapping

from bench import compat

#: The recipe of new checkpoints. Raise it with every change that makes other bytes from the same seed.
RECIPE = 2

#: {recipe: {model type: {scale: {role: factor}}}}: the factors by which the matrices of a role (ROLES) are larger than in recipe 1.
#: Recipe 1 hides faults: attention is nearly uniform, and a layer adds too little to change a greedy token (BLOOM repeats the prompt's
#: last token for ever). Recipe 2 is chosen from the table of bench/instruments/fault_table.py.
MULTIPLIERS = {
    1: {},
    2: {
        "bloom": {"full": {"q": 1.6, "a": 8, "m": 8}, "tiny": {"q": 10, "a": 64, "m": 32}},
        "gptj": {"full": {"q": 2, "a": 4, "m": 4}, "tiny": {"q": 8, "a": 32, "m": 32}},
        "llama": {"full": {}, "tiny": {"q": 8, "a": 32, "m": 32}},
    },
}

#: The matrices of each role: `q` computes the attention's scores; `a` and `m` write the outputs of attention and MLP into the residual
#: stream. BLOOM keeps queries, keys and values in one matrix, so there `q` scales all three.
ROLES = {
    "q": re.compile(r"(query_key_value|\b[qk]_proj)\.weight$"),
    "a": re.compile(r"(self_attention\.dense|out_proj|o_proj)\.weight$"),
    "m": re.compile(r"(dense_4h_to_h|fc_out|down_proj)\.weight$"),
}

#: Part of the key of the generator's streams. All recipes so far have the same streams and differ in the factors.
_STREAMS = 1

SHARD_BYTES = 1 << 30

_BLOOM = {
    "architectures": ["BloomForCausalLM"],
    "model_type": "bloom",
    "vocab_size": 250880,
    "hidden_size": 4096,
    "n_layer": 30,
    "n_head": 32,
    "layer_norm_epsilon": 1e-05,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 3,
    "unk_token_id": 0,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "use_cache": True,
    "torch_dtype": "float16",
    "apply_residual_connection_post_layernorm": False,
    "slow_but_exact": False,
    "pretraining_tp": 1,
    "tie_word_embeddings": True,
}
_GPTJ = {
    "architectures": ["GPTJForCausalLM"],
    "model_type": "gptj",
    "vocab_size": 50400,
    "n_positions": 2048,
    "n_embd": 4096,
    "n_layer": 28,
    "n_head": 16,
    "rotary_dim": 64,
    "n_inner": None,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "layer_norm_epsilon": 1e-05,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "use_cache": True,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "use_cache": True,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

#: {shape: config.json}: the fields of the articles' models that decide the computation.
SHAPES = {
    "bloomz-7b1": _BLOOM,
    "bloom-7b1": _BLOOM,
    "gpt-j-6B": _GPTJ,
    "llama-3-8B": _LLAMA,
}

#: The fields that `scale = tiny` replaces, so that a CPU runs the model in milliseconds.
_TINY = {
    "bloom": {"vocab_size": 1024, "hidden_size": 128, "n_layer": 4, "n_head": 8, "torch_dtype": "float32"},
    "gptj": {
        "vocab_size": 1024,
        "n_embd": 128,
        "n_layer": 4,
        "n_head": 8,
        "rotary_dim": 8,
        "n_positions": 512,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    },
    "llama": {
        "vocab_size": 1024,
        "hidden_size": 128,
        "intermediate_size": 352,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 512,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    },
}


def config_of(shape, scale):
    """The config.json of a shape at scale full or tiny; raises ValueError for an unknown shape."""
    if shape not in SHAPES:
        raise ValueError("shape is {!r}, allowed are {}".format(shape, ", ".join(sorted(SHAPES))))
    config = dict(SHAPES[shape])
    if scale == "tiny":
        config.update(_TINY[config["model_type"]])
    return config


def parameters_of(config):
    """[(name, shape)] of a config's parameters in the model's own order; a tied output matrix is left out."""
    import accelerate
    import torch
    import transformers

    with compat.meta_device(torch, accelerate):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    tied = "lm_head.weight" if config["tie_word_embeddings"] else None
    return [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters() if name != tied]


def _signed(value):
    """The int64 with the same bits as a 64-bit constant."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _uniform(key, start, stop, device):
    """Numbers [start, stop) of the stream `key`: float32 in [-0.5, 0.5), 24 random bits each."""
    import torch

    bits = torch.arange(start + 1, stop + 1, dtype=torch.int64, device=device)
    bits = bits * _signed(0x9E3779B97F4A7C15) + _signed(key)
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * _signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * _signed(0x94D049BB133111EB)
    bits = bits ^ ((bits >> 31) & 0x1FFFFFFFF)
    return ((bits >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24 - 0.5


def recipe_of(model: Mapping[str, Any]) -> int:
    """The recipe of the random weights that a job's `model` names; jobs from before recipe 2 do not name it."""
    return int(model.get("recipe") or 1)


def factors_of(config, scale, recipe):
    """{role: factor} of a config at a scale; raises ValueError for an unknown recipe."""
    if recipe not in MULTIPLIERS:
        raise ValueError("recipe is {!r}, allowed are {}".format(recipe, ", ".join(map(str, sorted(MULTIPLIERS)))))
    return MULTIPLIERS[recipe].get(config["model_type"], {}).get(scale, {})


def multiplier(name, factors):
    """The factor of the tensor of this name, from {role: factor}; 1 for a tensor without a role."""
    return next((factors.get(role, 1) for role, names in ROLES.items() if names.search(name)), 1)


def random_tensor(name, shape, seed, dtype, device, chunk=1 << 26, times=1):
    """The random tensor of this name: standard deviation 0.02 * `times`, norms' weights around 1."""
    import torch

    key = int.from_bytes(hashlib.sha256("{}:{}:{}".format(_STREAMS, seed, name).encode()).digest()[:8], "big")
    numel = math.prod(shape)
    tensor = torch.empty(numel, dtype=dtype, device=device)
    for start in range(0, numel, chunk):
        stop = min(start + chunk, numel)
        # A uniform variable of width w has the standard deviation w / sqrt(12).
        values = _uniform(key, start, stop, device) * (0.02 * 12**0.5)
        if re.search(r"(norm|ln_\w+)\.weight$", name):
            values = values + 1.0
        if times != 1:
            values = values * times  # before rounding to `dtype`
        tensor[start:stop] = values.to(dtype)
    return tensor.reshape(shape)


def _shards(parameters, bytes_per_value, limit):
    """Cut [(name, shape)] into lists of at most `limit` bytes; a larger tensor has a list of its own."""
    shards, used = [[]], 0
    for name, shape in parameters:
        size = bytes_per_value * math.prod(shape)
        if shards[-1] and used + size > limit:
            shards.append([])
            used = 0
        shards[-1].append((name, shape))
        used += size
    return shards


def write_tokenizer(folder):
    """Write a byte-level tokenizer without merges, which has tokens for every text and does not depend on the real model's vocabulary."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    special = ["<unk>", "<s>", "</s>", "<pad>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(special + alphabet)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": 2048,
    }
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as stream:
        json.dump(settings, stream, indent=1, sort_keys=True)


def write_checkpoint(folder, shape, scale, seed, device="cpu", shard_bytes=SHARD_BYTES, recipe=RECIPE, progress=lambda done, total: None):
    """Write the checkpoint into `folder`, which exists and is empty. Returns {parameters, bytes, shards, recipe}."""
    import torch
    from safetensors.torch import save_file

    config = config_of(shape, scale)
    factors = factors_of(config, scale, recipe)
    dtype = getattr(torch, config["torch_dtype"])
    bytes_per_value = torch.empty((), dtype=dtype).element_size()
    shards = _shards(parameters_of(config), bytes_per_value, shard_bytes)
    weight_map, values = {}, 0
    for number, shard in enumerate(shards, start=1):
        file_name = "model.safetensors" if len(shards) == 1 else "model-{:05d}-of-{:05d}.safetensors".format(number, len(shards))
        tensors = {name: random_tensor(name, extents, seed, dtype, device, times=multiplier(name, factors)).cpu() for name, extents in shard}
        save_file(tensors, os.path.join(folder, file_name), metadata={"format": "pt"})
        weight_map.update({name: file_name for name in tensors})
        values += sum(tensor.numel() for tensor in tensors.values())
        progress(number, len(shards))
    if len(shards) > 1:
        index = {"metadata": {"total_size": values * bytes_per_value}, "weight_map": weight_map}
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as stream:
            json.dump(index, stream, indent=1, sort_keys=True)
    write_tokenizer(folder)
    with open(os.path.join(folder, "config.json"), "w") as stream:
        json.dump(config, stream, indent=1, sort_keys=True)
    return {"parameters": values, "bytes": values * bytes_per_value, "shards": len(shards), "recipe": recipe, "seed": seed}
