"""The options that all instruments on random weights share: the model, its dtype, and the path of the table."""

import argparse

from bench.models import weights


def parser_of(instrument, question, dtype_help=None):
    """A parser with the shape, --scale, --dtype and --out; the instrument adds its own options, --device among them."""
    parser = argparse.ArgumentParser(prog="python -m bench.instruments.{}".format(instrument), description=question)
    parser.add_argument("shape", choices=sorted(weights.SHAPES))
    parser.add_argument("--scale", choices=("full", "tiny"), default="full")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float16", help=dtype_help)
    parser.add_argument("--out", required=True)
    return parser


def device_of(options):
    """{gpu, gpu_uuid} for a table: the model of the GPU, and its UUID as NVML and the results write it; "cpu" and "" without one."""
    if options.device != "cuda":
        return {"gpu": "cpu", "gpu_uuid": ""}
    import torch

    return {"gpu": torch.cuda.get_device_name(), "gpu_uuid": "GPU-{}".format(torch.cuda.get_device_properties(0).uuid)}
