"""Compares the sizes of responses to copies with those of responses to requests (002, D22).

Both are counted in histograms, so a size above a limit is exact at a bucket's bound. The limits come from the first
requests: half of the responses, and all but a twentieth at each end, are within them. A test may not choose its limits by
the responses that it judges, so it begins with the next ones. Each test shows that copies are beyond one limit more often
than requests are. The tests are those of rates (`statistics.betting`), so they may be read at any time.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headgate.formatting import size
from headgate.model.size_buckets import BOUNDS_BYTES
from headgate.resources.meta import Value
from headgate.statistics.betting import Block, RateTest, Rejects, Sample, Wealth
from headgate.statistics.intervals import quantile_interval
from headgate.telemetry.counters.histogram import Buckets, count_above, percentile_bound, totals

LARGER, SMALLER = "larger", "smaller"
TESTS = 4
_ENOUGH = 100  # responses to requests from which the limits are taken
_LOW, _MIDDLE, _HIGH = 0.05, 0.5, 0.95
_TEST = RateTest(rejects=Rejects.HIGHER, limit=0.0)


class Limit(NamedTuple):
    """A limit of sizes, as a bucket: responses count that are in this bucket or above it, or in it or below it."""

    bucket: int
    beyond: str

    def sample(self, sizes: Buckets) -> Sample:
        """Return the responses, and how many of them are beyond the limit."""
        total = count_above(sizes, -1)
        above = count_above(sizes, self.bucket - 1 if self.beyond == LARGER else self.bucket)
        return Sample(total, above if self.beyond == LARGER else total - above)


class SizeComparison(Value, frozen=True, kw_only=True):
    """The response sizes of requests and copies, and the evidence for each limit."""

    requests: Buckets = 0
    copies: Buckets = 0
    limits: tuple[Limit, ...] = ()
    wealth: tuple[Wealth, ...] = ()

    def plus(self, requests: Buckets, copies: Buckets) -> "SizeComparison":
        """Return the comparison after more responses of the same time."""
        limits = self.limits or tuple(_limits(self.requests))
        wealth = self.wealth or tuple(_TEST.start() for _ in limits)
        return SizeComparison(
            requests=self.requests + requests,
            copies=self.copies + copies,
            limits=limits,
            wealth=tuple(
                _TEST.after(so_far, Block(limit.sample(requests), limit.sample(copies)))
                for limit, so_far in zip(limits, wealth, strict=True)
            ),
        )

    def fault(self, error: float) -> str:
        """Return whether the responses to copies are larger or smaller; empty if neither is proven.

        It is wrong with a probability of at most `error`.
        """
        proven = (
            limit for limit, wealth in zip(self.limits, self.wealth, strict=True) if wealth.evidence >= TESTS / error
        )
        return next((limit.beyond for limit in proven), "")


def median_text(sizes: Buckets, error: float) -> str:
    """Return an interval for the median: `median size 4.7kB to 6.8kB`; empty without responses."""
    if not sizes:
        return ""
    low, high = quantile_interval(totals(sizes, len(BOUNDS_BYTES) + 1), BOUNDS_BYTES, _MIDDLE, error)
    return f"median size {size(low)} to {size(high)}" if high < float("inf") else f"median size at least {size(low)}"


def _limits(requests: Buckets) -> Iterator[Limit]:
    """Yield the limits, once there are enough responses to requests.

    One bucket lies between a limit and the quantile, so that a size which differs by less than a half is no difference.
    Empty responses have no such tolerance.
    """
    if count_above(requests, -1) < _ENOUGH:
        return
    for share, beyond in ((_MIDDLE, LARGER), (_HIGH, LARGER), (_MIDDLE, SMALLER), (_LOW, SMALLER)):
        bucket = percentile_bound(requests, share) or 0
        if beyond == LARGER:
            yield Limit(bucket + 2 if bucket else 1, LARGER)
        elif bucket:
            yield Limit(max(bucket - 2, 0), SMALLER)
