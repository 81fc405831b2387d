"""Plain transformers on one device: the baseline.

options of `load`:
    cudnn_attention   false: torch does not take cuDNN's attention kernel in this process, which does one job; true: torch may take it. Where it is
                      not given, torch's own setting stays
"""

from importlib import metadata

from bench import compat
from bench.backends import Loaded
from bench.models import pretrained

CUDNN = "cudnn_attention"

ON_ONE_GPU = True
ARGUMENTS = (CUDNN,)


def mistake_in(load):
    value = load.get(CUDNN, False)
    return "" if isinstance(value, bool) else "load.{} is {!r}, allowed are true and false".format(CUDNN, value)


def unsupported(job):
    if CUDNN not in job.load:
        return ""
    version = metadata.version("torch")
    words = "torch {} has no switch for cuDNN's attention kernel, 2.3 and later do: leave load.{} out, or take a later stack"
    return "" if compat.cudnn_attention(version) else words.format(version, CUDNN)


def load(job):
    told = {}
    if CUDNN in job.load:
        from torch.backends import cuda

        cuda.enable_cudnn_sdp(job.load[CUDNN])
        told[CUDNN] = cuda.cudnn_sdp_enabled()
    device = pretrained.first_device(job)
    model = pretrained.load_onto(job, device)
    return Loaded(model=model, device=device, used=dict(told, dtype=pretrained.dtype_of(model)))
