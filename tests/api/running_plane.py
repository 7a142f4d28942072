"""A control plane without a host, whose feed and loop run on the event loop of a test."""

import asyncio

from tests.identity.fakes import FakeIssuer, Time

from headgate.envoy.view import Node
from headgate.identity.credentials import Credentials
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed
from headgate.plane.live_state import LiveState
from headgate.plane.loop import Loop
from headgate.settings import DEFAULTS
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet


class RunningPlane:
    """The control plane of a store; `stop` ends its tasks."""

    def __init__(self, store: MemoryStore) -> None:
        self.feed = Feed(store)
        fleet = Fleet()
        credentials = Credentials(FakeIssuer(Time()), Time().schedule())
        loop = Loop(self.feed.snapshot, fleet, HostProxies([Node(id="gateway")]), DEFAULTS, credentials)
        self.live_state = LiveState(store, self.feed, loop, fleet)
        self._working = [asyncio.create_task(part.run()) for part in (self.feed, loop)]

    def stop(self) -> None:
        """Cancel the tasks."""
        for task in self._working:
            task.cancel()
