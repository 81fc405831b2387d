"""Joules that a GPU took in a window of time, from NVML's total energy counter, and whether the number is valid.

The counter moves about every 100 ms, so short windows say nothing. The result also has `power_joules`, the integral of the
sampled power, as a check, and `idle_w`, the power before the job, because it is not subtracted. Codes:

    ok             the number counts
    no-counter     this driver or this GPU has no such counter
    not-covered    no sample lies before the window or after it
    went-back      the counter was set back
    clock-set      the machine's clock was set while the samples were taken: their moments do not fit the window
    too-short      the window is shorter than LEAST_S
    few-updates    the counter moved fewer than LEAST_UPDATES times within the window, as far as the samples show
"""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LEAST_S = 2.0
LEAST_UPDATES = 10
#: From before a window to after it, the clock and the monotonic time may drift apart by so many seconds; beyond that, the clock was set.
MOST_SHIFT_S = 0.1
#: The median of so many looks counts on each side of a window: a busy host may delay one look between its readings of the two clocks.
LOOKS = 3


@dataclass(frozen=True)
class Reading:
    """One look at a GPU, in seconds since the epoch and in monotonic seconds, which no setting of the clock changes.

    The counter and the power in W are None where the driver does not tell them.
    """

    moment: float
    monotonic_s: float
    millijoules: int | None
    power_w: float | None


def of_window(readings: Sequence[Reading], began: float, ended: float) -> dict[str, Any]:
    """{code, seconds, idle_w} of a window in seconds since the epoch, and {joules, updates, power_joules} as far as they can be told."""
    first_w = next((one.power_w for one in readings if one.power_w is not None), None)
    found: dict[str, Any] = {"seconds": max(0.0, ended - began), "idle_w": first_w}
    counted = [(one.moment, one.millijoules / 1000) for one in readings if one.millijoules is not None]
    if not counted:
        return {"code": "no-counter", **found}
    if _clock_was_set(readings, began, ended):
        return {"code": "clock-set", **found}
    if not _covers(counted, began, ended):
        return {"code": "not-covered", **found}
    around = _around(counted, began, ended)
    if any(after < before for (_, before), (_, after) in itertools.pairwise(around)):
        return {"code": "went-back", **found}
    found["updates"] = sum(after > before for (_, before), (_, after) in itertools.pairwise(around))
    found["joules"] = _at(counted, ended) - _at(counted, began)
    found["power_joules"] = _integral([(one.moment, one.power_w) for one in readings if one.power_w is not None], began, ended)
    return {"code": "too-short" if ended - began < LEAST_S else "few-updates" if found["updates"] < LEAST_UPDATES else "ok", **found}


def _clock_was_set(readings: Sequence[Reading], began: float, ended: float) -> bool:
    """Does the clock's offset to the monotonic time differ before and after a window?"""
    shifts = [one.moment - one.monotonic_s for one in readings]
    within = [place for place, one in enumerate(readings) if began <= one.moment <= ended]
    if not within:
        return False
    before, after = shifts[: within[0]][-LOOKS:] or shifts[:1], shifts[within[-1] + 1 :][:LOOKS] or shifts[-1:]
    return abs(statistics.median(after) - statistics.median(before)) > MOST_SHIFT_S


def _covers(values: Sequence[tuple[float, float]], began: float, ended: float) -> bool:
    """Does a window lie between the first and the last of these values?"""
    return values[0][0] <= began <= ended <= values[-1][0]


def _around(values: Sequence[tuple[float, float]], began: float, ended: float) -> list[tuple[float, float]]:
    """The values within a window, with the last before it and the first after it."""
    first = max(place for place, (moment, _) in enumerate(values) if moment <= began)
    last = min(place for place, (moment, _) in enumerate(values) if moment >= ended)
    return list(values[first : last + 1])


def _at(values: Sequence[tuple[float, float]], moment: float) -> float:
    """The value at a moment, on the straight line between the values around it."""
    import numpy  # a sixth of a second, which most commands need not wait for

    moments, numbers = zip(*values, strict=True)
    return float(numpy.interp(moment, moments, numbers))


def _integral(values: Sequence[tuple[float, float]], began: float, ended: float) -> float | None:
    """The integral over a window, by trapezoids; None where the values do not cover it."""
    if not values or not _covers(values, began, ended):
        return None
    import numpy

    within = [(began, _at(values, began)), *(pair for pair in values if began < pair[0] < ended), (ended, _at(values, ended))]
    moments, numbers = zip(*within, strict=True)
    return float(numpy.trapezoid(numbers, moments))
