"""Plain transformers on one device: the baseline, and the reference of every output check."""

from bench.backends import Loaded
from bench.models import pretrained


def unsupported(job):
    return ""


def load(job):
    model = pretrained.load_onto(job, pretrained.first_device(job))
    return Loaded(model=model, device=pretrained.first_device(job), used={"dtype": pretrained.dtype_of(model)})
