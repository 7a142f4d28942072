"""The spread of latencies, and confidence intervals for success rates and percentiles (004, its open question "stddev").

A success rate and a percentile describe the requests of a window. The intervals are for the rate and percentile of the workload,
of which these requests are a sample. They assume that requests fail, or are slow, independently of each other. Each interval
misses with a probability of at most `ERROR`. So among the intervals of many pods or windows, some miss.
"""

from headgate.resources.meta import Value
from headgate.statistics.intervals import rate_interval
from headgate.telemetry.answers.answers import SHARES, Statistics
from headgate.telemetry.counters.histogram import deviation, quantile_bounds

ERROR = 0.01
"""The largest probability that an interval misses the true value (`statistics.intervals`)."""


class Interval(Value, frozen=True, gc=False):
    """A confidence interval; `high` may be infinite."""

    low: float
    high: float


class Uncertainty(Value, frozen=True, kw_only=True, gc=False):
    """The uncertainty of some statistics.

    `success_rate` is an interval (0 to 1). `deviation` is the standard deviation of the latencies, and `latencies` has the
    intervals of the percentiles for `SHARES`, in seconds. Without a recorded latency, they are 0 and empty.
    """

    success_rate: Interval
    deviation: float = 0.0
    latencies: tuple[Interval, ...] = ()


def uncertainty_of(counts: Statistics) -> Uncertainty | None:
    """Return the uncertainty of statistics; None without requests."""
    requests = counts.success + counts.failure
    if not requests:
        return None
    success_rate = Interval(*rate_interval(counts.success, requests, ERROR))
    if not counts.histogram:
        return Uncertainty(success_rate=success_rate)
    return Uncertainty(
        success_rate=success_rate,
        deviation=deviation(counts.histogram),
        latencies=tuple([Interval(*quantile_bounds(counts.histogram, share, ERROR)) for share in SHARES]),
    )
