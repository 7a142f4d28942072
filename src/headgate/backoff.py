"""The pauses between repeated attempts to reach a server."""

import random
from collections.abc import Iterator

FIRST_S, LONGEST_S = 0.2, 20.0


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each retry: they double up to LONGEST_S, and up to half of each is random.

    The random part spreads the attempts of many watches after an API server has restarted.
    """
    longest = FIRST_S
    while True:
        yield longest / 2 + random.uniform(0, longest / 2)  # noqa: S311 - not for secrets
        longest = min(2 * longest, LONGEST_S)
