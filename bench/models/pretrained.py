"""Load a checkpoint with the job's dtype (the first step of every backend), and look into the loaded model."""

import contextlib
import gc
import os

from bench import compat
from bench.measuring import ranks

#: The suffixes of files that a loader would read as pickles.
PICKLES = (".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth")


def load_model(job, dtype_name=None, **arguments):
    """The job's checkpoint through `AutoModelForCausalLM.from_pretrained(path, **arguments)`, in evaluation mode.

    Raises ValueError where its weights are not in safetensors; no code of the checkpoint runs.
    """
    refuse_pickles(job.model["path"])
    import torch
    import transformers

    name = dtype_name or job.load["dtype"]
    dtype = compat.dtype_argument(transformers.__version__, name, getattr(torch, name))
    with new_garbage_alone():
        model = transformers.AutoModelForCausalLM.from_pretrained(job.model["path"], trust_remote_code=False, **dtype, **arguments)
    return model.eval()


@contextlib.contextmanager
def new_garbage_alone():
    """For loading: garbage collections within the block skip the objects from before it.

    transformers 4 collects garbage after each file of weights, and the objects of the imports take a tenth of a second each time. If the block had
    a full collection, another one follows at its end, so that the calls find the collector in its usual state. Objects that were frozen before the
    block are not told apart: Python 3.12 itself always keeps some hundred frozen.
    """
    collections = _full_collections()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if _full_collections() > collections:
            gc.collect()


def _full_collections():
    return gc.get_stats()[-1]["collections"]


def refuse_pickles(folder):
    """Raise ValueError unless a folder's weights are in safetensors alone: a pickle is a program, and the libraries load pickles where they find nothing else.

    Not `from_pretrained(use_safetensors=True)`, which the oldest pins do not know.
    """
    names = sorted(os.listdir(folder))
    pickled = [name for name in names if name.endswith(PICKLES)]
    if pickled or not any(name.endswith(".safetensors") for name in names):
        found = pickled[0] if pickled else "no *.safetensors"
        raise ValueError("the model's folder holds {}; allowed are weights in safetensors; type make models, which converts pickles".format(found))


def inputs_device(model):
    """The device, as text, for the inputs of a model that accelerate may have spread.

    Where accelerate's hooks carry the inputs to the model's layers, this is the first GPU, even if it is empty, as in the articles' scripts
    (`.cuda()`, `.to("cuda:0")`). The hooks bring logits and cache back to this GPU after each token (AlignDevicesHook(io_same_device=True) of
    accelerate/hooks.py).
    """
    return "cuda:0" if hasattr(model, "_hf_hook") and model.device.type == "cuda" else str(model.device)


def load_onto(job, device):
    """`load_model` with the whole model on one device, as `.to(device)` leaves it.

    Where the library can, each weight goes from its file straight to a GPU, without a copy of the model in host memory on the way.
    """
    import transformers

    if device == "cpu" or not compat.loads_straight(transformers.__version__):
        return load_model(job, low_cpu_mem_usage=True).to(device)
    return straight(job, device)


def straight(job, device):
    """The job's model, with each weight loaded straight onto `device`. Raises RuntimeError where the library left hooks, which cost time in each call."""
    model = load_model(job, device_map={"": device})
    hooked = [name for name, module in model.named_modules() if hasattr(module, "_hf_hook")]
    if hooked:
        raise RuntimeError("loading onto {} left hooks on {} modules, the first is {!r}".format(device, len(hooked), hooked[0]))
    if hasattr(model, "hf_device_map"):
        del model.hf_device_map  # generate and pipelines treat a model with a device map differently
    return model


def dtype_of(model):
    """The dtype of most of a model's parameters, without "torch."."""
    counts = {}
    for parameter in model.parameters():
        counts[str(parameter.dtype)] = counts.get(str(parameter.dtype), 0) + parameter.numel()
    return max(counts, key=counts.get).replace("torch.", "")


def devices_of(model):
    """{device: number of parameters} of a model, largest first."""
    counts = {}
    for parameter in model.parameters():
        counts[str(parameter.device)] = counts.get(str(parameter.device), 0) + parameter.numel()
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def drop(cache, tokens):
    """Remove the last `tokens` tokens, at least one, from a model's cache. In earlier versions of transformers a cache is a tuple, which never gets them."""
    if hasattr(cache, "crop"):
        cache.crop(-tokens)


def layers_of(model):
    """The list of a model's transformer layers: BLOOM and GPT-J keep it at transformer.h, Llama at model.layers."""
    # DeepSpeed's engine holds the model as its module.
    model = getattr(model, "module", model)
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def first_device(job):
    """The device of the model's first part in this process; with several ranks the rank's own GPU."""
    return "cuda:{}".format(ranks.local()) if job.device == "cuda" else "cpu"


def devices(job):
    """The names of the job's devices: "cuda:0", "cuda:1"…, or "cpu" repeated `device_count` times."""
    return ["cuda:{}".format(index) for index in range(job.device_count)] if job.device == "cuda" else ["cpu"] * job.device_count
