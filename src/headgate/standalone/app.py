"""The only place that wires things together: one machine with everything embedded, as `headgate up` runs it."""

import gc
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from headgate.api.certificate import certificate_in
from headgate.envoy import reporting
from headgate.envoy.view import Node
from headgate.objects.events import EventRecorder
from headgate.plane import staging
from headgate.plane.advice import advice, foreseen
from headgate.plane.callers import CallerFinder
from headgate.plane.feed import Feed
from headgate.plane.loop import Loop
from headgate.plane.machine import Machine
from headgate.plane.questions import Questions
from headgate.plane.status.writer import COMPONENT, StatusWriter
from headgate.plane.trust import Trust
from headgate.resources.meta import Key, Object
from headgate.standalone.apiserver.app import Computed, create_app, serve, write_kubeconfig
from headgate.standalone.apiserver.logs import LogOptions
from headgate.standalone.background import Background, background
from headgate.standalone.controllers.gateways import GatewayAddresses
from headgate.standalone.exposed import Exposed, count, expose
from headgate.standalone.gateway import GATEWAY, answers, gateway_process, keep_token, report_deaths, serving
from headgate.standalone.ground import Ground, lay_ground, state_directory
from headgate.standalone.host import LocalHost
from headgate.standalone.instance import (
    Instance,
    free_address,
    listen,
    read_instance,
    read_token,
    split_address,
    write_environment,
    write_instance,
    written,
)
from headgate.standalone.options import Options
from headgate.standalone.pods.environment import NO_PROXY
from headgate.standalone.pods.runtime import LocalRuntime
from headgate.standalone.pods.sidecars import SidecarSite, probe_socket
from headgate.standalone.proxies.admin import Admin
from headgate.standalone.proxies.envoy import EnvoyProcess, find_envoy
from headgate.standalone.runtime_directory import claimed, remove_unused
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.checkpoint import FILE, read_checkpoint, write_checkpoints
from headgate.telemetry.counters.flows import Source
from headgate.telemetry.receiver import Receiver
from headgate.telemetry.reports import otlp, tap_records
from headgate.telemetry.windows import Windows
from headgate.xds.fleet import Fleet
from headgate.xds.proofs import LocalTokens, secret_in
from headgate.xds.server import XdsServer

XDS_SOCKET = "xds.sock"
TOKEN_SECRET = "token-secret"  # noqa: S105  # a file's name
# A build makes a new picture of the whole mesh and drops the last one, without cycles: looking for those as often as
# Python does by default takes half of a build's time (docs/performance.md).
COLLECT = 50_000, 20, 20

log = logging.getLogger(__name__)


class Running(NamedTuple):
    """A headgate that runs, until its context ends; `tasks` is for what should end with it, `metrics` a `flows.Source`."""

    store: MemoryStore
    machine: Machine
    envoy: EnvoyProcess
    instance: Instance
    tasks: Background
    runtime: LocalRuntime
    metrics: Source

    def admins(self) -> Mapping[str, Admin]:
        """Return the admin interface of every proxy."""
        return {GATEWAY: self.envoy.admin, **self.runtime.admins()}


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[Running]:
    """Start everything, and end everything that was started. Raises HeadgateError with what to do about it."""
    gc.set_threshold(*COLLECT)
    async with AsyncExitStack() as stack:
        state = state_directory(options, stack)
        sockets, owner = stack.enter_context(claimed(state, os.environ))  # removed after all that use them have ended
        remove_unused(os.environ)
        ground = await lay_ground(options, stack, owner)
        before = read_instance(state)
        api = stack.enter_context(listen(options.api_address, before.api.removeprefix("https://") if before else ""))
        exposed = _exposed(options, stack, before)
        orphan = await answers(sockets / "admin.sock")
        instance = Instance(
            api=f"https://{written(api)}",
            kubeconfig=str(state / "kubeconfig"),
            proxy=free_address(options.proxy_address, before.proxy if before else "", held=orphan),
            probe=str(sockets / "probe.sock"),
            admin=str(sockets / "admin.sock"),
            pid=os.getpid(),
            metrics=exposed.url if exposed else "",
        )
        tasks = await stack.enter_async_context(background())
        parts = _Parts(
            state,
            ground,
            instance,
            sockets,
            Trust(state, ground.settings, options.authority),
            LocalTokens(secret_in(state / TOKEN_SECRET)),
            _traffic(options, tasks),
            exposed,
            options,
        )
        machine = await _control(parts, stack, tasks)
        envoy = gateway_process(options, instance, parts.tokens, xds=sockets / XDS_SOCKET, inherited=ground.inherited)
        _expose(parts, machine, envoy, tasks)
        tasks.start(keep_token(parts.tokens, state), name="the gateway's token")
        tasks.start(report_deaths(envoy.state, EventRecorder(ground.store, COMPONENT)), name="deaths of the gateway")
        stack.callback(machine.loop.staging.forget)
        stack.push_async_callback(envoy.stop)
        await envoy.start()
        runtime = _runtime(parts, machine)
        stack.push_async_callback(_stop, runtime)
        tasks.start(runtime.run(), name="runtime")
        _api(parts, runtime, Questions(machine, LocalHost(envoy, runtime, instance)), listener=api, tasks=tasks)
        await serving(envoy, parts.trust)
        write_kubeconfig(Path(instance.kubeconfig), instance.api, read_token(state), certificate_in(state))
        write_instance(state, instance)
        write_environment(state, instance, Path(sys.prefix, "bin"))
        yield Running(
            ground.store, machine, envoy, instance, tasks, runtime, options.metrics_source or parts.traffic.windows
        )


class _Parts(NamedTuple):
    """What the rest is made of."""

    state: Path
    ground: Ground
    instance: Instance
    sockets: Path
    trust: Trust
    tokens: LocalTokens
    traffic: Receiver
    exposed: Exposed | None
    options: Options


def _traffic(options: Options, tasks: Background) -> Receiver:
    """Return what takes the proxies' reports; it goes on counting where the last headgate ended."""
    receiver = Receiver(Windows(), reporting.absences(reporting.LOCAL_SECONDS))
    if not options.ephemeral:
        if saved := read_checkpoint(options.state / FILE):
            receiver.restore(saved)
        tasks.start(write_checkpoints(receiver, options.state / FILE), name="traffic")
    return receiver


async def _control(parts: _Parts, stack: AsyncExitStack, tasks: Background) -> Machine:
    """Start the control plane; when it returns, the stored objects are compiled and proxies may ask."""
    ground = parts.ground
    host, port = split_address(parts.instance.proxy)
    node = Node(id=GATEWAY, proxy_address=host, proxy_port=port, probe=parts.instance.probe)
    fleet = Fleet()
    feed = Feed(ground.store)
    loop = Loop(feed.snapshot, fleet, [node], ground.settings, parts.trust.credentials)
    loop.probes = lambda node_id: str(probe_socket(parts.sockets, node_id))
    loop.staging.keep_in(parts.state / staging.FILE)
    machine = Machine(ground.store, feed, loop, fleet)
    gateways = GatewayAddresses(ground.store, ground.addresses)
    await gateways.reconcile()
    tasks.start(gateways.run(), name="gateways")
    tasks.start(feed.run(), name="feed")
    tasks.start(parts.trust.run(ground.store, loop, fleet), name="certificates")
    tasks.start(loop.run(), name="loop")
    dropped = parts.traffic.dropped
    tasks.start(dropped.run(), name="dropped copies")
    tasks.start(StatusWriter(ground.store, loop, fleet, dropped.now).run(), name="status")
    await machine.compiled()  # an adopted proxy must never be told that the mesh is empty
    fleet.recall()
    parts.traffic.find_callers_by(CallerFinder(loop.compiled))
    beside = {otlp.METHOD: parts.traffic.export, tap_records.METHOD: machine.taps.export}
    xds = XdsServer(fleet, parts.tokens, beside=beside)
    await xds.start(f"unix:{parts.sockets / XDS_SOCKET}")
    stack.push_async_callback(xds.stop)
    return machine


def _exposed(options: Options, stack: AsyncExitStack, before: Instance | None) -> Exposed | None:
    """Return where Prometheus reads, if it is to."""
    if not options.metrics_address:
        return None
    old = urlsplit(before.metrics).netloc if before else ""
    return Exposed(stack.enter_context(listen(options.metrics_address, old)), options.metrics_by)


def _expose(parts: _Parts, machine: Machine, envoy: EnvoyProcess, tasks: Background) -> None:
    if parts.exposed:
        totals = count(parts.exposed, parts.traffic.windows, machine)
        tasks.start(expose(parts.exposed, totals, machine, envoy.state), name="exposition")


def _runtime(parts: _Parts, machine: Machine) -> LocalRuntime:
    """Return the runtime, with all that its pods' sidecars need."""
    runtime = LocalRuntime(
        parts.ground.store,
        parts.state,
        parts.ground.addresses,
        unrouted=machine.unrouted,
        extra_env={"http_proxy": f"http://{parts.instance.proxy}", "no_proxy": NO_PROXY},
    )
    runtime.give_sidecars(
        SidecarSite(
            binary=find_envoy(os.environ),
            xds_socket=parts.sockets / XDS_SOCKET,
            runtime_dir=parts.sockets,
            tokens=parts.tokens,
            expected=machine.expected,
            settled=machine.settled,
            refused=machine.refused,
            pass_fds=parts.ground.inherited,
            heard=parts.traffic.heard,
            collector=parts.options.collector,
            lowest_port=parts.ground.settings.lowest_port,
        )
    )
    return runtime


async def _stop(runtime: LocalRuntime) -> None:
    for line in await runtime.stop():
        log.warning("%s", line)


def _api(
    parts: _Parts, runtime: LocalRuntime, questions: Questions, *, listener: socket.socket, tasks: Background
) -> None:
    """Serve the objects to kubectl, and answers about the mesh."""

    async def advise(obj: Object, *, dry_run: bool) -> Sequence[str]:
        machine = questions.machine
        return await (foreseen(obj, machine) if dry_run else advice(obj, machine))

    def read_logs(key: Key, options: LogOptions) -> AsyncIterator[bytes]:
        return runtime.logs.read(
            key, options.container, follow=options.follow, tail=options.tail_lines, previous=options.previous
        )

    app = create_app(
        parts.ground.store,
        token=read_token(parts.state),
        advise=advise,
        logs=read_logs,
        computed=Computed(
            parts.options.metrics_source or parts.traffic.windows, questions, settings=parts.ground.settings
        ),
    )
    tasks.start(serve(app, listener, certificate_in(parts.state)), name="api")
