"""Do times depend on the values of the weights? Calls of plain transformers, which alternate between several sets of random weights.

    python -m bench.instruments.weights_and_times bloom-7b1 --candidates q1w1 q1.6w8 --calls 1x32 --out times.json

Each candidate is a model of its own in memory (factors as in fault_table.py). `--calls 8x32` times 32 new tokens for a batch of 8. The
order of the candidates turns round from call to call.
"""

import argparse
import functools
import json
import statistics
import sys

from bench.instruments import fault_table
from bench.measuring import measure
from bench.models import weights


def model_of(asked, factors):
    """A model in the asked dtype with the checkpoint's values, multiplied by {role: factor}."""
    import torch

    config = weights.config_of(asked.shape, asked.scale)
    model = fault_table.built(config, getattr(torch, asked.dtype), asked.device)
    for name, parameter in model.named_parameters():
        times = weights.multiplier(name, factors)
        stored = getattr(torch, config["torch_dtype"])
        parameter.data.copy_(weights.random_tensor(name, tuple(parameter.shape), 0, stored, asked.device, times=times))
    return model


def run(asked):
    """{candidate: {calls: [milliseconds of each]}}"""
    import torch

    device = torch.device(asked.device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    models = {text: model_of(asked, fault_table.factors_of(text)) for text in asked.candidates}
    prompt = fault_table.prompt_ids(weights.config_of(asked.shape, asked.scale), fault_table.TEXT, asked.prompt_tokens, asked.device)
    samples = {text: {shape: [] for shape in asked.calls} for text in models}
    for shape in asked.calls:
        batch_size, count = (int(number) for number in shape.split("x"))
        rows = prompt.repeat(batch_size, 1)
        for call in range(-asked.warmup_runs, asked.timed_runs):
            for text in asked.candidates[:: -1 if call % 2 else 1]:
                ms = measure.time_call(functools.partial(_made, models[text], rows, count), count, synchronize, asked.clock)
                if call >= 0:
                    samples[text][shape].append(ms)
    return samples


def _made(model, prompt, count):
    """How many new tokens a greedy call makes."""
    mask = prompt.new_ones(prompt.shape)
    return model.generate(prompt, attention_mask=mask, do_sample=False, max_new_tokens=count, min_new_tokens=count).shape[1] - prompt.shape[1]


def parse(arguments):
    import time

    parser = argparse.ArgumentParser(prog="python -m bench.instruments.weights_and_times", description="Do times depend on the weights?")
    parser.add_argument("shape", choices=sorted(weights.SHAPES))
    parser.add_argument("--scale", choices=("full", "tiny"), default="full")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--candidates", nargs="+", required=True, metavar="q1.5w4")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--calls", nargs="+", default=["1x1", "1x32"], metavar="BATCHxNEW_TOKENS")
    parser.add_argument("--warmup-runs", type=int, default=2)
    parser.add_argument("--timed-runs", type=int, default=10)
    parser.add_argument("--out", required=True)
    parser.set_defaults(clock=time.perf_counter)
    return parser.parse_args(arguments)


def main(arguments):
    asked = parse(arguments)
    samples = run(asked)
    with open(asked.out, "w") as stream:
        json.dump({"shape": asked.shape, "scale": asked.scale, "dtype": asked.dtype, "ms": samples}, stream, indent=1)
    for text, by_shape in samples.items():
        for shape, ms in by_shape.items():
            print("{} {}: median {:.2f} ms, {:.2f} to {:.2f}".format(text, shape, statistics.median(ms), min(ms), max(ms)))


if __name__ == "__main__":
    main(sys.argv[1:])
