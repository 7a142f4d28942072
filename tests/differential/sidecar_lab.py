"""A sidecar's Envoy: a lab that serves random worlds one after the other; its callers have certificates."""

import asyncio
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.authority import Authority
from tests.differential.backends import Member
from tests.differential.envoy_lab import EnvoyLab
from tests.differential.http_exchange import Message, exchange
from tests.differential.lab import Objects
from tests.wire import Address

from headgate.compiler.compile import compile_mesh
from headgate.envoy.node_ids import OUTBOUND_PORT
from headgate.envoy.upstream_tls import MESH_ALPN
from headgate.envoy.view import Node, ProxyView, project
from headgate.model.identities import gateway_id, spiffe_id
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import Mesh, Workload
from headgate.plane.feed import snapshot_of
from headgate.settings import Settings

POD = "default/app"
ADDRESS = "address-50"
POD_PORTS = {8080: 0, 9090: 1, 7070: 2}  # the number of the member behind each port of the pod
DOMAIN = Settings().trust_domain
A, B = (spiffe_id(DOMAIN, "default", name) for name in "ab")
BLUE = spiffe_id(DOMAIN, "blue", "a")
CALLERS = {
    "a": A,
    "b": B,
    "blue": BLUE,
    "gateway": gateway_id(DOMAIN),
    "b, with the second name a": B,  # the certificate has A's name as a second name, which is not an identity (R75)
}
STRANGERS = {
    "without certificate": "",
    "of another authority": A,
    "of another domain": A.replace(DOMAIN, "other.local"),
}
PLAINTEXT = "plaintext"
_PLACE = re.compile(r"=member-(\d+)")
_POLICY = re.compile(r".*rbac\.policy\.(.*)\.allowed")


class AccessWorld(NamedTuple):
    """Objects by key, settings of the compiler, and TLS modes by pod (empty: each pod has its wanted mode).

    `leads` pairs each Service port with its target port on the pod.
    """

    objects: Objects
    leads: tuple[tuple[tuple[str, int], int], ...]
    settings: Settings
    tls_modes: Mapping[str, TlsMode]


class LabCaller(NamedTuple):
    """A caller by its label, and its SNI (None: no SNI); with `mesh_alpn` it offers the mesh's ALPN protocol."""

    label: str
    server_name: str | None
    mesh_alpn: bool


class Counted(NamedTuple):
    """The effects of one call.

    `requests`, `connections` and `handshakes` have the members' counts. `status` is the status of the response, and
    `audited` says whether it has the mark of an audit.
    `policies` has the names of the access policies that the proxy counted.
    """

    requests: int
    connections: int
    handshakes: int
    status: int
    audited: bool
    policies: tuple[str, ...]


class SidecarLab(EnvoyLab):
    """The explicit sidecar of the pod POD, as a context manager: `serve` a world, then `call`."""

    def __init__(self) -> None:
        super().__init__(f"sidecar/{POD}")
        self.authority = Authority()
        self.pod_address = self.placed(ADDRESS)
        self.node = Node(
            id=self.node_id,
            role="sidecar",
            workload=POD,
            proxy_address=self.pod_address,
            proxy_port=OUTBOUND_PORT,
        )
        self.own = {name: self.authority.issue(name) for name in (A, B)}
        self.certificates = {name: self.authority.issue(identity) for name, identity in CALLERS.items()}
        self.certificates["b, with the second name a"] = self.authority.issue(B, A)
        self.certificates["of another authority"] = Authority().issue(A)
        self.certificates["of another domain"] = self.authority.issue(STRANGERS["of another domain"])
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}

    async def prepare(self) -> None:
        """Start the application's ports."""
        self.members = [await Member(number).start(self.pod_address) for number in POD_PORTS.values()]

    def filled_in(self, text: str) -> str | int:
        """Return what a text stands for, also as a part of an annotation."""
        if "=member-" in text:
            return _PLACE.sub(lambda place: f"={self.members[int(place[1])].port}", text)
        return super().filled_in(text)

    def view(self, mesh: Mesh) -> ProxyView:
        """Return the part of a mesh for the sidecar."""
        workload = workload_of(mesh)
        return project(mesh, self.node, self.own[workload.identity if workload else A])

    def serve(self, world: AccessWorld) -> Workload:
        """Compile a world; wait until the sidecar has acknowledged every resource, and return the workload."""
        mesh = compile_mesh(snapshot_of(self.placed(world.objects)), world.settings, world.tls_modes).mesh
        self.network.run(self._settle(mesh))
        workload = workload_of(mesh)
        assert workload
        return workload

    def is_needed(self, type_url: str, name: str) -> bool:
        """Return whether the sidecar subscribes to a resource; listeners name the certificates and routes."""
        session = self.proxy.session
        return session is not None and session.subscriptions[type_url].includes(name)

    async def _settle(self, mesh: Mesh) -> None:
        await self.settle(mesh)
        while await self._stats("listener_manager.total_listeners_warming"):
            pass  # each admin request waits for the main thread, which warms listeners
        # A worker thread gets the new listeners before it answers this request.
        await exchange(
            Address(self.pod_address, OUTBOUND_PORT), Message("1.1", "GET", "http://unknown/", "unknown", ())
        )

    async def _stats(self, pattern: str) -> Mapping[str, int]:
        page = await self.envoy.admin.get_json(f"/stats?format=json&filter={pattern}")
        return {counter["name"]: counter["value"] for counter in page["stats"] if counter.get("value")}

    def call(self, port: int, message: Message, caller: LabCaller, *, counts_policies: bool = False) -> Counted:
        """Call a port of the pod once, on a new connection."""
        return self.network.run(self._call(port, message, caller, counts_policies))

    async def _call(self, port: int, message: Message, caller: LabCaller, counts_policies: bool) -> Counted:
        self.forget()
        if counts_policies:
            await self._reset_counters()
        tls = None if caller.label == PLAINTEXT else self._context(caller)
        reply = await exchange(Address(self.pod_address, port), message, tls, caller.server_name)
        policies = await self._policies() if counts_policies else ()
        member = self.members[POD_PORTS[port]]
        # When this extra connection is answered, the member has seen all earlier ones.
        await exchange(Address(self.pod_address, member.port), Message("1.1", "GET", "/", "member", ()))
        return Counted(member.requests - 1, member.connections - 1, member.handshakes, *reply, policies)

    async def _policies(self) -> tuple[str, ...]:
        return tuple(match[1] for name in await self._stats("rbac.policy") if (match := _POLICY.fullmatch(name)))

    async def _reset_counters(self) -> None:
        """Reset all counters to zero.

        Differences of counters would be wrong: when the last world's listener has drained, its counters are removed,
        and new counters of the same name start at zero.
        """
        reader, writer = await asyncio.open_unix_connection(f"{self.directory.name}/admin")
        writer.write(b"POST /reset_counters HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()

    def _context(self, caller: LabCaller) -> ssl.SSLContext:
        label, mesh_alpn = key = caller.label, caller.mesh_alpn
        if key not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.load_verify_locations(cadata=self.authority.pem)
            if mesh_alpn:
                context.set_alpn_protocols([MESH_ALPN])
            if label in self.certificates:
                file = Path(self.directory.name) / f"{len(self._contexts)}.pem"
                file.write_text(self.certificates[label].key.reveal() + self.certificates[label].chain)
                context.load_cert_chain(file)
            self._contexts[key] = context
        return self._contexts[key]


def workload_of(mesh: Mesh) -> Workload | None:
    """Return the workload of the lab's pod; None if the mesh does not have it."""
    return next((workload for workload in mesh.workloads if workload.name == POD), None)
