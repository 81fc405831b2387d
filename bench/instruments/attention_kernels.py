"""Contexts in which torch takes some of its attention kernels (torch.nn.attention.SDPBackend) and no others."""

import contextlib
import functools

#: Of which earlier versions lack some.
KERNELS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")


def known():
    """The KERNELS that this torch can be limited to; none before torch 2.3."""
    try:
        from torch.nn.attention import SDPBackend
    except ImportError:
        return ()
    return tuple(name for name in KERNELS if hasattr(SDPBackend, name))


def only(*names):
    """A function that makes a context in which torch takes one of these kernels; without names torch takes any."""
    if not names:
        return contextlib.nullcontext
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return functools.partial(sdpa_kernel, [getattr(SDPBackend, name) for name in names])
