"""The control loop: compiles snapshots and publishes each proxy's configuration (ARCHITECTURE.md, rule 2)."""

import asyncio
import contextlib
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headgate.compiler.compile import Compiler
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot, has_same_objects
from headgate.envoy.config import SECRET, Configuration, Resources
from headgate.envoy.encode import Memo, encode_all, with_runtime
from headgate.envoy.traces import sampling_shares
from headgate.envoy.view import ProxyView
from headgate.identity.credentials import Credentials
from headgate.latest import Latest, until
from headgate.model.identities import Credential
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import Mesh, Workload
from headgate.plane.expected_proxies import ExpectedProxies, HostProxies
from headgate.plane.mtls_migration import MtlsMigration
from headgate.settings import Settings
from headgate.telemetry.prometheus.text import Line, histogram
from headgate.xds.fleet import Fleet, FleetProxy

log = logging.getLogger(__name__)


SLICE_S = 0.004
"""Seconds of encoding after which the loop yields the event loop to other tasks, such as streams and the API."""
WAKE_BATCH = 128
"""The number of streams that the loop wakes before it yields the event loop to other tasks."""
PAUSE_FACTOR = 3
"""The pause after a build, as a multiple of the time until most proxies have acknowledged the build."""
INTERVAL_PER_PROXY_S, MAX_INTERVAL_S = 0.002, 1.2
"""Limits of the time between two builds, in seconds: per changed proxy, and in total. The smaller limit applies."""
STANDBY_PAUSE_S = 0.5
"""The pause of a standby after a build, in seconds. It has no proxies, so it combines more changes in one build."""
ALWAYS_ACTIVE = Latest(value=True)  # of a control plane without a standby
SAMPLE_SIZE = 16
"""The number of proxies in the sample with which the loop measures how many proxies have acknowledged a change."""
_BOUNDS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # upper bounds of histogram buckets, seconds


class RenderedConfig(NamedTuple):
    """The configuration of a proxy without its secrets, as a revision has rendered it for the objects of the build `of`."""

    config: Configuration
    of: Compiled


class Renderings(NamedTuple):
    """What revisions render: the installed revisions, and the newest configuration of each of their proxies, by node ID."""

    revisions: frozenset[str] = frozenset()
    proxies: Mapping[str, RenderedConfig] = {}


class Build(NamedTuple):
    """A snapshot, the TLS modes with which it was compiled, and the result."""

    snapshot: Snapshot
    modes: Mapping[str, TlsMode]
    compiled: Compiled


class Loop:
    """Compiles each new snapshot and publishes a configuration for each proxy.

    `compiled` is the result of the last successful build. A proxy gets no configuration before it has a credential:
    without the credential, the proxy would refuse connections, or even send plaintext.

    `taps` maps the node ID of each recording proxy to the share of requests that it records, in millionths.

    `renderings` has the configurations of the proxies whose revision is installed; the loop renders all further ones. The proxy of a
    revision is behind until its revision has rendered a build.
    """

    def __init__(
        self,
        snapshot: Latest[Snapshot | None],
        fleet: Fleet,
        host: HostProxies,
        settings: Settings,
        credentials: Credentials,
    ) -> None:
        self.compiled: Latest[Compiled | None] = Latest(None)
        self.taps: Latest[Mapping[str, int]] = Latest({})
        self.renderings: Latest[Renderings] = Latest(Renderings())
        self.failures = 0
        self.builds = DurationHistogram()
        self.memo = Memo()
        self._compiler = Compiler()
        self.mtls_migration = MtlsMigration(fleet)
        self._host = host
        self._snapshot = snapshot
        self._fleet = fleet
        self.settings = settings
        self.credentials = credentials
        self._attempted: tuple[Snapshot | None, Mapping[str, TlsMode]] = (None, {})  # also if it failed to build
        self._credentials: Mapping[str, Credential] = {}
        self._builds: tuple[Build, ...] = ()  # the last two, which the effect of a write is often about
        self._failed: Snapshot | None = None  # the last snapshot that failed to build
        self._expected = ExpectedProxies(None, host)
        self._assigned: dict[str, Assignment] = {}
        self._taps = self.taps.get()
        self._renderings = self.renderings.get()
        self._joined: dict[str, tuple[Configuration, Resources, Configuration]] = {}
        self._behind: list[FleetProxy] = []
        self._distribution = Distribution()

    @property
    def published(self) -> Callable[[str, int], str]:
        """The addresses at which users of the machine reach those of gateways; see `HostProxies`."""
        return self._host.published

    @property
    def gateways(self) -> tuple[str, ...]:
        """The node IDs of all gateways."""
        return tuple(node.id for node in self._expected.gateways)

    def credential_of(self, node_id: str) -> Credential | None:
        """Return the credential in a proxy's current configuration."""
        assigned = self._assigned.get(node_id)
        return assigned.credential if assigned else None

    async def run(self, active: Latest[bool] = ALWAYS_ACTIVE) -> None:
        """Build on every change until canceled. Pause after each build, to combine changes in the next build.

        The pause of a standby is longer; it ends when the standby becomes `active`.
        """
        while True:
            changing = (self._snapshot, self.credentials.current, self._fleet.change_count, self.taps, self.renderings)
            await until(self._is_due, *changing)
            began = time.monotonic()
            await self._attempt()
            self.builds.add(time.monotonic() - began)
            if active.get():
                await self._pause(began)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STANDBY_PAUSE_S):
                        await until(active.get, active)

    async def _pause(self, began: float) -> None:
        """Pause at least as long as the build took, and longer while proxies have not acknowledged it, up to a limit.

        During the pause, several changes collect for the next build. `began` is the monotonic start of the build.
        """
        took = time.monotonic() - began
        limit = min(MAX_INTERVAL_S, INTERVAL_PER_PROXY_S * self._distribution.proxies)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit - took):
                await until(self._distribution.is_mostly_done, self._fleet.change_count)
        spent = time.monotonic() - began
        await asyncio.sleep(max(2 * took - spent, min(PAUSE_FACTOR * spent, limit - spent)))

    def compile(self, snapshot: Snapshot) -> Compiled:
        """Compile a snapshot with the current settings and TLS modes, and publish nothing. Safe to call in a thread."""
        return self.compile_each(snapshot)[0]

    def compile_each(self, *snapshots: Snapshot) -> Sequence[Compiled]:
        """Compile snapshots with the same settings and TLS modes, except for those that the loop has built last."""
        _, modes = self._attempted
        compiler, builds = self._compiler.fork(), [build for build in self._builds if build.modes == modes]
        last_builds = (
            next((build for build in builds if has_same_objects(build.snapshot, snapshot)), None)
            for snapshot in snapshots
        )
        return [
            build.compiled if build else compiler.compile(snapshot, self.settings, modes)
            for snapshot, build in zip(snapshots, last_builds, strict=True)
        ]

    def _is_due(self) -> bool:
        snapshot, _ = self._attempted
        return (
            self._snapshot.get() is not snapshot
            or self.credentials.current.get() is not self._credentials
            or self.taps.get() is not self._taps
            or self.renderings.get() is not self._renderings
            or (self.mtls_migration.is_due and snapshot is not self._failed)
        )

    async def _attempt(self) -> None:
        snapshot, self._credentials = self._snapshot.get(), self.credentials.current.get()
        self._taps, self._renderings = self.taps.get(), self.renderings.get()
        if snapshot is None:
            return
        modes = self.mtls_migration.next_modes()
        try:
            compiled = self.compiled.get()
            if compiled is None or self._attempted != (snapshot, modes):
                compiled = await asyncio.to_thread(self._compiler.compile, snapshot, self.settings, modes)
                self._builds = (*self._builds[-1:], Build(snapshot, modes, compiled))
            await self._publish(compiled)
            self.mtls_migration.record(compiled.mesh.workloads)
            await self.mtls_migration.save()
        except Exception:
            self.failures += 1
            self._failed = snapshot
            log.exception("revision %d can't be built; the proxies keep the last configuration", snapshot.revision)
        self._attempted = snapshot, modes

    async def _publish(self, compiled: Compiled) -> None:
        """Set the changed configurations of proxies, then make `compiled` the current result."""
        self._expect(compiled.mesh)
        current = self.compiled.get()
        compiled = current if current == compiled else compiled  # revisions render for the published object
        if compiled is not current:
            self.memo.begin_build()
        configs = {**await self._encode(compiled.mesh), **self._of_revisions(compiled)}
        before, self._assigned = self._assigned, {}
        changed, sampling = [], sampling_shares(compiled.mesh)
        for node_id, config in configs.items():
            assigned = Assignment(self._credentials[node_id], config, self._taps.get(node_id, 0), sampling(node_id))
            self._assigned[node_id] = assigned
            last = before.get(node_id)
            if last is None or last.config is not config or last[2:] != assigned[2:]:
                changed.append((self._fleet.expect(node_id), with_runtime(config, assigned.share, assigned.sampling)))
        self._distribution.begin([proxy for proxy, _ in changed])
        for number, (proxy, runtime_config) in enumerate(changed, 1):
            proxy.config.set(runtime_config)
            if number % WAKE_BATCH == 0:
                await asyncio.sleep(0)
        self.compiled.set(compiled)

    async def _encode(self, mesh: Mesh) -> Mapping[str, Configuration]:
        """Encode the configuration of each proxy that has a credential, in slices between which other tasks run."""
        views = (
            ProxyView(node, mesh, workload, credential)
            for node, workload in self._expected.nodes
            if not self._is_of_revision(workload) and (credential := self._credentials.get(node.id))
        )
        configs = {}
        end = time.monotonic() + SLICE_S
        for step in encode_all(views, self.memo):
            if step:
                node_id, configs[node_id] = step
            if time.monotonic() > end:
                await asyncio.sleep(0)
                end = time.monotonic() + SLICE_S
        return configs

    def _is_of_revision(self, workload: Workload | None) -> bool:
        """Return whether an installed revision renders the configuration of a workload's proxy."""
        return workload is not None and workload.revision in self._renderings.revisions

    def _of_revisions(self, compiled: Compiled) -> Mapping[str, Configuration]:
        """Return the newest configurations that revisions have rendered, with the proxies' secrets; mark those that are behind."""
        before, self._joined = self._joined, {}
        for proxy in (was_behind := self._behind):
            proxy.is_behind = False
        self._behind = []
        for node, workload in self._expected.nodes if self._renderings.revisions else ():
            if not self._is_of_revision(workload):
                continue
            proxy, rendered = self._fleet.expect(node.id), self._renderings.proxies.get(node.id)
            if rendered is None or rendered.of is not compiled:
                proxy.is_behind = True
                self._behind.append(proxy)
            if rendered is None:
                proxy.config.set(None)  # if this control plane was a standby when the revision was not installed
            elif credential := self._credentials.get(node.id):
                secrets = self.memo.secret_resources(node.id, credential)
                last = before.get(node.id)
                if last is None or last[0] is not rendered.config or not last[1].has_same_parts_as(secrets):
                    last = rendered.config, secrets, {**rendered.config, SECRET: secrets}
                self._joined[node.id] = last
        if self._behind != was_behind:
            self._fleet.notify()
        return {node_id: config for node_id, (_, _, config) in self._joined.items()}

    def _expect(self, mesh: Mesh) -> None:
        """Register the proxies of a mesh with the fleet, and request a certificate for each of them.

        Drops proxies that left the mesh. If a new pod has the name of a deleted pod, the old proxy is dropped too,
        because the new proxy must authenticate with its own key.
        """
        last, expected = self._expected, ExpectedProxies(mesh, self._host)
        if expected.source == last.source:
            return
        replaced = {node_id for node_id, uid in expected.pods.items() if last.pods.get(node_id, uid) != uid}
        for gone in (self._fleet.proxies.keys() - expected.certificates.keys()) | replaced:
            self._fleet.remove(gone)
            self._assigned.pop(gone, None)
        self.credentials.discard(replaced)
        self.credentials.set_wanted(expected.certificates)
        self._credentials = self.credentials.current.get()  # excludes credentials of replaced pods
        for node_id in expected.certificates:
            self._fleet.expect(node_id)
        self._expected = expected


class Distribution:
    """Uses a sample of proxies to measure whether most proxies have acknowledged a change.

    `proxies` is the number of changed proxies.
    """

    def __init__(self) -> None:
        self.proxies = 0
        self._sample: Sequence[FleetProxy] = ()

    def begin(self, proxies: Sequence[FleetProxy]) -> None:
        """Choose a sample of the proxies whose configuration is about to change.

        The sample leaves out a proxy that has not answered its last configuration, unless it was in the last sample.
        Such a proxy has often just connected. Its first configuration takes longer, and other changes need not wait for
        it.
        """
        self.proxies = len(proxies)
        some = proxies[:: max(1, len(proxies) // SAMPLE_SIZE)]
        self._sample = [proxy for proxy in some if proxy.settled() or (proxy.session and proxy in self._sample)]

    def is_mostly_done(self) -> bool:
        """Return whether half of the sample has acknowledged or rejected its configuration."""
        return 2 * sum(proxy.settled() for proxy in self._sample) >= len(self._sample)


class Assignment(NamedTuple):
    """The published configuration of a proxy, with its credential.

    The proxy records `share` of its requests, in millionths, and begins traces for `sampling` of them, in ten-thousandths.
    """

    credential: Credential
    config: Configuration
    share: int
    sampling: int | None


class DurationHistogram:
    """A Prometheus histogram of durations since headgate started."""

    def __init__(self) -> None:
        self._buckets = [0] * (len(_BOUNDS_S) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self._buckets[bisect_left(_BOUNDS_S, seconds)] += 1
        self._total += seconds

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the histogram for `/metrics`."""
        return histogram(_BOUNDS_S, self._buckets, self._total)


def other_rules(loop: Loop) -> str:
    """Return which proxies have the rules of another revision than the default one, which compiles here; empty if none has."""
    compiled, installed = loop.compiled.get(), loop.renderings.get().revisions
    namespaces: dict[str, set[str]] = {}
    for workload in compiled.mesh.workloads if compiled and installed else ():
        if workload.revision in installed:
            namespaces.setdefault(workload.revision, set()).add(workload.name.partition("/")[0])
    proxies = " and ".join(
        f"the revision {name} configures proxies in {', '.join(sorted(places))}"
        for name, places in sorted(namespaces.items())
    )
    return f"by the rules of the default revision; {proxies}" if proxies else ""
