"""Requests that arrive over time, for the workloads `workload` and `engine_queue`, and the latency of each.

Option `arrivals_per_s`: how many items arrive a second on average; without it all are there from the start. The gaps between arrivals are
exponential (a Poisson process). They are drawn from random.Random("<seed>:arrivals"), with the option `seed` that the texts are made from:
the same times for every backend, machine and Python. Items arrive in the order of their numbers. The clock starts after the warm-up.

A latency is the time from an item's arrival until the last token of its answer is on the host; in a static batch, until the batch has ended.
A resumed run has no latencies: two processes got its requests, so no request saw the whole load. The first item after the pause arrives at once.
"""

import collections
import random
import time

#: A job waits for its arrivals, so a rate below one in 1000 s is a mistake. Above a million a second the clock cannot tell the gaps.
LEAST_PER_S, MOST_PER_S = 0.001, 1_000_000


def per_s(job):
    """The mean number of arrivals a second; None where all items are there from the start. Raises ValueError for a rate that is not allowed."""
    mistake = mistake_in(job.options)
    if mistake:
        raise ValueError(mistake)
    return job.options.get("arrivals_per_s")


def mistake_in(options):
    """What is wrong with the rate of a case's options, or ""."""
    rate = options.get("arrivals_per_s")
    allowed = isinstance(rate, (int, float)) and not isinstance(rate, bool) and LEAST_PER_S <= rate <= MOST_PER_S
    words = "arrivals_per_s is {!r:.60}, allowed is a number from {:g} to {:,}".format(rate, LEAST_PER_S, MOST_PER_S)
    return "" if rate is None or allowed else words


def times_s(job):
    """When each item arrives, by its number, in seconds after the start."""
    draw, at_s, times = random.Random("{}:arrivals".format(job.options["seed"])), 0.0, []
    for _ in range(job.options["items"]):
        at_s += draw.expovariate(per_s(job))
        times.append(at_s)
    return times


class Arrivals:
    """Items that arrive over time: `given` is {number: what `due` gives} in the order of arrival, `arrive_s` {number: its arrival in s after `start`}."""

    def __init__(self, given, arrive_s):
        self.coming, self.arrive_s, self.latency_ms = collections.deque(given.items()), arrive_s, {}
        self.began_s = None

    def start(self):
        self.began_s = time.perf_counter()

    @property
    def left(self):
        """How many have not been given yet."""
        return len(self.coming)

    def wait(self):
        """Sleep until the next one has come; returns at once where it has, or where none is left."""
        while self.coming and self._next_in_s() > 0:
            time.sleep(self._next_in_s())

    def due(self, most=None):
        """What has come and was not given yet, at most so many; never waits."""
        found = []
        while self.coming and len(found) != most and self._next_in_s() <= 0:
            found.append(self.coming.popleft()[1])
        return found

    def answered(self, numbers):
        """Tell that the answers to these items are on the host now; returns the time in s after the start."""
        now_s = time.perf_counter() - self.began_s
        self.latency_ms.update((number, (now_s - self.arrive_s[number]) * 1000) for number in numbers)
        return now_s

    def _next_in_s(self):
        return max(0.0, self.began_s + self.arrive_s[self.coming[0][0]] - time.perf_counter())


def of(job, given, resumed):
    """The Arrivals of `given`, {number: what `due` gives}; None where all items are there from the start."""
    if per_s(job) is None:
        return None
    times = times_s(job)
    earlier_s = times[min(given)] if resumed and given else 0.0
    return Arrivals(given, {number: times[number] - earlier_s for number in given})


def figures(job, outputs):
    """{"latency": …} of a job whose items arrive over time, else {}.

    {arrivals_per_s, items, median_ms, p95_ms, p99_ms, longest_ms, offered_s (time of the last arrival), finished_s (of the last answer),
    each_ms (of each item, in the order of their numbers)}, or `reason` in place of the times. The percentiles are linear.
    """
    if per_s(job) is None:
        return {}
    of_items = [(item[0], ms) for batch in outputs.batches for item, ms in zip(batch["items"], batch["latency_ms"])]
    figure = {"arrivals_per_s": per_s(job), "items": len(of_items)}
    times = {"reason": "the run went on after a stop, so no request saw the whole load"} if outputs.resumed else _times(times_s(job), of_items)
    return {"latency": dict(figure, **times)}


def _times(arrive_s, of_items):
    import numpy

    latencies_ms = [ms for _, ms in of_items]
    median_ms, p95_ms, p99_ms = (float(numpy.percentile(latencies_ms, percent)) for percent in (50, 95, 99))
    return {
        "median_ms": median_ms,
        "p95_ms": p95_ms,
        "p99_ms": p99_ms,
        "longest_ms": max(latencies_ms),
        "offered_s": arrive_s[-1],
        "finished_s": max(arrive_s[number] + ms / 1000 for number, ms in of_items),
        "each_ms": [round(ms, 3) for _, ms in sorted(of_items)],
    }
