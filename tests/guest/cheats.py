"""Backends that cheat or err, run in the guest's interpreter: python -m tests.guest.cheats JOB FOLDER prints {cheat: [status, verdict]}.

Each has a right forward pass, and a `generate` that is wrong. The model is loaded once for all of them.
"""

import gc
import json
import os
import sys
import time
import types

import torch

from bench import backends
from bench.__main__ import run
from bench.backends import Loaded
from bench.checking import judge
from bench.instruments import faulty
from bench.job import parse_job
from bench.measuring import timed_tokens
from bench.models import pretrained

timed_tokens.PAUSE_S = 0.0  # a cheat that is slow with every unseen prompt would wait 16 s

FLOORS = {"regret_p90": 1e-3, "regret_max": 0.02, "logits_error": 1e-3}


def count_of(ids, arguments):
    return arguments.get("max_new_tokens") or arguments["min_length"] - ids.shape[1]


def decoding(**fault):
    """A `generate` that decodes with a fault and shows its own logits to whoever asks for them."""

    def generate(model, ids, **arguments):
        tokens, logits = faulty.decode(model, [faulty.Row("", ids[0], **fault)], count_of(ids, arguments))
        for step, one in enumerate(logits):
            for processor in arguments.get("logits_processor", []):
                processor(torch.cat([ids, tokens[:, :step]], dim=1), one)
        return torch.cat([ids, tokens], dim=1)

    return generate


def right(model, ids, **arguments):
    return model.generate(ids, **arguments)


def constant(model, ids, **arguments):
    first = right(model, ids, **dict(arguments, max_new_tokens=1, min_length=0))
    return torch.cat([ids, first[:, -1:].repeat(1, count_of(ids, arguments))], dim=1)


def constant_unless_watched(model, ids, **arguments):
    return (right if "logits_processor" in arguments else constant)(model, ids, **arguments)


def four_bits(model, ids, **arguments):
    exact = [parameter.detach().clone() for parameter in model.parameters()]
    faulty.quantise(model, 4)
    try:
        return right(model, ids, **arguments)
    finally:
        for parameter, values in zip(model.parameters(), exact, strict=True):
            parameter.data.copy_(values)


def behind(model, ids, **arguments):
    output, width = right(model, ids, **arguments), ids.shape[1]
    return torch.cat([output[:, : width + 1], output[:, width:-1]], dim=1)


def short(model, ids, **arguments):
    return right(model, ids, **arguments)[:, :-1]


def short_and_padded(model, ids, **arguments):
    output = right(model, ids, **arguments)
    output[:, -1] = 3
    return output


def of_another_prompt(model, ids, **arguments):
    return torch.cat([ids, right(model, ids.flip(1), **arguments)[:, ids.shape[1] :]], dim=1)


def kept_for_any_prompt():
    kept = {}

    def generate(model, ids, **arguments):
        key = count_of(ids, arguments)
        kept[key] = kept[key] if key in kept else right(model, ids, **arguments)[:, ids.shape[1] :]
        return torch.cat([ids, kept[key]], dim=1)

    return generate


def kept_for_each_prompt():
    kept = {}

    def generate(model, ids, **arguments):
        key = repr(ids.tolist())
        if key not in kept or "logits_processor" in arguments:
            kept[key] = right(model, ids, **arguments)
        return kept[key]

    return generate


def on_a_host_that_becomes_busy():
    calls = []

    def generate(model, ids, **arguments):
        calls.append(ids)
        if len(calls) > 4:  # the cold call, two timed ones and that whose logits are kept
            time.sleep(0.5)
        return right(model, ids, **arguments)

    return generate


def changing():
    calls = []

    def generate(model, ids, **arguments):
        calls.append(ids)
        return (right if len(calls) % 2 else constant)(model, ids, **arguments)

    return generate


def cheats(model):
    """{name: `generate(model, ids, **arguments)`}"""
    found = {
        "honest": right,
        "honest, decoded step by step": decoding(),
        "honest, on a host that becomes busy": on_a_host_that_becomes_busy(),
        "constant": constant,
        "constant unless watched": constant_unless_watched,
        "layer skipped": decoding(skipped_layer=2),
        "prompt token hidden": decoding(hidden_prompt=True),
        "new token hidden": decoding(hidden_new=True),
        "4-bit weights": four_bits,
        "one token behind": behind,
        "one token short": short,
        "one token short, padded": short_and_padded,
        "another prompt's answer": of_another_prompt,
        "kept for any prompt": kept_for_any_prompt(),
        "kept for each prompt": kept_for_each_prompt(),
        "changing": changing(),
    }
    return dict(found, **({"positions too far": decoding(ahead=True)} if faulty.takes_positions(model) else {}))


def unpadded(model, ids, attention_mask, **arguments):
    return right(model, ids, attention_mask=torch.ones_like(attention_mask), **arguments)


def first_row_for_all(model, ids, **arguments):
    new = right(model, ids, **arguments)[:1, ids.shape[1] :]
    return torch.cat([ids, new.expand(len(ids), -1)], dim=1)


def last_row_constant(model, ids, **arguments):
    output, width = right(model, ids, **arguments), ids.shape[1]
    output[-1, width:] = output[-1, width]
    return output


def ended_at_once(model, ids, **arguments):
    output = right(model, ids, **arguments)
    output[:, ids.shape[1] :] = model.generation_config.eos_token_id
    return output


def padded_cheats(model):
    """As `cheats`, for a batch of sentences that are padded on the left."""
    return {
        "honest": right,
        "constant": constant,
        "padding not masked": unpadded,
        "the first row's answer for all": first_row_for_all,
        "the last row constant": last_row_constant,
        "ended at once": ended_at_once,
        "kept for any prompt": kept_for_any_prompt(),
        "kept for each prompt": kept_for_each_prompt(),
    }


class Model:
    """A model whose `generate` is another's; all else is its own."""

    def __init__(self, model, generate):
        self.model, self.cheat = model, generate

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, *arguments, **named):
        return self.model(*arguments, **named)

    def generate(self, ids=None, input_ids=None, **arguments):
        return self.cheat(self.model, input_ids if ids is None else ids, **arguments)


def main(job_path, folder):
    with open(job_path) as stream:
        job = parse_job(stream.read())
    model, find, found = pretrained.load_model(job), backends.find, {}
    gc.freeze()  # what all cheats share; each job's own collection would look through a million objects of the libraries again
    readings = judge.Readings(os.path.join(folder, "readings.npz"), lambda dtype: Loaded(model=model, device="cpu"))
    for name, generate in (padded_cheats if job.form == "padded-sentences" else cheats)(model).items():
        cheat = types.SimpleNamespace(load=lambda job, generate=generate: Loaded(model=Model(model, generate), device="cpu", used={"dtype": "float32"}))
        backends.find = lambda wanted, cheat=cheat: cheat if wanted == "cheat" else find(wanted)
        for file in (timed_tokens.TOKENS, timed_tokens.LOGITS):
            if os.path.exists(os.path.join(folder, file)):
                os.unlink(os.path.join(folder, file))
        result = run(job, folder)
        verdict = judge.verdict_in(folder, readings, {"regret_p90": 0, "regret_max": 0, "prompt": 0, "late": 0}, FLOORS) if result.status == "ok" else None
        found[name] = [result.status, result.reason, verdict]
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
