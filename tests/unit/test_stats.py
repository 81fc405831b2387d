"""Means, ratios and their intervals against established implementations and known distributions, and how many digits a number is told with."""

import math

import numpy
import pytest
import scipy  # its parts are imported at their first use, by the process that runs these tests

from scripts import stats
from tests.synthetic import over_calls, samples


def test_spread_is_the_population_s_and_p95_is_linear_as_the_articles_print_them() -> None:
    summary = stats.summarise([2, 4, 4, 4, 5, 5, 7, 9])
    assert (summary.n, summary.mean, summary.std) == (8, 5, 2)  # the sample's would be 2.138
    assert summary.p95 == pytest.approx(7 + 0.65 * 2)  # at 0.95 x 7 = 6.65 between the 7th and the 8th


def test_the_same_samples_give_the_same_interval() -> None:
    first = over_calls(samples(100.0))
    stats._picks.cache_clear()
    assert over_calls(samples(100.0)) == first and first.low < first.value < first.high


def test_a_summary_has_the_interval_that_it_is_given_and_no_other() -> None:
    assert stats.summarise([1.0, 2.0] * 5).interval == stats.Estimate(1.5)
    assert stats.summarise([1.0, 2.0] * 5, stats.Estimate(1.5, 1.4, 1.6)).interval == stats.Estimate(1.5, 1.4, 1.6)


def test_the_interval_is_that_of_an_established_bootstrap() -> None:
    values = samples(100.0, spread=0.05, count=20)
    theirs = scipy.stats.bootstrap((values,), numpy.mean, method="percentile", random_state=1).confidence_interval
    ours = over_calls(values)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-3)


def test_the_interval_of_a_ratio_is_that_of_an_established_bootstrap() -> None:
    above, below = samples(300.0, spread=0.05, count=20), samples(100.0, spread=0.1, count=15)

    def ratio(left: numpy.ndarray, right: numpy.ndarray, axis: int) -> numpy.ndarray:
        return left.mean(axis=axis) / right.mean(axis=axis)

    theirs = scipy.stats.bootstrap((above, below), ratio, method="percentile", random_state=1).confidence_interval
    ours = stats.ratio(above, below)
    assert ours.value == pytest.approx(numpy.mean(above) / numpy.mean(below))
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=2e-3)


def test_the_two_series_of_a_ratio_are_resampled_independently() -> None:
    values = samples(100.0, spread=0.05, count=10)
    same = stats.ratio(values, values)
    assert same.value == 1 and same.low < 0.995 and same.high > 1.005


def test_equal_samples_have_an_interval_without_width() -> None:
    assert stats.ratio([6.0] * 10, [3.0] * 10) == stats.Estimate(2, 2, 2)


def test_two_series_are_resampled_each_by_itself() -> None:
    short = [10.0, 11.0, 12.0, 13.0, 14.0]
    further, ratio = stats.per_token(short, [one + 127 for one in short], 127), stats.ratio([2 * one for one in short], short)
    assert further.value == 1 and ratio.value == 2
    assert further.low < 0.995 and further.high > 1.005 and ratio.low < 1.8 and ratio.high > 2.2, "the same picks of both would leave no width"


def test_too_few_samples_have_no_interval() -> None:
    few, enough = [1.0] * (stats.LEAST_SAMPLES - 1), [1.0] * stats.LEAST_SAMPLES
    assert stats.ratio(few, enough).low is None
    assert stats.ratio(enough, few).low is None
    assert stats.ratio(enough, enough).low == 1


def test_a_further_token_is_what_a_longer_call_takes_more() -> None:
    assert stats.per_token([10.0] * 5, [137.0] * 5, 127) == stats.per_token_over_runs([10.0] * 5, [137.0] * 5, 127) == stats.Estimate(1, 1, 1)
    assert stats.per_token_over_runs([10.0, 12.0], [137.0, 266.0], 127) == stats.Estimate(1.5), "fewer than five runs have no interval"


@pytest.mark.parametrize(("values", "count"), [([10, 10.1, 9.9, 10.05, 9.95, 30], 1), ([10, 10.1, 9.9, 10.05, 9.95], 0), ([5, 5, 5, 5, 50], 0), ([7], 0)])
def test_outliers_are_counted(values: list[float], count: int) -> None:
    assert stats.outliers(values) == count


@pytest.mark.parametrize(("farthest", "count"), [(15.1, 0), (15.3, 1), (4.9, 0), (4.7, 1)])
def test_an_outlier_lies_more_than_about_five_median_deviations_from_the_median(farthest: float, count: int) -> None:
    assert stats.outliers([8, 9, 10, 11, 12, 10, farthest]) == count, "3.5 / 0.6745 = 5.19 deviations, each 1 here"


@pytest.mark.parametrize(("uncertainty", "places"), [(0.58, 2), (0.0958, 3), (0.00012, 3), (3.02, 1), (0.0, 3), (12.0, 0), (99.0, 0), (123.0, -1), (1.0, 1)])
def test_two_digits_of_the_uncertainty_are_told_and_no_more_than_the_clock_has(uncertainty: float, places: int) -> None:
    assert stats.decimals(uncertainty) == places


def test_numbers_are_rounded_to_what_they_carry() -> None:
    assert stats.number(117.7243, 2) == "117.72"
    assert stats.number(5.0, 2) == "5.00"
    assert stats.number(12345.6, -1) == "12350"


def test_a_single_sample_has_three_digits() -> None:
    assert stats.decimals_of(stats.summarise([123.456])) == 0
    assert stats.decimals_of(stats.summarise([1.23456])) == 2


def test_a_value_is_told_to_the_first_uncertain_digit() -> None:
    assert stats.with_interval(stats.Estimate(12345.0, 12011.0, 12600.0), least=2) == ("12345", "12011 to 12600"), "no digit before the point is rounded away"
    assert stats.with_interval(stats.Estimate(3.8283, 3.80, 3.86)) == ("3.83", "3.80 to 3.86")
    assert stats.with_interval(stats.Estimate(1.0023, 1.0011, 1.0035)) == ("1.002", "1.001 to 1.004")
    assert stats.with_interval(stats.Estimate(4.0, 4.0, 4.0), least=2) == ("4.0000", "4.0000 to 4.0000")
    assert stats.with_interval(stats.Estimate(3.8283), least=2) == ("3.83", "")


@pytest.mark.parametrize(
    ("low", "high", "bounds", "told"),
    [
        (0.7014, 1.2480, [1.25], "0.701 to 1.248"),
        (0.7014, 1.2520, [1.25], "0.701 to 1.252"),
        (0.7014, 1.2500, [1.25], "0.70 to 1.25"),
        (0.7014, 1.2480, [], "0.70 to 1.25"),
        (3.0581, 4.5, [3.83 / 1.25], "3.058 to 4.500"),
        (1.0001, 1.5, [1], "1.0001 to 1.5000"),
        (1.000001, 1.5, [1], "1.0000 to 1.5000"),
    ],
)
def test_an_end_of_an_interval_shows_on_which_side_of_a_bound_it_lies(low: float, high: float, bounds: list[float], told: str) -> None:
    assert stats.with_interval(stats.Estimate((low * high) ** 0.5, low, high), least=2, bounds=bounds)[1] == told
    assert f"({told})" in stats.in_words(stats.Estimate((low * high) ** 0.5, low, high), least=2, bounds=bounds)


@pytest.mark.parametrize(("samples", "share"), [([10, 10, 10, 10, 11, 11, 11, 11], 0.1), ([12, 12, 99, 6, 6], -0.5), ([5.0] * 6, 0.0), ([1, 2, 3, 4], None)])
def test_drift_is_what_the_second_half_took_longer(samples: list[float], share: float | None) -> None:
    assert stats.drift(samples) == (share if share is None else pytest.approx(share))


def test_a_share_in_per_cent_has_two_digits_and_no_exponent() -> None:
    assert [stats.percent(share) for share in (0.051, 0.5, 0.995, 0.999, 1.34, 12.3, 0.00002, 0)] == ["5.1", "50", "100", "100", "134", "1230", "0.002", "0"]
    assert stats.percent(1.2e-7) == "0.000012"


def test_decimals_asked_for_end_with_the_third_digit() -> None:
    told = [stats.with_interval(stats.Estimate(value, value * 0.95, value * 1.05), least=2)[0] for value in (0.71, 3.83, 22.07, 330.48)]
    assert told == ["0.71", "3.83", "22.1", "330"]


def test_an_interval_over_runs_is_students(values: tuple[float, ...] = (16.4, 17.7, 18.0, 19.8, 21.9)) -> None:
    theirs = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    ours = stats.over_runs(values)
    assert (ours.value, ours.low, ours.high) == pytest.approx((numpy.mean(values), theirs.low, theirs.high))


def test_the_interval_of_a_ratio_over_runs_is_welchs_on_logarithms() -> None:
    above, below = samples(53.2, spread=0.02, count=7), samples(18.8, spread=0.12, count=5)
    theirs = scipy.stats.ttest_ind(numpy.log(above), numpy.log(below), equal_var=False).confidence_interval(0.95)
    ours = stats.ratio_over_runs(above, below)
    assert (ours.low, ours.high) == pytest.approx((math.exp(theirs.low), math.exp(theirs.high)))
    turned = stats.ratio_over_runs(below, above)
    assert (1 / turned.high, 1 / turned.low) == pytest.approx((ours.low, ours.high))


def test_fewer_than_five_runs_carry_no_interval_however_many_calls_they_have() -> None:
    assert stats.over_runs([10.0, 10.1, 10.2, 9.9]).low is None
    assert stats.ratio_over_runs([10.0] * 9, [5.0] * 4) == stats.Estimate(pytest.approx(2.0))


def test_equal_runs_have_an_interval_without_width() -> None:
    assert stats.over_runs([3.0] * 5) == stats.Estimate(3, 3, 3)
    assert stats.ratio_over_runs([6.0] * 5, [3.0] * 5) == stats.Estimate(*[pytest.approx(2.0)] * 3)


def runs_of(random: numpy.random.Generator, mean_ms: float, runs: int, calls: int) -> numpy.ndarray:
    """[runs, calls] times in ms: runs scatter by 6 %, the calls of one by 3 % with an autocorrelation of 0.3, as was seen on GPUs."""
    of_run = random.normal(0, 0.06, size=(runs, 1))
    noise = random.normal(0, 0.03, size=(runs, calls))
    for call in range(1, calls):
        noise[:, call] = 0.3 * noise[:, call - 1] + math.sqrt(1 - 0.3**2) * noise[:, call]
    return mean_ms * numpy.exp(of_run + noise)


@pytest.mark.parametrize("runs", [5, 10])
def test_intervals_over_runs_cover_the_truth_as_often_as_they_say(runs: int) -> None:
    random = numpy.random.default_rng(5)
    rounds, mean_covers, ratio_covers, calls_cover = 1500, 0, 0, 0
    true_mean = 20 * math.exp((0.06**2 + 0.03**2) / 2)  # of a log-normal
    for _ in range(rounds):
        slow, fast = runs_of(random, 60, runs, 10), runs_of(random, 20, runs, 10)
        mean = stats.over_runs(fast.mean(axis=1).tolist())
        ratio = stats.ratio_over_runs(slow.mean(axis=1).tolist(), fast.mean(axis=1).tolist())
        mean_covers += mean.low <= true_mean <= mean.high
        ratio_covers += ratio.low <= 3 <= ratio.high
    for _ in range(200):
        one = over_calls(runs_of(random, 20, 1, 10)[0].tolist())
        calls_cover += one.low <= true_mean <= one.high
    assert 0.93 <= mean_covers / rounds <= 0.97 and 0.93 <= ratio_covers / rounds <= 0.97
    assert calls_cover / 200 < 0.5  # an interval over the calls of one run tells nothing of the next run


@pytest.mark.parametrize(("runs", "least", "most"), [(5, 0.78, 0.87), (10, 0.90, 0.97)])
def test_five_runs_of_which_some_meet_a_busy_host_cover_less_as_the_limits_say(runs: int, least: float, most: float) -> None:
    random = numpy.random.default_rng(1)

    def means(count: int) -> numpy.ndarray:
        slow = numpy.where(random.random(count) < 0.3, 1.7, 1.0)  # as DeepSpeed's runs on one H200 were
        return slow * numpy.exp(0.05 * random.standard_normal(count))

    centre, rounds = math.exp(float(numpy.log(means(200_000)).mean())), 1500
    ratios = [stats.ratio_over_runs(means(runs).tolist(), numpy.exp(0.01 * random.standard_normal(runs)).tolist()) for _ in range(rounds)]
    covers = sum(ratio.low <= centre <= ratio.high for ratio in ratios) / rounds
    assert least <= covers <= most
