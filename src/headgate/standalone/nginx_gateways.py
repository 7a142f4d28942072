"""Runs nginx for the Services of one machine that request it: it listens on their addresses, instead of the gateway (R32, D23).

Its configuration is that of `headgate render nginx`. Clients with a sidecar and the HTTP proxy do not use it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding
from headgate.compiler.service_gateways import READY, ready_message
from headgate.errors import StoreError
from headgate.latest import Latest
from headgate.model.routing import Frontend, Mesh
from headgate.objects.ports import Events
from headgate.plane.live_state import LiveState
from headgate.proxy_programs.nginx import stream_module
from headgate.proxy_programs.programs import find_program
from headgate.render.nginx import configuration as nginx
from headgate.render.proxy_ports import Chosen, select
from headgate.resources.meta import Key
from headgate.resources.registry import SERVICE
from headgate.standalone.gateway import GATEWAY
from headgate.standalone.network.namespaces import NetworkNamespace
from headgate.standalone.proxies.nginx_process import DIRECTORY, Listening, NginxProcess, NginxProgram

ANSWER_S = 5.0  # seconds to wait for the gateway's answer; later, the xDS server retries its listeners

log = logging.getLogger(__name__)


class WantedNginx(NamedTuple):
    """What is requested by Service (`namespace/name`): the configurations of nginx, and the objects that request it."""

    wanted: Mapping[str, Listening]
    about: Mapping[str, Key]


class NginxGateways:
    """The nginx of each Service that requests one. `findings` are about the objects that request it."""

    def __init__(
        self, state: Path, events: Events, pass_fds: tuple[int, ...], node: NetworkNamespace | None = None
    ) -> None:
        self.findings: Latest[tuple[Finding, ...]] = Latest(())
        self._events = events
        self._directory = state / DIRECTORY
        self._program = NginxProgram(find_program("nginx"), pass_fds, node)
        self._processes: dict[str, NginxProcess] = {}
        self._requested = WantedNginx({}, {})

    async def run(self, live_state: LiveState) -> None:
        """Follow the compiled mesh until canceled; then end each nginx."""
        module = await asyncio.to_thread(stream_module, self._program.path)
        try:
            async with asyncio.TaskGroup() as tasks:
                async for compiled in live_state.loop.compiled.changes():
                    if compiled:
                        self._requested = await asyncio.to_thread(requested_in, compiled, module)
                        self._follow(live_state, tasks)
        finally:
            await asyncio.gather(*(process.end() for process in self._processes.values()))

    def _follow(self, live_state: LiveState, tasks: asyncio.TaskGroup) -> None:
        """Give each nginx its configuration, with those of an earlier headgate, and start tasks for new ones."""
        for name in {*self._requested.wanted, *self._surviving()} - self._processes.keys():
            process = NginxProcess(self._directory / name.replace("/", "_"), self._program)
            self._processes[name] = process
            followers = (
                tasks.create_task(self._report(process), name=f"nginx failures of {name}"),
                tasks.create_task(self._announce(name, process), name=f"nginx start of {name}"),
            )
            tasks.create_task(self._run(name, live_state, followers), name=f"nginx of {name}")
        for name, process in self._processes.items():
            listening, before = self._requested.wanted.get(name), process.wanted.get()
            for omission in listening.rendered.omissions if listening else ():
                if not before or omission not in before.rendered.omissions:
                    log.warning("the nginx of the Service %s: %s", name, omission)
            process.wanted.set(listening)
        self._publish()

    async def _run(self, name: str, live_state: LiveState, followers: Iterable[asyncio.Task[None]]) -> None:
        """Run an nginx until none is wanted, and forget it, with the tasks that follow it."""
        await self._processes[name].run(lambda: _listen(live_state))
        del self._processes[name]  # at once, so that a Service that requests it again gets another one
        for task in followers:
            task.cancel()
        self._publish()  # without a failure of this nginx

    def _surviving(self) -> Iterator[str]:
        """Yield the Services with a directory of an earlier headgate."""
        yield from (path.name.replace("_", "/") for path in self._directory.glob("*_*"))

    async def _report(self, process: NginxProcess) -> None:
        async for _ in process.failure.changes():
            self._publish()

    async def _announce(self, name: str, process: NginxProcess) -> None:
        """Record an Event each time that nginx begins to serve. An earlier headgate has recorded that of an adopted nginx."""
        before = process.serves.get()
        async for now in process.serves.changes():
            if now and not before:
                message = ready_message(name, "the workers of nginx")
                try:
                    await self._events.record(self._about(name), type="Normal", reason=READY, message=message)
                except StoreError as error:
                    log.warning("the Event %s of the Service %s can't be recorded: %s", READY, name, error)
            before = now

    def _about(self, name: str) -> Key:
        """Return the object that requests the nginx of a Service."""
        return self._requested.about.get(name) or SERVICE.key(*name.split("/"))

    def _publish(self) -> None:
        failures = ((name, process.failure.get()) for name, process in self._processes.items())
        self.findings.set(
            tuple(
                Finding(
                    self._about(name),
                    Reason.GATEWAY_NOT_READY,
                    "",
                    f"the nginx of the Service {name} does not serve its current configuration: {failure}",
                )
                for name, failure in failures
                if failure and name in self._requested.wanted
            )
        )


def requested_in(compiled: Compiled, module: str) -> WantedNginx:
    """Return what is requested. `module` is the file of nginx's stream module."""
    mesh, requesting = compiled.mesh, compiled.report.service_gateways
    rendered = {front.service: _rendered(mesh, front, module) for front in mesh.frontends if front.other_proxy}
    return WantedNginx(
        {name: listening for name, listening in rendered.items() if listening.ports},
        {gateway.name: gateway.about for gateway in requesting},
    )


def _rendered(mesh: Mesh, front: Frontend, module: str) -> Listening:
    """Return nginx's configuration for a Service: without ports on which headgate has no permission to listen."""
    selection = select(mesh, Chosen([front.service], address=front.address))
    ports = tuple(port for port in selection.ports if front.address and port.port not in front.unbindable)
    selected = structs.replace(selection, ports=ports)
    return Listening(nginx.render(selected, stream_module=module), front.address, tuple(port.port for port in ports))


async def _listen(live_state: LiveState) -> None:
    """Let the gateway listen on addresses that were in use before."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            await live_state.retry_listeners(GATEWAY)
