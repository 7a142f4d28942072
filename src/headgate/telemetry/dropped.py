"""Copies of requests that proxies drop at the limits of a mirror, while it happens (docs/gateway-api.md)."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from headgate.latest import Latest

QUIET_SECONDS = 15.0  # longer than a few reports, so that a pause of the traffic is no end


class DroppedCopies:
    """Adds up what is dropped for each mirror, by the name of its cluster.

    `now` has the mirrors that drop copies now: how many since it began. `clock` is in seconds and never goes back.
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
        """Forget the mirrors that have dropped nothing for a while; return the seconds until the next one may have."""
        now = self._clock()
        self._ends = {cluster: end for cluster, end in self._ends.items() if end > now}
        self.now.set({cluster: count for cluster, count in self.now.get().items() if cluster in self._ends})
        return min(self._ends.values()) - now if self._ends else None

    async def run(self) -> None:
        """Expire mirrors in time, until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.now.change().wait(), self.expire())
