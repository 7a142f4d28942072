"""Percentiles from histogram buckets, compared with the exact latencies (R84, R89)."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.telemetry.counters.histogram import (
    BOUNDS_US,
    MOST,
    bound_at,
    bucket_of,
    count_above,
    deviation,
    gathered,
    merged,
    percentile_bound,
    percentiles,
    quantile_bounds,
)
from headgate.telemetry.counters.packed_counters import NARROW, by_index

LATENCIES = st.lists(st.integers(100, 59_999_999), min_size=1, max_size=200)


def of(latencies):
    found = {}
    for microseconds in latencies:
        found[bucket_of(microseconds)] = found.get(bucket_of(microseconds), 0) + 1
    return gathered(found)


@given(LATENCIES, st.floats(0, 1))
def test_the_error_of_a_percentile_is_at_most_five_percent(latencies, share):
    """R84. A percentile is the latency that this share of the requests does not exceed."""
    exact = sorted(latencies)[max(math.ceil(share * len(latencies)), 1) - 1] / 1e6
    assert percentiles(of(latencies), (share,)) == pytest.approx((exact,), rel=0.051)


@given(st.lists(LATENCIES, min_size=1, max_size=5))
def test_the_sum_of_histograms_is_the_histogram_of_all_requests(several):
    """R89."""
    everything = [latency for latencies in several for latency in latencies]
    assert merged([of(latencies) for latencies in several], len(everything)) == of(everything)


@given(st.dictionaries(st.integers(0, len(BOUNDS_US)), st.integers(1, MOST)))
def test_unpacking_a_histogram_returns_its_counts(counts):
    assert by_index(gathered(counts), NARROW) == counts


def test_an_overflow_of_a_bucket_does_not_change_higher_buckets():
    many = gathered({10: MOST, 90: MOST // 50})
    shares = (0.5, 0.9, 0.97, 0.99)
    assert percentiles(merged([many] * 3, 3 * (MOST + MOST // 50)), shares) == percentiles(many, shares)
    assert percentiles(gathered({10: 1 << 60}), (1.0,)) == percentiles(gathered({10: 1}), (1.0,))


def test_an_empty_histogram_has_no_percentiles():
    assert percentiles(merged([], 0), (0.5,)) == ()


@given(LATENCIES, st.integers(0, 70_000_000))
def test_latencies_above_a_bound_are_counted_exactly(latencies, limit):
    bound = bound_at(limit)
    assert [below for below in BOUNDS_US if below < limit] == list(BOUNDS_US[:bound])
    above = [latency for latency in latencies if bound < len(BOUNDS_US) and latency >= BOUNDS_US[bound]]
    assert count_above(of(latencies), bound) == len(above)
    assert count_above(0, bound) == 0


@given(LATENCIES, st.floats(0, 1))
def test_at_most_the_other_share_of_latencies_is_above_the_bound_of_a_percentile(latencies, share):
    """The bound before it has more latencies above it."""
    bound = percentile_bound(of(latencies), share)
    assert len(latencies) - count_above(of(latencies), bound) >= share * len(latencies)
    assert bound == 0 or len(latencies) - count_above(of(latencies), bound - 1) < max(share * len(latencies), 1)


def test_the_bound_of_a_percentile_is_missing_without_latencies_and_above_all_bounds():
    assert percentile_bound(0, 0.5) is None
    assert percentile_bound(of([60_000_001]), 0.5) == len(BOUNDS_US)


@given(LATENCIES)
def test_the_error_of_a_deviation_is_at_most_five_percent_of_the_root_mean_square(latencies):
    seconds = [latency / 1e6 for latency in latencies]
    error = 0.051 * math.sqrt(statistics.fmean(latency**2 for latency in seconds))
    assert deviation(of(latencies)) == pytest.approx(statistics.pstdev(seconds), abs=error)


def test_latencies_in_one_bucket_have_no_deviation():
    assert deviation(of([10_100, 10_900])) == pytest.approx(0)
    assert deviation(0) == 0


@given(LATENCIES, st.sampled_from([0.5, 0.9, 0.99]))
def test_the_interval_of_a_percentile_contains_the_percentile(latencies, share):
    (found,) = percentiles(of(latencies), (share,))
    low, high = quantile_bounds(of(latencies), share, 0.01)
    assert low <= found <= high


def test_the_interval_of_a_percentile_gets_narrower_with_more_latencies():
    """With few requests, no latency is an upper limit of the 99th percentile."""
    latencies = [1_000] * 90 + [20_000] * 10
    assert quantile_bounds(of(latencies), 0.99, 0.01) == (0.02, math.inf)
    assert quantile_bounds(of(latencies * 20), 0.99, 0.01) == (0.02, 0.022)
