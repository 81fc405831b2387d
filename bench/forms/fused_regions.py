"""The four regions of a transformer layer that DeepSpeed fuses, each timed alone: PyTorch as a model's code calls it, compiled, and
DeepSpeed's own operator.

The regions are those of "DeepSpeed Inference: Enabling Efficient Inference of Transformer Models at Unprecedented Scale" (Aminabadi
et al., 2022, figure 1), with one new token for each sequence and `past_tokens` in the cache. All three implementations compute the
same function of the same tensors.
"""

import inspect
import types

EPSILON = 1e-5

#: In the order of a layer.
REGIONS = ("layernorm_qkv_bias", "attention", "bias_residual", "layernorm_ff_gelu")

IMPLEMENTATIONS = ("eager", "compile", "deepspeed")

#: The layers whose caches DeepSpeed's operators keep: two, so that calls of the first one advance no position.
LAYERS = 2


def make_weights(hidden, dtype, device):
    """The tensors of one layer that all batch sizes share. Matrices as nn.Linear keeps them: [out, in]."""
    import torch

    generator = torch.Generator(device).manual_seed(0)

    def values(*shape):
        return (torch.randn(shape, generator=generator, device=device) * 0.02).to(dtype)

    return types.SimpleNamespace(
        norm_weight=1 + values(hidden),
        norm_bias=values(hidden),
        qkv_weight=values(3 * hidden, hidden),
        qkv_bias=values(3 * hidden),
        attention_bias=values(hidden),
        inner_weight=values(4 * hidden, hidden),
        inner_bias=values(4 * hidden),
        outer_weight=values(hidden, 4 * hidden),
        outer_bias=values(hidden),
    )


def make_activations(hidden, batch_size, past_tokens, dtype, device):
    """What flows through the layer: hidden states [batch, 1, hidden], queries, keys and values of the prompt and of the new token."""
    import torch

    generator = torch.Generator(device).manual_seed(1)

    def values(*shape):
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    return types.SimpleNamespace(
        residual=values(batch_size, 1, hidden),
        attention_out=values(batch_size, 1, hidden),
        ff_out=values(batch_size, 1, hidden),
        past_qkv=values(batch_size, past_tokens, 3 * hidden),
        new_qkv=values(batch_size, 1, 3 * hidden),
    )


def _heads_first(qkv, heads):
    """[batch, tokens, 3 x hidden] as [3, batch, heads, tokens, head size]."""
    batch, tokens, width = qkv.shape
    return qkv.view(batch, tokens, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)


def eager_calls(weights, inputs, heads):
    """{region: (function, its tensors)} in PyTorch's own operators, as a model's code calls them."""
    import torch
    from torch.nn import functional

    hidden = inputs.residual.shape[-1]

    def layernorm_qkv_bias(states, norm_weight, norm_bias, weight, bias):
        return functional.linear(functional.layer_norm(states, (hidden,), norm_weight, norm_bias, EPSILON), weight, bias)

    def attention(past_keys, past_values, qkv):
        query, key, value = _heads_first(qkv, heads)
        keys, values = torch.cat([past_keys, key], dim=2), torch.cat([past_values, value], dim=2)
        scores = torch.matmul(query, keys.transpose(-1, -2)) * (query.shape[-1] ** -0.5)
        shares = functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        return torch.matmul(shares, values).transpose(1, 2).reshape(qkv.shape[0], 1, hidden)

    def bias_residual(residual, attention_out, attention_bias, ff_out, ff_bias):
        return (attention_out + attention_bias + residual) + (ff_out + ff_bias)

    def layernorm_ff_gelu(attention_out, attention_bias, residual, norm_weight, norm_bias, inner_weight, inner_bias, outer_weight):
        normed = functional.layer_norm(attention_out + attention_bias + residual, (hidden,), norm_weight, norm_bias, EPSILON)
        inner = functional.gelu(functional.linear(normed, inner_weight, inner_bias), approximate="tanh")
        return functional.linear(inner, outer_weight)

    _, past_keys, past_values = _heads_first(inputs.past_qkv, heads)
    norm = (weights.norm_weight, weights.norm_bias)
    return {
        "layernorm_qkv_bias": (layernorm_qkv_bias, (inputs.residual, *norm, weights.qkv_weight, weights.qkv_bias)),
        "attention": (attention, (past_keys.contiguous(), past_values.contiguous(), inputs.new_qkv)),
        "bias_residual": (bias_residual, (inputs.residual, inputs.attention_out, weights.attention_bias, inputs.ff_out, weights.outer_bias)),
        "layernorm_ff_gelu": (
            layernorm_ff_gelu,
            (inputs.attention_out, weights.attention_bias, inputs.residual, *norm, weights.inner_weight, weights.inner_bias, weights.outer_weight),
        ),
    }


def compiled_calls(calls):
    """The eager functions through torch.compile, for these shapes alone."""
    import torch

    return {region: (torch.compile(function, dynamic=False), arguments) for region, (function, arguments) in calls.items()}


def _known(function, **arguments):
    """Those of the arguments that a function of DeepSpeed takes in its version: some came and some went between 0.9.2 and 0.19."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}


def _workspace_of(config, dtype):
    """DeepSpeed's function that allocates the memory which its operators share."""
    import torch

    try:
        from deepspeed.ops.transformer.inference.op_binding.workspace import WorkspaceOp
    except ImportError:  # up to 0.9.2 its modules call the kernels' function themselves
        from deepspeed.ops.transformer.inference.op_binding import base

        kernels = base.BaseOp.inference_cuda_module
        return kernels.allocate_workspace_fp16 if dtype == torch.float16 else kernels.allocate_workspace_fp32
    return WorkspaceOp(config).allocate_workspace


def _layernorm_qkv_bias_of(config, weights):
    """DeepSpeed's region of this name. As in the functions below, the arguments of a version are looked up once, outside the timed call."""
    from deepspeed.ops.transformer.inference.op_binding import QKVGemmOp

    operator = QKVGemmOp(config)
    more = _known(operator.forward, add_bias=True, num_layers=LAYERS)

    def layernorm_qkv_bias(states, weight):
        return operator(input=states, weight=weight, bias=weights.qkv_bias, gamma=weights.norm_weight, beta=weights.norm_bias, **more)[0]

    return layernorm_qkv_bias


def _attention_of(config, past_qkv, heads):
    """DeepSpeed's attention of a new token, with the prompt in its cache."""
    import torch
    from deepspeed.ops.transformer.inference.op_binding import SoftmaxContextOp

    operator, head_size = SoftmaxContextOp(config), past_qkv.shape[-1] // 3 // heads
    more = {is_prompt: _known(operator.forward, num_kv=-1, is_prompt=is_prompt, token_idx=None, position_ids=None) for is_prompt in (False, True)}

    def attend(qkv, layer):
        # The operator multiplies both queries and keys by the inverse fourth root of the head size.
        return operator(
            query_key_value=qkv,
            attn_mask=torch.empty(1),
            heads=heads,
            norm_factor=head_size**-0.25,
            no_masking=True,
            layer_id=layer,
            num_layers=LAYERS,
            alibi=None,
            **more[qkv.shape[1] > 1],
        )[0]

    # The prompt goes into both layers' caches. Only the last layer advances the position, so calls of the first layer stay at the new token.
    attend(past_qkv, 0)
    attend(past_qkv, 1)
    return lambda qkv: attend(qkv, 0)


def _bias_residual_of(config):
    from deepspeed.ops.transformer.inference.op_binding import ResidualAddOp

    operator = ResidualAddOp(config)
    more = _known(operator.forward, residual_add=None)

    def bias_residual(residual, attention_out, attention_bias, ff_out, ff_bias):
        return operator(
            hidden_state=ff_out, residual=residual, add_bias=True, attention_output=attention_out, attention_bias=attention_bias, final_bias=ff_bias, **more
        )

    return bias_residual


def _layernorm_ff_gelu_of(config, weights):
    from deepspeed.ops.transformer.inference.op_binding import MLPGemmOp

    operator = MLPGemmOp(config)

    def layernorm_ff_gelu(attention_out, attention_bias, residual, inner_weight, outer_weight):
        return operator(
            input=attention_out,
            residual=residual,
            weight_interm=inner_weight,
            weight_out=outer_weight,
            input_bias=attention_bias,
            bias=weights.inner_bias,
            gamma=weights.norm_weight,
            beta=weights.norm_bias,
        )[0]

    return layernorm_ff_gelu


def deepspeed_calls(weights, inputs, heads):
    """{region: (function, its tensors)} in the operators of DeepSpeed's injected layers.

    The operators share a workspace, so an output is valid until the next call. DeepSpeed's last operator includes the second matrix of the
    feed-forward part, so all implementations compute it.
    """
    import torch
    from deepspeed.ops.transformer.inference.config import DeepSpeedInferenceConfig

    batch_size, past_tokens, _ = inputs.past_qkv.shape
    hidden, dtype = inputs.residual.shape[-1], inputs.residual.dtype
    of_dtype = _known(DeepSpeedInferenceConfig, dtype=dtype, fp16=dtype == torch.float16)
    config = DeepSpeedInferenceConfig(hidden_size=hidden, heads=heads, num_hidden_layers=LAYERS, layer_norm_eps=EPSILON, **of_dtype)
    # These come first: up to 0.9.2 the first operator loads the kernels, and their function allocates the workspace.
    qkv, ff = _layernorm_qkv_bias_of(config, weights), _layernorm_ff_gelu_of(config, weights)
    _workspace_of(config, dtype)(hidden, heads, past_tokens, batch_size, LAYERS, 1, False, 0, 1024, 1)
    attention = _attention_of(config, inputs.past_qkv, heads)
    qkv_weight, inner_weight, outer_weight = (matrix.t().contiguous() for matrix in (weights.qkv_weight, weights.inner_weight, weights.outer_weight))
    # The sum overwrites its first argument: a copy, so that the other regions keep the residual.
    residual = inputs.residual.clone()
    return {
        "layernorm_qkv_bias": (qkv, (inputs.residual, qkv_weight)),
        "attention": (attention, (inputs.new_qkv,)),
        "bias_residual": (_bias_residual_of(config), (residual, inputs.attention_out, weights.attention_bias, inputs.ff_out, weights.outer_bias)),
        "layernorm_ff_gelu": (ff, (inputs.attention_out, weights.attention_bias, inputs.residual, inner_weight, outer_weight)),
    }


def calls_of(implementation, weights, inputs, heads):
    """{region: (function, its tensors)} of "eager", "compile" or "deepspeed"; ValueError for another."""
    if implementation == "deepspeed":
        return deepspeed_calls(weights, inputs, heads)
    if implementation not in IMPLEMENTATIONS:
        raise ValueError("implementation is {!r}, allowed are {}".format(implementation, ", ".join(IMPLEMENTATIONS)))
    calls = eager_calls(weights, inputs, heads)
    return compiled_calls(calls) if implementation == "compile" else calls


def exact_answers(weights, inputs, heads):
    """{region: result} of the eager functions in float32."""

    def wide(tensors):
        return types.SimpleNamespace(**{name: tensor.float() for name, tensor in vars(tensors).items()})

    return {region: function(*arguments) for region, (function, arguments) in eager_calls(wide(weights), wide(inputs), heads).items()}
