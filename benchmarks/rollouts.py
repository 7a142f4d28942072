"""Simulate rollouts with known true rates: how often each rule decides wrongly, and after how many requests it decides.

Each rule reads the same requests at 90/10. The rules are headgate's sequential tests; ten checks of ten canary requests as
other controllers make them; and a fixed threshold, tuned so that it has the same error as the sequential test. The seeds
are fixed, so the numbers are the same in each run.
"""

import math
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

from tests.statistics import simulation
from tests.statistics.simulation import ERROR, Series, incidents, jumps, steady, waves

from headgate.statistics.betting import Block, Rates, RateTest, Rejects
from headgate.statistics.clusters import ClusterTest

MOST = 10_000
"""Rollouts in which the evidence may be wrong. 3 sigma of 1 % are 0.3 %."""
MANY = 1_000
"""Other rollouts. 3 sigma of 1 % are 0.9 %."""
HORIZON = 1_000
"""Canary requests of a rollout in which the right decision is none, or a promotion."""
SLICE = 250
ROUNDS = (9, 1)
MARGIN = 0.01
WORSE = RateTest(rejects=Rejects.HIGHER, limit=0.0)
FINE = RateTest(rejects=Rejects.LOWER, limit=MARGIN)
WINDOWS_S = (1, 10, 30)
PER_SECOND = (18, 2)
SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with gRPC may hang


class Scale(NamedTuple):
    """The largest number of rollouts of a case."""

    rollouts: int


USUAL = Scale(rollouts=MOST)
SMALLEST = Scale(rollouts=1)


class Seen(NamedTuple):
    """The state of a rule with thresholds; `evidence` is without limit once it rolls back."""

    evidence: float = 0.0
    requests: int = 0
    failures: int = 0
    good: int = 0
    bad: int = 0


class TenChecks:
    """Promote after ten checks of ten canary requests each without a failure; roll back at the fifth check with one."""

    name = "ten checks"
    most = 150
    """Canary requests of ten good checks and four bad ones, and of the rest of a block."""

    def start(self) -> Seen:
        return Seen()

    def after(self, seen: Seen, block: Block) -> Seen:
        if seen.good == 10:
            return seen
        requests, failures = seen.requests + block.candidate.trials, seen.failures + block.candidate.events
        if requests < 10:
            return seen._replace(requests=requests, failures=failures)
        bad = seen.bad + bool(failures)
        return Seen(evidence=math.inf if bad == 5 else 0.0, good=seen.good + (not failures), bad=bad)


class Threshold(NamedTuple):
    """Roll back when `failures` of `requests` canary requests fail. The requests of a check are used in no other."""

    requests: int
    failures: int

    @property
    def name(self) -> str:
        return f"{self.failures} of {self.requests}"

    def start(self) -> Seen:
        return Seen()

    def after(self, seen: Seen, block: Block) -> Seen:
        requests, failures = seen.requests + block.candidate.trials, seen.failures + block.candidate.events
        if failures >= self.failures:
            return Seen(evidence=math.inf)
        return Seen() if requests >= self.requests else Seen(requests=requests, failures=failures)


def tuned(common: float, worse: float, most: int) -> Threshold:
    """Return the threshold that finds a worse rate first, of those with an error of at most ERROR at the common rate.

    It needs to know both rates and the number of requests of the rollout; a sequential test needs none of them.
    """
    return min(_thresholds(common, most), key=lambda threshold: _median(threshold, worse))


def _thresholds(common: float, most: int) -> Iterator[Threshold]:
    for requests in (10, 20, 50, 100, 200, 500, 1000):
        failures = 1
        while 1 - (1 - _chance(requests, failures, common)) ** (most / requests) > ERROR:
            failures += 1
        yield Threshold(requests, failures)


def _median(threshold: Threshold, rate: float) -> float:
    found = _chance(*threshold, rate)
    return threshold.requests * max(1.0, math.log(0.5) / math.log1p(-min(found, 1 - 1e-12)))


def _chance(trials: int, least: int, rate: float) -> float:
    """Return the probability of at least this many events."""
    fewer = (math.comb(trials, events) * rate**events * (1 - rate) ** (trials - events) for events in range(least))
    return 1 - math.fsum(fewer)


class Case(NamedTuple):
    """Rollouts of one scenario, judged by one rule until the canary has `most` requests."""

    scenario: str
    rule: str
    test: Any
    series: Series
    most: int
    rollouts: int
    aim: str = ""


def worse() -> Iterator[Case]:
    """Yield cases in which the canary is worse."""
    for scenario, rates, sizes, most, aim in (
        ("0.1 % -> 50 %", (0.001, 0.5), ROUNDS, 5_000, 10),
        ("0.1 % -> 5 %", (0.001, 0.05), ROUNDS, 5_000, 80),
        ("0.1 % -> 2 %", (0.001, 0.02), ROUNDS, 5_000, 250),
        ("above p99: 1 % -> 2 %", (0.01, 0.02), simulation.SIZES, 10_000, 2_000),
    ):
        threshold = tuned(*rates, most)
        series = steady(*rates, sizes)
        yield Case(scenario, "evidence", WORSE, series, most, MANY, f"median <= {aim:,}")
        yield Case(scenario, TenChecks.name, TenChecks(), series, TenChecks.most, MANY)
        yield Case(scenario, threshold.name, threshold, series, most, MANY)


def equal() -> Iterator[Case]:
    """Yield cases in which the canary is as good."""
    threshold = tuned(0.001, 0.02, HORIZON)
    for scenario, series in (
        ("equal, 0.1 %", steady(0.001, 0.001)),
        ("equal, 1 %", steady(0.01, 0.01)),
        ("equal, 30 %", steady(0.3, 0.3)),
        ("equal, waves 0.1 to 3 %", waves()),
        ("equal, jumps 0.1 to 3 %", jumps()),
        ("bad minutes of both", simulation.bad_minutes),
    ):
        yield Case(scenario, "evidence", WORSE, series, HORIZON, MOST, "<= 1 %")
        yield Case(scenario, TenChecks.name, TenChecks(), series, TenChecks.most, MANY)
        yield Case(scenario, threshold.name, threshold, series, HORIZON, MANY)


def promoted() -> Iterator[Case]:
    """Yield cases of promotion: of a canary that is as good, and of a canary worse by the margin."""
    yield Case("equal, 0.1 %", "promotion", FINE, steady(0.001, 0.001), 2 * HORIZON, MANY)
    for scenario, series in (
        ("0.1 % -> 1.1 %", steady(0.001, 0.001 + MARGIN)),
        ("10 % -> 11 %", steady(0.1, 0.1 + MARGIN)),
        ("waves, worse by 1 %", waves(MARGIN)),
        ("jumps, worse by 1 %", jumps(MARGIN)),
    ):
        yield Case(scenario, "promotion", FINE, series, HORIZON, 2 * MANY, "<= 1 %")


def clustered() -> Iterator[Case]:
    """Yield cases with failures in clusters, and the time that the test for clusters needs."""
    most = 4 * HORIZON
    for length in (3, 10, 30):
        scenario = f"incidents of {length}, 1 %"
        yield Case(scenario, "evidence", WORSE, incidents(length, Rates(0.01, 0.01)), most, MANY)
        for seconds in WINDOWS_S:
            series = incidents(length, Rates(0.01, 0.01), _window(seconds))
            is_promised = 2 * seconds >= length  # the canary gets two requests a second
            rollouts, aim = (MOST, "<= 1 %") if is_promised else (MANY, "")
            yield Case(scenario, f"within {seconds} s", ClusterTest(), series, most, rollouts, aim)
        series = incidents(length, Rates(0.001, 0.001 + MARGIN))
        yield Case(f"incidents of {length}, 0.1 % -> 1.1 %", "promotion", FINE, series, HORIZON, MANY)
    for scenario, series in (("bad pod of the primary", simulation.bad_pod), ("bad node", simulation.bad_node)):
        yield Case(scenario, "evidence", WORSE, series, HORIZON, MANY)
        yield Case(scenario, "within 5 s", ClusterTest(), series, most, MANY)
    for users in (1_000, 10_000):
        scenario = f"{users:,} sticky users, 1 % fail"
        yield Case(scenario, "evidence", WORSE, simulation.sticky_users(users, 0.01), 2 * HORIZON, MANY)
        series = simulation.sticky_users(users, 0.01, _window(10))
        yield Case(scenario, "within 10 s", ClusterTest(), series, 2 * HORIZON, MANY)
    yield Case("bad minutes of both", "within 5 s", ClusterTest(), simulation.bad_minutes, most, MANY)
    for percent in (50, 5, 2):
        for seconds in WINDOWS_S[:2]:
            series = steady(0.001, percent / 100, _window(seconds))
            yield Case(f"0.1 % -> {percent} %", f"within {seconds} s", ClusterTest(), series, 5_000, MANY)


def _window(seconds: int) -> tuple[int, int]:
    return PER_SECOND[0] * seconds, PER_SECOND[1] * seconds


CASES = (*worse(), *equal(), *promoted(), *clustered())


def _decisions(number: int, rollouts: range) -> list[int | None]:
    case = CASES[number]
    return simulation.decisions(case.test, case.series, case.most, rollouts)


async def measure(scale: Scale) -> None:
    """Print a row for each case: the share of rollouts that the rule decided, and the canary requests that this took."""
    print("decided: rolled back, or promoted by the rule promotion; requests: of the canary, until then")
    print(f"  {'true failure rates':32} {'rule':12} rollouts  decided  median     p90  aim")
    cases = [case._replace(rollouts=min(case.rollouts, scale.rollouts)) for case in CASES]
    with ProcessPoolExecutor(os.cpu_count(), SPAWN) as pool:
        started = [
            [
                pool.submit(_decisions, number, range(case.rollouts)[first : first + SLICE])
                for first in range(0, case.rollouts, SLICE)
            ]
            for number, case in enumerate(cases)
        ]
        for case, slices in zip(cases, started, strict=True):
            report(case, sorted(requests for part in slices for requests in part.result() if requests is not None))


def report(case: Case, decided: list[int]) -> None:
    """Print a row. The quantiles are of all rollouts: "-" if fewer were decided."""
    median, p90 = (
        f"{decided[rank]:7,}" if (rank := case.rollouts * percent // 100) < len(decided) else f"{'-':>7}"
        for percent in (50, 90)
    )
    share = f"{100 * len(decided) / case.rollouts:6.2f} %"
    print(
        f"  {case.scenario:32} {case.rule:12} {case.rollouts:8,} {share} {median} {p90}  {case.aim}".rstrip(),
        flush=True,
    )
