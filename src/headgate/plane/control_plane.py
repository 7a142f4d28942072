"""The parts of the control plane, wired for any host: objects come in, configurations, statuses and metrics go out."""

from collections.abc import Coroutine, Iterator
from typing import Any, NamedTuple

from headgate.objects.ports import Ports
from headgate.plane.callers import CallerFinder
from headgate.plane.feed import Feed
from headgate.plane.live_state import LiveState
from headgate.plane.loop import HostProxies, Loop
from headgate.plane.status.writer import StatusWriter
from headgate.plane.trust import Trust
from headgate.settings import Settings
from headgate.telemetry.receiver import Receiver
from headgate.telemetry.reports import otlp, tap_records
from headgate.telemetry.windows import Windows
from headgate.xds.authentication import TokenVerifier
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

Work = tuple[str, Coroutine[Any, Any, None]]


class ProxyOptions(NamedTuple):
    """What a host sets for its proxies. With `verifier`, each stream is authenticated.

    Envoy evicts idle series of metrics after every `reports_per_eviction` reports.
    """

    host: HostProxies
    verifier: TokenVerifier | None
    reports_per_eviction: int


class ControlPlane:
    """The feed, the loop, the status writer, telemetry and the xDS server. Start the tasks of `work`, then call `serve`."""

    def __init__(self, ports: Ports, proxies: ProxyOptions, settings: Settings, trust: Trust) -> None:
        self._ports = ports
        self._trust = trust
        self._fleet = Fleet()
        feed = Feed(ports.objects)
        loop = Loop(feed.snapshot, self._fleet, proxies.host, settings, trust.credentials)
        self.live_state = LiveState(ports.objects, feed, loop, self._fleet)
        self.traffic = Receiver(Windows(), proxies.reports_per_eviction, find_caller=CallerFinder(loop.compiled))
        services = {otlp.METHOD: self.traffic.export, tap_records.METHOD: self.live_state.taps.export}
        self._server = XdsServer(self._fleet, proxies.verifier, unary_methods=services)

    def work(self) -> Iterator[Work]:
        """Yield the tasks of the control plane with their names; each runs until canceled."""
        loop, dropped = self.live_state.loop, self.traffic.dropped
        status = StatusWriter(self._ports, loop, self._fleet, dropped.now)
        yield "feed", self.live_state.feed.run()
        yield "certificates", self._trust.run(self._ports, loop, self._fleet)
        yield "loop", loop.run()
        yield "dropped copies", dropped.run()
        yield "status", status.run()

    async def serve(self, address: str) -> None:
        """Serve xDS on `address` once the stored objects are compiled: a reconnecting proxy must never get an empty mesh."""
        await self.live_state.wait_compiled()
        self._fleet.assume_configured()
        await self._server.start(address)

    async def stop(self) -> None:
        """Close all streams. The proxies keep their configuration and reconnect later."""
        await self._server.stop()
