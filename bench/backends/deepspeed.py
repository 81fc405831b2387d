"""DeepSpeed-Inference with kernel injection: fused CUDA layers, weights split over the GPUs, one process per GPU."""

import os
import time
from importlib import metadata

from bench import compat
from bench.backends import Loaded
from bench.measuring import ranks
from bench.models import pretrained

RANKS = True
ARGUMENTS = ("replace_method", "replace_with_kernel_inject", "torch_records")

#: torch keeps a record of every collective in case one hangs, which costs the host time at each. With these variables it keeps none.
NO_RECORDS = {
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "0",
    "TORCH_FR_BUFFER_SIZE": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}


def unsupported(job):
    if job.device == "cpu":
        return "DeepSpeed's injected kernels are CUDA code: they need an NVIDIA GPU"
    if not job.load.get("torch_records", True) and not compat.records_collectives(metadata.version("torch")):
        return "torch {} keeps no records of collectives, so none can be left out; 2.2 and later keep them".format(metadata.version("torch"))
    return ""


def load(job):
    import deepspeed
    import torch

    if not job.load.get("torch_records", True):
        os.environ.update(NO_RECORDS)  # read when the ranks form their group
    torch.cuda.set_device(ranks.local())
    kernels_s = _load_kernels()
    # The article does not pass low_cpu_mem_usage. Without it every rank spends minutes on filling layers with random float16
    # values, which the checkpoint then overwrites. The argument changes only the loading time.
    # Most of the loading is DeepSpeed's transposes of the weights on the CPU. A model on the GPU would load in a quarter of the time, and
    # take nearly twice its memory meanwhile: too much for a card of 24 GB.
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
    if "torch_records" in job.load:
        used["torch_records"] = job.load["torch_records"]
    return Loaded(model=engine, device=pretrained.first_device(job), used=used)


def _load_kernels():
    """Seconds to load the kernel library: almost none in an image, which contains it; elsewhere it is compiled first."""
    from deepspeed.ops.op_builder import InferenceBuilder

    began = time.monotonic()
    InferenceBuilder().load()
    return round(time.monotonic() - began, 3)


def _resident_bytes():
    """{own_bytes, mapped_bytes} of this process with the whole model loaded: private memory, and pages of files, which all ranks share.

    safetensors files are mapped, not copied, so N ranks do not hold N copies of the weights.
    """
    names = {"RssAnon:": "own_bytes", "RssFile:": "mapped_bytes"}
    with open("/proc/self/status") as stream:
        lines = [line.split() for line in stream]
    return {names[line[0]]: int(line[1]) * 1024 for line in lines if line and line[0] in names}
