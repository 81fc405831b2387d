"""Do times depend on the values of the weights? Time plain transformers alternately with several sets of random weights.

    python -m bench.instruments.weights_and_times bloom-7b1 --candidates q1w1 q1.6w8 --calls 1x32 --out times.json

Each candidate is a model of its own in memory (factors as in fault_table.py). `--calls 8x32` times 32 new tokens for a batch of 8. The
order of the candidates is reversed from call to call.
"""

import functools
import json
import statistics
import sys

from bench.instruments import fault_table, shared_options
from bench.job import write_whole
from bench.measuring import measure
from bench.models import weights


def model_of(config, dtype, device, factors):
    """A model of a config.json's fields with the checkpoint's values, multiplied by {role: factor}."""
    import torch

    model = fault_table.built(config, getattr(torch, dtype), device)
    for name, parameter in model.named_parameters():
        times = weights.multiplier(name, factors)
        stored = getattr(torch, config["torch_dtype"])
        parameter.data.copy_(weights.random_tensor(name, tuple(parameter.shape), 0, stored, device, times=times))
    return model


def model_and_prompt(config, options, prompt_tokens):
    """(a model with the kit's present random weights, the token ids [options.rows, prompt_tokens] of one prompt in every row)."""
    factors = weights.factors_of(config, options.scale, weights.RECIPE)
    ids = fault_table.prompt_ids(config, fault_table.TEXT, prompt_tokens, options.device)
    return model_of(config, options.dtype, options.device, factors), ids.repeat(options.rows, 1)


def run(options):
    """{candidate: {calls: [milliseconds of each]}}"""
    import torch

    device = torch.device(options.device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    config = weights.config_of(options.shape, options.scale)
    models = {text: model_of(config, options.dtype, options.device, fault_table.factors_of(text)) for text in options.candidates}
    prompt = fault_table.prompt_ids(config, fault_table.TEXT, options.prompt_tokens, options.device)
    samples = {text: {shape: [] for shape in options.calls} for text in models}
    for shape in options.calls:
        batch_size, count = (int(number) for number in shape.split("x"))
        rows = prompt.repeat(batch_size, 1)
        for call in range(-options.warmup_runs, options.timed_runs):
            for text in options.candidates[:: -1 if call % 2 else 1]:
                ms = measure.time_call(functools.partial(_new_tokens, models[text], rows, count), count, synchronize, options.clock)
                if call >= 0:
                    samples[text][shape].append(ms)
    return samples


def _new_tokens(model, prompt, count):
    """Make a greedy call; returns its number of new tokens."""
    mask = prompt.new_ones(prompt.shape)
    return model.generate(prompt, attention_mask=mask, do_sample=False, max_new_tokens=count, min_new_tokens=count).shape[1] - prompt.shape[1]


def parse(arguments):
    import time

    parser = shared_options.parser_of("weights_and_times", "Do times depend on the weights?")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--candidates", nargs="+", required=True, metavar="q1.5w4")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--calls", nargs="+", default=["1x1", "1x32"], metavar="BATCHxNEW_TOKENS")
    parser.add_argument("--warmup-runs", type=int, default=2)
    parser.add_argument("--timed-runs", type=int, default=10)
    parser.set_defaults(clock=time.perf_counter)
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    samples = run(options)
    write_whole(options.out, json.dumps({"shape": options.shape, "scale": options.scale, "dtype": options.dtype, "ms": samples}, indent=1))
    for text, by_shape in samples.items():
        for shape, ms in by_shape.items():
            print("{} {}: median {:.2f} ms, {:.2f} to {:.2f}".format(text, shape, statistics.median(ms), min(ms), max(ms)))


if __name__ == "__main__":
    main(sys.argv[1:])
