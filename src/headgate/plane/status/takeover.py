"""The first seconds of a new process, in which proxies of an earlier process reconnect."""

import time
from collections.abc import Sequence

from headgate.xds.fleet import Fleet, FleetProxy

TAKEOVER_SECONDS = 30.0  # the longest wait for the proxies of an earlier process: they try every 3 s to reconnect


class Takeover:
    """The proxies of an earlier process that have not acknowledged everything to this one.

    Meanwhile, numbers of proxies change and soon are as before, so statuses with no other change wait.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._awaited: Sequence[FleetProxy] = fleet.configured()
        self._end = time.monotonic() + TAKEOVER_SECONDS

    def observe(self) -> None:
        """Stop waiting for proxies that have acknowledged everything, and for those that are gone."""
        proxies = self._fleet.proxies
        self._awaited = [proxy for proxy in self._awaited if proxies.get(proxy.id) is proxy and not proxy.settled()]

    def left(self) -> float:
        """Return the seconds for which such a status waits; 0 or less if it may be written now."""
        return self._end - time.monotonic() if self._awaited else 0.0
