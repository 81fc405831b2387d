"""Layer parallelism: accelerate puts whole layers on different devices, `device_map="auto"`."""

from bench.backends import Loaded
from bench.models import pretrained

ARGUMENTS = ("device_map",)


def unsupported(job):
    return ""


def load(job):
    model = pretrained.load_model(job, device_map=job.load.get("device_map", "auto"))
    layers = {}
    for device in getattr(model, "hf_device_map", {"": model.device}).values():
        layers[str(device)] = layers.get(str(device), 0) + 1
    device = pretrained.inputs_device(model)
    used = {"dtype": pretrained.dtype_of(model), "modules_per_device": layers, "parameters_per_device": pretrained.devices_of(model), "inputs_device": device}
    return Loaded(model=model, device=device, used=used)
