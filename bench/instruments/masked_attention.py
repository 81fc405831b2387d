"""The cost of a padding mask in a batch's attention: one layer of Llama-3-8B, one new token, as transformers' sdpa computes it.

    PYTHON -m bench.instruments.masked_attention [BATCH [OUT]]      in an environment with torch and transformers (5.17 is what the report's rows ran)

Without a mask the grouped keys and values are used in place. With a mask transformers copies them for each of a group's four heads, and
torch cannot use its flash kernel. The program prints the µs per call by context length, with and without a mask, and writes them to OUT.
"""

import sys
from types import SimpleNamespace

from bench.job import to_json, write_whole
from bench.measuring import clock
from bench.models import weights

CONTEXTS = (64, 256, 448)


def call_of(batch, context, masked, device, dtype):
    """One layer's attention of one new token in each sequence; the mask hides the first token of every other sequence."""
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    config = weights.config_of("llama-3-8B", "full")
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size = config["hidden_size"] // heads
    query = torch.randn(batch, heads, 1, size, device=device, dtype=dtype)
    key, value = (torch.randn(batch, groups, context, size, device=device, dtype=dtype) for _ in range(2))
    mask = torch.ones(batch, 1, 1, context, dtype=torch.bool, device=device)
    mask[::2, ..., 0] = False
    module = SimpleNamespace(num_key_value_groups=heads // groups, is_causal=True)
    return lambda: sdpa_attention_forward(module, query, key, value, mask if masked else None, scaling=size**-0.5)


def main(batch, out=None):
    import torch
    import transformers

    on_gpu = torch.cuda.is_available()
    device, dtype, calls = ("cuda", torch.bfloat16, 50) if on_gpu else ("cpu", torch.float32, 2)
    rows = []
    for context in CONTEXTS if on_gpu else CONTEXTS[:1]:
        for masked in (False, True):
            us = clock.call_times_us(call_of(batch, context, masked, device, dtype), device, samples=9, calls_per_sample=calls, warmup_calls=3)
            rows.append({"context_tokens": context, "masked": masked, "us": us})
            print(f"batch {batch}, context {context}, {'masked' if masked else 'no mask'}: {min(us):.0f} to {max(us):.0f} µs a layer")
    if out:
        where = torch.cuda.get_device_name() if on_gpu else "cpu"
        figures = {"batch_size": batch, "gpu": where, "rows": rows, "torch": torch.__version__, "transformers": transformers.__version__}
        write_whole(out, to_json(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8, *sys.argv[2:])
