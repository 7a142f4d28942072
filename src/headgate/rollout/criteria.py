"""The criteria of a Canary's analysis as sequential tests, and the decision that their evidence allows (R108, D33).

Every criterion is a rate: of failed requests, of client errors, or of requests slower than a limit. An attempt in which no
program answered counts as a failed request at its backend, whether or not another backend answered the request. "The 99th percentile is at most 500 ms"
says that at most 1 % of the requests are slower. A limit is rounded up to the next bound of the latency histograms, which
count requests above a bound exactly (`model.latency_buckets`: at most 10 %).
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from math import ceil, log

from msgspec import structs

from headgate.durations import from_microseconds, microseconds
from headgate.model.latency_buckets import BOUNDS_US
from headgate.resources.mesh.canary.analysis import Analysis, LatencyCriterion
from headgate.resources.meta import Value
from headgate.statistics.betting import Block, RateTest, Rejects, Sample, Wealth
from headgate.statistics.clusters import ClusterTest, ClusterWealth
from headgate.telemetry.counters.counts import UNANSWERED, Counts
from headgate.telemetry.counters.histogram import Buckets, bound_at, count_above, percentile_bound

SUCCESS = "success"
SUCCESS_MIN = "success.min"
CLIENT_ERRORS = "clientErrors"
_TAIL_REQUESTS = 10
"""The requests of the reference above its percentile from which a relative limit is taken: 1,000 requests for p99."""


class Comparison(Value, frozen=True, kw_only=True):
    """The counts of the reference (the primary or the baseline) and of the canary in the same time."""

    reference: Counts = Counts()
    canary: Counts = Counts()


class Criterion(Value, frozen=True, kw_only=True):
    """A criterion: `worse` shows that the canary violates it, `fine` that it does not.

    `bounds` has the latency bounds (indexes) of the reference and of the canary above which a request counts. Without them
    failures count, or client errors. `is_ready` is False while a relative limit still waits for enough requests to the reference. With
    `within`, failures of one version within this many seconds count as one, and `worse` is not used.
    """

    name: str
    worse: RateTest
    fine: RateTest | None
    bounds: tuple[int, int] | None = None
    is_ready: bool = True
    within: float = 0.0

    def block(self, counts: Comparison) -> Block:
        """Return the counted requests as trials and events."""
        return Block(self._sample(counts.reference, 0), self._sample(counts.canary, 1))

    def _sample(self, counts: Counts, side: int) -> Sample:
        if self.bounds is not None:
            return Sample(_timed(counts.latency), count_above(counts.latency, self.bounds[side]))
        sample = attempted(counts)
        return sample._replace(events=counts.client_errors) if self.name == CLIENT_ERRORS else sample


def attempted(counts: Counts) -> Sample:
    """Return the requests of a backend and those that failed, with each attempt in which no program answered (D33).

    Requests that ended with such an attempt are among the attempts, and count once.
    """
    failures = counts.failure - counts.count(UNANSWERED) + counts.attempts
    return Sample(counts.success + failures, failures)


NOTHING = Block(Sample(0, 0), Sample(0, 0))


class EvidenceWindows(Value, frozen=True, kw_only=True):
    """The evidence of failures in clusters. The current window began at `began` (seconds since the epoch) with `window`."""

    state: ClusterWealth = ClusterTest().start()
    began: float = 0.0
    window: Block = NOTHING

    def after(self, block: Block, *, now: float, within: float) -> "EvidenceWindows":
        """Return the evidence after more requests; a window of `within` seconds counts once it has ended."""
        if now < self.began + within:
            return EvidenceWindows(state=self.state, began=self.began, window=self.window.plus(block))
        # The first window has not begun with the step, and a long one has a gap in its reports.
        is_whole = now < self.began + 2 * within
        count = ClusterTest().after if is_whole else ClusterTest().without
        return EvidenceWindows(state=count(self.state, self.window), began=now, window=block)


class Evidence(Value, frozen=True, kw_only=True):
    """The evidence of a criterion: that the canary is worse, and that it is fine. `seen` has the requests behind it.

    With `windows`, these have the evidence that the canary is worse.
    """

    worse: Wealth | None = None
    fine: Wealth | None = None
    seen: Block = NOTHING
    windows: EvidenceWindows | None = None

    @property
    def against(self) -> float:
        """The evidence that the canary is worse: it reaches 1/error with a probability of at most `error`."""
        if self.windows:
            return self.windows.state.evidence
        return self.worse.evidence if self.worse else 1.0


class Verdict(Enum):
    """The decision that the evidence allows."""

    ROLL_BACK = "roll back"
    PROMOTE = "promote"
    HOLD = "hold"


class Judgment(Value, frozen=True, kw_only=True):
    """A verdict, and the names of the criteria behind it: those that are violated, or those that lack evidence."""

    verdict: Verdict
    criteria: tuple[str, ...] = ()


class RecentLatencies(Value, frozen=True):
    """The histogram of the last requests to the reference, in two parts: when the newer one is full, the older one is dropped."""

    older: Buckets = 0
    newer: Buckets = 0

    @property
    def histogram(self) -> Buckets:
        """Return both parts."""
        return self.older + self.newer

    def after(self, latency: Buckets, analysis: Analysis | None) -> "RecentLatencies":
        """Return the last requests after more of them; a part has as many as the relative limits of an analysis need."""
        criteria = analysis.latencies if analysis else ()
        most = max((tail_requests(criterion) for criterion in criteria if criterion.max_increase), default=0)
        newer = self.newer + latency
        return RecentLatencies(newer, 0) if _timed(newer) >= most else RecentLatencies(self.older, newer)


def relative_limits(analysis: Analysis, reference: Buckets, earlier: Mapping[str, str]) -> Mapping[str, str]:
    """Return the reference's percentile by relative criterion, once enough requests are counted: a bound as a duration.

    The duration has the same meaning for a headgate with other bounds. A percentile above all bounds counts as the last one.
    `reference` has its last requests *before* those that are judged next: a test may not choose its limit by the requests
    that it judges, but each of its bets may have another limit.
    """
    limits = dict(earlier)
    for criterion in analysis.latencies:
        if criterion.max_increase and _timed(reference) >= tail_requests(criterion):
            bound = percentile_bound(reference, float(criterion.quantile))
            limits |= {} if bound is None else {_increase(criterion): from_microseconds(_microseconds(bound))}
    return limits


def tail_requests(criterion: LatencyCriterion) -> int:
    """Return the number of requests to the reference from which a relative limit is taken."""
    return ceil(_TAIL_REQUESTS / (1 - criterion.quantile))


def _microseconds(bound: int) -> int:
    return BOUNDS_US[min(bound, len(BOUNDS_US) - 1)]


def criteria(analysis: Analysis, limits: Mapping[str, str]) -> Sequence[Criterion]:
    """Return the criteria of an analysis. `limits` has those of `relative_limits`."""
    return tuple(_criteria(analysis, limits))


def start(criteria: Sequence[Criterion]) -> Mapping[str, Evidence]:
    """Return the evidence of each criterion before the first request."""
    return {
        criterion.name: Evidence(
            worse=None if criterion.within else criterion.worse.start(),
            fine=criterion.fine.start() if criterion.fine else None,
            windows=EvidenceWindows() if criterion.within else None,
        )
        for criterion in criteria
    }


def is_complete(criteria: Sequence[Criterion], evidence: Mapping[str, Evidence]) -> bool:
    """Return whether there is evidence of each criterion, with the bets of this version of headgate."""
    fresh = start(criteria)
    return all(
        (present := evidence.get(name)) is not None and _bets(present) == _bets(initial)
        for name, initial in fresh.items()
    )


def gathered(
    criteria: Sequence[Criterion], evidence: Mapping[str, Evidence], counts: Comparison, now: float
) -> Mapping[str, Evidence]:
    """Return the evidence after more requests, which were counted until `now` (seconds since the epoch)."""
    return {
        criterion.name: _after(criterion, evidence[criterion.name], criterion.block(counts), now)
        for criterion in criteria
    }


def _after(criterion: Criterion, evidence: Evidence, block: Block, now: float) -> Evidence:
    if not criterion.is_ready:
        return evidence
    return Evidence(
        worse=criterion.worse.after(evidence.worse, block) if evidence.worse else None,
        fine=criterion.fine.after(evidence.fine, block) if criterion.fine and evidence.fine else None,
        seen=evidence.seen.plus(block),
        windows=evidence.windows.after(block, now=now, within=criterion.within) if evidence.windows else None,
    )


class Thresholds(Value, frozen=True, kw_only=True):
    """The evidence that decides.

    A wrong rollback in any of the steps, by any of the criteria, must be as rare as tolerated, so its probability is
    divided among them. A wrong promotion has to pass every step and every criterion, so nothing is divided.
    """

    worse: float
    fine: float

    @classmethod
    def of(cls, error: Fraction, *, steps: int, tests: int) -> "Thresholds":
        """Return the thresholds for a tolerated probability of a wrong decision."""
        return cls(worse=float(max(steps, 1) * tests / error), fine=float(1 / error))


def judged(criteria: Sequence[Criterion], evidence: Mapping[str, Evidence], thresholds: Thresholds) -> Judgment:
    """Return the decision: a violated criterion rolls back, and a promotion needs all of them."""
    violated = tuple(criterion.name for criterion in criteria if evidence[criterion.name].against >= thresholds.worse)
    if violated:
        return Judgment(verdict=Verdict.ROLL_BACK, criteria=violated)
    lacking = tuple(
        criterion.name for criterion in criteria if not _is_fine(criterion, evidence[criterion.name], thresholds)
    )
    return Judgment(verdict=Verdict.HOLD if lacking else Verdict.PROMOTE, criteria=lacking)


def requests_missing(criterion: Criterion, evidence: Evidence, threshold: float) -> int | None:
    """Return how many more requests to the canary a promotion needs, if the canary is as good as the reference.

    Return None if this can't be estimated, because the reference or the canary has no requests.
    """
    if criterion.fine is None:
        return 0
    seen = evidence.seen
    if evidence.fine is None or not seen.candidate.trials or not (seen.reference.trials or criterion.fine.is_absolute):
        return None
    growth = criterion.fine.growth(seen)
    return max(ceil(log(threshold / evidence.fine.evidence) / growth), 0) if growth > 0 else None


def _criteria(analysis: Analysis, limits: Mapping[str, str]) -> Iterator[Criterion]:
    success = analysis.success
    compared = _relative(SUCCESS, float(success.tolerated_drop), float(success.excluded_drop))
    yield structs.replace(compared, within=analysis.cluster_seconds)
    if success.least is not None:
        yield _absolute(SUCCESS_MIN, float(1 - success.least))
    if (errors := analysis.client_errors) is not None:
        yield _relative(CLIENT_ERRORS, float(errors.tolerated_increase), float(errors.excluded_increase))
    for criterion in analysis.latencies:
        tail = float(1 - criterion.quantile)
        if criterion.max_microseconds is not None:
            bound = bound_at(criterion.max_microseconds)
            yield _absolute(f"{criterion.percentile}.max", tail, (bound, bound))
        if criterion.tolerated_increase is not None:
            name = _increase(criterion)
            limit = _microseconds(bound_at(microseconds(limits.get(name, "0s"))))
            slower = bound_at(float(limit * (1 + criterion.tolerated_increase)))
            yield _relative(name, 0.0, tail, (bound_at(limit), slower), is_ready=name in limits)


def _increase(criterion: LatencyCriterion) -> str:
    return f"{criterion.percentile}.maxIncrease"


def _relative(
    name: str, tolerated: float, excluded: float, bounds: tuple[int, int] | None = None, *, is_ready: bool = True
) -> Criterion:
    worse = RateTest(rejects=Rejects.HIGHER, limit=tolerated)
    fine = RateTest(rejects=Rejects.LOWER, limit=excluded)
    return Criterion(name=name, worse=worse, fine=fine, bounds=bounds, is_ready=is_ready)


def _absolute(name: str, limit: float, bounds: tuple[int, int] | None = None) -> Criterion:
    worse = RateTest(rejects=Rejects.HIGHER, limit=limit, is_absolute=True)
    # No number of good requests shows that none fails: a limit of 0 rolls back at a failure, and never holds.
    fine = RateTest(rejects=Rejects.LOWER, limit=limit, is_absolute=True) if limit else None
    return Criterion(name=name, worse=worse, fine=fine, bounds=bounds)


def _is_fine(criterion: Criterion, evidence: Evidence, thresholds: Thresholds) -> bool:
    if not criterion.is_ready:
        return False
    return evidence.fine is None or evidence.fine.evidence >= thresholds.fine


def _bets(evidence: Evidence) -> tuple[tuple[int, int], ...]:
    """Return how many stakes and memories each test has."""
    return tuple((len(wealth.stakes), len(wealth.memories)) for wealth in (evidence.worse, evidence.fine) if wealth)


def _timed(latency: Buckets) -> int:
    """Return the number of requests in a histogram."""
    return count_above(latency, -1)
