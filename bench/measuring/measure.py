"""The clock: a cold call, warm-up calls, timed calls; it returns raw samples.

The articles time `generate` with `perf_counter` around each call. The kit does the same, and waits for every device before it starts and
before it stops the clock, so that a time includes exactly the work of its call.
"""

import time

from bench.measuring import ranks
from bench.measuring.clock import Stamp


class WrongTokenCount(AssertionError):
    """A call made another number of new tokens than its job requires, so its time would mean nothing."""


def elapsed_ms(action, synchronize, clock=time.perf_counter):
    """(ms of one call of `action`, its return value)."""
    synchronize()
    began = clock()
    returned = action()
    synchronize()
    return (clock() - began) * 1000, returned


def time_call(generate, new_tokens, synchronize, clock):
    """The ms of one call of `generate() -> number of new tokens`; raises WrongTokenCount."""
    ms, count = elapsed_ms(generate, synchronize, clock)
    if count != new_tokens:
        raise WrongTokenCount("{} new tokens were asked for, {} came".format(new_tokens, count))
    return ms


def measure(generate, new_tokens, warmup_runs, timed_runs, cold, synchronize, clock=time.perf_counter, progress=lambda word, done, total: None):
    """Time calls of `generate() -> number of new tokens`.

    Returns {new_tokens, cold_ms, warmup_ms, timed_ms, timed_at}. With `cold`, the first call since the
    model was loaded is made and kept apart as `cold_ms`. `timed_at` is [began, ended] of the timed calls in seconds since the epoch:
    the host reads the GPUs' energy counters for it.
    """
    cold_ms = time_call(generate, new_tokens, synchronize, clock) if cold else None
    samples = {"warmup": [], "timed": []}
    for word, count in (("warmup", warmup_runs), ("timed", timed_runs)):
        since = Stamp()
        for done in range(count):
            samples[word].append(time_call(generate, new_tokens, synchronize, clock))
            progress(word, done + 1, count)
    timed_at = since.window()
    return {"new_tokens": new_tokens, "cold_ms": cold_ms, "warmup_ms": samples["warmup"], "timed_ms": samples["timed"], "timed_at": timed_at}


def measure_run(job, run, generate, cold, say):
    """`measure` for one of the job's runs, with the calls of its protocol; `say` gets the progress."""

    def progress(word, done, total):
        say(run=word, done=done, total=total, new_tokens=run["new_tokens"])

    return measure(generate, run["new_tokens"], job.warmup_runs, job.timed_runs, cold, synchronizer(job), progress=progress)


def synchronizer(job):
    """A function that waits for all queued work on this process's devices.

    A process that never used CUDA (its engine works in other processes) does not initialise it here, which would take GPU memory.
    """
    if job.device == "cpu":
        return lambda: None
    import torch

    def synchronize():
        for index in ranks.gpus() if torch.cuda.is_initialized() else ():
            torch.cuda.synchronize(index)

    return synchronize


def slowest_of_ranks(measurements_by_rank):
    """Merge the ranks' measurements of the same calls into one: for each call the slowest rank counts."""

    def slowest(samples):
        return None if samples[0] is None else max(samples)

    first = measurements_by_rank[0]
    windows = [measurement["timed_at"] for measurement in measurements_by_rank if "timed_at" in measurement]
    timed_at = {"timed_at": [min(began for began, _ in windows), max(ended for _, ended in windows)]} if windows else {}
    return {
        **timed_at,
        "new_tokens": first["new_tokens"],
        "cold_ms": slowest([measurement["cold_ms"] for measurement in measurements_by_rank]),
        "warmup_ms": [slowest(call) for call in zip(*(measurement["warmup_ms"] for measurement in measurements_by_rank))],
        "timed_ms": [slowest(call) for call in zip(*(measurement["timed_ms"] for measurement in measurements_by_rank))],
    }
