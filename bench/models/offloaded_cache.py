"""Make the copies of transformers' offloaded key-value cache wait for the model's work.

A separate stream copies the next layer's cache to the GPU while a layer works. In transformers 5.17 this stream does not wait for the work on
the model's stream, so `generate` makes other tokens than with the default cache (bench/instruments/offloaded_cache.py shows it).
"""

import contextlib


@contextlib.contextmanager
def before_each_copy(cache_class, wait):
    """Within the block, `wait(cache)` runs before each `prefetch` of a class of caches."""
    prefetch = cache_class.prefetch

    def waiting(cache, *arguments, **named):
        wait(cache)
        return prefetch(cache, *arguments, **named)

    cache_class.prefetch = waiting
    try:
        yield
    finally:
        cache_class.prefetch = prefetch


def after_what_was_asked_for(cache):
    """Let the copies' stream wait for the model's stream: for the copy to the host, and for all work that still reads the memory of the next copy."""
    import torch

    cache.prefetch_stream.wait_stream(torch.cuda.current_stream())


def copies_that_wait():
    """A context in which each copy of an offloaded cache waits for the model's stream."""
    import transformers

    return before_each_copy(transformers.cache_utils.Cache, after_what_was_asked_for)
