"""The bucket bounds of all latency histograms.

The bounds have two significant digits, like those of Envoy's own histograms, so no interpolation is needed. Adjacent
bounds differ by at most a tenth, so the error of a percentile is at most 5 %.
"""

_STEPS = (
    *range(10, 20),
    *range(20, 30, 2),
    *range(30, 42, 3),
    *(42, 46, 50, 55, 60, 66, 72, 79, 86, 94),
)
_DECADES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
_LONGEST_US = 60_000_000

BOUNDS_US: tuple[int, ...] = tuple(
    bound for decade in _DECADES for step in _STEPS if (bound := step * decade) <= _LONGEST_US
)
"""Upper bounds of the buckets in microseconds, 100 to 60 000 000. One more bucket has no upper bound."""
