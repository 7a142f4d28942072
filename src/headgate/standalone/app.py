"""Builds and runs the parts of `headgate up`: control plane, embedded API, gateway and pods."""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from headgate.api.certificate import certificate_in
from headgate.api.exposition import create_exposition, serve_exposition
from headgate.api.metrics.custom import CustomMetricsApi
from headgate.api.metrics.handlers import MetricsApi
from headgate.envoy import stats_sink
from headgate.envoy.view import Node
from headgate.errors import Unavailable
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import Issuer
from headgate.identity.keys import FileKeyStore
from headgate.identity.pem import PemIssuer
from headgate.latest import Latest
from headgate.model.routing import Protocol
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Ports
from headgate.option import parse_collector
from headgate.options import By
from headgate.plane.control_plane import ControlPlane, ProxyOptions
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.inspector import Inspector
from headgate.plane.live_state import LiveState
from headgate.plane.mesh_state import HostState
from headgate.plane.metrics import MeshMetrics
from headgate.plane.predictions import PredictedControllers
from headgate.plane.probe_failures import UNHEALTHY
from headgate.plane.trust import Trust
from headgate.plane.workload_readiness import PodReports, workload_counts
from headgate.plane.write_warnings import prepare_warnings
from headgate.resources.inspect import ProxyProcess
from headgate.resources.mesh_status import PodCounts, StoreState
from headgate.resources.meta import Object, timestamp
from headgate.resources.pod_templates import REPLICATED_KINDS
from headgate.rollout.controller import RolloutController
from headgate.rollout.expected import expected_objects
from headgate.settings import Settings
from headgate.standalone.apiserver.app import ComputedGroups, create_app, serve, write_kubeconfig
from headgate.standalone.apiserver.local_pods import LocalPods
from headgate.standalone.controllers.autoscaler_metrics import AutoscalerMetrics
from headgate.standalone.controllers.autoscaling import Autoscaling
from headgate.standalone.controllers.gateways import GatewayAddresses
from headgate.standalone.gateway import GATEWAY, keep_token, report_exits, serving
from headgate.standalone.isolation import Isolation
from headgate.standalone.listeners import split_address
from headgate.standalone.network.portal import Portal
from headgate.standalone.nginx_gateways import NginxGateways
from headgate.standalone.options import MachineOptions
from headgate.standalone.pods.environment import NO_PROXY
from headgate.standalone.pods.runtime import LocalRuntime
from headgate.standalone.pods.sidecars import ProxyServices, probe_socket
from headgate.standalone.proxies.admin import Admin
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_process import EnvoyProcess, EnvoyState, MeshEnvoy, MeshEnvoySettings
from headgate.standalone.runtime_info import RuntimeInfo, write_environment, write_runtime_info
from headgate.standalone.setup import Setup, set_up
from headgate.standalone.state_directory import read_token
from headgate.standalone.state_files import StateFiles
from headgate.standalone.store.memory import MemoryStore
from headgate.standalone.usage import UsageMeter
from headgate.telemetry.prometheus_source import traffic_source
from headgate.xds.authentication import LocalTokens, load_signing_secret

COMPONENT = "headgate"
KEYS = "authority"  # the directory of the embedded authority's keys
TOKEN_SECRET = "token-secret"  # noqa: S105  # the name of a file, not a secret
TRAFFIC = "traffic"  # the directory of the stored windows of traffic counts

log = logging.getLogger(__name__)
_SCALING_WINDOW_S = 15.0  # as with a metrics server: short peaks don't scale


class Running(NamedTuple):
    """The parts of a running headgate. `own_networks` says whether pods have networks of their own."""

    store: MemoryStore
    live_state: LiveState
    envoy: EnvoyProcess
    info: RuntimeInfo
    runtime: LocalRuntime
    own_networks: bool

    def admins(self) -> Mapping[str, Admin]:
        """Return the admin interface of each proxy by its node ID."""
        return {GATEWAY: self.envoy.admin, **self.runtime.admins()}


class Background(asyncio.TaskGroup):
    """A task group that cancels its tasks at the end of the context. When a task fails, headgate exits with that error."""

    def __init__(self) -> None:
        super().__init__()
        self._started: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task."""
        self._started.append(self.create_task(work, name=name))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._started:
            task.cancel()
        await super().__aexit__(kind, error, trace)


@asynccontextmanager
async def running(options: MachineOptions) -> AsyncIterator[Running]:
    """Start all parts of headgate; stop them at the end of the context. Raises HeadgateError with the reason and advice."""
    async with AsyncExitStack() as stack:
        setup = await set_up(options, stack)
        state, info, store = setup.state, setup.info, setup.store
        tasks = await stack.enter_async_context(Background())
        if setup.journal:
            tasks.start(setup.journal.checkpoint_changes(), name="checkpoints of the store")
        tokens, events = LocalTokens(load_signing_secret(state / TOKEN_SECRET)), EventRecorder(store, COMPONENT)
        trust = Trust(_issuer(options, state, setup.settings), setup.settings)
        nginx = NginxGateways(state, events, setup.inherited, setup.node)
        ports = _ports(setup, events, nginx, ephemeral=options.ephemeral)
        controllers = PredictedControllers(expected_objects, setup.sidecars)
        plane = ControlPlane(ports, _proxies(setup, tokens), setup.settings, trust, controllers=controllers)
        gateways = GatewayAddresses(store, setup.addresses)
        await gateways.reconcile()
        tasks.start(gateways.run(), name="gateways")
        for name, work in (*plane.work(), ("nginx", nginx.run(plane.live_state))):
            tasks.start(work, name=name)
        await plane.serve(f"unix:{setup.xds}")
        stack.push_async_callback(plane.stop)
        rollouts = RolloutController(
            ports, plane.traffic.increments, plane.live_state.feed.snapshot, setup.settings.domain
        )
        tasks.start(rollouts.run(), name="rollouts")
        mesh = MeshEnvoySettings(
            find_envoy(os.environ), setup.xds, tokens, setup.inherited, parse_collector(options.mesh.otlp_collector)
        )
        envoy = MeshEnvoy(mesh, GATEWAY, state / GATEWAY, Path(info.admin), concurrency=options.concurrency)
        envoy.isolation = Isolation(network=setup.node.path) if setup.node else None
        if setup.metrics:
            tasks.start(_expose(setup.metrics, options.mesh.series_by, plane, envoy), name="exposition")
        tasks.start(keep_token(envoy), name="the gateway's token")
        tasks.start(report_exits(envoy.state, events), name="exits of the gateway")
        stack.push_async_callback(plane.live_state.loop.mtls_migration.forget)
        stack.push_async_callback(envoy.stop)
        await envoy.start()
        await _serve_networks(setup, plane.live_state, stack, tasks)
        runtime = LocalRuntime(store, state, setup.addresses, _proxying(setup, mesh, plane), setup.networks)
        stack.push_async_callback(_stop, runtime)
        tasks.start(runtime.run(), name="runtime")
        current = Running(store, plane.live_state, envoy, info, runtime, setup.networks is not None)
        source, meter = traffic_source(options.mesh, plane.traffic.windows), UsageMeter(runtime.processes)
        host, traffic = LocalHost(current, setup.damaged), plane.traffic_answers(store, source)
        computed = ComputedGroups(source, Inspector(plane.live_state, host, traffic=traffic), setup.settings, meter)
        tasks.start(_autoscaling(store, events, computed, runtime).run(), name="autoscaling")
        app = create_app(
            store,
            token=read_token(state),
            prepare_warnings=partial(prepare_warnings, plane.live_state),
            pods=LocalPods(runtime.logs.read, runtime.container, plane.live_state.loop.published),
            computed=computed,
        )
        tasks.start(serve(app, setup.api, certificate_in(state)), name="api")
        await serving(envoy, trust)
        write_kubeconfig(Path(info.kubeconfig), info.api, read_token(state), certificate_in(state))
        write_runtime_info(state, info)
        write_environment(state, info, Path(sys.prefix, "bin"))
        yield current


def _ports(setup: Setup, events: EventRecorder, nginx: NginxGateways, *, ephemeral: bool) -> Ports:
    """Return the ports of one machine. The state directory's lock replaces leader election."""
    files = blocks = None
    if not ephemeral:
        (setup.state / TRAFFIC).mkdir(mode=0o700, exist_ok=True)
        files, blocks = StateFiles(setup.state), StateFiles(setup.state / TRAFFIC)
    return Ports(setup.store, events, Latest(value=True), files, [nginx.findings], blocks=blocks)


async def _serve_networks(setup: Setup, live_state: LiveState, stack: AsyncExitStack, tasks: Background) -> None:
    """Resolve the names of Services for pods with networks of their own, and connect these networks with the machine's."""
    if not (networks := setup.networks):
        return
    from headgate.standalone.network.resolver import Resolver, machine_resolvers  # noqa: PLC0415 - dnspython takes 0.4 s

    resolver = Resolver(setup.store, networks.domain, machine_resolvers)
    tasks.start(resolver.follow(), name="names of Services")
    machine = networks.machine
    await stack.enter_async_context(resolver.serving(machine.gateway, create_socket=machine.create_socket))
    if setup.portal:
        await stack.enter_async_context(setup.portal.serving())
        tasks.start(_open_portal(setup.portal, live_state), name="portal")


async def _open_portal(portal: Portal, live_state: LiveState) -> None:
    """Let the machine reach the gateway's HTTP proxy, Services, Gateways, and the pods with sidecars, until canceled.

    UDP ports of Gateways are for the pods only.
    """
    async for compiled in live_state.loop.compiled.changes():
        mesh = compiled.mesh if compiled else None
        services = ((front.address, port) for front in (mesh.frontends if mesh else ()) for port in front.ports)
        gateways = (
            (port.address, port.port) for port in (mesh.gateways if mesh else ()) if port.protocol is not Protocol.UDP
        )
        pods = ((pod.address, port.port) for pod in (mesh.workloads if mesh else ()) for port in pod.ports)
        await portal.open({*services, *gateways, *pods})


def _autoscaling(
    store: MemoryStore, events: EventRecorder, computed: ComputedGroups, runtime: LocalRuntime
) -> Autoscaling:
    custom = CustomMetricsApi(MetricsApi(store, computed.traffic, settings=computed.settings))
    usage = UsageMeter(runtime.processes, least_window_s=_SCALING_WINDOW_S)
    return Autoscaling(store, events, AutoscalerMetrics(custom, usage))


def _issuer(options: MachineOptions, state: Path, settings: Settings) -> Issuer:
    """Return the user's own authority if its files are given, else the embedded one."""
    if options.authority:
        return PemIssuer(options.authority, settings.trust_domain, clock=time.time)
    return EmbeddedIssuer(FileKeyStore(state / KEYS), settings.trust_domain, clock=time.time)


def _proxies(setup: Setup, tokens: LocalTokens) -> ProxyOptions:
    host, port = split_address(setup.info.proxy)
    gateway = Node(
        id=GATEWAY,
        proxy_address=host,
        proxy_port=port,
        try_socket=setup.info.probe,
        localhost_port=setup.info.localhost_port,
    )
    addresses = [setup.networks.machine.gateway] if setup.networks else []
    proxies = HostProxies([gateway], lambda node_id: str(probe_socket(setup.sockets, node_id)), addresses)
    if setup.portal:
        proxies = proxies._replace(published=setup.portal.published)
    reports = stats_sink.reports_per_eviction(stats_sink.LOCAL_SECONDS)
    return ProxyOptions(proxies, lambda _pods: tokens, reports, shares_clock=True)


def _proxying(setup: Setup, mesh: MeshEnvoySettings, plane: ControlPlane) -> ProxyServices:
    live_state = plane.live_state
    return ProxyServices(
        mesh=mesh,
        runtime_dir=setup.sockets,
        variables={"http_proxy": f"http://{setup.info.proxy}", "no_proxy": NO_PROXY},
        lowest_port=setup.settings.lowest_port,
        wait_unrouted=live_state.wait_unrouted,
        wait_expected=live_state.wait_expected,
        wait_settled=live_state.wait_settled,
        rejections=live_state.refusals_of,
        wait_for_report=plane.traffic.wait_for_report,
    )


class LocalHost:
    """Implements `plane.inspector.Host` for one machine: the Envoy processes, the pods and the store.

    `damaged` returns the files with damaged rows of the store.
    """

    def __init__(self, running: Running, damaged: Callable[[], Sequence[Path]]) -> None:
        self._store = running.store
        self._envoy = running.envoy
        self._runtime = running.runtime
        self._probe = Path(running.info.probe)
        self._localhost_port = running.info.localhost_port
        self._damaged = damaged

    def processes(self) -> Mapping[str, ProxyProcess]:
        """Return the Envoy processes by node ID."""
        admins = self._runtime.admins()
        sidecars = {
            node_id: _process(state, probe_socket(self._probe.parent, node_id), admins[node_id])
            for node_id, state in self._runtime.sidecars().items()
        }
        return {GATEWAY: _process(self._envoy.state.get(), self._probe, self._envoy.admin), **sidecars}

    async def state(self) -> HostState:
        """Return the pods, their readiness, and whether the store can persist a write. The embedded API serves all kinds."""
        adopted = self._runtime.pods()
        pods = (await self._store.list("", "Pod")).items
        kinds = (*REPLICATED_KINDS, ("batch", "Job"))
        workloads = [obj for kind in kinds for obj in (await self._store.list(*kind)).items]
        reports = PodReports(self._runtime.failures.get(), await self.probe_events())
        return HostState(
            pods=PodCounts(total=len(adopted), adopted=sum(adopted.values())),
            workloads=workload_counts(pods, workloads, now=time.time(), reports=reports),
            store=await self._store_state(),
            localhost_port=self._localhost_port,
        )

    async def pods(self, namespace: str) -> Sequence[Object]:
        """Return the pods of a namespace."""
        return list((await self._store.list("", "Pod", namespace)).items)

    async def probe_events(self) -> Sequence[Object]:
        """Return the Events about failed probes."""
        events = (await self._store.list("", "Event")).items
        return [event for event in events if event.get("reason") == UNHEALTHY]

    async def _store_state(self) -> StoreState:
        damaged = tuple(map(str, self._damaged()))
        try:
            await self._store.check()
        except Unavailable as error:
            since = timestamp(self._store.failing_since())
            return StoreState(writable=False, message=str(error), failing_since_time=since, damaged=damaged)
        return StoreState(writable=True, damaged=damaged)


def _process(state: EnvoyState, probe: Path, admin: Admin) -> ProxyProcess:
    return ProxyProcess(
        pid=state.pid,
        adopted=state.adopted,
        restarts=state.restarts,
        failure_message=state.failure,
        probe=str(probe),
        admin=str(admin.socket),
    )


async def _expose(listener: socket.socket, by: By, plane: ControlPlane, envoy: EnvoyProcess) -> None:
    """Serve control-plane and traffic metrics at `/metrics` until canceled. The traffic counts start at zero."""
    metrics = MeshMetrics(plane, lambda: envoy.state.get().restarts, by_pod=by == "pod")
    app = create_exposition(metrics.families, listener.getsockname()[0])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(metrics.run(), name="push durations")
        tasks.create_task(serve_exposition(app, listener), name="exposition")


async def _stop(runtime: LocalRuntime) -> None:
    for line in await runtime.stop():
        log.warning("%s", line)
