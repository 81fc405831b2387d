"""How fast this host hands work to the device: µs from one small operator to the next, started from Python without waiting.

Short calls wait for the host, so a slow or busy one makes every library look slow. Taken before a job's first call and after its last one,
the two numbers tell a reader whether rows had equal hosts and whether the host changed meanwhile.
"""

import statistics
import time

#: An operator on one number takes a GPU less time than the host needs to start it, so the host's pace is what is seen; few enough for no queue to fill.
OPERATORS = 500
SAMPLES = 9


def operator_us(device):
    """The median of SAMPLES means, in µs, after as many calls to warm up."""
    import torch

    number = torch.zeros((), device=device)

    def mean_us():
        began = time.perf_counter()
        for _ in range(OPERATORS):
            number.add_(1)
        elapsed = time.perf_counter() - began
        if number.is_cuda:
            torch.cuda.synchronize(device)
        return 1e6 * elapsed / OPERATORS

    mean_us()
    return statistics.median(mean_us() for _ in range(SAMPLES))
