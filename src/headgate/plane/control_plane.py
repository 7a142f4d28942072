"""Creates and connects the parts of the control plane.

It reads objects, and serves configurations, statuses and metrics.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple

from headgate.compiler.snapshot import Snapshot
from headgate.envoy import stats_sink
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.objects.ports import Lister, Ports
from headgate.plane.access_audit import AccessAuditor
from headgate.plane.access_calls import CallFinder
from headgate.plane.callers import CallerFinder
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed
from headgate.plane.history_recorder import HistoryRecorder
from headgate.plane.inspector import TrafficAnswers
from headgate.plane.job_sidecars import JobSidecars
from headgate.plane.live_state import LiveState, Recorded
from headgate.plane.loop import Loop
from headgate.plane.mirror_comparison import MirrorComparer
from headgate.plane.predictions import PredictedControllers
from headgate.plane.rendered_gateways import RenderedGateways
from headgate.plane.status.writer import ONLY_WITH_FINDINGS, STATUSES, CountedStates, StatusWriter
from headgate.plane.traffic_graphs import TrafficGraphs
from headgate.plane.traffic_series import SeriesReader
from headgate.plane.trust import Trust
from headgate.settings import Settings
from headgate.telemetry.checkpoint import load_checkpoint, write_checkpoints
from headgate.telemetry.counters.flows import Source
from headgate.telemetry.receiver import Finders, Receiver
from headgate.telemetry.reports import otlp, tap_records
from headgate.telemetry.stored_blocks import BlockKeeper
from headgate.telemetry.windows import Windows
from headgate.xds.authentication import TokenVerifier
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

Work = tuple[str, Coroutine[Any, Any, None]]

SHORTEST_REPORTS = 2
"""The number of reports in the shortest window of traffic metrics: with one, a late report would leave the window empty."""


class ProxyOptions(NamedTuple):
    """The options of the control plane for its proxies, which standalone mode and cluster mode set differently.

    `host` has the gateways, and the socket paths for `headgate try`. `verifier` returns what checks the token of each xDS
    stream; it gets the snapshot, which has the pods. `reports_per_eviction` is the number of metric reports after
    which Envoy evicts idle series. With `shares_clock`, all proxies run on the machine of the control plane.
    """

    host: HostProxies
    verifier: Callable[[Latest[Snapshot | None]], TokenVerifier]
    reports_per_eviction: int
    shares_clock: bool = False


class ControlPlane:
    """The running control plane: the feed, the loop, the status writer, telemetry and the xDS server.

    The caller starts the tasks that `work` yields, and then calls `serve`.
    """

    def __init__(
        self,
        ports: Ports,
        proxies: ProxyOptions,
        settings: Settings,
        trust: Trust,
        *,
        controllers: PredictedControllers,
    ) -> None:
        self._ports = ports
        self._trust = trust
        self._fleet = Fleet()
        self._assumed, self._restored = asyncio.Event(), asyncio.Event()
        feed = Feed(ports.objects, {*STATUSES, *ONLY_WITH_FINDINGS})
        loop = Loop(feed.snapshot, self._fleet, proxies.host, settings, trust.credentials)
        self.traffic = Receiver(
            Windows(shortest=SHORTEST_REPORTS * stats_sink.EVICTION_SECONDS / proxies.reports_per_eviction),
            proxies.reports_per_eviction,
            Finders(CallerFinder(loop.compiled, proxies.host.addresses), CallFinder(loop.compiled)),
            shares_clock=proxies.shares_clock,
        )
        self._blocks = BlockKeeper(self.traffic.windows, ports.blocks)
        findings = (*ports.findings, *ports.unwritten)
        self.live_state = LiveState(
            ports.objects, feed, loop, self._fleet, Recorded(self.traffic.access, findings, controllers)
        )
        services = {
            otlp.METHOD: self.traffic.export,
            tap_records.METHOD: self.live_state.taps.export,
            **JobSidecars(ports.objects, self.traffic.wait_for_report).methods,
            **RenderedGateways(loop.compiled, feed.snapshot).methods,
        }
        self._comparer = MirrorComparer(loop.compiled, self.traffic.mirrors)
        self._server = XdsServer(self._fleet, proxies.verifier(feed.snapshot), unary_methods=services)

    def traffic_answers(self, objects: Lister, source: Source) -> TrafficAnswers:
        """Return what makes the traffic graphs and series of the inspect API, from lists of objects and a source of counts."""
        live_state = self.live_state
        return TrafficAnswers(
            TrafficGraphs(live_state, objects, source, self._comparer.verdicts),
            SeriesReader(self.traffic.windows, objects, live_state.history, live_state.loop.settings),
        )

    def work(self) -> Iterator[Work]:
        """Yield the tasks of the control plane with their names; each runs until canceled."""
        feed, loop, dropped = self.live_state.feed, self.live_state.loop, self.traffic.dropped
        auditor = AccessAuditor(loop.compiled, self.traffic.access)
        counted = CountedStates(dropped.now, self._comparer.verdicts, auditor.outcomes)
        yield "feed", feed.run()
        yield "certificates", self._trust.run(self._ports, loop, self._fleet, self._assumed)
        yield "loop", loop.run(self._ports.active)
        yield "dropped copies", dropped.run()
        yield "comparisons of mirrors", self._comparer.run()
        yield "audits of access", self._audit(auditor)
        yield "status", self._write_statuses(counted)
        yield "checkpoints", self._save_counts()
        yield "stored windows", self._keep_blocks()
        yield "history", HistoryRecorder(self._ports, self.live_state).run()

    async def serve(self, address: str, certificate: Latest[Credential] | None = None) -> None:
        """Wait until the stored objects are compiled, then serve xDS on `unix:PATH` or, with a certificate, on `HOST:PORT`.

        Without the wait, a reconnecting proxy could get the configuration of an empty mesh. Before it serves, the
        control plane restores the TLS modes and the traffic counts that an earlier process saved.
        """
        await self.live_state.wait_compiled()
        self._fleet.assume_configured()
        if storage := self._ports.state:
            await self.live_state.loop.mtls_migration.restore(storage)
            await self._blocks.restore()
            self.traffic.restore(await load_checkpoint(storage))
            self._restored.set()
        await self._blocks.keep()
        self._assumed.set()
        await self._server.start(address, certificate)

    def drain(self) -> None:
        """Accept no connection or report of a proxy any more. Open streams stay until `stop`."""
        self._server.drain()

    async def stop(self) -> None:
        """Close all streams. The proxies keep their configuration and reconnect later."""
        await self._server.stop()
        self.traffic.windows.reads.close()

    async def _write_statuses(self, counted: CountedStates) -> None:
        """Wait until the proxies and counts of an earlier process are known, then write statuses until canceled."""
        await self._assumed.wait()
        feed, loop = self.live_state.feed, self.live_state.loop
        await StatusWriter(self._ports, loop, self._fleet, counted, feed).run()

    async def _audit(self, auditor: AccessAuditor) -> None:
        """Wait until earlier counts are restored, then publish the outcomes of audits until canceled.

        Without the wait, each restart would set the counts in statuses to 0 for a few seconds.
        """
        if self._ports.state:
            await self._restored.wait()
        await auditor.run()

    async def _keep_blocks(self) -> None:
        """Wait until this control plane serves proxies, since a standby counts nothing; then keep blocks of windows until canceled."""
        await self._assumed.wait()
        await self._blocks.run()

    async def _save_counts(self) -> None:
        """Wait until earlier traffic counts are restored, then save the counts periodically until canceled."""
        await self._restored.wait()
        if storage := self._ports.state:
            await write_checkpoints(self.traffic, storage)
