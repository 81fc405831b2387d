"""Times of single operators, in µs, and of work on one device, in ms; windows on the wall clock."""

import statistics
import time


def call_times_us(call, device, samples, calls_per_sample, warmup_calls=20):
    """`samples` times of one call in µs, each the mean of `calls_per_sample` calls in a row without waiting.

    On a GPU the time runs between two CUDA events, so it includes the host's part of each call where the host is the slower one.
    """
    for _ in range(warmup_calls):
        call()
    times = []
    for _ in range(samples):
        with span(device) as elapsed:
            for _ in range(calls_per_sample):
                call()
        times.append(elapsed.ms * 1000 / calls_per_sample)
    return times


def launch_us(device):
    """The time in which this host starts one operator: µs per operator on a single number, the median of a few samples.

    A GPU computes such an operator faster than the host starts it, so the time is the host's. Short calls wait for the host: this time,
    before a job's first call and after its last, distinguishes a slow or busy host from a slow library.
    """
    import torch

    number = torch.zeros((), device=device)
    return statistics.median(call_times_us(lambda: number.add_(1), device, samples=9, calls_per_sample=500, warmup_calls=500))


class Stamp:
    """The beginning of a window: the moment at which the stamp is made."""

    def __init__(self):
        self.began, self.began_monotonic = time.time(), time.monotonic()

    def window(self):
        """[began, ended now] in seconds since the epoch. The monotonic clock gives the length, so setting the wall clock meanwhile does not change it."""
        return [self.began, self.began + time.monotonic() - self.began_monotonic]


class span:
    """`with span(device) as elapsed: …` and then `elapsed.ms`: CUDA events of the current stream on a GPU, the wall clock on a CPU.

    The end of the block waits for the device.
    """

    def __init__(self, device):
        self.on_gpu, self.ms = str(device).startswith("cuda"), None

    def __enter__(self):
        if self.on_gpu:
            import torch

            torch.cuda.synchronize()
            self.began, self.ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self.began.record()
        else:
            self.began = time.perf_counter()
        return self

    def __exit__(self, *failure):
        if self.on_gpu:
            self.ended.record()
            self.ended.synchronize()
            self.ms = self.began.elapsed_time(self.ended)
        else:
            self.ms = (time.perf_counter() - self.began) * 1000
