"""A stand-in of DeepSpeed's operators of injected layers, on a CPU: what they compute, behind the arguments that 0.9.2 and 0.19 take.

Written after the sources of both; no GPU has compared it with the kernels. `install(old)` puts it where `bench/forms/fused_regions.py` imports from.
"""

import sys
import types

PACKAGE = "deepspeed.ops.transformer.inference"


class Memory:
    """The workspace that all operators share: the caches of the layers, and the position that the last layer advances."""

    taken, caches, position = None, {}, 0


def take(hidden, heads, prompt_tokens, batch_size, layers, ranks, external_cache, rank, most_tokens, least_tokens):
    Memory.taken, Memory.caches, Memory.position = (hidden, heads, batch_size), {}, 0


class Operator:
    def __init__(self, config):
        self.config = config

    def __call__(self, *arguments, **named):
        assert Memory.taken, "an operator before its workspace"
        return self.forward(*arguments, **named)


def normed(states, gamma, beta, epsilon):
    from torch.nn import functional

    return functional.layer_norm(states, states.shape[-1:], gamma, beta, epsilon)


def attended(qkv, heads, norm_factor, layer, layers, is_prompt):
    """The answer of each token over the layer's cache, to which the tokens are added from the shared position on."""
    import torch

    batch, tokens, width = qkv.shape
    query, key, value = qkv.view(batch, tokens, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)
    Memory.position = 0 if is_prompt else Memory.position
    before = [past[:, :, : Memory.position] for past in Memory.caches.get(layer, (key, value))]
    keys, values = (torch.cat([past, new], dim=2) for past, new in zip(before, (key, value), strict=True))
    Memory.caches[layer] = keys, values
    Memory.position += tokens if is_prompt and layer == layers - 1 else 0
    shares = torch.softmax((query * norm_factor) @ (keys * norm_factor).transpose(-1, -2), dim=-1)
    return [(shares @ values).transpose(1, 2).reshape(batch, tokens, width // 3), keys, values]


def summed(residual, *others):
    """The sum, which overwrites the residual."""
    return residual.copy_(residual + sum(others))


class MLPGemmOp(Operator):
    def forward(self, input, residual, input_bias, weight_interm, weight_out, bias, gamma, beta):
        from torch.nn import functional

        inner = normed(input + residual + input_bias, gamma, beta, self.config.epsilon) @ weight_interm + bias
        return functional.gelu(inner, approximate="tanh") @ weight_out, residual


def of_old():
    """The classes of 0.9.2: {name: class}."""

    class DeepSpeedInferenceConfig:
        def __init__(self, hidden_size=-1, heads=-1, num_hidden_layers=-1, layer_norm_eps=1e-12, fp16=False):
            self.epsilon = layer_norm_eps

    class QKVGemmOp(Operator):
        def forward(self, input, weight, bias, gamma, beta, add_bias, num_layers, num_heads=None, max_out_tokens=None):
            assert add_bias
            return [normed(input, gamma, beta, self.config.epsilon) @ weight + bias]

    class SoftmaxContextOp(Operator):
        def forward(self, query_key_value, attn_mask, heads, norm_factor, no_masking, layer_id, num_layers, alibi):
            return attended(query_key_value, heads, norm_factor, layer_id, num_layers, query_key_value.shape[1] > 1)

    class ResidualAddOp(Operator):
        def forward(self, hidden_state, residual, attention_output, attention_bias, final_bias, add_bias, residual_add):
            assert add_bias and residual_add is None
            return summed(residual, attention_output, attention_bias, hidden_state, final_bias)

    return locals()


def of_new():
    """The classes of 0.19: {name: class}."""

    class DeepSpeedInferenceConfig:
        def __init__(self, hidden_size=-1, heads=-1, num_hidden_layers=-1, layer_norm_eps=1e-12, dtype=None):
            assert dtype is not None
            self.epsilon = layer_norm_eps

    class QKVGemmOp(Operator):
        def forward(self, input, weight, bias, gamma, beta):
            return [normed(input, gamma, beta, self.config.epsilon) @ weight + bias]

    class SoftmaxContextOp(Operator):
        def forward(
            self,
            query_key_value,
            attn_mask,
            heads,
            num_kv,
            norm_factor,
            no_masking,
            layer_id,
            num_layers,
            alibi,
            is_prompt=None,
            token_idx=None,
            position_ids=None,
        ):
            assert num_kv == -1
            return attended(query_key_value, heads, norm_factor, layer_id, num_layers, is_prompt)

    class ResidualAddOp(Operator):
        def forward(self, hidden_state, residual, add_bias, attention_output=None, residual_add=None, attention_bias=None, final_bias=None):
            assert add_bias and residual_add is None
            return summed(residual, attention_output, attention_bias, hidden_state, final_bias)

    return locals()


def install(old):
    """Put the stand-in of 0.9.2 (`old`) or of 0.19 into sys.modules."""
    classes = of_old() if old else of_new()
    modules = {name: types.ModuleType(name) for name in (f"{PACKAGE}.config", f"{PACKAGE}.op_binding", f"{PACKAGE}.op_binding.base")}
    config, operators, base = modules.values()
    config.DeepSpeedInferenceConfig = classes.pop("DeepSpeedInferenceConfig")
    vars(operators).update(classes, MLPGemmOp=MLPGemmOp, base=base, __path__=[])
    kernels = types.SimpleNamespace(allocate_workspace_fp16=take, allocate_workspace_fp32=take)
    base.BaseOp = types.SimpleNamespace(inference_cuda_module=kernels)
    if not old:
        workspace = modules[f"{PACKAGE}.op_binding.workspace"] = types.ModuleType("workspace")
        workspace.WorkspaceOp = lambda config: types.SimpleNamespace(allocate_workspace=take)
    parts = PACKAGE.split(".")
    parents = {".".join(parts[:count]): types.ModuleType(".".join(parts[:count])) for count in range(1, len(parts) + 1)}
    for parent in parents.values():
        parent.__path__ = []
    sys.modules.update(parents, **modules)
