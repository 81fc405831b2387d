"""DeepSpeed-Inference with kernel injection: fused CUDA layers, weights cut over the GPUs, one process a GPU."""

import os

from bench import pretrained
from bench.backends import Loaded

RANKS = True


def unsupported(job):
    if job.device == "cpu":
        return "DeepSpeed's injected kernels are CUDA code: they need an NVIDIA GPU"
    return ""


def load(job):
    import deepspeed
    import torch

    rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(rank)
    # The article passes no low_cpu_mem_usage; without it every rank spends minutes in filling layers with random float16
    # values on the CPU that the checkpoint then overwrites. It changes the loading time only.
    model = pretrained.load_model(job, low_cpu_mem_usage=True)
    engine = deepspeed.init_inference(
        model=model,
        mp_size=job.device_count,
        dtype=getattr(torch, job.load["dtype"]),
        replace_method=job.load.get("replace_method", "auto"),
        replace_with_kernel_inject=job.load.get("replace_with_kernel_inject", True),
    )
    layer = type(_layers(engine.module)[0])
    injected = "DeepSpeedTransformerInference" in {base.__name__ for base in layer.__mro__}
    if not injected:
        raise RuntimeError("the layers are {}, not DeepSpeedTransformerInference: no kernel was injected".format(layer.__name__))
    used = {"dtype": pretrained.dtype_of(engine.module), "layer_class": layer.__name__, "ranks": job.device_count}
    return Loaded(model=engine, device="cuda:{}".format(rank), used=used)


def _layers(model):
    """The list of a model's transformer layers: BLOOM and GPT-J keep it at transformer.h, Llama at model.layers."""
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers
