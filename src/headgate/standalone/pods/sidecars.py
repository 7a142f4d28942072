"""Sidecars: an Envoy in front of each pod's process, started before the process and ended after it.

An explicit sidecar listens on the pod's address: on the declared ports for inbound requests, and on port 15001 as an HTTP proxy
for the process. A transparent one is in the network of the pod, whose connections are redirected to it. The files of a sidecar
are in the pod's directory. It keeps running when headgate ends, like the process.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headgate.backoff import Backoff, until_done
from headgate.envoy.node_ids import OUTBOUND_PORT, SIDECAR
from headgate.errors import ProxyError
from headgate.latest import Latest, until
from headgate.resources.meta import Key
from headgate.standalone.network.pod_network import PodNetwork
from headgate.standalone.pods.environment import NO_PROXY
from headgate.standalone.pods.runs import Owner
from headgate.standalone.proxies.envoy_process import MeshEnvoy, MeshEnvoySettings

DIRECTORY = "_sidecar"  # the directory of sidecars; no container can have this name
STARTING = "waiting for its configuration"
_PATIENCE = 20.0  # Seconds without a configuration until an Event reports it.
_LONGEST_PAUSE_S = 1.0  # between checks of a sidecar that does not serve
_LAST_REPORT = 5.0  # Seconds to wait for the last metrics report; a sidecar reports every two seconds.
_SETTLE = 0.1  # Seconds until Envoy has counted requests that ended.


class ProxyServices(NamedTuple):
    """The services of the control plane that pods and sidecars use. Parameters name proxies by node ID.

    `variables` are set in every container. `runtime_dir` is private and has a short path, for the admin sockets.
    `lowest_port` is the smallest TCP port that this user may listen on. `rejections` returns messages about rejected
    resources.

    `wait_unrouted` returns when no proxy routes to an address. `wait_expected` returns when the control plane accepts
    streams of a proxy. `wait_settled` returns when a proxy has acknowledged or rejected its whole configuration.
    `wait_for_report` returns when the proxy has reported its metrics up to a time (seconds since the epoch).
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
    """Return the node ID of a pod's sidecar."""
    return f"{SIDECAR}/{pod.namespace}/{pod.name}"


def admin_socket(runtime_dir: Path, pod_directory: Path) -> Path:
    """Return the path of a sidecar's admin socket: short and unique."""
    return runtime_dir / f"pod-{hashlib.sha256(pod_directory.name.encode()).hexdigest()[:16]}.sock"


def probe_socket(runtime_dir: Path, node: str) -> Path:
    """Return the path of a sidecar's socket for `headgate try`, by its node ID."""
    return runtime_dir / f"try-{hashlib.sha256(node.encode()).hexdigest()[:16]}.sock"


def proxy_variables(address: str) -> dict[str, str]:
    """Return the variables that make a process send its requests through its sidecar."""
    return {"http_proxy": f"http://{address}:{OUTBOUND_PORT}", "no_proxy": NO_PROXY}


class RunningSidecar:
    """The sidecar of one pod. `fault` says why it does not serve; it is empty while it serves."""

    def __init__(
        self, services: ProxyServices, pod: Key, pod_directory: Path, owner: Owner, network: PodNetwork
    ) -> None:
        self.fault: Latest[str] = Latest(STARTING)
        self._services = services
        self._node = node_id(pod)
        self._directory = pod_directory / DIRECTORY
        self._admin = admin_socket(services.runtime_dir, pod_directory)
        self._owner = owner
        self._network = network
        self._envoy = MeshEnvoy(
            services.mesh._replace(mark=network.proxy_mark), self._node, self._directory, self._admin
        )
        self.admin = self._envoy.admin
        self.process = self._envoy.state
        self._work: asyncio.Task[None] | None = None
        self._reported = ""

    async def recover(self, *, serves: bool) -> None:
        """Adopt the Envoy of an earlier headgate. `serves` is its last recorded state, used until the first check."""
        self._envoy.isolation = self._network.proxy_isolation()
        if self._directory.exists():
            with contextlib.suppress(FileNotFoundError):  # the pod's directory is being removed
                self._envoy.renew()
            if await self._envoy.recover() and serves:
                self.fault.set("")

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start the sidecar when the control plane expects it, and keep it running."""
        self._work = tasks.create_task(self._keep(), name=self._node)

    async def wait_ready(self) -> None:
        """Wait until the sidecar serves."""
        await until(lambda: not self.fault.get(), self.fault)

    def detach(self) -> None:
        """Stop watching the sidecar, which keeps running for the next headgate."""
        self._envoy.detach()

    async def report(self, patience: float) -> None:
        """Wait up to `patience` seconds until the sidecar has reported its metrics: Envoy sends no report when it ends (R85)."""
        if self._envoy.state.get().pid:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(patience, _LAST_REPORT)):
                    await self._services.wait_for_report(self._node, time.time() + _SETTLE)

    async def stop(self) -> None:
        """End the sidecar."""
        if self._work:
            self._work.cancel()
            await asyncio.wait({self._work})
            self._work = None
        await self._envoy.stop()
        self._admin.unlink(missing_ok=True)
        probe_socket(self._services.runtime_dir, self._node).unlink(missing_ok=True)
        self._set("ended with its pod")

    async def _keep(self) -> None:
        # The control plane rejects streams of unexpected proxies, and Envoy would retry late.
        await self._services.wait_expected(self._node)
        await until_done(self._start, "", on=(OSError, ProxyError), backoff=Backoff(longest_s=_LONGEST_PAUSE_S))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew_token())
            tasks.create_task(self._follow())

    async def _start(self) -> None:
        """Start Envoy, and report why it can't start. Raises OSError and ProxyError."""
        try:
            await self._envoy.start()
        except (OSError, ProxyError) as error:
            await self._report_fault(str(error))
            raise

    async def _follow(self) -> None:
        """Check the sidecar each time that Envoy has ended or restarted."""
        while True:
            changed = self._envoy.state.next_change()
            async with asyncio.TaskGroup() as tasks:
                checking = tasks.create_task(self._check())
                await changed.wait()
                checking.cancel()

    async def _check(self) -> None:
        """Report why the sidecar does not serve, until it serves."""
        state = self._envoy.state.get()
        if not state.pid:
            await self._report_fault(f"{state.failure}; headgate restarts it")
            return
        if state.adopted and not self.fault.get():
            return  # an adopted Envoy serves with its last configuration, even before it reconnects
        backoff = Backoff(longest_s=_LONGEST_PAUSE_S)
        while fault := await self._find_fault():
            await self._report_fault(fault)
            await asyncio.sleep(backoff.next_pause())
        self._reported = ""
        self._set("")

    async def _find_fault(self) -> str:
        try:
            await self._envoy.ready()
            async with asyncio.timeout(_PATIENCE):
                await self._services.wait_settled(self._node)
        except ProxyError as error:
            return str(error)
        except TimeoutError:
            return f"no configuration after {_PATIENCE:g} s"
        return "; ".join(self._services.rejections(self._node))

    async def _report_fault(self, fault: str) -> None:
        self._set(fault)
        if fault != self._reported:
            self._reported = fault
            await self._owner.record_event("Warning", "SidecarNotReady", f"The pod's sidecar does not serve: {fault}")

    def _set(self, fault: str) -> None:
        if fault != self.fault.get():
            self.fault.set(fault)
            self._owner.changed()

    async def _renew_token(self) -> None:
        async for error, _ in self._envoy.renewals():
            # FileNotFoundError is expected while the pod's directory is removed.
            if not isinstance(error, FileNotFoundError):
                message = f"the token of the pod's sidecar can't be renewed; headgate retries: {error}"
                await self._owner.record_event("Warning", "SidecarToken", message)
