"""Further calls like the timed ones, for as long as the GPU's slow counters need: timed calls of one token take only a fraction of a second.

The host reads the GPU's energy and utilization for the window of these calls. Their times count nowhere.
"""

import math

from bench.measuring import measure, ranks
from bench.measuring.clock import Stamp

#: NVML's utilization is that of a second that ended up to a second ago, and its energy counter moves every 100 ms, so windows count from 2 s on.
#: Nobody waits for each of these calls, so they may be somewhat faster than the timed ones: hence the margin.
LEAST_S = 3.0

#: A window of this share of LEAST_S is long enough: further calls would hardly change what the counters tell.
ENOUGH = 0.8


def calls_for(timed_ms):
    """How many calls take LEAST_S, 0 where the timed ones did. All ranks have the same times, so they make the same calls.

    The fastest timed call counts: a busy host makes some calls twice as long, and with the mean the window would end too early. Where the
    window's calls are slow as well, it lasts LEAST_S times the ratio of their mean to the fastest call.
    """
    if sum(timed_ms) / 1000 >= LEAST_S:
        return 0
    return math.ceil(LEAST_S * 1000 / min(timed_ms))


def calls_to_add(calls, seconds):
    """How many more calls a window needs after `calls` calls in `seconds`, 0 for none: a host may become faster than in any timed call."""
    if seconds >= ENOUGH * LEAST_S:
        return 0
    return math.ceil(calls * (LEAST_S - seconds) / max(seconds, LEAST_S / 100))


def windows(job, loaded, form, measurements):
    """[{new_tokens, calls, at: [began, ended]}] of the runs whose timed calls are too short, `at` in seconds since the epoch; {new_tokens, reason}
    of a run whose call failed now. One of several ranks raises an error instead (bench/measuring/ranks.py `told`)."""
    timed_ms = {one["new_tokens"]: one["timed_ms"] for one in measurements}
    counts = [(run, calls_for(timed_ms[run["new_tokens"]])) for run in job.runs]
    return [dict(_window(job, loaded, form, run, count), new_tokens=run["new_tokens"]) for run, count in counts if count]


def _window(job, loaded, form, run, count):
    synchronize = measure.synchronizer(job)
    try:
        one_call = form.timed_call(job, loaded, run)
        synchronize()
        since, calls = Stamp(), 0
        while count:
            for _ in range(count):
                one_call()
            synchronize()
            at = since.window()
            calls += count
            count = calls_to_add(calls, min(ranks.gather(at[1] - at[0])))  # the shortest of all ranks, so that each makes the same calls
    except Exception as error:  # any error of a backend: the run keeps its times
        return ranks.told(error)
    return {"calls": calls, "at": at}
