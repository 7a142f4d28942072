"""Simulated rollouts with known true rates are decided wrongly as rarely, and rightly as soon, as promised (R108).

The seeds are fixed. `make bench ARGS=rollouts` simulates many more (docs/explain/performance.md).
"""

import math
from collections.abc import Sequence
from statistics import median

import pytest
from tests.statistics.simulation import (
    ERROR,
    Series,
    bad_minutes,
    bad_pod,
    decisions,
    incidents,
    jumps,
    periodic_clients,
    steady,
    sticky_users,
    waves,
)

from headgate.statistics.betting import Rates, RateTest, Rejects
from headgate.statistics.clusters import ClusterTest

WORSE = RateTest(rejects=Rejects.HIGHER, limit=0.0)
FINE = RateTest(rejects=Rejects.LOWER, limit=0.01)
WITHIN_10_S = (180, 20)  # requests to the reference and to the candidate at 20 requests per second
EQUAL = {
    "0.1 %": steady(0.001, 0.001),
    "1 %": steady(0.01, 0.01),
    "30 %": steady(0.3, 0.3),
    "waves": waves(),
    "jumps": jumps(),
    "bad minutes of both": bad_minutes,
    "a bad pod of the reference": bad_pod,
}


def decided(found: Sequence[int | None]) -> int:
    return sum(requests is not None for requests in found)


def promised(rollouts: int) -> float:
    """Return the number of wrong decisions that is 3 sigma above a share of ERROR."""
    return rollouts * ERROR + 3 * math.sqrt(rollouts * ERROR * (1 - ERROR))


@pytest.mark.parametrize("series", EQUAL.values(), ids=EQUAL)
def test_a_canary_that_is_as_good_is_rarely_rolled_back(series: Series) -> None:
    assert decided(decisions(WORSE, series, 400, range(300))) <= promised(300)


@pytest.mark.parametrize("series", [steady(0.001, 0.011), jumps(worse=0.01)], ids=["steady", "jumps"])
def test_a_canary_that_is_worse_by_the_margin_is_rarely_promoted(series: Series) -> None:
    assert decided(decisions(FINE, series, 600, range(200))) <= promised(200)


@pytest.mark.parametrize(
    ("series", "most"),
    [
        (steady(0.001, 0.5, (9, 1)), 10),
        (steady(0.001, 0.05, (9, 1)), 80),
        (steady(0.001, 0.02, (9, 1)), 250),
        (steady(0.01, 0.02), 2000),
    ],
    ids=["50 %", "5 %", "2 %", "a doubled tail above p99"],
)
def test_a_worse_canary_is_rolled_back_soon(series: Series, most: int) -> None:
    found = decisions(WORSE, series, 5 * most, range(51))
    assert median(math.inf if requests is None else requests for requests in found) <= most


def test_a_canary_without_failures_is_promoted_soon() -> None:
    found = decisions(FINE, steady(0.001, 0.001), 3000, range(51))
    assert median(math.inf if requests is None else requests for requests in found) <= 700


PERIODS = range(2, 21)
CYCLES = {"50 %": (1, 1), "10 %": (9, 1), "35 %": (13, 7)}


@pytest.mark.parametrize("sizes", CYCLES.values(), ids=CYCLES)
def test_clients_with_a_period_rarely_roll_back_a_canary_that_is_as_good(sizes: tuple[int, int]) -> None:
    """Both versions fail the same path. The backends of each cycle are drawn (docs/tasks/canary.md)."""
    found = [item for period in PERIODS for item in decisions(WORSE, periodic_clients(period, sizes), 300, range(6))]
    assert decided(found) <= promised(len(found))


@pytest.mark.parametrize("sizes", CYCLES.values(), ids=CYCLES)
def test_clients_with_a_period_rarely_promote_a_canary_that_fails_one_of_their_paths(sizes: tuple[int, int]) -> None:
    """The candidate fails one in each period of requests, which is just the margin."""
    found = [
        item
        for period in PERIODS
        for item in decisions(
            RateTest(rejects=Rejects.LOWER, limit=1 / period),
            periodic_clients(period, sizes, healthy=True),
            300,
            range(6),
        )
    ]
    assert decided(found) <= promised(len(found))


@pytest.mark.parametrize(("sizes", "period"), [((1, 1), 2), ((9, 1), 10), ((9, 1), 20)])
def test_a_rotation_in_step_with_the_period_decides_wrongly(sizes: tuple[int, int], period: int) -> None:
    """This is why the order of a split under analysis is drawn."""
    found = decisions(WORSE, periodic_clients(period, sizes, rotation=True), 300, range(60))
    assert decided(found) > promised(60)


@pytest.mark.parametrize("length", [3, 10, 20])
def test_incidents_within_a_window_rarely_roll_back_a_canary_that_is_as_good(length: int) -> None:
    series = incidents(length, Rates(0.01, 0.01), WITHIN_10_S)
    assert decided(decisions(ClusterTest(), series, 4000, range(200))) <= promised(200)


def test_incidents_roll_back_a_canary_that_is_as_good_when_each_failure_counts() -> None:
    """The tests of rates assume independent requests: this is why there is a test for clusters (docs/tasks/canary.md)."""
    found = decisions(WORSE, incidents(10, Rates(0.01, 0.01)), 4000, range(50))
    assert decided(found) > 25


def test_failing_sticky_users_roll_back_a_canary_that_is_as_good_when_each_failure_counts() -> None:
    """One user in a hundred always fails, on either version, and 100 of 1,000 users have the canary (docs/tasks/canary.md)."""
    assert decided(decisions(WORSE, sticky_users(1000, 0.01), 2000, range(30))) > promised(30)
    windows = sticky_users(1000, 0.01, WITHIN_10_S)
    assert decided(decisions(ClusterTest(), windows, 2000, range(60))) <= promised(60)


@pytest.mark.parametrize(("rate", "most"), [(0.5, 200), (0.05, 300), (0.02, 600)])
def test_a_worse_canary_is_rolled_back_soon_when_failures_within_a_window_count_once(rate: float, most: int) -> None:
    found = decisions(ClusterTest(), steady(0.001, rate, WITHIN_10_S), 5 * most, range(51))
    assert median(math.inf if requests is None else requests for requests in found) <= most
