"""Plain transformers on one device: the baseline, and the reference of every output check.

options of `load`:
    cudnn_attention   false: torch does not take cuDNN's attention kernel, from the load until the engine is closed; true: it may. Where it is not
                      given, torch's own setting stays
"""

import contextlib
from importlib import metadata

from bench import compat
from bench.backends import Loaded
from bench.models import pretrained

CUDNN = "cudnn_attention"

ARGUMENTS = (CUDNN,)


def mistake_in(load):
    value = load.get(CUDNN, False)
    return "" if isinstance(value, bool) else "load.{} is {!r}, allowed are true and false".format(CUDNN, value)


def unsupported(job):
    if CUDNN not in job.load:
        return ""
    version = metadata.version("torch")
    if not compat.cudnn_attention(version):
        return "torch {} has no switch for cuDNN's attention kernel, 2.3 and later do: leave load.{} out, or take a later stack".format(version, CUDNN)
    return mistake_in(job.load)


class Plain(Loaded):
    """`settings` is an ExitStack that puts back what `load` set in torch."""

    def close(self):
        self.settings.close()


@contextlib.contextmanager
def cudnn_attention(allowed):
    """While it lasts, torch may choose cuDNN's attention kernel, or may not. Afterwards its setting is that of before."""
    from torch.backends import cuda

    before = cuda.cudnn_sdp_enabled()
    cuda.enable_cudnn_sdp(allowed)
    try:
        yield cuda.cudnn_sdp_enabled()
    finally:
        cuda.enable_cudnn_sdp(before)


def load(job):
    device, told = pretrained.first_device(job), {}
    with contextlib.ExitStack() as settings:
        if CUDNN in job.load:
            told[CUDNN] = settings.enter_context(cudnn_attention(job.load[CUDNN]))
        model = pretrained.load_onto(job, device)
        used = dict(told, dtype=pretrained.dtype_of(model))
        return Plain(model=model, device=device, used=used, settings=settings.pop_all())
