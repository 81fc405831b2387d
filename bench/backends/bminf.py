"""BMInf: weights beyond a memory limit stay in host memory and are copied to the GPU layer by layer."""

from bench.backends import Loaded
from bench.models import pretrained

ON_ONE_GPU = True
ARGUMENTS = ("low_cpu_mem_usage", "quantization", "memory_limit_bytes")


def unsupported(job):
    if job.device == "cpu":
        return "BMInf asks the CUDA runtime for a GPU when it is imported: it needs an NVIDIA GPU"
    if job.load.get("quantization"):
        import torch

        return no_int8_kernel(torch.cuda.get_device_capability(0))
    return ""


def no_int8_kernel(capability):
    """Why BMInf's int8 mode cannot run on a GPU of this (major, minor), or "": its kernels are machine code for 6.1 to 8.6, without PTX."""
    if capability[0] > 8:
        return "BMInf's int8 kernels hold machine code for sm_61 to sm_86 only, this GPU is sm_{}{}".format(*capability)
    return ""


def load(job):
    import bminf

    model = pretrained.load_model(job, low_cpu_mem_usage=job.load.get("low_cpu_mem_usage", True))
    dtype = pretrained.dtype_of(model)
    quantization = job.load.get("quantization", False)
    limit_bytes = job.load["memory_limit_bytes"]
    model = bminf.wrapper(model, quantization=quantization, memory_limit=limit_bytes)
    used = {"dtype": "int8" if quantization else dtype, "memory_limit_bytes": limit_bytes}
    used.update(_layers_by_place(model))
    return Loaded(model=model, device="cuda:0", used=used)


def _layers_by_place(model):
    """How many layers BMInf keeps on the GPU, and how many it copies there in each pass."""
    lists = [module for module in model.modules() if type(module).__name__ == "TransformerBlockList"]
    total = sum(len(layers) for layers in lists)
    fixed = sum(len(scheduler._fixed_layers) for layers in lists for scheduler in layers._scheds)
    return {"fixed_layers": fixed, "scheduled_layers": total - fixed}
