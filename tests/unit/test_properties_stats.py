"""Statistics of any samples agree with the standard library's and scipy's, whatever the samples are."""

import math
import statistics

import numpy
import pytest
import scipy  # its parts are imported at their first use, by the process that runs these tests
from hypothesis import assume
from hypothesis import strategies as st

from scripts import stats
from tests.properties import holds_for
from tests.synthetic import over_calls

#: Times in ms from the clock's resolution to hours.
TIMES = st.floats(min_value=1e-3, max_value=1e7)
SAMPLES = st.lists(TIMES, min_size=1, max_size=40)
RUNS = st.lists(TIMES, min_size=stats.LEAST_RUNS, max_size=12)
FACTORS = st.floats(min_value=1e-3, max_value=1e3)


def spreads(values: list[float]) -> bool:
    """Do values differ by more than the rounding of their sums?"""
    return statistics.pstdev(values) > 1e-6 * statistics.fmean(values)


@holds_for(samples=SAMPLES)
def test_a_summary_is_that_of_the_standard_library_and_scipy(samples: list[float]) -> None:
    summary = stats.summarise(samples, stats.Estimate(0.0))
    assert summary.n == len(samples)
    assert summary.mean == pytest.approx(statistics.fmean(samples))
    assert summary.std == pytest.approx(statistics.pstdev(samples), abs=1e-9 * max(samples))
    assert summary.p95 == pytest.approx(scipy.stats.scoreatpercentile(samples, 95, interpolation_method="fraction"))


@holds_for(samples=SAMPLES)
def test_outliers_are_those_of_scipys_median_absolute_deviation(samples: list[float]) -> None:
    spread = scipy.stats.median_abs_deviation(samples)
    assume(spread == 0 or spread > 1e-9 * max(samples))
    scores = [0.6745 * abs(one - statistics.median(samples)) / spread if spread else 0.0 for one in samples]
    assume(not any(score == pytest.approx(3.5) for score in scores))
    assert stats.outliers(samples) == sum(score > 3.5 for score in scores)


@holds_for(fast=15, samples=st.lists(TIMES, min_size=stats.LEAST_SAMPLES, max_size=20), factor=FACTORS)
def test_the_interval_of_a_mean_holds_its_value_and_scales_with_the_unit(samples: list[float], factor: float) -> None:
    estimate = over_calls(samples)
    ends = (min(samples) * (1 - 1e-12), max(samples) * (1 + 1e-12))
    assert ends[0] <= estimate.low <= estimate.value * (1 + 1e-12) and estimate.value * (1 - 1e-12) <= estimate.high <= ends[1]
    other_unit, scaled = over_calls([one * factor for one in samples]), stats.scaled(estimate, factor)
    assert (other_unit.value, other_unit.low, other_unit.high) == pytest.approx((scaled.value, scaled.low, scaled.high))


@holds_for(fast=5, full=100, seed=st.integers(0, 2**32 - 1), count=st.integers(8, 20), spread=st.floats(0.001, 0.5))
def test_the_interval_of_a_mean_is_that_of_scipys_bootstrap(seed: int, count: int, spread: float) -> None:
    """Of scattered samples: few distinct values would put both ends on steps, where any two sets of resamples differ."""
    samples = numpy.random.default_rng(seed).normal(100, 100 * spread, count).tolist()
    theirs = scipy.stats.bootstrap((samples,), numpy.mean, method="percentile", rng=1).confidence_interval
    ours = over_calls(samples)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.05 * (theirs.high - theirs.low))


@holds_for(values=RUNS.filter(spreads))
def test_the_interval_over_runs_is_that_of_scipys_t_test(values: list[float]) -> None:
    theirs = scipy.stats.ttest_1samp(values, 0).confidence_interval(stats.CONFIDENCE)
    ours = stats.over_runs(values)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9 * max(values))


@holds_for(above=RUNS, below=RUNS, factor=FACTORS)
def test_the_interval_of_a_ratio_is_that_of_scipys_welch_test_and_of_no_unit(above: list[float], below: list[float], factor: float) -> None:
    logs = [[math.log(one) for one in values] for values in (above, below)]
    assume(all(statistics.pstdev(values) > 1e-6 for values in logs))
    theirs = scipy.stats.ttest_ind(*logs, equal_var=False).confidence_interval(stats.CONFIDENCE)
    ours = stats.ratio_over_runs(above, below)
    assert ours.value == pytest.approx(scipy.stats.gmean(above) / scipy.stats.gmean(below))
    assert (math.log(ours.low), math.log(ours.high)) == pytest.approx((theirs.low, theirs.high), rel=1e-6, abs=1e-6)
    in_another_unit = stats.ratio_over_runs([one * factor for one in above], [one * factor for one in below])
    assert (in_another_unit.low, in_another_unit.high) == pytest.approx((ours.low, ours.high), rel=1e-6)
    turned = stats.ratio_over_runs(below, above)
    assert (1 / turned.high, 1 / turned.low) == pytest.approx((ours.low, ours.high), rel=1e-6)


@holds_for(few=st.lists(TIMES, min_size=1, max_size=stats.LEAST_RUNS - 1), enough=RUNS)
def test_too_few_runs_on_either_side_carry_no_interval(few: list[float], enough: list[float]) -> None:
    for estimate in (stats.over_runs(few), stats.ratio_over_runs(few, enough), stats.ratio_over_runs(enough, few)):
        assert estimate.value > 0 and (estimate.low, estimate.high) == (None, None)


@holds_for(value=st.floats(min_value=1e-4, max_value=1e9), share=st.floats(min_value=1e-4, max_value=0.9), least=st.integers(0, 4))
def test_what_is_shown_of_an_interval_is_rounded_and_keeps_its_order(value: float, share: float, least: int) -> None:
    estimate = stats.Estimate(value, value * (1 - share), value * (1 + share))
    shown, interval = stats.with_interval(estimate, least)
    low, high = map(float, interval.split(" to "))
    assert low <= float(shown) <= high
    places = [number.partition(".")[2] for number in (shown, *interval.split(" to "))]
    assert len(set(map(len, places))) == 1, "equally many decimals"
    step = 10.0 ** -stats.decimals(value * share, significant=1, most=4)
    for exact, rounded in ((value, float(shown)), (estimate.low, low), (estimate.high, high)):
        assert abs(exact - rounded) <= 0.5 * step * (1 + 1e-6)
