"""The error of DeepSpeed's float32 rotary kernel with GPT-J, computed on a CPU from the kernel's source.

    PYTHON -m bench.instruments.float32_rotary JOB [OUT]      in an environment with torch and transformers (a few minutes, 4 GiB of memory)

JOB is the job.json of a GPT-J run with random weights. The kernel (bias_add_transform_0213 of csrc/transformer/inference/csrc/transform.cu,
the same lines in DeepSpeed 0.7.7, 0.9.2, 0.14 and 0.19.8) turns each pair (x, y) of a query or key by an angle in place: it overwrites x and then
computes the new y from the new x. The float16 kernel keeps the old pair and is right. The program prints the relative error of the last
logits against the right rotation, to be compared with the output check of a run on a GPU, and writes it to OUT as JSON.

It needs no checkpoint: it makes one layer at a time from the seed, with the values of bench/models/weights.py.
"""

import sys

from bench.instruments import fitting
from bench.job import read_job, to_json, write_whole
from bench.models import prompts, weights


def rotated_in_place(tensor, sin, cos):
    """The rotation as the float32 kernel computes it. Tensor [batch, tokens, heads, rotary], sin and cos [batch, tokens, rotary / 2]."""
    import torch

    x, y = tensor[..., 0::2], tensor[..., 1::2]
    sin, cos = sin[:, :, None, :], cos[:, :, None, :]
    x = x * cos - y * sin
    y = x * sin + y * cos  # the mistake: this x is already rotated
    return torch.stack((x, y), dim=-1).flatten(-2)


def last_logits(shape, scale, seed, input_ids, recipe=1):
    """[the right logits of the last position, the kernel's], in float32; one layer's weights are in memory at a time."""
    import torch
    from transformers import AutoConfig
    from transformers.models.gptj import modeling_gptj

    fields = weights.config_of(shape, scale)
    factors = weights.factors_of(fields, scale, recipe)
    dtype = getattr(torch, fields["torch_dtype"])
    config = AutoConfig.for_model(**fields, attn_implementation="eager")

    def filled(module, prefix):
        """The module with the checkpoint's random weights."""
        names = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
        tensors = {
            name: weights.random_tensor(prefix + name, extents, seed, dtype, "cpu", times=weights.multiplier(prefix + name, factors)).float()
            for name, extents in names.items()
        }
        module.load_state_dict(tensors, strict=False)
        return module

    tokens = input_ids.shape[1]
    mask = torch.full((tokens, tokens), float("-inf")).triu(1)[None, None]
    positions = torch.arange(tokens)[None]
    block, usual = modeling_gptj.GPTJBlock(config, layer_idx=0).eval(), modeling_gptj.apply_rotary_pos_emb
    rotations = (usual, rotated_in_place)
    states = [filled(torch.nn.Embedding(config.vocab_size, config.n_embd), "transformer.wte.")(input_ids)] * len(rotations)
    try:
        for layer in range(config.n_layer):
            filled(block, f"transformer.h.{layer}.")
            for number, rotation in enumerate(rotations):
                modeling_gptj.apply_rotary_pos_emb = rotation
                states[number] = block(states[number], attention_mask=mask, position_ids=positions)[0]
    finally:
        modeling_gptj.apply_rotary_pos_emb = usual
    norm = filled(torch.nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon), "transformer.ln_f.")
    head = filled(torch.nn.Linear(config.n_embd, config.vocab_size), "lm_head.")
    return [head(norm(state[:, -1])) for state in states]


def main(job_path, out=None):
    job = read_job(job_path)
    fitting.must_fit("float32_rotary", job)
    import tempfile

    import torch

    with tempfile.TemporaryDirectory() as folder:
        weights.write_tokenizer(folder)
        input_ids = prompts.token_ids(job.prompt, folder)[:1]
    with torch.no_grad():
        right, wrong = last_logits(job.model["shape"], job.model["scale"], job.model["seed"], input_ids, weights.recipe_of(job.model))
    figures = {"job": job.id, "prompt_tokens": input_ids.shape[1], "logits_relative_error": float((wrong - right).norm() / right.norm())}
    if out:
        write_whole(out, to_json(figures))
    print(f"float32 rotary kernel as its source reads: the last logits are {figures['logits_relative_error']:.5f} off after {figures['prompt_tokens']} tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
