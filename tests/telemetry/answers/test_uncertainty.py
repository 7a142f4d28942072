"""The spread of latencies and the confidence intervals of an answer."""

import pytest

from headgate.telemetry.answers.answers import NOTHING, SHARES, summed
from headgate.telemetry.answers.uncertainty import Interval, uncertainty_of
from headgate.telemetry.counters.counts import DENIED_REQUESTS, Counts, class_index
from headgate.telemetry.counters.flows import NO_PEER, Flow
from headgate.telemetry.counters.histogram import bucket_of, gathered

FLOW = Flow(source=NO_PEER, destination=NO_PEER)


def statistics_of(latencies_ms, failures=0, more=None):
    buckets = {}
    for latency in latencies_ms:
        buckets[bucket_of(latency * 1000)] = buckets.get(bucket_of(latency * 1000), 0) + 1
    counts = {class_index(200): len(latencies_ms), class_index(503): failures} | (more or {})
    return summed([(FLOW, Counts.of(counts, gathered(buckets)))]).counts


def test_without_requests_there_is_no_uncertainty():
    assert uncertainty_of(NOTHING) is None
    assert uncertainty_of(statistics_of([], more={DENIED_REQUESTS: 4})) is None


def test_requests_without_a_latency_have_only_the_interval_of_the_success_rate():
    found = uncertainty_of(statistics_of([], failures=100))
    assert (found.deviation, found.latencies) == (0.0, ())
    assert found.success_rate.low == 0
    assert 0 < found.success_rate.high < 0.1


def test_the_deviation_and_the_intervals_are_in_seconds():
    found = uncertainty_of(statistics_of([10] * 500 + [30] * 500))
    assert found.deviation == pytest.approx(0.01, rel=0.06)
    assert len(found.latencies) == len(SHARES)
    assert found.latencies[1] == Interval(0.03, 0.033)
