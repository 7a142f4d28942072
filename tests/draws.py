"""What a proxy draws at random, and how far from its share a count may be.

The band of 3 sigma (requirements, part 3) is wrong in one run of 370; with a dozen of them no run of all tests can be
relied on. So four times as many requests must keep to the band of a quarter of them: it is as narrow as it was, 6 sigma
of what is drawn, and wrong once in 500 million runs.
"""

import math

TIMES = 30
"""Fair draws between two sides, of which each is seen: all fall on one side once in 500 million runs."""


def fits(count: int, share: float, *, of: int) -> bool:
    """Say whether a count of `of` requests is what a share lets expect: in the 3-sigma band of a quarter of them."""
    return abs(count / of - share) <= 3 * math.sqrt(share * (1 - share) / (of / 4))
