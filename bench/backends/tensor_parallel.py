"""Tensor parallelism by the library tensor_parallel: each weight matrix is split over the devices; one process, one thread per device."""

from bench.backends import Loaded
from bench.models import pretrained

ARGUMENTS = ("low_cpu_mem_usage",)


def unsupported(job):
    if job.model["architecture"] != "llama":
        return ""
    return "tensor_parallel 2.0.0 cannot cut Llama's attention of transformers 4.36 and later (scaled_dot_product_attention; its eager form fails in generate)"


def load(job):
    import tensor_parallel

    devices = pretrained.devices(job)
    model = pretrained.load_model(job, low_cpu_mem_usage=job.load.get("low_cpu_mem_usage", True))
    known = model.config.architectures[0] in tensor_parallel.slicing_configs.PREDEFINED_CONFIGS
    known = known or model.config.model_type in tensor_parallel.slicing_configs.PREDEFINED_CONFIGS
    model = tensor_parallel.tensor_parallel(model, devices).eval()
    used = {
        "dtype": pretrained.dtype_of(model),
        "devices": devices,
        "slicing_config": "predefined" if known else "automatic",
        "wrapper": type(model).__name__,
        "parameters_per_device": pretrained.devices_of(model),
    }
    return Loaded(model=model, device=devices[0], used=used)
