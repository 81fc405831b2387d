"""From raw samples to numbers, and from numbers to no more digits than the samples carry.

Mean, population standard deviation and linear 95th percentile are the articles' own; interval and outliers are the kit's.
Calls of one run share their process, so an interval over them describes that run alone. Such intervals are percentile
bootstraps with fixed seeds. Measurements vary from run to run, so the intervals that a claim rests on are taken over the means
of runs (`over_runs`, `ratio_over_runs`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from scripts.numpy_library import numpy

#: Fewer timed calls than this carry no interval.
LEAST_SAMPLES = 5
#: Fewer runs than this, each a fresh process, carry no interval and judge no claim.
LEAST_RUNS = 5
#: Fewer sets of GPUs than this carry no interval over sets: for two, Student's t interval is of no use.
LEAST_SETS = 3
CONFIDENCE = 0.95
RESAMPLES = 9_999
#: A sample is an outlier where 0.6745 |x - median| / MAD is above this (Iglewicz and Hoaglin). Outliers are counted,
#: never dropped.
OUTLIER_SCORE = 3.5
#: The clock resolves microseconds at best.
MOST_DECIMALS_MS = 3
#: The most decimals of a value with its interval, to show on which side of a bound an end of the interval lies.
MOST_DECIMALS_OF_INTERVALS = 4


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A value with the bounds of its 95 % interval, both None where the samples are too few for one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both bounds; None where there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def holds(self, value: float) -> bool:
        """Does the interval hold a value? Where there is no interval it holds none."""
        return self.low is not None and self.high is not None and self.low <= value <= self.high


@dataclasses.dataclass(frozen=True)
class Summary:
    """The numbers of a series of samples, in the samples' unit; `std` is the population's, as numpy.std's default."""

    n: int
    mean: float
    std: float
    p95: float
    interval: Estimate


def summarise(samples: Sequence[float], interval: Estimate | None = None) -> Summary:
    """The Summary of one or more samples, with their mean alone where no interval is given."""
    values = numpy.asarray(samples, dtype=float)
    mean = float(values.mean())
    return Summary(n=len(values), mean=mean, std=float(values.std()), p95=percentile(samples, 95), interval=interval or Estimate(mean))


def percentile(samples: Sequence[float], percent: float) -> float:
    """The linear percentile."""
    return float(numpy.percentile(samples, percent))


def outliers(samples: Sequence[float]) -> int:
    """How many samples lie far from the median; 0 where more than half of them are equal."""
    values = numpy.asarray(samples, dtype=float)
    distance = numpy.abs(values - numpy.median(values))
    spread = float(numpy.median(distance))
    return int((0.6745 * distance / spread > OUTLIER_SCORE).sum()) if spread > 0 else 0


def drift(samples: Sequence[float]) -> float | None:
    """How much longer the second half of the calls took than the first, as a share of the first; None for fewer than LEAST_SAMPLES.

    A machine that warms up or slows down during a run shows here, and in no interval. A call in the middle counts in neither half.
    """
    if len(samples) < LEAST_SAMPLES:
        return None
    half = len(samples) // 2
    return float(numpy.mean(samples[-half:]) / numpy.mean(samples[:half]) - 1)


@functools.lru_cache(maxsize=64)
def _picks(count: int, seed: int) -> numpy.ndarray:
    """Which samples each resample takes: [RESAMPLES, count] indices."""
    return numpy.random.default_rng(seed).integers(0, count, size=(RESAMPLES, count))


def _resampled_means(samples: Sequence[float], seed: int) -> numpy.ndarray:
    values = numpy.asarray(samples, dtype=float)
    return numpy.asarray(values[_picks(len(values), seed)].mean(axis=1))


def _estimate(value: float, resampled: numpy.ndarray) -> Estimate:
    tail = (1 - CONFIDENCE) / 2 * 100
    low, high = numpy.percentile(resampled, [tail, 100 - tail])
    return Estimate(float(value), float(low), float(high))


def carry_interval(*series: Sequence[float]) -> bool:
    """Has each series enough samples for an interval?"""
    return min(map(len, series)) >= LEAST_SAMPLES


def ratio(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """mean(above) / mean(below) with its interval; the two series are resampled independently."""
    value = float(numpy.mean(above) / numpy.mean(below))
    if not carry_interval(above, below):
        return Estimate(value)
    return _estimate(value, _resampled_means(above, 1) / _resampled_means(below, 2))


def over_runs(values: Sequence[float], least: int = LEAST_RUNS) -> Estimate:
    """The mean of one value from each run, with Student's t interval; no interval for fewer than `least` runs."""
    value = float(numpy.mean(values))
    if len(values) < least:
        return Estimate(value)
    half = _t_quantile(len(values) - 1) * math.sqrt(_variance_of_mean(values))
    return Estimate(value, value - half, value + half)


def ratio_over_runs(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """The ratio of two rows' geometric means, each over one positive value from each run, with Welch's t interval on the logarithms."""
    return quotient_over_runs([above], [below])


def quotient_over_runs(above: Sequence[Sequence[float]], below: Sequence[Sequence[float]]) -> Estimate:
    """The product of the geometric means of the rows `above` over that of the rows `below`, with Welch's t interval; a row is a value of each run.

    Logarithms make the interval of a ratio and that of its reciprocal agree. Degrees of freedom by Welch and Satterthwaite (B. L. Welch,
    Biometrika 34, 1947). No interval where a row has fewer than LEAST_RUNS runs.
    """
    logs = [numpy.log(numpy.asarray(values, dtype=float)) for values in (*above, *below)]
    means = [float(values.mean()) for values in logs]
    difference = math.fsum(means[: len(above)]) - math.fsum(means[len(above) :])
    value = math.exp(difference)
    if min(map(len, logs)) < LEAST_RUNS:
        return Estimate(value)
    variances = [_variance_of_mean(values) for values in logs]
    total = math.fsum(variances)
    if total == 0:
        return Estimate(value, value, value)
    freedom = total**2 / math.fsum(variance**2 / (len(values) - 1) for variance, values in zip(variances, logs, strict=True))
    half = _t_quantile(freedom) * math.sqrt(total)
    return Estimate(value, math.exp(difference - half), math.exp(difference + half))


def over_sets(ratios: Sequence[float]) -> Estimate:
    """The geometric mean of one ratio from each set of GPUs, with Student's t interval on the logarithms; no interval for fewer than LEAST_SETS sets."""
    of_logs = over_runs(numpy.log(numpy.asarray(ratios, dtype=float)).tolist(), LEAST_SETS)
    return Estimate(math.exp(of_logs.value), *map(math.exp, of_logs.ends or ()))


def _variance_of_mean(values: Sequence[float]) -> float:
    return float(numpy.var(values, ddof=1)) / len(values)


def _t_quantile(freedom: float) -> float:
    from scipy import special  # half a second, which most commands need not wait for

    return float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2))


def mad(samples: Sequence[float]) -> float:
    """The median absolute deviation from the median."""
    values = numpy.asarray(samples, dtype=float)
    return float(numpy.median(numpy.abs(values - numpy.median(values))))


def noise_floor(values: Sequence[float]) -> float | None:
    """The share by which two rows of as many runs must differ to lie apart, if both scatter as these runs of one work do; None for fewer than LEAST_RUNS.

    The half width of Welch's t interval on the logarithms (`quotient_over_runs`) of two such rows.
    """
    if len(values) < LEAST_RUNS:
        return None
    variance = _variance_of_mean(numpy.log(numpy.asarray(values, dtype=float)).tolist())
    return math.expm1(_t_quantile(2 * (len(values) - 1)) * math.sqrt(2 * variance))


def runs_to_decide(ratio: Estimate, runs: int, ends: Sequence[float]) -> int | None:
    """About how many runs of each row let the interval of a ratio hold none of a claim's `ends`, if ratio and scatter stay; None where the
    interval holds none already, or where no number of runs can be told.

    The width of an interval falls with the root of the number of runs.
    """
    if ratio.low is None or ratio.high is None or ratio.low <= 0:
        return None
    held = [end for end in ends if ratio.holds(end)]
    if not held or ratio.value in held:
        return None
    half = (math.log(ratio.high) - math.log(ratio.low)) / 2
    nearest = min(abs(math.log(ratio.value / end)) for end in held)
    return max(runs + 1, math.ceil(runs * (half / nearest) ** 2))


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """An estimate in another unit, the bounds of its interval with it."""
    return Estimate(estimate.value * factor, *(end * factor for end in estimate.ends or ()))


def per_token(short: Sequence[float], long: Sequence[float], further_tokens: int) -> Estimate:
    """Time of one further token: the extra time of calls of `further_tokens` more new tokens, over that number. Its interval is that of one run."""
    value = float((numpy.mean(long) - numpy.mean(short)) / further_tokens)
    if not carry_interval(short, long):
        return Estimate(value)
    return _estimate(value, (_resampled_means(long, 1) - _resampled_means(short, 2)) / further_tokens)


def per_token_over_runs(short: Sequence[float], long: Sequence[float], further_tokens: int) -> Estimate:
    """The same over runs, from the mean short call and the mean long call of each run."""
    return over_runs([(longer - shorter) / further_tokens for shorter, longer in zip(short, long, strict=True)])


def decimals(uncertainty: float, significant: int = 2, most: int = MOST_DECIMALS_MS) -> int:
    """The number of decimals that a number with this uncertainty carries: so that `significant` digits of the uncertainty show.

    Negative for tens and hundreds. No uncertainty at all gives `most`.
    """
    if not uncertainty > 0:
        return most
    return min(most, significant - 1 - math.floor(math.log10(uncertainty)))


def decimals_of(summary: Summary) -> int:
    """The decimals of a Summary's numbers; a single sample carries three digits, whatever they are worth."""
    if summary.n == 1:
        return decimals(summary.mean, significant=3)
    return decimals(summary.std)


def number(value: float, places: int) -> str:
    """`value` rounded to `places` decimals: number(1234.5, -1) is "1230"."""
    return f"{round(value, places):.{max(places, 0)}f}"


def percent(share: float) -> str:
    """A share as per cent with two digits, or all whole ones: percent(0.051) is "5.1", percent(1.34) is "134"."""
    if share >= 1:
        return f"{100 * share:.0f}"
    two_digits = f"{100 * share:.2g}"
    return numpy.format_float_positional(float(two_digits), trim="-") if "e" in two_digits else two_digits


def significant(value: float, most: int = MOST_DECIMALS_MS) -> str:
    """`value` with three digits, and at most `most` decimals."""
    return number(value, decimals(abs(value) or 1, significant=3, most=most))


def with_interval(estimate: Estimate, least: int = 0, bounds: Sequence[float] = ()) -> tuple[str, str]:
    """("3.83", "3.80 to 3.86"): value and interval with one uncertain digit; "" for no interval.

    At least `least` decimals, as far as those are among the value's first three digits. More where rounding would move an end of the interval onto
    or across one of `bounds`, at most MOST_DECIMALS_OF_INTERVALS: "0.70 to 1.25" does not show that 1.25 lies outside.
    """
    least = min(least, max(decimals(abs(estimate.value) or 1, significant=3), 0))
    if not estimate.ends:
        return number(estimate.value, max(least, decimals(abs(estimate.value) or 1, significant=3, most=MOST_DECIMALS_OF_INTERVALS))), ""
    low, high = estimate.ends
    places = max(least, decimals((high - low) / 2, significant=1, most=MOST_DECIMALS_OF_INTERVALS))
    while places < MOST_DECIMALS_OF_INTERVALS and any(_is_moved(end, bound, places) for end in (low, high) for bound in bounds):
        places += 1
    return number(estimate.value, places), f"{number(low, places)} to {number(high, places)}"


def _is_moved(value: float, bound: float, places: int) -> bool:
    """Does a value lie on another side of a bound once both are rounded, or on it?"""
    rounded, of_bound = round(value, places), round(bound, places)
    return (value > bound, value < bound) != (rounded > of_bound, rounded < of_bound)


def in_words(estimate: Estimate, least: int = 0, bounds: Sequence[float] = ()) -> str:
    """ "3.83 (3.80 to 3.86)", or "3.83" where there is no interval; at least `least` decimals, and so many that each end shows its side of `bounds`."""
    value, interval = with_interval(estimate, least, bounds=bounds)
    return value + (f" ({interval})" if interval else "")
