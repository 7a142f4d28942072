"""The bucket bounds of all response size histograms."""

_STEPS = (10, 15, 22, 33, 47, 68)
_DECADES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)

BOUNDS_BYTES: tuple[int, ...] = (1, *(step * decade for decade in _DECADES for step in _STEPS))
"""Upper bounds of the buckets in bytes: 1, for empty bodies, and 10 to 68 000 000. One more bucket has no upper bound.

Adjacent bounds differ by about a half.
"""
