"""Intervals cover the true value at all looks at once."""

from math import inf
from random import Random

import pytest

from headgate.statistics.intervals import quantile_interval, rate_interval


def test_without_trials_every_rate_is_possible() -> None:
    assert rate_interval(0, 0, 0.01) == (0.0, 1.0)


@pytest.mark.parametrize(("events", "trials"), [(0, 100), (3, 1000), (500, 1000), (1000, 1000)])
def test_the_interval_contains_the_observed_rate_and_narrows(events: int, trials: int) -> None:
    low, high = rate_interval(events, trials, 0.01)
    assert low <= events / trials <= high
    closer_low, closer_high = rate_interval(events * 10, trials * 10, 0.01)
    assert closer_high - closer_low < high - low


def test_rates_of_mirrored_counts_are_mirrored() -> None:
    low, high = rate_interval(31, 1000, 0.01)
    assert rate_interval(969, 1000, 0.01) == pytest.approx((1 - high, 1 - low))


def test_the_interval_misses_in_at_most_the_given_share_of_sequences() -> None:
    """A look after every fifth request; 3 sigma above 5 % of 400 sequences."""
    draws, missed = Random(5), 0
    for _ in range(400):
        events = 0
        for trials in range(1, 301):
            events += draws.random() < 0.2
            low, high = rate_interval(events, trials, 0.05) if trials % 5 == 0 else (0.0, 1.0)
            if not low <= 0.2 <= high:
                missed += 1
                break
    assert 0 < missed <= 20 + 3 * (400 * 0.05 * 0.95) ** 0.5


def test_a_quantile_lies_between_bounds_of_the_histogram() -> None:
    assert quantile_interval([10, 50, 30, 9, 1], [1, 2, 3, 4], 0.5, 0.01) == (1, 3)
    assert quantile_interval([0, 0, 0, 0, 0], [1, 2, 3, 4], 0.5, 0.01) == (0.0, inf)
    assert quantile_interval([0, 0, 0, 0, 50], [1, 2, 3, 4], 0.5, 0.01) == (4, inf)
