"""Statistics of random draws: how far a count of requests may be from its share.

The requirements (part 3) allow 3 sigma, which a correct proxy exceeds once in 370 runs. With a dozen such tests, the suite
would not be reliable. So tests send four times as many requests and keep the same relative band, which is then 6 sigma: a
correct proxy exceeds it once in 500 million runs.
"""

import math

TIMES = 30
"""The number of fair draws after which both sides were seen; all fall on one side once in 500 million runs."""


def fits(count: int, share: float, *, of: int) -> bool:
    """Return whether a count of `of` requests agrees with a share: it is in the 3-sigma band of a quarter of the requests."""
    return abs(count / of - share) <= 3 * math.sqrt(share * (1 - share) / (of / 4))
