"""Where accelerate puts the parts of a model that it spreads over several GPUs, computed without a GPU and without weights.

    PYTHON -m bench.instruments.device_map JOB [OUT]      in the image of `int8` on the stack hopper-2023-05 (seconds)

JOB is the job.json of a run of `layer-parallel` or `int8` on several GPUs. accelerate gives each GPU but the last a share (get_balanced_memory of
accelerate/utils/modeling.py): the model's bytes divided by the number of GPUs that may hold a part of it, plus 1.25 times a block of layers. A matrix
that embedding and output share counts twice, because from_pretrained ties the two later. A part that is larger than the rest of a share goes to the next
GPU. The first GPU keeps room for the largest part to come; only its memory limits the last GPU. With `balanced_low_0` the first GPU has no share.

The program asks the installed accelerate as `from_pretrained` does, for GPUs of 48 GiB, and writes for both maps the shares and the parameters of
each GPU to OUT as JSON.
"""

import sys
from importlib import metadata
from unittest import mock

from bench.instruments import fitting
from bench.job import read_job, to_json, write_whole
from bench.models import weights

GPU_BYTES = 48 * 2**30


def empty_model(shape, scale):
    """The model on torch's device `meta`: names and sizes, no values. As in `from_pretrained`, its equal matrices are not tied yet."""
    import torch
    import transformers
    from accelerate import init_empty_weights

    config = transformers.AutoConfig.for_model(**weights.config_of(shape, scale))
    with init_empty_weights():
        model = transformers.AutoModelForCausalLM.from_config(config)
    output = model.get_output_embeddings()
    output.weight = torch.nn.Parameter(torch.empty_like(output.weight))
    return model


def kept_in_float16(model, dtype_name):
    """{parameter: float16} of what transformers leaves out of int8: the output matrix, and the embedding where both are one matrix."""
    if dtype_name != "int8":
        return {}
    import torch
    from transformers.utils.bitsandbytes import get_keys_to_not_convert

    left_out = get_keys_to_not_convert(model)
    return {name: torch.float16 for name, _ in model.named_parameters() if any(part in name for part in left_out)}


def shares_and_places(model, dtype_name, gpus, low_zero):
    """({GPU: bytes that it may get}, {part of the model: GPU}), as the installed accelerate decides."""
    import torch
    from accelerate import infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    asked = {
        "no_split_module_classes": model._no_split_modules,
        "dtype": getattr(torch, dtype_name),
        "special_dtypes": kept_in_float16(model, dtype_name),
    }
    # accelerate gives out no shares on a machine where torch sees no GPU.
    with mock.patch.object(torch.cuda, "is_available", lambda: True):
        shares = get_balanced_memory(model, max_memory=dict.fromkeys(range(gpus), GPU_BYTES), low_zero=low_zero, **asked)
    model.tie_weights()  # only now, as in from_pretrained: a matrix that the output shares with the embedding counts twice in the shares
    return shares, infer_auto_device_map(model, max_memory=shares, **asked)


def parameters_on(model, places):
    """{GPU: number of parameters}; each matrix counts once."""
    counts = {}
    for name, parameter in model.named_parameters():
        part = next(part for part in places if part == "" or name == part or name.startswith(part + "."))
        counts[str(places[part])] = counts.get(str(places[part]), 0) + parameter.numel()
    return counts


def of_map(job, low_zero):
    """{share_bytes, parameters_per_gpu} of one map, each by GPU."""
    model = empty_model(job.model["shape"], job.model["scale"])
    shares, places = shares_and_places(model, job.load["dtype"], job.device_count, low_zero)
    return {"share_bytes": {str(gpu): share for gpu, share in shares.items()}, "parameters_per_gpu": parameters_on(model, places)}


def main(job_path, out=None):
    job = read_job(job_path)
    fitting.must_fit("device_map", job)
    embedding = empty_model(job.model["shape"], job.model["scale"]).get_input_embeddings().weight
    figures = {
        "job": job.id,
        "versions": {name: metadata.version(name) for name in ("accelerate", "transformers", "torch")},
        "dtype": job.load["dtype"],
        "float16_embedding_bytes": embedding.numel() * 2,
        "maps": {name: of_map(job, low_zero) for name, low_zero in (("auto", False), ("balanced_low_0", True))},
    }
    if out:
        write_whole(out, to_json(figures))
    for name, of_one in figures["maps"].items():
        held = ", ".join("GPU {} {:.2f}".format(gpu, count / 1e9) for gpu, count in sorted(of_one["parameters_per_gpu"].items()))
        bounds = sorted(share for share in of_one["share_bytes"].values() if share)
        print("{}, {}: a share of {:.2f} GB; 10^9 parameters: {}".format(figures["dtype"], name, bounds[0] / 1e9, held))


if __name__ == "__main__":
    main(*sys.argv[1:])
