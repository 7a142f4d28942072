"""A runtime whose pods have sidecars: real Envoys, with a minimal control plane and the real xDS server.

Each sidecar is a plaintext proxy in front of its process. Authorization and mTLS are tested elsewhere.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.processes import runs
from tests.standalone.pods.machine import ProcessMachine, without_proxies

from headgate.admission.chain import admission
from headgate.admission.injection import explicit_sidecars
from headgate.envoy import inbound
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET
from headgate.envoy.encode import encode_resource
from headgate.latest import Latest, until
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import InboundPort, PortProtocol, Protocol, Workload
from headgate.resources.core.pod import ProcessIdentity
from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.resources.meta import Object
from headgate.standalone.controllers.services import service_admission, track_cluster_ips
from headgate.standalone.pods import application_ports
from headgate.standalone.pods.runtime import LocalRuntime
from headgate.standalone.pods.sidecars import ProxyServices
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_process import MeshEnvoySettings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.authentication import LocalTokens
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer


class MeshedMachine(ProcessMachine):
    """A `ProcessMachine` whose pods have sidecars. One control plane serves all of its consecutive runtimes."""

    def __init__(self, state: Path, a: int, sockets: Path) -> None:
        super().__init__(state, a)
        self.store = MemoryStore(
            admit=admission(explicit_sidecars("all"), {("v1", "Service"): service_admission(self.addresses)}),
            kept=track_cluster_ips(self.addresses),
        )
        self.fleet = Fleet()
        self.held_back: set[str] = set()  # node IDs of proxies that receive no configuration yet
        self.tokens = LocalTokens(b"0" * 32)
        self._known: Latest[int] = Latest(0)
        self._sockets = sockets
        self._server = XdsServer(self.fleet, self.tokens)
        self._control: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._server.start(f"unix:{self._sockets / 'xds.sock'}")
        self._control = asyncio.create_task(self._follow())
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert await self.runtime.stop() == []
        await self.abandon()
        assert self._control
        self._control.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._control
        await self._server.stop()

    def start(self) -> None:
        self.runtime = LocalRuntime(self.store, self.state, self.addresses, self.proxy_services())
        self._task = asyncio.create_task(self.runtime.run())

    def proxy_services(self) -> ProxyServices:
        return without_proxies(
            variables={"EXTRA": "given"},
            wait_unrouted=self.unrouted,
            mesh=MeshEnvoySettings(find_envoy(os.environ), self._sockets / "xds.sock", self.tokens),
            runtime_dir=self._sockets,
            wait_expected=self._expected,
            wait_settled=self._settled,
            rejections=self._refused,
        )

    async def _expected(self, node: str) -> None:
        await until(lambda: node in self.fleet.proxies, self._known)

    async def _settled(self, node: str) -> None:
        await until(self.fleet.proxies[node].settled, self.fleet.change_count, self._known)

    def _refused(self, node: str) -> Sequence[str]:
        return [found.message for found in self.fleet.proxies[node].rejections()]

    async def _follow(self) -> None:
        """Register a proxy for each pod that has an address and a sidecar."""
        async for change in self.store.watch("", "Pod", since="0"):
            if change.type != "DELETED":
                self.give(read(change.object, Pod))

    def give(self, pod: Pod) -> None:
        """Set the configuration of a pod's sidecar, unless the sidecar is held back."""
        node = f"sidecar/{pod.metadata.namespace}/{pod.metadata.name}"
        if not pod.status.pod_ip or pod.metadata.annotations.get("headgate.dev/sidecar-mode") != "explicit":
            return
        proxy = self.fleet.expect(node)
        config: dict[Any, dict[str, Any]] = {
            kind: {} for kind in (CLUSTER, ENDPOINTS, SECRET, LISTENER, ROUTES, SCOPES)
        }
        for part in inbound.parts(workload(pod), domain="cluster.local", trust_domain="cluster.local"):
            made = part.render(*part.arguments)
            config[part.type_url][part.name] = encode_resource(part.name, made, frozenset(part.needs))
        if node not in self.held_back:
            proxy.config.set(config)
        self._known.set(self._known.get() + 1)

    def directory(self, found: Object) -> Path:
        """Return the directory of a pod's sidecar."""
        return next(self.state.glob(f"pods/*_{found['metadata']['uid']}")) / "_sidecar"

    def sidecar(self, found: Object) -> int:
        """Return the pid of a pod's running sidecar."""
        pid = ProcessIdentity(**_record(self.directory(found) / "envoy.json")["identity"]).pid
        assert runs(pid)
        return pid

    async def condition(self, type: str, status: str, name: str = "web") -> Object:
        """Wait until the condition `type` of a pod has the status `status`; return the pod."""

        async def holds() -> Object | None:
            found = await self.get(name)
            facts = (found.get("status") or {}).get("conditions", ())
            return found if any(fact["type"] == type and fact["status"] == status for fact in facts) else None

        return await self.until(holds)


def workload(pod: Pod) -> Workload:
    """Return the workload for which a pod's sidecar is configured."""
    protocols = (PortProtocol(protocol=Protocol.HTTP),)
    numbers = application_ports.from_annotation(pod.metadata)
    return Workload(
        name=f"{pod.metadata.namespace}/{pod.metadata.name}",
        address=pod.status.pod_ip,
        identity="spiffe://cluster.local/ns/default/sa/default",
        capture="explicit",
        ports=tuple(
            InboundPort(port=port, application=number, protocols=protocols) for port, number in numbers.items()
        ),
        tls_mode=TlsMode.PLAIN,
        target_tls_mode=TlsMode.PLAIN,
    )


def fact(found: Object, type: str) -> dict[str, str]:
    """Return the condition `type` of a pod."""
    return next(dict(item) for item in found["status"]["conditions"] if item["type"] == type)


def _record(path: Path) -> Any:
    return json.loads(path.read_bytes())
