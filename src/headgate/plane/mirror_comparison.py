"""Compares the copies that a mirror sends with the requests of the same rules, in the same time (002, D22).

The evidence that copies fail more often than requests is a sequential test, and all intervals hold at all times, so
reading them again and again causes no wrong verdict (`statistics`). A comparison is of all rules with a mirror to the same
Service port, because proxies count all their copies together.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import reduce

from msgspec import structs

from headgate import formatting
from headgate.compiler.reasons import prefixed
from headgate.compiler.report import Compiled, StatusCondition
from headgate.latest import Latest
from headgate.model.latency_buckets import BOUNDS_US
from headgate.model.routing import Mesh, PortRef
from headgate.plane.response_sizes import SizeComparison, median_text
from headgate.plane.status.findings import all_routes
from headgate.resources.meta import Key, Value, timestamp
from headgate.statistics.betting import Block, RateTest, Rejects, Sample, Wealth
from headgate.statistics.intervals import quantile_interval, rate_interval
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.histogram import BUCKETS, Buckets, totals
from headgate.telemetry.mirror_increments import MirrorIncrements, Rule, Side, SideCounts

CONDITION = prefixed("CopiesWorse")
PUBLISH_S = 15.0  # the least number of seconds between two writes of a route's status because of new counts
PERIOD_S = 3600.0  # a comparison begins again after this time, so that a repaired mirror is not blamed for long
ERROR = 0.01  # the probability of a wrong verdict in a period, and that an interval ever misses the true value
PART = ERROR / 3  # that of a wrong verdict about failures, about latencies, and about sizes
TAIL = 0.95  # the compared quantile of latencies; an interval for a higher one needs more copies (1,100 for p99)
_TEST = RateTest(rejects=Rejects.HIGHER, limit=0.0)
_BOUNDS_MS = tuple(bound / 1000 for bound in BOUNDS_US)
_DIGITS = 3
_NONE = SideCounts()

Verdicts = Mapping[Key, tuple[StatusCondition, ...]]
"""The condition of each route with a comparison."""


class ComparedMirror(Value, frozen=True, kw_only=True):
    """The rules that mirror to a Service port. `fractions` has the different fractions that they copy."""

    rules: tuple[Rule, ...]
    fractions: frozenset[Fraction]


class MirrorComparison(Value, frozen=True, kw_only=True):
    """The counts of a mirror to a Service port since a time, in seconds since the epoch, and the evidence against it."""

    subject: ComparedMirror
    since: float
    copies: Counts = Counts()
    requests: Counts = Counts()
    wealth: Wealth = _TEST.start()
    sizes: SizeComparison = SizeComparison()

    def plus(self, copies: SideCounts, requests: SideCounts) -> "MirrorComparison":
        """Return the comparison after more copies and more requests of the same time."""
        return structs.replace(
            self,
            copies=self.copies.plus(copies.counts),
            requests=self.requests.plus(requests.counts),
            wealth=_TEST.after(self.wealth, Block(_sample(requests.counts), _sample(copies.counts))),
            sizes=self.sizes.plus(requests.sizes, copies.sizes),
        )


Comparisons = Mapping[PortRef, MirrorComparison]


def subjects(mesh: Mesh) -> Mapping[PortRef, ComparedMirror]:
    """Return the Service ports with a mirror in a rule of a route object."""
    rules: dict[PortRef, dict[Rule, None]] = defaultdict(dict)
    fractions: dict[PortRef, set[Fraction]] = defaultdict(set)
    for route in all_routes(mesh):
        for mirror in route.mirrors:
            if route.origin and mirror.numerator and not mirror.by:
                rules[mirror.ref][route.origin, route.name] = None
                fractions[mirror.ref].add(Fraction(mirror.numerator, mirror.denominator))
    return {ref: ComparedMirror(rules=tuple(sorted(rules[ref])), fractions=frozenset(fractions[ref])) for ref in rules}


def sides(compared: Mapping[PortRef, ComparedMirror]) -> Iterator[Side]:
    """Yield what must be counted for some comparisons."""
    for ref, subject in compared.items():
        yield ref
        yield from subject.rules


def after(
    earlier: Comparisons, compared: Mapping[PortRef, ComparedMirror], new: Mapping[Side, SideCounts], now: float
) -> Mapping[PortRef, MirrorComparison]:
    """Return the comparisons after new counts. One begins again when its rules change, and after `PERIOD_S`."""
    comparisons: dict[PortRef, MirrorComparison] = {}
    for ref, subject in compared.items():
        before = earlier.get(ref)
        if before is None or before.subject != subject or now >= before.since + PERIOD_S:
            before = MirrorComparison(subject=subject, since=now)
        requests = reduce(SideCounts.plus, (new.get(rule, _NONE) for rule in subject.rules), _NONE)
        comparisons[ref] = before.plus(new.get(ref, _NONE), requests)
    return comparisons


def verdicts(comparisons: Comparisons) -> Verdicts:
    """Return the condition of each route whose copies and requests were both counted."""
    by_route: dict[Key, list[tuple[PortRef, MirrorComparison]]] = defaultdict(list)
    for ref, comparison in comparisons.items():
        if _sample(comparison.copies).trials and _sample(comparison.requests).trials:
            for about in dict.fromkeys(about for about, _ in comparison.subject.rules):
                by_route[about].append((ref, comparison))
    return {about: (_condition(several),) for about, several in by_route.items()}


def _condition(several: Sequence[tuple[PortRef, MirrorComparison]]) -> StatusCondition:
    reasons = [reason for _, comparison in several if (reason := _fault(comparison))]
    text = "; ".join(_message(ref, comparison) for ref, comparison in several)
    return StatusCondition(
        type=CONDITION, status=bool(reasons) or None, reason=(*reasons, "NotProven")[0], message=text
    )


def _fault(comparison: MirrorComparison) -> str:
    """Return what is proven to be worse for copies than for requests; empty if nothing is."""
    if len(comparison.subject.fractions) > 1:
        return ""
    if comparison.wealth.evidence >= 1 / PART:
        return "MoreFailures"
    copies, requests = _tail(comparison.copies, PART / 2), _tail(comparison.requests, PART / 2)
    if copies[0] > requests[1]:
        return "Slower"
    difference = comparison.sizes.fault(PART)
    return f"{difference.capitalize()}Responses" if difference else ""


def _message(ref: PortRef, comparison: MirrorComparison) -> str:
    subject = comparison.subject
    sizes = comparison.sizes
    copies, requests = _side_text(comparison.copies, sizes.copies), _side_text(comparison.requests, sizes.requests)
    text = f"copies to {ref} {copies}; requests {requests}"
    if different := sizes.fault(PART):
        text += f"; the responses to copies are {different}"
    if len(subject.rules) > 1:
        text += f"; {len(subject.rules)} rules send these copies"
    if len(subject.fractions) > 1:
        text += ", with different fractions, so there is no verdict"
    return f"{text}; since {timestamp(comparison.since)}"


def _side_text(counts: Counts, sizes: Buckets) -> str:
    """Return one side's failures, classes, slowest responses and response sizes."""
    seen = _sample(counts)
    low, high = rate_interval(seen.events, seen.trials, ERROR)
    classes = ", ".join(f"{name} {count}" for name, count in counts.classes)
    least, most = _tail(counts, ERROR)
    median = f"; {text}" if (text := median_text(sizes, ERROR)) else ""
    slow = f"{_number(least)} to {_number(most)} ms" if most < float("inf") else f"at least {_number(least)} ms"
    return (
        f"fail {formatting.share(seen.events / seen.trials)} ({formatting.share(1 - ERROR)} interval {formatting.share(low)} to {formatting.share(high)}; "
        f"{classes}; p{_number(100 * TAIL)} {slow}{median})"
    )


def _sample(counts: Counts) -> Sample:
    return Sample(counts.success + counts.failure, counts.failure)


def _tail(counts: Counts, error: float) -> tuple[float, float]:
    """Return an interval in milliseconds for the latency at `TAIL`."""
    return quantile_interval(totals(counts.latency, BUCKETS), _BOUNDS_MS, TAIL, error)


def _number(value: float) -> str:
    return f"{value:.{_DIGITS}g}"


class MirrorComparer:
    """Compares the mirrors of the running mesh; `verdicts` has the newest result.

    Without new counts the verdicts stay equal. `clock` is in seconds since the epoch.
    """

    def __init__(
        self,
        compiled: Latest[Compiled | None],
        increments: MirrorIncrements,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.verdicts: Latest[Verdicts] = Latest({})
        self._compiled = compiled
        self._increments = increments
        self._clock = clock
        self._known: Comparisons = {}

    async def run(self) -> None:
        """Compare every `PUBLISH_S` seconds while there is a mirror, until canceled."""
        while True:
            changed = self._compiled.next_change()
            compiled = self._compiled.get()
            compared = subjects(compiled.mesh) if compiled else {}
            self._increments.follow(sides(compared))
            if not compared:
                self._known = {}
                self.verdicts.set({})
                await changed.wait()
                continue
            await asyncio.sleep(PUBLISH_S)
            self._known = after(self._known, compared, self._increments.take(), self._clock())
            self.verdicts.set(verdicts(self._known))
