"""The links of routes to their parents, and how a route attaches to the ports of a Service (GAMMA, GEP-1294)."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from headgate.compiler.gateway_api.gateways import ANY_HOST
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.gateway_api.served_ports import ListenerPlace
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.routing import PortRef, Protocol
from headgate.resources.gateway_api.routes import ParentReference
from headgate.resources.meta import Key, Value


class Parent(Value, frozen=True):
    """`spec.parentRefs[index]` of a route; `key` is the Gateway, ListenerSet or Service. The `index` of a default Gateway is -1."""

    index: int
    ref: ParentReference
    key: Key

    @property
    def field(self) -> str:
        """Return the field path of the parentRef, or of the field that selects default Gateways."""
        return f"spec.parentRefs[{self.index}]" if self.index >= 0 else "spec.useDefaultGateways"

    @property
    def name(self) -> str:
        """Return `namespace/name` of the parent."""
        return f"{self.key.namespace}/{self.key.name}"


class Attachment(NamedTuple):
    """The attachment of a route to one listener of a Gateway or ListenerSet, with the hosts that match both.

    It is not served if older routes have all of its connections.
    """

    listener: str
    hosts: tuple[str, ...]
    is_served: bool = True


class ConsumerPort(NamedTuple):
    """A Service port as clients of another namespace see it."""

    namespace: str
    ref: PortRef


class Link(NamedTuple):
    """The relation of a route to one parent: its attachments to listeners, or the ports of a Service.

    With a `refusal`, it has none of them. `notes` are findings that do not prevent the route from being accepted. With
    `consumer`, the route applies to clients of this namespace only. `names` has the server names of a TLSRoute at its ports.
    """

    parent: Parent
    attachments: tuple[Attachment, ...] = ()
    ports: tuple[PortRef, ...] = ()
    names: tuple[str, ...] = ("",)
    refusal: Finding | None = None
    notes: tuple[Finding, ...] = ()
    consumer: str = ""

    def place(self, port: PortRef) -> ConsumerPort | PortRef:
        """Return the place of the route at a Service port."""
        return ConsumerPort(self.consumer, port) if self.consumer else port


Place: TypeAlias = ListenerPlace | ConsumerPort | PortRef
"""A listener, or a Service port for all clients or for those of a namespace."""


def to_service(
    route: CompiledRoute, parent: Parent, offered: Sequence[tuple[PortRef, Protocol]], *, exists: bool
) -> Link:
    """Attach a route to the ports of a Service; `offered` has its TCP ports with their protocols.

    HTTP and gRPC routes apply to HTTP ports, TLS routes to TLS ports, and TCP routes to all ports that are not HTTP.
    """
    if route.key.kind == "UDPRoute":
        message = (
            "a UDPRoute attaches to Gateways only, because sidecars do not redirect UDP: clients of the Service reach its pods "
            "directly. Attach the route to a Gateway with a UDP listener, and let clients call that one"
        )
        return Link(parent, refusal=Finding(route.key, Reason.NO_MATCHING_PARENT, f"{parent.field}.kind", message))
    named = [(ref, protocol) for ref, protocol in offered if parent.ref.port in {None, ref.port}]
    fitting = tuple(ref for ref, protocol in named if _fits(route, protocol))
    if fitting:
        note = _consumer_note(route, parent)
        return Link(
            parent,
            ports=fitting,
            names=_server_names(route),
            notes=(note,) if note else (),
            consumer=route.key.namespace if note else "",
        )
    if not exists:
        message = f"Service {parent.name} not found; create it or correct the name"
    elif not named:
        port = f" {parent.ref.port}" if parent.ref.port else ""
        message = f"Service {parent.name} has no TCP port{port}; correct the port"
    else:
        spoken = ", ".join(f"{ref.port} ({protocol.value})" for ref, protocol in named)
        message = (
            f"no port of Service {parent.name} has a protocol for {route.key.kind}s: {spoken}; correct the appProtocol"
        )
    related = (parent.key,) if exists else ()
    return Link(parent, refusal=Finding(route.key, Reason.NO_MATCHING_PARENT, parent.field, message, related))


def _fits(route: CompiledRoute, protocol: Protocol) -> bool:
    if route.key.kind == "TLSRoute":
        return protocol is Protocol.TLS
    return protocol.is_http is (route.connections is None)


def _server_names(route: CompiledRoute) -> tuple[str, ...]:
    """Return the server names of a TLSRoute, all if it has none; a single empty name for all other kinds of routes."""
    if route.key.kind != "TLSRoute":
        return ("",)
    return tuple(dict.fromkeys(host.lower() for host in route.hostnames)) or (ANY_HOST,)


def _consumer_note(route: CompiledRoute, parent: Parent) -> Finding | None:
    """Return a finding if the route is in another namespace than its Service (a consumer route of GAMMA)."""
    if parent.key.namespace == route.key.namespace:
        return None
    message = (
        f"a route in namespace {route.key.namespace} for a Service in {parent.key.namespace} applies to clients in "
        f"{route.key.namespace} that have a sidecar, in place of the Service's own routes; create it in namespace "
        f"{parent.key.namespace} for all clients"
    )
    return Finding(route.key, Reason.CONSUMER_ROUTE, parent.field, message, (parent.key,))
