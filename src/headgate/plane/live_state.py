"""A headgate that runs: questions about what is in force, for those who started it."""

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence

from headgate.compiler.report import Compiled, Finding
from headgate.compiler.snapshot import Snapshot
from headgate.latest import until
from headgate.objects.ports import Store
from headgate.plane.feed import GROUP_KINDS, Feed, changed
from headgate.plane.loop import Loop
from headgate.plane.object_graphs import ObjectGraphs
from headgate.plane.status.findings import faults, refusals
from headgate.plane.tap.taps import Taps
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.xds.fleet import Fleet, Proxy

ADVICE_S = 0.2  # for the compiler to have seen a write; its warnings are worth that much of a writer's time


class LiveState:
    """The parts that turn a store's objects into what the proxies hold, looked at together."""

    def __init__(self, store: Store, feed: Feed, loop: Loop, fleet: Fleet) -> None:
        self.store = store
        self.feed = feed
        self.loop = loop
        self.fleet = fleet
        self.taps = Taps(loop, ObjectGraphs(store, loop.settings))
        self._faults = loop.credentials.faults
        self._late: Proxy | None = None
        self._routed: tuple[Compiled | None, frozenset[str]] = (None, frozenset())  # addresses of ready endpoints
        self._cells = (feed.seen, loop.compiled, fleet.news, self._faults)

    def findings(self) -> tuple[Finding, ...]:
        """Return all there is to tell about the objects now: the compiler's findings and the proxies' refusals."""
        compiled = self.loop.compiled.get()
        if compiled is None:
            return ()
        unproven = faults(self._faults.get())
        return (*compiled.report.findings, *refusals(compiled, self.fleet.connected()), *unproven)

    def services(self) -> Mapping[str, Mapping[str, str]]:
        """Return where each Service listens: `{"default/website": {"8080": "127.77.0.9:8080"}}`."""
        compiled = self.loop.compiled.get()
        return {
            front.service: {
                str(port): f"{front.address}:{port}"
                for port in front.ports
                if front.address and port not in front.unbindable
            }
            for front in (compiled.mesh.frontends if compiled else ())
        }

    def protocols(self) -> Mapping[str, Mapping[str, str]]:
        """Return what is spoken on each Service port: `{"default/website": {"8080": "http"}}`."""
        compiled = self.loop.compiled.get()
        found: dict[str, dict[str, str]] = {}
        for table in compiled.mesh.tables if compiled else ():
            found.setdefault(table.ref.service, {})[str(table.ref.port)] = table.protocol.value
        return found

    def gateways(self) -> Mapping[str, Mapping[str, str]]:
        """Return where each Gateway listens: `{"default/shop": {"8443": "127.77.0.10:8443"}}`."""
        compiled = self.loop.compiled.get()
        found: dict[str, dict[str, str]] = {}
        for port in compiled.mesh.gateways if compiled else ():
            found.setdefault(port.gateway, {})[str(port.port)] = f"{port.address}:{port.port}"
        return found

    @property
    def is_current(self) -> bool:
        """Whether the newest snapshot is compiled."""
        snapshot, compiled = self.feed.snapshot.get(), self.loop.compiled.get()
        return snapshot is not None and compiled is not None and compiled.revision == snapshot.revision

    async def wait_compiled(self, written: Object | None = None) -> Compiled:
        """Wait until an object as it was written is compiled, without one everything that is stored; return the result."""
        await (self.feed.wait_for_object(written) if written else self.feed.wait_until_current())
        await until(lambda: self.is_current, *self._cells)
        current = self.loop.compiled.get()
        if current is None:
            raise AssertionError("nothing is compiled after the wait for it")
        return current

    async def compile_with(self, obj: Object) -> Compiled:
        """Return what would be compiled if an object were stored; nothing that is current changes."""
        await self.feed.wait_until_current()
        snapshot = changed(self.feed.snapshot.get() or Snapshot(), obj)
        return await asyncio.to_thread(self.loop.compile, snapshot)  # a large mesh must not hold up other requests

    async def warnings_for(self, obj: Object, *, dry_run: bool) -> Sequence[str]:
        """Return the compiler's findings about an object that was just written; with `dry_run`, if it were written (R22)."""
        key = key_of(obj)
        if (key.group, key.kind) not in GROUP_KINDS:
            return ()
        try:
            async with asyncio.timeout(None if dry_run else ADVICE_S):
                compiled = await (self.compile_with(obj) if dry_run else self.wait_compiled(obj))
        except TimeoutError:
            return ()
        return [f"{item.field}: {item.message}" for item in compiled.report.findings if item.about == key]

    async def wait_in_force(self) -> Compiled:
        """Wait until everything that is stored is compiled and distributed; return the result."""
        await self.feed.wait_until_current()
        await self.wait_distributed()
        return await self.wait_compiled()

    async def wait_distributed(self) -> None:
        """Wait until the newest snapshot is compiled, and every connected proxy holds it or refused it.

        A proxy without a certificate, because none can be issued, is not waited for: that is a finding.
        """
        await until(lambda: self.is_current and self._is_settled(self._faults.get()), *self._cells)

    async def wait_expected(self, node_id: str) -> None:
        """Wait until a proxy may come."""
        await until(lambda: node_id in self.fleet.proxies, self.loop.compiled)

    async def wait_settled(self, node_id: str) -> None:
        """Wait until a proxy holds, or has refused, its whole configuration."""
        await until(lambda: self._holds(node_id), *self._cells)

    def refusals_of(self, node_id: str) -> Sequence[str]:
        """Return what a proxy refused, in Envoy's words."""
        proxy = self.fleet.proxies.get(node_id)
        return [f"{item.name}: {item.message.strip()}" for item in proxy.refusals()] if proxy else []

    async def wait_unrouted(self, address: str) -> None:
        """Wait until no proxy sends anything to an address of a pod any more.

        Those too that are away and serve: after a restart of headgate they come back one after the other.
        """
        await until(lambda: self._leaves_out(address) and self._is_known_everywhere(), *self._cells)

    def _holds(self, node_id: str) -> bool:
        proxy = self.fleet.proxies.get(node_id)
        return proxy is not None and proxy.settled()

    def _is_settled(self, untold: Container[str] = ()) -> bool:
        """Say whether every connected proxy is where it should be; `untold` may wait for their first configuration.

        The gateways are waited for until they are connected.
        """
        gateways = (self.fleet.proxies.get(node_id) for node_id in self.loop.gateways)
        return all(gateway and gateway.session for gateway in gateways) and self._is_none(
            lambda proxy: (
                proxy.session is not None
                and not proxy.settled()
                and not (proxy.config.get() is None and proxy.id in untold)
            )
        )

    def _is_known_everywhere(self) -> bool:
        """Say whether every proxy that may send something is where it should be."""
        return self._is_none(lambda proxy: proxy.serves and not proxy.settled())

    def _is_none(self, is_late: Callable[[Proxy], bool]) -> bool:
        """Say whether no proxy is late. The last that was is looked at first: mostly it still is."""
        self._late = self.fleet.first(is_late, self._late)
        return self._late is None

    def _leaves_out(self, address: str) -> bool:
        compiled = self.loop.compiled.get()
        if compiled is not self._routed[0]:
            entries = compiled.mesh.endpoints if compiled else ()
            self._routed = compiled, frozenset(place.address for entry in entries for place in entry.ready)
        return address not in self._routed[1]
