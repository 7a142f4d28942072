"""The only place that wires things together: one machine with everything embedded, as `headgate up` runs it."""

import asyncio
import gc
import os
import shutil
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import structs

from headgate.control import staging
from headgate.control.admission import advice, chain, deny_self_reference
from headgate.control.background import Background, background
from headgate.control.callers import Callers
from headgate.control.exposed import By, Exposed, count, expose
from headgate.control.feed import Feed
from headgate.control.instance import (
    LOOPBACK,
    Instance,
    free_address,
    listen,
    lock,
    lowest_port,
    read_instance,
    read_token,
    split_address,
    write_instance,
    written,
)
from headgate.control.loop import Loop
from headgate.control.machine import Machine
from headgate.control.status import StatusWriter
from headgate.control.trust import Trust
from headgate.envoy import reporting
from headgate.envoy.bootstrap import bootstrap, token_source
from headgate.envoy.exporting import Collector, exported
from headgate.envoy.view import Node
from headgate.errors import HeadgateError
from headgate.identity.pem import Files
from headgate.latest import until
from headgate.local.addresses import Addresses, claim_range
from headgate.local.environment import NO_PROXY
from headgate.local.envoy import EnvoyFlags, EnvoyProcess, find_envoy, runtime_directory
from headgate.local.envoy_admin import Admin
from headgate.local.gateways import GatewayAddresses, ensure_class
from headgate.local.injection import Mode, admit_sidecars
from headgate.local.runtime import LocalRuntime
from headgate.local.services import admit_services, hold_services, range_of
from headgate.local.sidecars import SidecarSite
from headgate.local.workload_rules import admit_workloads
from headgate.private import write_private
from headgate.resources import decode
from headgate.resources.meta import Key, Object, Value
from headgate.serve import defaults
from headgate.serve.apiserver import create_app, serve, write_kubeconfig
from headgate.serve.certificate import certificate_in
from headgate.serve.logs import LogOptions
from headgate.settings import Settings
from headgate.store.base import Admit
from headgate.store.memory import MemoryStore
from headgate.store.sqlite import SqliteJournal
from headgate.telemetry import otlp
from headgate.telemetry.flows import Source
from headgate.telemetry.kept import FILE, keep, read_kept
from headgate.telemetry.receiver import Receiver
from headgate.telemetry.windows import Windows
from headgate.xds.fleet import Fleet
from headgate.xds.proofs import LocalTokens, secret_in
from headgate.xds.server import XdsServer

GATEWAY = "gateway"
DATABASE = "objects.sqlite"
XDS_SOCKET = "xds.sock"
TOKEN_SECRET = "token-secret"  # noqa: S105  # files' names, as the next two
TOKEN_FILE = "token"  # noqa: S105
TOKEN_SOURCE = "token.json"  # noqa: S105
# A build makes a new picture of the whole mesh and drops the last one, without cycles: looking for those as often as
# Python does by default takes half of a build's time (docs/performance.md).
COLLECT = 50_000, 20, 20
GUARDS = "guards.json"
REPAIR_S = 3.0  # an authority that can't sign may be mended by then: an expired root is replaced


class Options(Value, frozen=True, kw_only=True):
    """What the user asked for. Addresses are `host:port`; port 0 is the one of the last start, or any free one.

    `sidecars` says which pods get one; `authority` is the mesh's authority when it is not headgate's own. Without a
    `metrics_address` nothing is exposed; `metrics_source` answers for traffic in the place of headgate's own counts. Proxies
    report to the `collector` besides.
    """

    state: Path
    ephemeral: bool = False
    api_address: str = f"{LOOPBACK}:0"
    proxy_address: str = f"{LOOPBACK}:0"
    concurrency: int = 1
    sidecars: Mode = "all"
    settings: Settings = Settings()
    authority: Files | None = None
    metrics_address: str = ""
    metrics_by: By = "workload"
    metrics_source: Source | None = None
    collector: Collector | None = None


class Running(NamedTuple):
    """A headgate that runs, until its context ends; `tasks` is for what should end with it, `metrics` a `flows.Source`."""

    machine: Machine
    envoy: EnvoyProcess
    instance: Instance
    tasks: Background
    runtime: LocalRuntime
    metrics: Source

    def admins(self) -> Mapping[str, Admin]:
        """Return the admin interface of every proxy."""
        return {GATEWAY: self.envoy.admin, **self.runtime.admins()}


class _Ground(NamedTuple):
    """What everything else stands on: objects, addresses, and the guard that keeps other headgates off them."""

    store: MemoryStore
    addresses: Addresses
    guard: int
    settings: Settings


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[Running]:
    """Start everything, and end everything that was started. Raises HeadgateError with what to do about it."""
    gc.set_threshold(*COLLECT)
    async with AsyncExitStack() as stack:
        state = _state_directory(options, stack)
        ground = await _ground(options, stack)
        sockets = runtime_directory(state, os.environ)
        stack.callback(shutil.rmtree, sockets, ignore_errors=True)  # after all that use them have ended
        before = read_instance(state)
        api = stack.enter_context(listen(options.api_address, before.api.removeprefix("https://") if before else ""))
        exposed = _exposed(options, stack, before)
        orphan = await _answers(sockets / "admin.sock")
        instance = Instance(
            api=f"https://{written(api)}",
            kubeconfig=str(state / "kubeconfig"),
            proxy=free_address(options.proxy_address, before.proxy if before else "", held=orphan),
            probe=str(sockets / "probe.sock"),
            admin=str(sockets / "admin.sock"),
            pid=os.getpid(),
            metrics=exposed.url if exposed else "",
            settings=ground.settings,
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
        envoy = _envoy(options, parts)
        _expose(parts, machine, envoy, tasks)
        tasks.start(_keep_token(parts.tokens, state / GATEWAY), name="the gateway's token")
        await envoy.start()
        stack.callback(machine.loop.staging.forget)
        stack.push_async_callback(envoy.stop)
        runtime = _runtime(parts, machine)
        stack.push_async_callback(runtime.stop)
        tasks.start(runtime.run(), name="runtime")
        _api(parts, machine, runtime, api, tasks)
        await _serving(envoy, parts.trust)
        write_kubeconfig(Path(instance.kubeconfig), instance.api, read_token(state), certificate_in(state))
        write_instance(state, instance)
        yield Running(machine, envoy, instance, tasks, runtime, options.metrics_source or parts.traffic.windows)


class _Parts(NamedTuple):
    """What the rest is made of."""

    state: Path
    ground: _Ground
    instance: Instance
    sockets: Path
    trust: Trust
    tokens: LocalTokens
    traffic: Receiver
    exposed: Exposed | None
    options: Options


def _state_directory(options: Options, stack: AsyncExitStack) -> Path:
    """Make the state directory; an ephemeral one that was not there before leaves with us."""
    new = not options.state.exists()
    options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if options.ephemeral and new:
        stack.callback(shutil.rmtree, options.state, ignore_errors=True)
    stack.enter_context(lock(options.state))
    return options.state


async def _ground(options: Options, stack: AsyncExitStack) -> _Ground:
    hooks: list[Admit] = []
    journal = None
    if not options.ephemeral:
        journal = SqliteJournal.open(options.state / DATABASE)
        stack.callback(journal.close)

    def admit(new: Object, old: Object | None) -> Object:  # the hooks need addresses, and these need the store
        return chain(*hooks)(new, old)

    store = MemoryStore(admit=admit, journal=journal)
    services = (await store.list("", "Service")).items
    number, guard = claim_range(range_of(services), record=options.state / GUARDS)
    stack.enter_context(guard)
    addresses = Addresses(number)
    settings = structs.replace(options.settings, lowest_port=lowest_port())
    hooks += [
        decode.admit,
        defaults.admit,
        admit_workloads,
        admit_sidecars(options.sidecars, store.peek),
        deny_self_reference(settings),
        admit_services(addresses),
    ]
    await hold_services(store, addresses)
    await ensure_class(store)
    return _Ground(store, addresses, guard.fileno(), settings)


def _traffic(options: Options, tasks: Background) -> Receiver:
    """Return what takes the proxies' reports; it goes on counting where the last headgate ended."""
    receiver = Receiver(Windows(), reporting.absences(reporting.LOCAL_SECONDS))
    if not options.ephemeral:
        if kept := read_kept(options.state / FILE):
            receiver.restore(kept)
        tasks.start(keep(receiver, options.state / FILE), name="traffic")
    return receiver


async def _control(parts: _Parts, stack: AsyncExitStack, tasks: Background) -> Machine:
    """Start the control plane; when it returns, the stored objects are compiled and proxies may ask."""
    ground = parts.ground
    host, port = split_address(parts.instance.proxy)
    node = Node(id=GATEWAY, proxy_address=host, proxy_port=port, probe=parts.instance.probe)
    fleet = Fleet()
    feed = Feed(ground.store)
    loop = Loop(feed.snapshot, fleet, [node], ground.settings, parts.trust.credentials)
    loop.staging.keep_in(parts.state / staging.FILE)
    machine = Machine(ground.store, feed, loop, fleet)
    gateways = GatewayAddresses(ground.store, ground.addresses)
    await gateways.reconcile()
    tasks.start(gateways.run(), name="gateways")
    tasks.start(feed.run(), name="feed")
    tasks.start(parts.trust.run(ground.store, loop, fleet), name="certificates")
    tasks.start(loop.run(), name="loop")
    tasks.start(StatusWriter(ground.store, loop, fleet).run(), name="status")
    await machine.compiled(ground.store.revision)  # an adopted proxy must never be told that the mesh is empty
    fleet.recall()
    parts.traffic.tell_by(Callers(loop.compiled))
    xds = XdsServer(fleet, parts.tokens, beside={otlp.METHOD: parts.traffic.export})
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
        totals = count(parts.exposed, parts.traffic.windows, machine, parts.ground.store.peek)
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
            pass_fds=(parts.ground.guard,),
            heard=parts.traffic.heard,
            collector=parts.options.collector,
        )
    )
    return runtime


def _api(parts: _Parts, machine: Machine, runtime: LocalRuntime, listener: socket.socket, tasks: Background) -> None:
    """Serve the objects to kubectl."""

    async def advise(obj: Object) -> Sequence[str]:
        return await advice(obj, machine)

    def read_logs(key: Key, options: LogOptions) -> AsyncIterator[bytes]:
        return runtime.logs.read(
            key, options.container, follow=options.follow, tail=options.tail_lines, previous=options.previous
        )

    app = create_app(
        parts.ground.store,
        token=read_token(parts.state),
        advise=advise,
        logs=read_logs,
        traffic=parts.options.metrics_source or parts.traffic.windows,
    )
    tasks.start(serve(app, listener, certificate_in(parts.state)), name="api")


def _envoy(options: Options, parts: _Parts) -> EnvoyProcess:
    directory = parts.state / GATEWAY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(directory / TOKEN_SOURCE, token_source(str(directory / TOKEN_FILE)))
    parts.tokens.write(GATEWAY, directory / TOKEN_FILE)
    return EnvoyProcess(
        find_envoy(os.environ),
        exported(
            bootstrap(
                node_id=GATEWAY,
                xds_socket=str(parts.sockets / XDS_SOCKET),
                admin_socket=parts.instance.admin,
                token=str(directory / TOKEN_SOURCE),
            ),
            options.collector,
        ),
        directory=directory,
        admin=Path(parts.instance.admin),
        flags=EnvoyFlags(concurrency=options.concurrency, pass_fds=(parts.ground.guard,)),
    )


async def _serving(envoy: EnvoyProcess, trust: Trust) -> None:
    """Wait until the gateway takes traffic. Raises HeadgateError; it is about its certificate when that is missing."""
    faults = trust.credentials.faults
    ready = asyncio.create_task(envoy.ready(), name="the gateway")
    lacking = asyncio.create_task(until(lambda: GATEWAY in faults.get(), faults), name="its certificate")
    try:
        await asyncio.wait({ready, lacking}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({ready}, timeout=REPAIR_S if lacking.done() else None)
        if not ready.done() and (fault := faults.get().get(GATEWAY)):
            raise HeadgateError(f"the gateway does not start: {fault}")
        await ready
    finally:
        ready.cancel()
        lacking.cancel()
        await asyncio.gather(ready, lacking, return_exceptions=True)


async def _keep_token(tokens: LocalTokens, directory: Path) -> None:
    """Renew the gateway's proof well before it ends."""
    while True:
        await asyncio.sleep(tokens.lifetime.total_seconds() / 2)
        tokens.write(GATEWAY, directory / TOKEN_FILE)


async def _answers(path: Path) -> bool:
    """Say whether somebody listens on a unix socket."""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True
