"""Snapshot to mesh to each proxy's configuration: the one writer of what is current (ARCHITECTURE.md, rule 2)."""

import asyncio
import contextlib
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.compile import Compiler, compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.config import Configuration
from headgate.envoy.encode import Memo, encode_all, with_tap
from headgate.envoy.view import Node, View, sidecar
from headgate.identity.credentials import Credentials
from headgate.identity.issuers import Wanted
from headgate.latest import Latest, until
from headgate.model.identities import Credential, gateway_id
from headgate.model.routing import Mesh, TlsMode, Workload
from headgate.plane.mtls_migration import MtlsMigration
from headgate.settings import Settings
from headgate.telemetry.prometheus.text import Line, histogram
from headgate.xds.fleet import Fleet, Proxy

log = logging.getLogger(__name__)


SLICE_S = 0.004
"""How long encoding may hold up the streams and the API at a time."""
TOGETHER = 128
"""How many streams are woken at a time: each of them takes its turn of the event loop before any other task does."""
REST = 3
"""How many times as long as a change took to reach most proxies the loop rests after it."""
PROXY_S, LONGEST_S = 0.002, 1.2
"""From one build to the next in a storm at most: for each proxy that gets something, and in all. A longer build counts twice."""
SAMPLED = 16
"""How many proxies tell how far a change is on its way to all."""
_BOUNDS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of buckets


class HostProxies(NamedTuple):
    """What a host knows of its proxies before the first build.

    `gateways` are there from the start. `probes` returns the path of the socket that `headgate try` uses, by node id.
    `stages` is the file in which stages of mutual TLS outlive a killed headgate.
    """

    gateways: Sequence[Node] = ()
    probes: Callable[[str], str] = lambda _node_id: ""
    stages: Path | None = None


class Loop:
    """Compiles each new snapshot and gives every proxy its part. `compiled` is what is current; a bug leaves it as it is.

    Sidecars come and go with their workloads. A proxy gets nothing before it has a credential: half of a configuration
    would refuse, or worse, send plaintext.

    `taps` says which proxies (node ids) record which share of their requests, in millionths.
    """

    def __init__(
        self,
        snapshot: Latest[Snapshot | None],
        fleet: Fleet,
        known: HostProxies,
        settings: Settings,
        credentials: Credentials,
    ) -> None:
        self.compiled: Latest[Compiled | None] = Latest(None)
        self.taps: Latest[Mapping[str, int]] = Latest({})
        self.failures = 0
        self.builds = DurationHistogram()
        self.memo = Memo()
        self._compiler = Compiler()
        self.mtls_migration = MtlsMigration(fleet, known.stages)
        self._known = known
        self._snapshot = snapshot
        self._fleet = fleet
        self.gateways = tuple(node.id for node in known.gateways)
        self.settings = settings
        self.credentials = credentials
        self._seen: tuple[Snapshot | None, Mapping[str, TlsMode]] = (None, {})
        self._proven: Mapping[str, Credential] = {}
        self._failed: Snapshot | None = None  # a step that can't be built is not tried again until something changes
        self._wanted = ExpectedProxies(None, known)
        self._given: dict[str, Assignment] = {}
        self._taps = self.taps.get()
        self._distribution = Distribution()

    def credential_of(self, node_id: str) -> Credential | None:
        """Return the credential that a proxy's current configuration was made with."""
        given = self._given.get(node_id)
        return given.credential if given else None

    async def run(self) -> None:
        """Build for ever: at once when idle; in a storm of changes, after a rest, so that several share a build."""
        while True:
            await until(self._is_due, self._snapshot, self.credentials.current, self._fleet.news, self.taps)
            began = time.monotonic()
            await self._attempt()
            self.builds.add(time.monotonic() - began)
            await self._rest(began)

    async def _rest(self, began: float) -> None:
        """Rest for as long as the build took, and by what it costs to distribute it.

        That is measured by when most proxies hold it: while responses are on their way, another build only adds to them.
        """
        took = time.monotonic() - began
        limit = min(LONGEST_S, PROXY_S * self._distribution.proxies)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit - took):
                await until(self._distribution.is_mostly_done, self._fleet.news)
        spent = time.monotonic() - began
        await asyncio.sleep(max(2 * took - spent, min(REST * spent, limit - spent)))

    def compile(self, snapshot: Snapshot) -> Compiled:
        """Compile any snapshot as the current one would be, and publish nothing; this may run in a thread."""
        _, stages = self._seen
        return compile_mesh(snapshot, self.settings, stages)

    def _is_due(self) -> bool:
        snapshot, _ = self._seen
        return (
            self._snapshot.get() is not snapshot
            or self.credentials.current.get() is not self._proven
            or self.taps.get() is not self._taps
            or (self.mtls_migration.is_due and snapshot is not self._failed)
        )

    async def _attempt(self) -> None:
        snapshot, self._proven = self._snapshot.get(), self.credentials.current.get()
        self._taps = self.taps.get()
        if snapshot is None:
            return
        stages = self.mtls_migration.next()
        try:
            compiled = self.compiled.get()
            if compiled is None or self._seen != (snapshot, stages):
                compiled = await asyncio.to_thread(self._compiler.compile, snapshot, self.settings, stages)
            await self._publish(compiled)
            self.mtls_migration.note(compiled.mesh.workloads)
        except Exception:
            self.failures += 1
            self._failed = snapshot
            log.exception("revision %d can't be built; the proxies keep the last one", snapshot.revision)
        self._seen = snapshot, stages

    async def _publish(self, compiled: Compiled) -> None:
        """Give each proxy its part, where it is another one than before, and make the mesh current."""
        self._expect(compiled.mesh)
        if compiled is not self.compiled.get():
            self.memo.begin_build()
        configs = await self._encode(compiled.mesh)
        before, self._given = self._given, {}
        news = []
        for node_id, config in configs.items():
            given = Assignment(self._proven[node_id], config, self._taps.get(node_id, 0))
            self._given[node_id] = given
            last = before.get(node_id)
            if last is None or last.config is not config or last.share != given.share:
                news.append((self._fleet.expect(node_id), with_tap(config, given.share)))
        self._distribution.begin([proxy for proxy, _ in news])
        for number, (proxy, wanted) in enumerate(news, 1):
            proxy.config.set(wanted)
            if number % TOGETHER == 0:
                await asyncio.sleep(0)
        self.compiled.set(compiled)

    async def _encode(self, mesh: Mesh) -> Mapping[str, Configuration]:
        """Encode what each proxy with a credential is to hold. Other tasks get their turns meanwhile."""
        views = (
            View(node, mesh, workload, credential)
            for node, workload in self._wanted.nodes
            if (credential := self._proven.get(node.id))
        )
        found = {}
        end = time.monotonic() + SLICE_S
        for step in encode_all(views, self.memo):
            if step:
                node_id, found[node_id] = step
            if time.monotonic() > end:
                await asyncio.sleep(0)
                end = time.monotonic() + SLICE_S
        return found

    def _expect(self, mesh: Mesh) -> None:
        """Expect the proxies of a mesh, and want a certificate for each of them.

        ExpectedProxies that are not wanted are forgotten, and those whose pod is another one than before: that has the name of the
        one before, but must prove that it is there, and gets a key of its own.
        """
        last, wanted = self._wanted, ExpectedProxies(mesh, self._known)
        if wanted.source == last.source:
            return
        others = {node_id for node_id, uid in wanted.pods.items() if last.pods.get(node_id, uid) != uid}
        for gone in (self._fleet.proxies.keys() - wanted.certificates.keys()) | others:
            self._fleet.forget(gone)
            self._given.pop(gone, None)
        self.credentials.begin_anew(others)
        self.credentials.want(wanted.certificates)
        self._proven = self.credentials.current.get()  # without what was another pod's
        for node_id in wanted.certificates:
            self._fleet.expect(node_id)
        self._wanted = wanted


class Distribution:
    """How far a change is on its way to the proxies, by a sample of them."""

    def __init__(self) -> None:
        self.proxies = 0
        self._sample: Sequence[Proxy] = ()

    def begin(self, proxies: Sequence[Proxy]) -> None:
        """Note which proxies are about to be given another configuration.

        A proxy counts when it held all before, or was counted the last time. One that connects for the first time takes
        longer, and no change waits for it.
        """
        self.proxies = len(proxies)
        some = proxies[:: max(1, len(proxies) // SAMPLED)]
        self._sample = [one for one in some if one.settled() or (one.session and one in self._sample)]

    def is_mostly_done(self) -> bool:
        """Say whether half of the proxies hold, or have refused, what they were given."""
        return 2 * sum(proxy.settled() for proxy in self._sample) >= len(self._sample)


class Assignment(NamedTuple):
    """What a proxy's configuration was made with, and which share of its requests it records."""

    credential: Credential
    config: Configuration
    share: int


class ExpectedProxies:
    """The proxies that a mesh has: gateways, and a sidecar for each workload."""

    def __init__(self, mesh: Mesh | None, known: HostProxies) -> None:
        self.source = (mesh.workloads, mesh.trust_domain) if mesh else None
        self._mesh = mesh
        self._known = known

    @cached_property
    def nodes(self) -> Sequence[tuple[Node, Workload | None]]:
        """Every proxy, with its workload if it is a sidecar."""
        workloads = self._mesh.workloads if self._mesh else ()
        sidecars = [(sidecar(item), item) for item in workloads]
        return [
            *((node, None) for node in self._known.gateways),
            *((structs.replace(node, try_socket=self._known.probes(node.id)), item) for node, item in sidecars),
        ]

    @cached_property
    def certificates(self) -> Mapping[str, Wanted]:
        """What the certificate of each proxy is to say, by node id."""
        domain = self._mesh.trust_domain if self._mesh else ""
        return {
            node.id: Wanted(identity=item.identity, subjects=item.subjects)
            if item
            else Wanted(identity=gateway_id(domain))
            for node, item in self.nodes
        }

    @cached_property
    def pods(self) -> Mapping[str, str]:
        """The uid of each sidecar's pod, by node id."""
        return {node.id: item.uid for node, item in self.nodes if item}


class DurationHistogram:
    """A histogram of durations since headgate started, for `/metrics`."""

    def __init__(self) -> None:
        self._buckets = [0] * (len(_BOUNDS_S) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self._buckets[bisect_left(_BOUNDS_S, seconds)] += 1
        self._total += seconds

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the histogram."""
        return histogram(_BOUNDS_S, self._buckets, self._total)
