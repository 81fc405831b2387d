"""DeepSpeed-Inference with kernel injection: fused CUDA layers, weights cut over the GPUs, one process a GPU."""

import time

from bench.backends import Loaded
from bench.measuring import ranks
from bench.models import pretrained

RANKS = True
ARGUMENTS = ("replace_method", "replace_with_kernel_inject")


def unsupported(job):
    if job.device == "cpu":
        return "DeepSpeed's injected kernels are CUDA code: they need an NVIDIA GPU"
    return ""


def load(job):
    import deepspeed
    import torch

    torch.cuda.set_device(ranks.local())
    kernels_s = _load_kernels()
    # The article passes no low_cpu_mem_usage; without it every rank spends minutes in filling layers with random float16
    # values on the CPU that the checkpoint then overwrites. It changes the loading time only.
    model = pretrained.load_model(job, low_cpu_mem_usage=True)
    host_memory = _resident_bytes()
    engine = deepspeed.init_inference(
        model=model,
        mp_size=job.device_count,
        dtype=getattr(torch, job.load["dtype"]),
        replace_method=job.load.get("replace_method", "auto"),
        replace_with_kernel_inject=job.load.get("replace_with_kernel_inject", True),
    )
    layer = type(pretrained.layers_of(engine)[0])
    injected = "DeepSpeedTransformerInference" in {base.__name__ for base in layer.__mro__}
    if not injected:
        raise RuntimeError("the layers are {}, not DeepSpeedTransformerInference: no kernel was injected".format(layer.__name__))
    used = {
        "dtype": pretrained.dtype_of(engine.module),
        "layer_class": layer.__name__,
        "ranks": job.device_count,
        "kernels_ready_s": kernels_s,
        "host_memory_of_first_rank": host_memory,
    }
    return Loaded(model=engine, device=pretrained.first_device(job), used=used)


def _load_kernels():
    """Seconds until the kernel library is loaded: next to none in an image, which has it built in; a compiler's time elsewhere."""
    from deepspeed.ops.op_builder import InferenceBuilder

    began = time.monotonic()
    InferenceBuilder().load()
    return round(time.monotonic() - began, 3)


def _resident_bytes():
    """This process's memory with the whole model loaded: its own, and pages of the checkpoint's files, which all ranks share.

    safetensors files are mapped, not read, so N ranks do not hold N copies of the weights.
    """
    wanted = {"RssAnon:": "own_bytes", "RssFile:": "mapped_bytes"}
    with open("/proc/self/status") as stream:
        lines = [line.split() for line in stream]
    return {wanted[line[0]]: int(line[1]) * 1024 for line in lines if line and line[0] in wanted}
