"""Which mirrors drop copies of requests at present, because they are at their limits (docs/gateway-api.md)."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from headgate.latest import Latest

QUIET_SECONDS = 15.0  # longer than a few reports, so that a short pause of the traffic is not the end


class DroppedCopies:
    """Counts dropped copies by the mirror's cluster. `now` has the mirrors that drop copies now, with counts since it began.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.now: Latest[Mapping[str, int]] = Latest({})
        self._ends: dict[str, float] = {}
        self._clock = clock

    def add(self, cluster: str, count: int) -> None:
        """Count copies that were dropped."""
        self._ends[cluster] = self._clock() + QUIET_SECONDS
        known = self.now.get()
        self.now.set({**known, cluster: known.get(cluster, 0) + count})

    def expire(self) -> float | None:
        """Forget mirrors that have dropped nothing for `QUIET_SECONDS`; return the seconds until the next may expire."""
        now = self._clock()
        self._ends = {cluster: end for cluster, end in self._ends.items() if end > now}
        self.now.set({cluster: count for cluster, count in self.now.get().items() if cluster in self._ends})
        return min(self._ends.values()) - now if self._ends else None

    async def run(self) -> None:
        """Expire mirrors in time, until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.now.next_change().wait(), self.expire())
