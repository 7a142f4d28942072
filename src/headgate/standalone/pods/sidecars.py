"""Explicit sidecars: an Envoy for each pod, in front of its process; started before it, ended after it.

The sidecar has the pod's address: it takes what comes to the declared ports, and is an HTTP proxy for the process on port
15001. It lives in the pod's directory and outlives headgate as processes do.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headgate.envoy.view import OUTBOUND_PORT, SIDECAR
from headgate.errors import ProxyError
from headgate.latest import Latest, until
from headgate.resources.meta import Key
from headgate.standalone.pods.environment import NO_PROXY
from headgate.standalone.pods.runs import Owner
from headgate.standalone.proxies.envoy_process import MeshEnvoy, MeshEnvoySettings

DIRECTORY = "_sidecar"  # no container can have this name
STARTING = "its configuration is on the way"
_PATIENCE = 20.0  # seconds without a configuration before the user is told
_AGAIN = 1.0  # seconds between looks at a sidecar that does not serve
_LAST_REPORT = 5.0  # seconds for a sidecar to say what its pod did last: it reports every two
_SETTLE = 0.1  # seconds after which Envoy has counted what ended


class ProxyServices(NamedTuple):
    """What the proxies of a machine give to its pods, and what their sidecars share. Proxies are named by node id.

    `variables` are for every container. `runtime_dir` is private and has a short path: the admin sockets are there.
    `lowest_port` is the smallest TCP port that this user may listen on. `unrouted` returns when no proxy sends requests to
    an address any more; `expected`, when the control plane knows the proxy; `settled`, when the proxy holds, or has
    refused, its whole configuration; `refused` says what, in words. `heard` returns when the proxy has reported what it
    counted until a moment (seconds since the epoch).
    """

    mesh: MeshEnvoySettings
    runtime_dir: Path
    variables: Mapping[str, str]
    lowest_port: int
    wait_unrouted: Callable[[str], Awaitable[None]]
    wait_expected: Callable[[str], Awaitable[None]]
    wait_settled: Callable[[str], Awaitable[None]]
    rejections: Callable[[str], Sequence[str]]
    wait_for_report: Callable[[str, float], Awaitable[None]]


def node_id(pod: Key) -> str:
    """Return the name of a pod's sidecar among proxies."""
    return f"{SIDECAR}/{pod.namespace}/{pod.name}"


def admin_socket(runtime_dir: Path, pod_directory: Path) -> Path:
    """Return the path of a sidecar's admin socket: short, and another one for each pod."""
    return runtime_dir / f"pod-{hashlib.sha256(pod_directory.name.encode()).hexdigest()[:16]}.sock"


def probe_socket(runtime_dir: Path, node: str) -> Path:
    """Return the path of a sidecar's socket for `headgate try`, by its node id."""
    return runtime_dir / f"try-{hashlib.sha256(node.encode()).hexdigest()[:16]}.sock"


def proxy_variables(address: str) -> dict[str, str]:
    """Return what brings a process' requests to its sidecar."""
    return {"http_proxy": f"http://{address}:{OUTBOUND_PORT}", "no_proxy": NO_PROXY}


class Sidecar:
    """The sidecar of one pod, from `begin` to `stop`; `fault` says why it does not serve, and is empty while it does."""

    def __init__(self, services: ProxyServices, pod: Key, pod_directory: Path, owner: Owner) -> None:
        self.fault: Latest[str] = Latest(STARTING)
        self._services = services
        self._node = node_id(pod)
        self._directory = pod_directory / DIRECTORY
        self._admin = admin_socket(services.runtime_dir, pod_directory)
        self._owner = owner
        self._envoy = MeshEnvoy(services.mesh, self._node, self._directory, self._admin)
        self.admin = self._envoy.admin
        self.process = self._envoy.state
        self._work: asyncio.Task[None] | None = None
        self._told = ""

    async def recover(self, *, serves: bool) -> None:
        """Take over the Envoy of an earlier headgate. What was said of it last holds until something else is known."""
        if self._directory.exists():
            with contextlib.suppress(FileNotFoundError):  # the pod's files are being removed
                self._envoy.renew()
            if await self._envoy.recover() and serves:
                self.fault.set("")

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start it when the control plane expects it, and keep it from then on."""
        self._work = tasks.create_task(self._keep(), name=self._node)

    async def up(self) -> None:
        """Wait until it serves."""
        await until(lambda: not self.fault.get(), self.fault)

    def detach(self) -> None:
        """Leave it to the next headgate."""
        self._envoy.detach()

    async def report(self, patience: float) -> None:
        """Let it report what it counted until now, for `patience` seconds at most: Envoy does not when it ends (R85)."""
        if self._envoy.state.get().pid:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(patience, _LAST_REPORT)):
                    await self._services.wait_for_report(self._node, time.time() + _SETTLE)

    async def stop(self) -> None:
        """End it."""
        if self._work:
            self._work.cancel()
            await asyncio.wait({self._work})
            self._work = None
        await self._envoy.stop()
        self._admin.unlink(missing_ok=True)
        probe_socket(self._services.runtime_dir, self._node).unlink(missing_ok=True)
        self._set("it has ended with its pod")

    async def _keep(self) -> None:
        await self._services.wait_expected(self._node)  # one that nobody expects is turned away, and comes back late
        while True:
            try:
                await self._envoy.start()
                break
            except (OSError, ProxyError) as error:
                await self._say(str(error))
                await asyncio.sleep(_AGAIN)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew_in_time())
            tasks.create_task(self._follow())

    async def _follow(self) -> None:
        """Look anew whenever Envoy ended or was started again."""
        while True:
            changed = self._envoy.state.next_change()
            async with asyncio.TaskGroup() as tasks:
                looking = tasks.create_task(self._look())
                await changed.wait()
                looking.cancel()

    async def _look(self) -> None:
        """Say what keeps it from serving until nothing does."""
        state = self._envoy.state.get()
        if not state.pid:
            await self._say(f"{state.failure}; headgate starts it again")
            return
        if state.adopted and not self.fault.get():
            return  # it serves with what it has, however long it takes to find back to headgate
        while fault := await self._trouble():
            await self._say(fault)
            await asyncio.sleep(_AGAIN)
        self._told = ""
        self._set("")

    async def _trouble(self) -> str:
        try:
            await self._envoy.ready()
            async with asyncio.timeout(_PATIENCE):
                await self._services.wait_settled(self._node)
        except ProxyError as error:
            return str(error)
        except TimeoutError:
            return f"it does not have its configuration after {_PATIENCE:g} s"
        return "; ".join(self._services.rejections(self._node))

    async def _say(self, fault: str) -> None:
        self._set(fault)
        if fault != self._told:
            self._told = fault
            await self._owner.record_event("Warning", "SidecarNotReady", f"The pod's sidecar does not serve: {fault}")

    def _set(self, fault: str) -> None:
        if fault != self.fault.get():
            self.fault.set(fault)
            self._owner.changed()

    async def _renew_in_time(self) -> None:
        async for error, _ in self._envoy.renewals():
            if not isinstance(error, FileNotFoundError):  # the pod's files are being removed
                message = f"the token of the pod's sidecar can't be renewed, and is tried again: {error}"
                await self._owner.record_event("Warning", "SidecarToken", message)
