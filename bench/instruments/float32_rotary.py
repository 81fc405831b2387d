"""What DeepSpeed's float32 rotary kernel makes of GPT-J, computed on a CPU from what its source says.

    PYTHON -m bench.instruments.float32_rotary JOB [OUT]      in an environment with torch and transformers (a few minutes, 4 GiB of memory)

JOB is the job.json of a GPT-J run with random weights. The kernel (bias_add_transform_0213 of csrc/transformer/inference/csrc/transform.cu,
the same lines in DeepSpeed 0.7.7, 0.9.2, 0.14 and 0.19.8) turns each pair (x, y) of a query or key by an angle in place: it overwrites x and then
computes the new y from the new x. The float16 kernel keeps the old pair and is right. Printed, and written to OUT as JSON: the relative
error of the last logits against the right rotation, beside what a run on a GPU found in its output check.

No checkpoint is needed: one layer at a time is made from the seed, as bench/models/weights.py would write it.
"""

import sys
from pathlib import Path

from bench.job import parse_job, to_json, write_whole
from bench.models import prompts, weights


def rotated_in_place(tensor, sin, cos):
    """The rotation as the float32 kernel computes it. Tensor [batch, tokens, heads, rotary], sin and cos [batch, tokens, rotary / 2]."""
    import torch

    x, y = tensor[..., 0::2], tensor[..., 1::2]
    sin, cos = sin[:, :, None, :], cos[:, :, None, :]
    x = x * cos - y * sin
    y = x * sin + y * cos  # the slip: this x is already turned
    return torch.stack((x, y), dim=-1).flatten(-2)


def last_logits(shape, scale, seed, input_ids, recipe=1):
    """[the last position's logits as they should be, as the kernel has them], in float32; one layer's weights are in memory at a time."""
    import torch
    from transformers import AutoConfig
    from transformers.models.gptj import modeling_gptj

    fields = weights.config_of(shape, scale)
    factors = weights.factors_of(fields, scale, recipe)
    dtype = getattr(torch, fields["torch_dtype"])
    config = AutoConfig.for_model(**fields, attn_implementation="eager")

    def made(module, prefix):
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
    states = [made(torch.nn.Embedding(config.vocab_size, config.n_embd), "transformer.wte.")(input_ids)] * len(rotations)
    try:
        for layer in range(config.n_layer):
            made(block, f"transformer.h.{layer}.")
            for number, rotation in enumerate(rotations):
                modeling_gptj.apply_rotary_pos_emb = rotation
                states[number] = block(states[number], attention_mask=mask, position_ids=positions)[0]
    finally:
        modeling_gptj.apply_rotary_pos_emb = usual
    norm = made(torch.nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon), "transformer.ln_f.")
    head = made(torch.nn.Linear(config.n_embd, config.vocab_size), "lm_head.")
    return [head(norm(state[:, -1])) for state in states]


def main(job_path, out=None):
    import tempfile

    import torch

    job = parse_job(Path(job_path).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        weights.write_tokenizer(folder, weights.config_of(job.model["shape"], job.model["scale"]))
        input_ids = prompts.token_ids(job.prompt, folder)[:1]
    with torch.no_grad():
        right, wrong = last_logits(job.model["shape"], job.model["scale"], job.model["seed"], input_ids, weights.recipe_of(job.model))
    found = {"job": job.id, "prompt_tokens": input_ids.shape[1], "logits_relative_error": float((wrong - right).norm() / right.norm())}
    if out:
        write_whole(out, to_json(found))
    print(f"float32 rotary kernel as its source reads: the last logits are {found['logits_relative_error']:.5f} off after {found['prompt_tokens']} tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
