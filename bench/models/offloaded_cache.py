"""What makes the copies of transformers' offloaded key-value cache wait.

A stream of its own copies the next layer's cache to the GPU while a layer works. In transformers 5.17 this stream waits for nothing that the
model's stream was given, and `generate` makes other tokens than with the default cache (bench/instruments/offloaded_cache.py shows it).
"""

import contextlib


@contextlib.contextmanager
def before_each_copy(cache_class, wait):
    """`wait(cache)` comes before each `prefetch` of a class of caches, until the context ends."""
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
    """The stream of the copies waits for the stream of the model: for the copy to the host, and for all that still reads the memory it gets."""
    import torch

    cache.prefetch_stream.wait_stream(torch.cuda.current_stream())


def copies_that_wait():
    """A context in which each copy of an offloaded cache waits so."""
    import transformers

    return before_each_copy(transformers.cache_utils.Cache, after_what_was_asked_for)
