"""Resolve backend references of routes to Service ports (R54 to R57)."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from headgate.compiler.gateway_api.external_backends import ExternalBackend, Ready
from headgate.compiler.protocols import choice_at
from headgate.compiler.reasons import Reason
from headgate.compiler.references import grant_hint, permitted, service_key
from headgate.compiler.report import Finding
from headgate.compiler.services import is_external
from headgate.compiler.snapshot import Snapshot
from headgate.model.requests import ANY, Match
from headgate.model.routing import Mirror, PortRef, Protocol, Route, RouteTable, Split, SplitMatch, Target
from headgate.model.sessions import PersistentSession
from headgate.resources.core.service import Service
from headgate.resources.gateway_api.reference_grant import ReferenceGrant
from headgate.resources.gateway_api.routes import BackendReference
from headgate.resources.meta import Key, Value
from headgate.resources.registry import BACKEND, SERVICE, find


class PortDestination(Value, frozen=True, kw_only=True):
    """The destination of requests to a Service port that fit `match` and no earlier match.

    Without a `split`, they go to the Service's own endpoints. `by` is the TrafficSplit of `split`; if it has matches,
    `split_match` is the match that the requests fit. `mirrors` has those of the TrafficSplit. `external` is the server outside
    the mesh, if `ref` is that of an XBackend.
    """

    ref: PortRef
    match: Match = ANY
    split: Split | None = None
    by: Key | None = None
    split_match: SplitMatch | None = None
    mirrors: tuple[Mirror, ...] = ()
    external: ExternalBackend | None = None

    def target(self, about: Key) -> Target:
        """Return the target with the weight 1 for a destination without a split, which the route `about` calls.

        A GRPCRoute calls servers outside the mesh over HTTP/2, and routes of connections forward bytes to them.
        """
        if self.external is None:
            return Target(ref=self.ref, weight=1)
        protocol = Protocol.HTTP2 if about.kind == "GRPCRoute" else self.external.protocol or Protocol.HTTP
        own = protocol if _has_requests(about) else Protocol.TCP
        return Target(ref=self.ref, weight=1, protocol=own, tls=self.external.tls)


def _has_requests(about: Key) -> bool:
    """Return whether a route is of requests; otherwise it is of connections or datagrams."""
    kind = find(about.group, about.kind)
    return kind is not None and "HTTP" in kind.listeners


class OutsideServers(NamedTuple):
    """The Service ports that Gateways call with TLS, and the servers outside the mesh by the `namespace/name` of their XBackend.

    `sessions` has those of Services (`namespace/name`) by their policies.
    """

    secured: Collection[PortRef]
    external: Mapping[str, ExternalBackend]
    sessions: Mapping[str, PersistentSession] = {}


NO_SERVERS = OutsideServers((), {})


class Destinations:
    """The Service ports and servers outside the mesh that backend references can name.

    `tables` has the route tables of Services before routes are attached, and `meshed` the names of the pods with a sidecar.
    Gateways call the ports in `servers.secured` over TLS, so that a port with the protocol TLS can be a backend of an HTTPRoute. Of the snapshot, only the kinds in `READ` are used: a change to another kind, or to a pod's status, compiles no route.
    """

    READ = (Service, ReferenceGrant)

    def __init__(
        self,
        snapshot: Snapshot,
        ready: Ready,
        tables: Sequence[RouteTable],
        meshed: Collection[str] = (),
        servers: OutsideServers = NO_SERVERS,
    ) -> None:
        self._snapshot = snapshot
        self._ready = ready
        self._meshed = meshed
        self._secured = frozenset(servers.secured)
        self.sessions = servers.sessions
        self._externals = servers.external
        self._of_refs = {external.ref: external for external in servers.external.values()}
        self._protocols = {table.ref: table.protocol for table in tables}
        self._tables = {table.ref: table for table in tables}

    def keeps_sessions(self, about: Key, service: str) -> bool:
        """Return whether a route keeps the sessions of a Service (`namespace/name`): connections and datagrams have none."""
        return service in self.sessions and _has_requests(about)

    def find(self, about: Key, ref: BackendReference, field: str) -> PortRef | Finding:
        """Return the Service port of a reference, or a finding that says why there is none."""
        if (ref.group, ref.kind) == (BACKEND.group, BACKEND.kind):
            return self._find_external(about, ref, field)
        if (ref.group, ref.kind) != (SERVICE.group, SERVICE.kind):
            message = f"{ref.kind} {ref.name} is not a Service; only Services and XBackends can be backends, so write kind: Service"
            return Finding(about, Reason.INVALID_KIND, f"{field}.kind", message)
        name = f"{ref.namespace or about.namespace}/{ref.name}"
        related = (service_key(name),)
        if not permitted(self._snapshot, about, name):
            message = f"Service {name} is in another namespace, which does not allow this reference; {grant_hint(about, name)}"
            return Finding(about, Reason.REF_NOT_PERMITTED, f"{field}.namespace", message, related)
        if name not in self._snapshot.services:
            message = f"Service {name} not found; create it or correct the name"
            return Finding(about, Reason.BACKEND_NOT_FOUND, f"{field}.name", message, related)
        port_ref = PortRef(name, ref.port or 0, is_udp=about.kind == "UDPRoute")
        if port_ref in self._ready:
            return port_ref
        reason, message = _no_port(port_ref, self._snapshot.services[name][1])
        return Finding(about, reason, f"{field}.port", message, related)

    def _find_external(self, about: Key, ref: BackendReference, field: str) -> PortRef | Finding:
        name = f"{ref.namespace or about.namespace}/{ref.name}"
        related = (BACKEND.key(*name.split("/")),)
        if not permitted(self._snapshot, about, name, kind=BACKEND.kind, group=BACKEND.group):
            hint = grant_hint(about, name, kind=f"{BACKEND.kind} of group {BACKEND.group}")
            message = f"XBackend {name} is in another namespace, which does not allow this reference; {hint}"
            return Finding(about, Reason.REF_NOT_PERMITTED, f"{field}.namespace", message, related)
        external = self._externals.get(name)
        if external is None:
            message = f"XBackend {name} not found, or not valid; create it or correct the name"
            return Finding(about, Reason.BACKEND_NOT_FOUND, f"{field}.name", message, related)
        if ref.port not in (None, external.ref.port):
            message = f"XBackend {name} has the port {external.ref.port}; write this port, or leave it out"
            return Finding(about, Reason.BACKEND_NOT_FOUND, f"{field}.port", message, related)
        if about.kind == "UDPRoute":
            message = (
                f"XBackend {name} is a server for connections; only UDP ports of Services can be backends of a UDPRoute"
            )
            return Finding(about, Reason.UNSUPPORTED_PROTOCOL, f"{field}.kind", message, related)
        return external.ref

    def find_http(self, about: Key, ref: BackendReference, field: str) -> PortRef | Finding:
        """Return the result of `find` if the port is HTTP, else a finding."""
        port_ref = self.find(about, ref, field)
        if isinstance(port_ref, Finding) or self.protocol(port_ref).is_http or port_ref in self._secured:
            return port_ref
        if port_ref in self._of_refs:
            message = f"the protocol of XBackend {ref.namespace or about.namespace}/{ref.name} is TCP, not HTTP; use a TCPRoute, or another protocol"
            return Finding(about, Reason.UNSUPPORTED_PROTOCOL, field, message, (service_key(port_ref.service),))
        fix = "use a BackendTLSPolicy" if self.protocol(port_ref) is Protocol.TLS else "use a TCPRoute"
        message = (
            f"port {port_ref.port} of Service {port_ref.service} is {self.protocol(port_ref).value}, not HTTP; set the port's "
            f"appProtocol to http, or {fix}"
        )
        return Finding(about, Reason.UNSUPPORTED_PROTOCOL, f"{field}.port", message, (service_key(port_ref.service),))

    def assumed_http(self, about: Key, port_ref: PortRef, field: str) -> Finding | None:
        """Return a finding for a TCPRoute to a port without a declared protocol, which sidecars treat as HTTP."""
        if (
            port_ref.is_udp
            or port_ref in self._of_refs
            or self.port_destinations(port_ref)[-1].split
            or choice_at(self._snapshot, port_ref).declared
        ):
            return None
        if not any(endpoint.workload in self._meshed for endpoint in self._ready[port_ref]):
            return None
        message = (
            f"port {port_ref.port} of Service {port_ref.service} declares no protocol, so its pods' sidecars treat it as http "
            "and wait for a request; set the port's appProtocol to tcp or tcp-server-first"
        )
        return Finding(about, Reason.UNSUPPORTED_PROTOCOL, f"{field}.port", message, (service_key(port_ref.service),))

    def protocol(self, port_ref: PortRef) -> Protocol:
        """Return the protocol of a Service port."""
        external = self._of_refs.get(port_ref)
        own = external.protocol if external else self._protocols.get(port_ref)
        return own or Protocol.HTTP

    def port_destinations(self, port_ref: PortRef) -> tuple[PortDestination, ...]:
        """Return the destinations of a Service port by the order of matches; the last matches all requests (D13)."""
        table = self._tables.get(port_ref)
        return (
            tuple(_port_destination(port_ref, route) for route in table.routes)
            if table
            else (self.without_split(port_ref),)
        )

    def without_split(self, port_ref: PortRef) -> PortDestination:
        """Return the Service port, or the server outside the mesh, as a destination to which no split applies."""
        return PortDestination(ref=port_ref, external=self._of_refs.get(port_ref))

    def is_empty(self, destination: PortDestination) -> bool:
        """Return whether the destination has no ready endpoint."""
        if destination.split is None:
            return not self._ready[destination.ref]
        return not destination.split.broken and not any(self._ready[target.ref] for target in destination.split.targets)


def _no_port(port_ref: PortRef, service: Service) -> tuple[Reason, str]:
    if is_external(service) and not service.spec.ports:
        message = (
            f"ExternalName Service {port_ref.service} has no spec.ports, so its ports are 80 and 443; add port "
            f"{port_ref.port} to spec.ports"
        )
        return Reason.BACKEND_NOT_FOUND, message
    written = next((port for port in service.spec.ports if port.port == port_ref.port), None)
    if written is not None:
        needed = "UDP ports can be backends of a UDPRoute" if port_ref.is_udp else "TCP ports can be backends"
        message = f"port {port_ref.port} of Service {port_ref.service} is {written.protocol}; only {needed}"
        return Reason.UNSUPPORTED_PROTOCOL, message
    offered = ", ".join(str(port.port) for port in service.spec.ports) or "none"
    return Reason.BACKEND_NOT_FOUND, f"Service {port_ref.service} has no port {port_ref.port}; its ports are: {offered}"


def _port_destination(port_ref: PortRef, route: Route) -> PortDestination:
    if route.origin is None:
        return PortDestination(ref=port_ref)
    split_match = SplitMatch(ref=port_ref, split=route.origin, match=route.name) if route.name else None
    return PortDestination(
        ref=port_ref,
        match=route.match,
        split=route.split,
        by=route.origin,
        split_match=split_match,
        mirrors=route.mirrors,
    )
