"""The state of the running control plane: the compiled mesh and the acknowledgments of proxies."""

import asyncio
import time
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from headgate.compiler.report import Compiled, Finding
from headgate.compiler.snapshot import Snapshot
from headgate.history.revisions import Log
from headgate.latest import Latest, until
from headgate.model.localhost_names import LocalhostName, shortest_names
from headgate.model.routing import Protocol
from headgate.objects.ports import Store
from headgate.plane.feed import Feed
from headgate.plane.loop import Loop
from headgate.plane.object_graphs import ObjectGraphs
from headgate.plane.predictions import PredictedControllers
from headgate.plane.status.certificate_expiry import certificate_expiry
from headgate.plane.status.findings import faults, refusals
from headgate.plane.tap.taps import Taps
from headgate.resources.meta import Key, Object
from headgate.resources.registry import ENDPOINT_SLICE
from headgate.telemetry.access_records import AccessRecords, no_call
from headgate.xds.fleet import Fleet, FleetProxy

T = TypeVar("T")


class Recorded(NamedTuple):
    """What comes from outside of the loop: the calls to workloads, and the host's findings and controllers."""

    access: AccessRecords | None = None
    findings: Sequence[Latest[tuple[Finding, ...]]] = ()
    controllers: PredictedControllers = PredictedControllers()


NOTHING_RECORDED = Recorded()


class LiveState:
    """Combines the states of the feed, the loop and the fleet, and waits until changes are compiled or acknowledged.

    `history` has the recorded revisions; None before they are loaded, and in a standby. `of_host` has the host's findings.
    """

    def __init__(
        self,
        store: Store,
        feed: Feed,
        loop: Loop,
        fleet: Fleet,
        recorded: Recorded = NOTHING_RECORDED,
    ) -> None:
        self.store = store
        self.feed = feed
        self.loop = loop
        self.fleet = fleet
        self.access = recorded.access or AccessRecords(no_call, now=time.time())
        self.of_host = recorded.findings
        self.controllers = recorded.controllers
        self.history: Latest[Log | None] = Latest(None)
        self.taps = Taps(loop, ObjectGraphs(store, loop.settings))
        self._faults = loop.credentials.faults
        self._last_unsettled: FleetProxy | None = None
        # a compilation, and the addresses of all ready endpoints in its mesh
        self._endpoint_addresses: tuple[Compiled | None, frozenset[str]] = (None, frozenset())
        self._previewing = asyncio.Lock()
        self._changes = (feed.seen, loop.compiled, fleet.change_count, self._faults)

    def findings(self) -> tuple[Finding, ...]:
        """Return all current findings, sorted by object."""
        by_object = self.findings_of()
        return tuple(finding for key in sorted(by_object) for finding in by_object[key])

    def findings_of(self) -> Mapping[Key, tuple[Finding, ...]]:
        """Return the current findings by object: of the compiler, of the host, about rejected resources and certificates."""
        compiled = self.loop.compiled.get()
        if compiled is None:
            return {}
        by_object = compiled.report.findings_of
        more = (
            *refusals(compiled, self.fleet.connected()),
            *faults(self._faults.get()),
            *certificate_expiry(compiled, time.time()),
            *chain.from_iterable(cell.get() for cell in self.of_host),
        )
        if more:
            about: dict[Key, tuple[Finding, ...]] = {}
            for finding in more:
                about[finding.about] = (*about.get(finding.about, by_object.get(finding.about, ())), finding)
            by_object = by_object.edited(about)
        return by_object

    def services(self) -> Mapping[str, Mapping[str, str]]:
        """Return the addresses of each Service by port: `{"default/website": {"8080": "127.77.0.9:8080"}}`."""
        compiled, published = self.loop.compiled.get(), self.loop.published
        return {
            front.service: {
                str(port): f"{address}:{port}"
                for port in front.ports
                if front.address and port not in front.unbindable and (address := published(front.address, port))
            }
            for front in (compiled.mesh.frontends if compiled else ())
        }

    def protocols(self) -> Mapping[str, Mapping[str, str]]:
        """Return the protocol of each Service port: `{"default/website": {"8080": "http"}}`."""
        compiled = self.loop.compiled.get()
        by_service: dict[str, dict[str, str]] = {}
        for table in compiled.mesh.tables if compiled else ():
            by_service.setdefault(table.ref.service, {})[str(table.ref.port)] = table.protocol.value
        return by_service

    def localhost_names(self) -> Mapping[str, Sequence[LocalhostName]]:
        """Return the shortest name of each HTTP port below `.localhost`, by Service."""
        compiled = self.loop.compiled.get()
        by_service: dict[str, list[LocalhostName]] = {}
        for named in shortest_names(compiled.mesh) if compiled else ():
            by_service.setdefault(named.service, []).append(named)
        return by_service

    def gateways(self) -> Mapping[str, Mapping[str, str]]:
        """Return the addresses of each Gateway by port: `{"default/shop": {"8443": "127.77.0.10:8443"}}`.

        A UDP port has the key `53/UDP` and such an address.
        """
        compiled, published = self.loop.compiled.get(), self.loop.published
        by_gateway: dict[str, dict[str, str]] = {}
        for port in compiled.mesh.gateways if compiled else ():
            ports = by_gateway.setdefault(port.gateway, {})
            suffix = "/UDP" if port.protocol is Protocol.UDP else ""
            if address := published(port.address, port.port) if port.address else "":
                ports[f"{port.port}{suffix}"] = f"{address}:{port.port}{suffix}"
        return by_gateway

    @property
    def is_current(self) -> bool:
        """Whether the newest snapshot is compiled."""
        snapshot, compiled = self.feed.snapshot.get(), self.loop.compiled.get()
        return snapshot is not None and compiled is not None and compiled.revision == snapshot.revision

    async def wait_compiled(self, written: Object | None = None) -> Compiled:
        """Wait until the version `written` of an object is compiled; return the result of the compilation.

        Without `written`, wait for all stored objects.
        """
        await (self.feed.wait_for_object(written) if written else self.feed.wait_until_current())
        await until(lambda: self.is_current, *self._changes)
        return self._compiled()

    def _compiled(self) -> Compiled:
        current = self.loop.compiled.get()
        if current is None:
            raise AssertionError("unreachable: the wait ends when the newest snapshot is compiled")
        return current

    async def preview(self, snapshot: Snapshot) -> Compiled:
        """Compile a snapshot, and publish nothing."""
        return await self.in_preview(lambda: self.loop.compile(snapshot))

    async def in_preview(self, work: Callable[[], T]) -> T:
        """Do the work of a preview in a thread, after all earlier previews."""
        # Only one at a time: several threads would take all processor time from the renewal of the Lease.
        await self._previewing.acquire()
        running = asyncio.ensure_future(asyncio.to_thread(work))
        running.add_done_callback(lambda _: self._previewing.release())
        # If the wait is canceled, the task continues until its thread ends, and then releases `_previewing`.
        return await asyncio.shield(running)

    async def wait_until_active(self) -> Compiled:
        """Wait until all stored objects are compiled and the proxies have answered; return the result."""
        await self.feed.wait_until_current()
        await self.wait_distributed()
        return self._compiled()

    async def wait_distributed(self) -> None:
        """Wait until the newest snapshot is compiled, and every connected proxy has acknowledged or rejected it.

        Does not wait for a proxy that gets no certificate: a finding reports that proxy.
        """
        await until(lambda: self.is_current and self._is_settled(self._faults.get()), *self._changes)

    async def wait_expected(self, node_id: str) -> None:
        """Wait until the fleet expects a proxy, so that the xDS server accepts the stream of that proxy."""
        await until(lambda: node_id in self.fleet.proxies, self.loop.compiled)

    async def wait_settled(self, node_id: str) -> None:
        """Wait until a proxy has acknowledged or rejected its whole configuration."""
        await until(lambda: self._is_proxy_settled(node_id), *self._changes)

    async def retry_listeners(self, node_id: str) -> None:
        """Wait until a proxy has answered, then send it again the listeners whose address was in use."""
        await self.wait_settled(node_id)
        if proxy := self.fleet.proxies.get(node_id):
            proxy.retry_listeners()

    def refusals_of(self, node_id: str) -> Sequence[str]:
        """Return the resources that a proxy refused, each with Envoy's error message."""
        proxy = self.fleet.proxies.get(node_id)
        return [f"{rejection.name}: {rejection.message.strip()}" for rejection in proxy.rejections()] if proxy else []

    async def wait_unrouted(self, address: str) -> None:
        """Wait until no proxy sends requests to the address of a pod any more, unless no other pod can get them (D31).

        This includes disconnected proxies, which still serve: after a restart of headgate, they reconnect one by one.
        It also includes those that will send to a pod that was ready so briefly that its endpoint is not compiled yet.
        """
        await self.feed.wait_until_current(ENDPOINT_SLICE)
        snapshot = self.feed.snapshot.get()
        await until(lambda: self._has_compiled(snapshot.revision if snapshot else 0), self.loop.compiled)
        await until(lambda: self._is_unrouted(address) and self._have_all_answered(), *self._changes)

    def _has_compiled(self, revision: int) -> bool:
        compiled = self.loop.compiled.get()
        return compiled is not None and compiled.revision >= revision

    def _is_proxy_settled(self, node_id: str) -> bool:
        proxy = self.fleet.proxies.get(node_id)
        return proxy is not None and proxy.settled()

    def _is_settled(self, uncertified: Container[str] = ()) -> bool:
        """Return whether all gateways are connected, and every connected proxy has answered (ACK or NACK).

        Proxies in `uncertified` (node IDs) count as settled while they have no configuration.
        """
        gateways = (self.fleet.proxies.get(node_id) for node_id in self.loop.gateways)
        return all(gateway and gateway.session for gateway in gateways) and self._no_proxy(
            lambda proxy: (
                proxy.session is not None
                and not proxy.settled()
                and not (proxy.config.get() is None and proxy.id in uncertified)
            )
        )

    def _have_all_answered(self) -> bool:
        """Return whether every proxy that may send requests has acknowledged or rejected its configuration."""
        return self._no_proxy(lambda proxy: proxy.was_configured and not proxy.settled())

    def _no_proxy(self, is_late: Callable[[FleetProxy], bool]) -> bool:
        """Return whether `is_late` is False for all proxies.

        The proxy that was late in the last call is checked first, because it is usually still late.
        """
        self._last_unsettled = self.fleet.find(is_late, self._last_unsettled)
        return self._last_unsettled is None

    def _is_unrouted(self, address: str) -> bool:
        compiled = self.loop.compiled.get()
        if compiled is not self._endpoint_addresses[0]:
            entries = compiled.mesh.endpoints if compiled else ()
            ready = frozenset(
                endpoint.address for entry in entries for endpoint in entry.ready if not endpoint.terminating
            )
            self._endpoint_addresses = compiled, ready
        return address not in self._endpoint_addresses[1]
