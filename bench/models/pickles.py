"""Weights in pickles (`pytorch_model*.bin`) become safetensors, which every stack loads.

A pickle is a program. `torch.load(weights_only=True)` runs none of it and makes only tensors; the host lets this module run only in a
container without a network. One file is in memory at a time; each becomes one file of safetensors, which is read again and compared.
"""

import glob
import json
import os
import pickle
import zipfile

from bench import compat
from bench.reasons import first_line

#: A file's tensors may have at most so many times its bytes: tensors that share memory are written one by one, so a hostile file of a megabyte
#: could fill the disk. The models of articles share one matrix.
MOST_SHARED = 2

INDEX, SINGLE = "pytorch_model.bin.index.json", "pytorch_model.bin"


def convert(source, target, progress=lambda done, total: None):
    """Write the tensors of the pickles in `source`, a folder with config.json, into the empty folder `target`.

    Every tensor keeps its name, dtype, shape and bits. Where the model's code ties several names to one tensor, only the first stays: the
    code ties the others again. Names that share memory and are not tied get a tensor each.
    Returns {files, tensors, tied, bytes}; `tied` are the names left out. Raises ValueError with the file and the reason.
    """
    files, tied, weight_map, left_out, size_bytes = _files(source), _tied(source), {}, [], 0
    for number, name in enumerate(files, start=1):
        tensors, dropped = _own_memory(_read(os.path.join(source, name), name), tied)
        twice = sorted(set(tensors) & set(weight_map))
        if twice:
            raise ValueError("{} and {} both hold {}; only one file may hold a tensor".format(weight_map[twice[0]], name, twice[0]))
        made = name.replace("pytorch_model", "model")[: -len(".bin")] + ".safetensors"
        _write(tensors, os.path.join(target, made))
        weight_map.update({key: made for key in tensors})
        left_out += dropped
        size_bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        progress(number, len(files))
    if len(files) > 1:
        with open(os.path.join(target, "model.safetensors.index.json"), "w") as stream:
            json.dump({"metadata": {"total_size": size_bytes}, "weight_map": weight_map}, stream, indent=1, sort_keys=True)
    return {"files": len(files), "tensors": len(weight_map), "tied": sorted(left_out), "bytes": size_bytes}


def _files(source):
    """The names of the pickles that hold the weights, as `from_pretrained` chooses them: one file before an index. Raises ValueError."""
    found = sorted(os.path.basename(path) for path in glob.glob(os.path.join(source, "pytorch_model*.bin")))
    if SINGLE in found:
        return [SINGLE]
    try:
        with open(os.path.join(source, INDEX), encoding="utf-8") as stream:
            named = sorted(set(json.load(stream)["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("{} cannot be read ({}: {}), and there is no {}".format(INDEX, type(error).__name__, error, SINGLE)) from error
    missing = sorted(set(named) - set(found))
    if missing or not named:
        raise ValueError("{} names {}; allowed are the files beside it: {}".format(INDEX, missing[0] if missing else "no file", ", ".join(found)))
    return named


def _tied(source):
    """{name: {first name of the same parameter}} of the parameters that the code of the model in `source` ties.

    A checkpoint may leave out the prefix of the model's body, so each name, also in the sets, stands with and without it.
    """
    import accelerate
    import torch
    import transformers

    with compat.meta_device(torch, accelerate):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(source))
    first, tied, prefix = {}, {}, model.base_model_prefix + "."
    for name, parameter in model.named_parameters(remove_duplicate=False):
        kept = first.setdefault(id(parameter), name)
        if kept != name:
            for own in {name, _without(prefix, name)}:
                tied[own] = {kept, _without(prefix, kept)}
    return tied


def _without(prefix, name):
    return name[len(prefix) :] if name.startswith(prefix) else name


def _read(path, name):
    """{name: tensor} of a pickle, on the CPU. Raises ValueError where the file holds anything but tensors by name."""
    import torch

    if not compat.safe_pickles(torch.__version__):
        raise ValueError("torch {} can be tricked into running a pickle's code; torch 2.6 and newer read pickles safely".format(torch.__version__))
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # a damaged or hostile file raises whatever its bytes lead to
        raise ValueError("{} is refused: {}".format(name, _reason(error))) from None
    if not isinstance(state, dict) or not state:
        raise ValueError("{} holds {} of type {}; allowed are tensors by name".format(name, "nothing" if state == {} else "data", type(state).__name__))
    for key, value in state.items():
        if not isinstance(key, str) or not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
            raise ValueError("{} holds {!r:.80} of type {}; allowed are dense tensors by name".format(name, key, type(value).__name__))
    file_bytes, size_bytes = os.path.getsize(path), sum(value.numel() * value.element_size() for value in state.values())
    if size_bytes > MOST_SHARED * file_bytes:
        raise ValueError("{} has {:,} bytes and its tensors {:,}; allowed are {} times the bytes of the file".format(name, file_bytes, size_bytes, MOST_SHARED))
    return {key: value.detach() for key, value in state.items()}


def _reason(error):
    """Why torch refuses a file, in one line. Its own message begins with advice on how to load the file nevertheless; the error below names the cause."""
    cause = error.__context__ if isinstance(error, pickle.UnpicklingError) and error.__context__ else error
    return first_line(cause)


def _own_memory(tensors, tied):
    """({name: tensor with memory of its own}, names left out because the model's code ties them to a name that stays)."""
    sharing = {}
    for name, tensor in tensors.items():
        if tensor.numel():
            sharing.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
    own, dropped = dict(tensors), []
    for names in sharing.values():
        for name in names if len(names) > 1 else ():
            kept = next((other for other in names if other in tied.get(name, ()) and _same(tensors[name], tensors[other])), None)
            if kept:
                del own[name]
                dropped.append(name)
            else:
                own[name] = tensors[name].clone()
    return {name: tensor.contiguous() for name, tensor in own.items()}, dropped


def _same(left, right):
    """Are two tensors equal to the bit, in dtype and shape? NaNs are compared as bits."""
    import torch

    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(_bits(left), _bits(right))


def _bits(tensor):
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _write(tensors, path):
    """Write a file of safetensors and read it again; raises ValueError where a tensor came out different."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    save_file(tensors, path, metadata={"format": "pt"})
    with safe_open(path, framework="pt") as written:
        for name, tensor in tensors.items():
            if not _same(tensor, written.get_tensor(name)):
                raise ValueError("{} came out different in {}".format(name, os.path.basename(path)))
