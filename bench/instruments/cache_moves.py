"""How fast the key-value cache moved between GPUs, if these moves are why several GPUs take longer than one (accelerate without `skip_keys`).

    python -m bench.instruments.cache_moves ONE MANY [OUT]      ONE and MANY are the result.json of a row on one GPU and on several

Where accelerate spreads a model, its hooks bring the whole cache to the GPU of the inputs after each token, and each layer's part back to the layer
(AlignDevicesHook(io_same_device=True) of accelerate/hooks.py; `dispatch_model` of later versions has `skip_keys` against it). The GPUs' own work stays
the same. So the program divides the bytes that the layers on other GPUs have to move, there and back, by the additional time of all GPUs' kernels, as
NVML counts it. Rows of one batch size then give one rate, whatever their dtype and number of GPUs; small batches give a lower rate, because a part of
each move does not depend on its bytes. A cache that passes through a third GPU, between those of the inputs and the layer, moves more often than counted.

It writes {job, one_job, kernel_ms of a call (one, many), moved_bytes of a call, moved_bytes_per_s (null where nothing moves, or takes no longer)} to OUT.
"""

import json
import statistics
import sys
from pathlib import Path

from bench.forms import padded_sentences
from bench.job import to_json, write_whole
from bench.measuring import work
from bench.models import weights


def kernel_ms(result):
    """The time in which a kernel ran during a mean call, summed over the GPUs: NVML's share of each times the call."""
    busy, measurements = result["host"].get("busy") or [{"gpus": []}], result["guest"]["measurements"]
    told = busy[-1]["gpus"]
    if not measurements or not told or any(gpu["code"] != "ok" for gpu in told):
        raise ValueError("{} has no timed call in which the share of each GPU is known; take another run".format(result["id"]))
    return statistics.fmean(measurements[-1]["timed_ms"]) * sum(gpu["share"] for gpu in told)


def prompt_tokens(result):
    """The prompt tokens of one sequence with its padding. Results without this figure have random weights, with one token for each word and mark."""
    padded = result["guest"].get("figures", {}).get("padded_prompt_tokens")
    if padded:
        return padded // result["guest"]["batch_size"]
    return max(padded_sentences.words(text) for text in result["job"]["prompt"]["texts"][: result["guest"]["batch_size"]])


def moved_bytes(result):
    """The bytes of cache that a call moves: those of the layers that lie on another GPU than the inputs, there and back for each token after the first."""
    job, guest = result["job"], result["guest"]
    model = work.model_of(weights.config_of(job["model"]["shape"], job["model"]["scale"]))
    held = guest["used"]["parameters_per_device"]
    embedded = min(held, key=lambda device: int(device.rpartition(":")[2]))  # accelerate fills the GPUs in their order, and the embedding comes first
    layers = {device: count - model.output.outputs * model.output.inputs * (device == embedded) for device, count in held.items()}
    # Older results do not name the device of the inputs: the inputs lay with the embedding.
    elsewhere = 1 - layers.get(guest["used"].get("inputs_device", embedded), 0) / sum(layers.values())
    contexts = [prompt_tokens(result) + made for made in range(1, job["runs"][-1]["new_tokens"])]
    return 2 * elsewhere * sum(work.cache_bytes(model, job["load"]["dtype"], guest["batch_size"], context) for context in contexts)


def main(one_path, many_path, out=None):
    one, many = (json.loads(Path(path).read_text(encoding="utf-8")) for path in (one_path, many_path))
    took = {"one": kernel_ms(one), "many": kernel_ms(many)}
    moved = moved_bytes(many)
    longer_ms = took["many"] - took["one"]
    rate = moved / longer_ms * 1000 if moved and longer_ms > 0 else None
    figures = {"job": many["id"], "one_job": one["id"], "kernel_ms": took, "moved_bytes": moved, "moved_bytes_per_s": rate}
    if out:
        write_whole(out, to_json(figures))
    told = "{:.0f} GB of cache at {:.0f} GB/s".format(moved / 1e9, rate / 1e9) if rate else "the job moved no cache, or moved it in no measurable time"
    print("{}: kernels {:.0f} ms a call on one GPU, {:.0f} on several; {}".format(many["job"]["case"], took["one"], took["many"], told))


if __name__ == "__main__":
    main(*sys.argv[1:])
