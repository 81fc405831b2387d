"""Layer parallelism: accelerate puts whole layers on different devices, `device_map="auto"`."""

from bench.backends import Loaded
from bench.models import pretrained

ARGUMENTS = ("device_map",)


def unsupported(job):
    return ""


def load(job):
    model = pretrained.load_model(job, device_map=pretrained.device_map(job))
    layers = {}
    for device in getattr(model, "hf_device_map", {"": model.device}).values():
        layers[str(device)] = layers.get(str(device), 0) + 1
    used = {"dtype": pretrained.dtype_of(model), "modules_per_device": layers, "parameters_per_device": pretrained.devices_of(model)}
    return Loaded(model=model, device=str(model.device), used=used)
