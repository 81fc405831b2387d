"""Times of single operators, in µs, and of work on one device, in ms."""

import time


def call_times_us(call, device, samples, calls_per_sample, warmup_calls=20):
    """`samples` times in µs of one call, each the mean of `calls_per_sample` calls that follow one another without waiting.

    On a GPU between two CUDA events, so with the host's part of each call where the host is what takes longest.
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


class span:
    """`with span(device) as elapsed: …` and then `elapsed.ms`: CUDA events of the current stream on a GPU, the wall clock on a CPU.

    Leaving it waits for the device.
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
