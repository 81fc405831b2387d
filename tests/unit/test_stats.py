import numpy
import pytest
from scipy import stats as scipy_stats

from scripts import stats
from tests.synthetic import samples


def test_spread_is_the_population_s_and_p95_is_linear_as_the_articles_print_them() -> None:
    summary = stats.summarise([2, 4, 4, 4, 5, 5, 7, 9])
    assert (summary.n, summary.mean, summary.std, summary.median) == (8, 5, 2, 4.5)  # the sample's would be 2.138
    assert summary.p95 == pytest.approx(7 + 0.65 * 2)  # at 0.95 x 7 = 6.65 between the 7th and the 8th


def test_the_same_samples_give_the_same_interval() -> None:
    first = stats.summarise(samples(100.0)).interval
    stats._summarise.cache_clear()
    stats._picks.cache_clear()
    assert stats.summarise(samples(100.0)).interval == first


def test_the_interval_is_that_of_an_established_bootstrap() -> None:
    values = samples(100.0, spread=0.05, count=20)
    theirs = scipy_stats.bootstrap((values,), numpy.mean, method="percentile", random_state=1).confidence_interval
    ours = stats.mean(values)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-3)


def test_the_interval_of_a_ratio_is_that_of_an_established_bootstrap() -> None:
    above, below = samples(300.0, spread=0.05, count=20), samples(100.0, spread=0.1, count=15)

    def ratio(left: numpy.ndarray, right: numpy.ndarray, axis: int) -> numpy.ndarray:
        return left.mean(axis=axis) / right.mean(axis=axis)

    theirs = scipy_stats.bootstrap((above, below), ratio, method="percentile", random_state=1).confidence_interval
    ours = stats.ratio(above, below)
    assert ours.value == pytest.approx(numpy.mean(above) / numpy.mean(below))
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=2e-3)


def test_equal_samples_have_an_interval_without_width() -> None:
    assert stats.ratio([6.0] * 10, [3.0] * 10) == stats.Estimate(2, 2, 2)


def test_too_few_samples_have_no_interval() -> None:
    few, enough = [1.0] * (stats.LEAST_SAMPLES - 1), [1.0] * stats.LEAST_SAMPLES
    assert stats.mean(few).low is None
    assert stats.mean(enough).low == 1
    assert stats.ratio(few, enough).low is None


def test_a_further_token_is_what_a_longer_call_takes_more() -> None:
    estimate = stats.per_token([10.0] * 5, [137.0] * 5, 127)
    assert estimate == stats.Estimate(1, 1, 1)


@pytest.mark.parametrize(("values", "count"), [([10, 10.1, 9.9, 10.05, 9.95, 30], 1), ([10, 10.1, 9.9, 10.05, 9.95], 0), ([5, 5, 5, 5, 50], 0), ([7], 0)])
def test_outliers_are_counted(values: list[float], count: int) -> None:
    assert stats.outliers(values) == count


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
    assert stats.with_interval(stats.Estimate(3.8283, 3.80, 3.86)) == ("3.83", "3.80 to 3.86")
    assert stats.with_interval(stats.Estimate(1.0023, 1.0011, 1.0035)) == ("1.002", "1.001 to 1.004")
    assert stats.with_interval(stats.Estimate(4.0, 4.0, 4.0), least=2) == ("4.0000", "4.0000 to 4.0000")
    assert stats.with_interval(stats.Estimate(3.8283), least=2) == ("3.83", "")


@pytest.mark.parametrize(("samples", "share"), [([10, 10, 10, 10, 11, 11, 11, 11], 0.1), ([12, 12, 99, 6, 6], -0.5), ([5.0] * 6, 0.0), ([1, 2, 3, 4], None)])
def test_drift_is_what_the_second_half_took_longer(samples: list[float], share: float | None) -> None:
    assert stats.drift(samples) == (share if share is None else pytest.approx(share))


def test_a_share_in_per_cent_has_two_digits_and_no_exponent() -> None:
    assert [stats.percent(share) for share in (0.051, 0.5, 0.995, 0.999, 1.34, 12.3, 0.00002, 0)] == ["5.1", "50", "100", "100", "130", "1200", "0.002", "0"]


def test_decimals_asked_for_end_with_the_third_digit() -> None:
    told = [stats.with_interval(stats.Estimate(value, value * 0.95, value * 1.05), least=2)[0] for value in (0.71, 3.83, 22.07, 330.48)]
    assert told == ["0.71", "3.83", "22.1", "330"]
