"""Tracks which mirrors currently drop copies of requests because of their limits (docs/tasks/gateway-api.md)."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from headgate.latest import Latest

QUIET_SECONDS = 15.0  # a count expires this many seconds after the last dropped copy, which is several report intervals


class DroppedCopies:
    """Counts dropped copies by the mirror's cluster. `now` has the counts of mirrors that currently drop copies.

    A count restarts at 0 after `QUIET_SECONDS` without dropped copies. `clock` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.now: Latest[Mapping[str, int]] = Latest({})
        self._ends: dict[str, float] = {}
        self._clock = clock

    def add(self, cluster: str, count: int) -> None:
        """Add dropped copies to the count of a mirror's cluster."""
        self._ends[cluster] = self._clock() + QUIET_SECONDS
        current = self.now.get()
        self.now.set({**current, cluster: current.get(cluster, 0) + count})

    def expire(self) -> float | None:
        """Remove the counts that have expired; return the seconds until the next count may expire."""
        now = self._clock()
        self._ends = {cluster: end for cluster, end in self._ends.items() if end > now}
        self.now.set({cluster: count for cluster, count in self.now.get().items() if cluster in self._ends})
        return min(self._ends.values()) - now if self._ends else None

    async def run(self) -> None:
        """Call `expire` whenever a count may expire, until canceled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.now.next_change().wait(), self.expire())
