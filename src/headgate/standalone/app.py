"""The wiring of one host: a machine with everything embedded, as `headgate up` runs it."""

import gc
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from headgate.api.certificate import certificate_in
from headgate.envoy import reporting
from headgate.envoy.view import Node
from headgate.latest import Latest
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Ports
from headgate.plane import staging
from headgate.plane.advice import Advice
from headgate.plane.control_plane import ControlPlane, Proxies
from headgate.plane.loop import Known
from headgate.plane.machine import Machine
from headgate.plane.questions import Questions
from headgate.plane.trust import Trust
from headgate.standalone.apiserver.app import Computed, create_app, serve, write_kubeconfig
from headgate.standalone.background import Background, background
from headgate.standalone.controllers.gateways import GatewayAddresses
from headgate.standalone.exposed import Exposed, expose
from headgate.standalone.gateway import GATEWAY, gateway_process, keep_token, report_deaths, serving
from headgate.standalone.ground import Ground, lay_ground
from headgate.standalone.host import LocalHost
from headgate.standalone.instance import Instance, read_token, split_address, write_environment, write_instance
from headgate.standalone.options import Options
from headgate.standalone.pods.environment import NO_PROXY
from headgate.standalone.pods.runtime import LocalRuntime
from headgate.standalone.pods.sidecars import Proxying, SidecarSite, probe_socket
from headgate.standalone.proxies.admin import Admin
from headgate.standalone.proxies.envoy import EnvoyProcess, find_envoy
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.checkpoint import FILE, read_checkpoint, write_checkpoints
from headgate.telemetry.counters.flows import Source
from headgate.xds.proofs import LocalTokens, secret_in

COMPONENT = "headgate"
TOKEN_SECRET = "token-secret"  # noqa: S105  # a file's name
# A build drops the last mesh, which has no cycles: Python's default takes half of a build's time to look for them.
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
        ground = await lay_ground(options, stack)
        state, instance, store = ground.state, ground.instance, ground.store
        tasks = await stack.enter_async_context(background())
        tokens, events = LocalTokens(secret_in(state / TOKEN_SECRET)), EventRecorder(store, COMPONENT)
        trust = Trust(state, ground.settings, options.authority)
        ports = Ports(store, events, active=Latest(value=True))  # the lock of the state directory is the lease
        plane = ControlPlane(ports, _proxies(ground, tokens), ground.settings, trust)
        gateways = GatewayAddresses(store, ground.addresses)
        await gateways.reconcile()
        _restore_counts(options, plane, tasks)
        tasks.start(gateways.run(), name="gateways")
        for name, work in plane.work():
            tasks.start(work, name=name)
        await plane.serve(f"unix:{ground.xds}")
        stack.push_async_callback(plane.stop)
        envoy = gateway_process(options, instance, tokens, xds=ground.xds, inherited=ground.inherited)
        if ground.metrics:
            tasks.start(expose(Exposed(ground.metrics, options.metrics_by), plane, envoy.state), name="exposition")
        tasks.start(keep_token(tokens, state), name="the gateway's token")
        tasks.start(report_deaths(envoy.state, events), name="deaths of the gateway")
        stack.callback(plane.machine.loop.staging.forget)
        stack.push_async_callback(envoy.stop)
        await envoy.start()
        runtime = LocalRuntime(store, state, ground.addresses, _proxying(options, ground, tokens, plane))
        stack.push_async_callback(_stop, runtime)
        tasks.start(runtime.run(), name="runtime")
        source = options.metrics_source or plane.traffic.windows
        questions = Questions(plane.machine, LocalHost(envoy, runtime, instance))
        computed = Computed(source, questions, settings=ground.settings)
        app = create_app(
            store, token=read_token(state), advise=Advice(plane.machine), logs=runtime.logs, computed=computed
        )
        tasks.start(serve(app, ground.api, certificate_in(state)), name="api")
        await serving(envoy, trust)
        write_kubeconfig(Path(instance.kubeconfig), instance.api, read_token(state), certificate_in(state))
        write_instance(state, instance)
        write_environment(state, instance, Path(sys.prefix, "bin"))
        yield Running(store, plane.machine, envoy, instance, tasks, runtime, source)


def _proxies(ground: Ground, tokens: LocalTokens) -> Proxies:
    host, port = split_address(ground.instance.proxy)
    gateway = Node(id=GATEWAY, proxy_address=host, proxy_port=port, probe=ground.instance.probe)
    known = Known([gateway], lambda node_id: str(probe_socket(ground.sockets, node_id)), ground.state / staging.FILE)
    return Proxies(known, tokens, reporting.absences(reporting.LOCAL_SECONDS))


def _restore_counts(options: Options, plane: ControlPlane, tasks: Background) -> None:
    """Go on counting traffic where the last headgate ended, and keep the counts for the next one."""
    if not options.ephemeral:
        if saved := read_checkpoint(options.state / FILE):
            plane.traffic.restore(saved)
        tasks.start(write_checkpoints(plane.traffic, options.state / FILE), name="traffic")


def _proxying(options: Options, ground: Ground, tokens: LocalTokens, plane: ControlPlane) -> Proxying:
    machine = plane.machine
    sidecars = SidecarSite(
        binary=find_envoy(os.environ),
        xds_socket=ground.xds,
        runtime_dir=ground.sockets,
        tokens=tokens,
        expected=machine.expected,
        settled=machine.settled,
        refused=machine.refused,
        pass_fds=ground.inherited,
        heard=plane.traffic.heard,
        collector=options.collector,
        lowest_port=ground.settings.lowest_port,
    )
    variables = {"http_proxy": f"http://{ground.instance.proxy}", "no_proxy": NO_PROXY}
    return Proxying(machine.unrouted, variables, sidecars)


async def _stop(runtime: LocalRuntime) -> None:
    for line in await runtime.stop():
        log.warning("%s", line)
