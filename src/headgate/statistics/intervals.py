"""Confidence sequences: intervals that cover the true value at all times at once, with a given probability.

A fixed-size interval covers with 99 % at one look; after many looks it misses far more often. These may be computed
after each request. Source: Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence
sequences" (arXiv 1810.08240), the beta-binomial mixture; for quantiles Howard and Ramdas, "Sequential estimation of
quantiles" (arXiv 1906.09712).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf, lgamma, log

_STEPS = 40  # bisections of a probability: an error below 1e-12


def rate_interval(events: int, trials: int, error: float) -> tuple[float, float]:
    """Return an interval (0 to 1) for the probability of an event, after `events` in `trials` independent trials.

    The probability that the true value is ever outside is at most `error`, however often this is computed.
    """
    if not trials:
        return 0.0, 1.0
    is_ruled_out = _rates_ruled_out(events, trials, error)
    observed = events / trials
    low = _boundary(is_ruled_out, outside=0.0, inside=observed) if events else 0.0
    high = _boundary(is_ruled_out, outside=1.0, inside=observed) if events < trials else 1.0
    return low, high


def quantile_interval(
    counts: Sequence[int], bounds: Sequence[float], share: float, error: float
) -> tuple[float, float]:
    """Return an interval for a quantile of values, from a histogram; its ends are bounds of buckets, or 0 and infinity.

    `counts` has one number per bucket: values up to each of `bounds`, in ascending order, and then values above all
    of them. `share` (0 to 1) names the quantile: 0.99 for the 99th percentile.
    """
    below = list(accumulate(counts))
    total = below[-1] if below else 0
    if not total:
        return 0.0, inf

    def excess(edge: int) -> int:
        """Return -1 if the share of values below a bound is certainly less than `share`, 1 if it is more, else 0."""
        if not _rates_ruled_out(below[edge], total, error)(share):
            return 0
        return -1 if below[edge] < share * total else 1

    # The share of values below a bound grows with the bound, so the results of `excess` are in ascending order.
    edges = range(len(bounds))
    first = bisect_left(edges, 0, key=excess)
    last = bisect_left(edges, 1, key=excess)
    return bounds[first - 1] if first else 0.0, bounds[last] if last < len(bounds) else inf


def _rates_ruled_out(events: int, trials: int, error: float) -> Callable[[float], bool]:
    """Return a function that returns whether `events` in `trials` rule out a rate."""
    rest = trials - events
    # the mixture over all rates, with equal prior weight, in logarithm
    mixture = lgamma(events + 1) + lgamma(rest + 1) - lgamma(trials + 2)
    least = mixture + log(error)
    return lambda rate: _log_power(rate, events) + _log_power(1 - rate, rest) <= least


def _log_power(base: float, exponent: int) -> float:
    """Return the logarithm of `base ** exponent`."""
    if not exponent:
        return 0.0
    return exponent * log(base) if base > 0 else -inf


def _boundary(is_ruled_out: Callable[[float], bool], *, outside: float, inside: float) -> float:
    for _ in range(_STEPS):
        middle = (outside + inside) / 2
        if is_ruled_out(middle):
            outside = middle
        else:
            inside = middle
    return outside
