"""Explain how a request reaches the pods of a route: by mutual TLS or in plaintext, and whether they allow it."""

from collections.abc import Mapping
from functools import cached_property
from ipaddress import ip_address
from typing import Literal

from msgspec import structs

from headgate.compiler.access_remedies import DeniedRequest, Remedy, remedy
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot, account_name
from headgate.compiler.unenforced import cause_at
from headgate.model.applied_filters import authorization_request
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.authorization import Authorization, authorize, port_of, protocol_at
from headgate.model.edge_tls import BackendTls, backend_words
from headgate.model.identities import gateway_id, spiffe_id
from headgate.model.requests import Request
from headgate.model.routing import Endpoint, PortRef, Protocol, Route, Workload
from headgate.resources.core.pod_metadata import EXCLUDED_PORTS, EXTERNAL, INJECT, PROCESS, STOP_PROCESS
from headgate.resources.explanations import MUTUAL_TLS, NO_CALLER, PLAINTEXT, TLS, Arrival, AuthorizationServer
from headgate.resources.meta import Key, Value

_GIVE_SIDECAR = f'give its pod template the label {INJECT}: "true" and replace its pods'


_BYPASS_TEXTS = {
    "excluded": f"its sidecar does not intercept port {{port}} ({EXCLUDED_PORTS})",
    "written": "its sidecar does not serve port {port}, so the request reaches the process directly",
}


class Caller(Value, frozen=True, kw_only=True):
    """The sender of a request: an `object`, or None for the gateway, or for a caller that is not named.

    `identity` is its SPIFFE ID, empty for plaintext, and for a caller that is not named. A Service name without a namespace means a Service in
    `home`. With `sidecar`, routes for clients of `home` only apply. With `is_scoped`, its proxy knows only Services that it may call, and refuses requests to all other hosts.
    With `by_address`, it connects to the address and port of the URL, as behind a transparent sidecar; otherwise it uses an HTTP proxy.
    """

    object: Key | None
    identity: str
    note: str = ""
    home: str = DEFAULT_NAMESPACE
    is_scoped: bool = False
    sidecar: bool = False
    by_address: bool = False


def gateway(trust_domain: str, note: str = "") -> Caller:
    """Return the node's gateway as the caller; all requests through the gateway have the gateway's identity."""
    return Caller(object=None, identity=gateway_id(trust_domain), note=note)


def not_named() -> Caller:
    """Return the caller of a request on a cluster without a gateway, for which no caller is named."""
    return Caller(object=None, identity="", note=NO_CALLER)


def account(compiled: Compiled, snapshot: Snapshot, namespace: str, name: str, *, on_cluster: bool = False) -> Caller:
    """Return a caller for a pod with this ServiceAccount and a sidecar; without such a pod, one with the sidecar of new pods."""
    pods = snapshot.pods_of_account.get(f"{namespace}/{name}", ())
    captures = {workload.capture for workload in compiled.mesh.workloads if workload.name in pods}
    return Caller(
        object=Key("", "ServiceAccount", namespace, name),
        identity=spiffe_id(compiled.mesh.trust_domain, namespace, name),
        note="" if pods else "no pod runs as this ServiceAccount now",
        home=namespace,
        is_scoped=compiled.mesh.scoped,
        sidecar=True,
        by_address="transparent" in captures if captures else on_cluster,
    )


def pod(compiled: Compiled, snapshot: Snapshot, name: str) -> Caller:
    """Return a pod (`namespace/pod`) as the caller; a pod without a sidecar calls in plaintext.

    On a single machine, in networks of pods too, plaintext calls go through the gateway and have its identity. Raises KeyError when the
    pod does not exist.
    """
    namespace, written = name.partition("/")[0], snapshot.pods[name]
    key = Key("", "Pod", *name.split("/"))
    workload = next((workload for workload in compiled.mesh.workloads if workload.name == name), None)
    if workload:
        return Caller(
            object=key,
            identity=workload.identity,
            home=namespace,
            is_scoped=compiled.mesh.scoped,
            sidecar=True,
            by_address=workload.capture == "transparent",
        )
    address = written.status.pod_ip
    is_loopback = bool(address) and ip_address(address).is_loopback
    no_sidecar = f"it has no sidecar, so it calls in plaintext, without the identity of its ServiceAccount {account_name(written)}"
    if STOP_PROCESS in written.metadata.finalizers or is_loopback:
        note = f"{no_sidecar}; the gateway forwards its requests"
        identity = gateway_id(compiled.mesh.trust_domain)
        is_external = written.metadata.annotations.get(PROCESS) == EXTERNAL
        has_own_network = not (is_loopback or is_external or written.spec.host_network)  # others get `http_proxy`
        return Caller(object=key, identity=identity, note=note, by_address=has_own_network)
    return Caller(object=key, identity="", note=no_sidecar, home=namespace, by_address=True)


class Arrivals:
    """The explanations of how one caller's requests arrive at endpoints."""

    def __init__(self, compiled: Compiled, snapshot: Snapshot, caller: Caller) -> None:
        self._compiled = compiled
        self._snapshot = snapshot
        self._caller = caller

    def at(
        self, ref: PortRef, request: Request, only: Endpoint | None = None, tls: BackendTls | None = None
    ) -> tuple[Arrival, ...]:
        """Return the outcome of a request at each ready endpoint of a Service port, or only at the endpoint `only`.

        A Gateway calls them with `tls` instead of mutual TLS. Without a named caller there is no outcome.
        """
        if not self._caller.object and not self._caller.identity:
            return ()  # access depends on the caller
        ready = self._ready(ref)
        return tuple(self._arrival(endpoint, ref, request, tls) for endpoint in ready if only in (None, endpoint))

    def _ready(self, ref: PortRef) -> tuple[Endpoint, ...]:
        return next((entry.ready for entry in self._compiled.mesh.endpoints if entry.ref == ref), ())

    def at_authorization_server(self, route: Route | None, request: Request) -> AuthorizationServer | None:
        """Return how a proxy's call about a request arrives at the authorization server of its route; None without one."""
        if route is None or (auth := route.external_auth) is None:
            return None
        arrived = self.at(auth.ref, authorization_request(auth, request), tls=auth.tls)
        ready = len(self._ready(auth.ref))
        return AuthorizationServer(
            service=auth.ref.service, port=auth.ref.port, ready_endpoints=ready, arrivals=arrived
        )

    @cached_property
    def _workloads(self) -> Mapping[str, Workload]:
        workloads = self._compiled.mesh.workloads
        return {workload.address: workload for workload in workloads} | {
            workload.name: workload for workload in workloads
        }

    def _arrival(self, endpoint: Endpoint, ref: PortRef, request: Request, tls: BackendTls | None) -> Arrival:
        workload = self._workloads.get(endpoint.workload) or self._workloads.get(endpoint.address)
        mutual_tls = bool(endpoint.identity and self._caller.identity) and tls is None
        change = Remedy()
        if endpoint.resolved:
            answer = Authorization(allowed=True, why="it is outside the mesh, so no sidecar authorizes the request")
        elif ref.is_udp:
            answer = Authorization(allowed=True, why="sidecars do not redirect UDP, so they authorize no datagram")
        elif workload is None:
            answer = Authorization(allowed=True, why="it has no sidecar, so every request is allowed")
        else:
            answer, change = self._authorized(workload, endpoint, ref, request=request, mutual_tls=mutual_tls)
        transport: Literal["MutualTLS", "TLS", "Plaintext"] = MUTUAL_TLS if mutual_tls else TLS if tls else PLAINTEXT
        how = (
            f"with {endpoint.identity}"
            if mutual_tls
            else backend_words(tls)
            if tls
            else "UDP has no mutual TLS"
            if ref.is_udp
            else self._plaintext(workload, endpoint)
        )
        return Arrival(
            workload=workload.name if workload else endpoint.workload,
            address=f"{endpoint.address}:{endpoint.port}",
            transport=transport,
            transport_message=how,
            allowed=answer.allowed,
            object=answer.origin,
            rule=answer.rule,
            message=answer.why,
            remedy_message=change.message,
            remedy_objects=change.objects,
            wide_remedy_objects=change.wide_objects,
        )

    def _authorized(
        self, workload: Workload, endpoint: Endpoint, ref: PortRef, *, request: Request, mutual_tls: bool
    ) -> tuple[Authorization, Remedy]:
        """Return the sidecar's decision whether the request is allowed, and the remedy if it is refused."""
        port = port_of(workload, endpoint.port)
        if cause := cause_at(self._snapshot, workload, endpoint.port):
            return Authorization(allowed=True, why=_BYPASS_TEXTS[cause].format(port=endpoint.port)), Remedy()
        plain = (table.protocol for table in self._compiled.mesh.tables if table.ref == ref)
        protocol = protocol_at(port, ref, has_identity=mutual_tls) if port else next(plain, Protocol.HTTP)
        identity = self._caller.identity if mutual_tls else ""
        request = _forwarded(request, protocol)
        answer = authorize(workload, endpoint.port, protocol=protocol, identity=identity, request=request)
        if answer.allowed or answer.status:
            return answer, Remedy()
        if not mutual_tls:
            return answer, Remedy(message=self._identity_remedy(workload))
        denied = DeniedRequest(
            identity=identity, workload=workload, port=endpoint.port, protocol=protocol, request=request
        )
        return answer, remedy(denied, self._snapshot, self._compiled.mesh)

    def _identity_remedy(self, workload: Workload) -> str:
        """Return advice on how the request can carry the caller's identity, which authorization needs."""
        if not self._caller.identity:
            return f"{_GIVE_SIDECAR}, so that it calls as its ServiceAccount"
        if workload.tls_mode is not workload.target_tls_mode:
            return "wait: its migration to mutual TLS is in progress"
        if not workload.tls_mode.accepts_tls:
            return "select the pod with a TLSConfig, or run headgate with --mtls permissive"
        return "declare the port in the pod template, and add it to a Service"

    def _plaintext(self, workload: Workload | None, endpoint: Endpoint) -> str:
        """Return the reason why a request travels in plaintext instead of mutual TLS."""
        if endpoint.resolved:
            return "it is outside the mesh"
        if workload is None:
            return "it has no sidecar"
        if not self._caller.identity:
            return "the caller has no sidecar"
        if port_of(workload, endpoint.port) is None:
            return f"its sidecar does not serve port {endpoint.port}"
        if workload.tls_mode is workload.target_tls_mode:
            return "mutual TLS is off for this workload"
        return "its migration to mutual TLS is in progress, and some proxies are not ready"


def _forwarded(request: Request, protocol: Protocol) -> Request:
    """Return a request as a proxy forwards it to a port with this protocol."""
    if protocol is Protocol.HTTP_ANY:
        return request
    return structs.replace(request, version="2" if protocol is Protocol.HTTP2 else "1.1")
