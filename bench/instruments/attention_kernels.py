"""Contexts in which torch takes some of its attention kernels (torch.nn.attention.SDPBackend) and no others."""

import contextlib
import functools

#: torch's attention kernels; earlier versions lack some.
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


@contextlib.contextmanager
def heard():
    """Within the block the set collects "KERNEL", or "KERNEL with a mask", for each attention that the model calls torch for.

    The kernel is the one that torch names for these inputs just before the call; "unknown" where this torch cannot be asked. A model that computes
    its attention itself, as all do before torch 2.0, leaves the set empty.
    """
    import torch

    functional, found = torch.nn.functional, set()
    attention, ask = getattr(functional, "scaled_dot_product_attention", None), getattr(torch, "_fused_sdp_choice", None)
    if attention is None:
        yield found
        return
    names = {None: "unknown", **{int(getattr(torch.nn.attention.SDPBackend, name)): name for name in known()}}

    def listening(*arguments, **named):
        number = int(ask(*arguments, **named)) if ask else None
        masked = named.get("attn_mask", arguments[3] if len(arguments) > 3 else None) is not None
        found.add(names.get(number, str(number)) + (" with a mask" if masked else ""))
        return attention(*arguments, **named)

    functional.scaled_dot_product_attention = listening
    try:
        yield found
    finally:
        functional.scaled_dot_product_attention = attention
