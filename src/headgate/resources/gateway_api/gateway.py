"""Gateways, with the fields that headgate reads."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import field

from headgate.errors import Cause
from headgate.kinds import GATEWAY, names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, PROGRAMMED, Column
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Input, Object, Resource, part, rows
from headgate.resources.selectors import LabelSelector

GROUP = GATEWAY
CONTROLLER = "headgate.dev/gateway-controller"
OWN_CLASS = "headgate"  # headgate's class, which needs no GatewayClass object
IP_ADDRESS, HOSTNAME = "IPAddress", "Hostname"


class ParametersReference(Input, frozen=True, kw_only=True):
    """A reference to an object with implementation-specific settings."""

    group: str
    kind: str
    name: str
    namespace: str = ""


class SecretReference(Input, frozen=True, kw_only=True):
    """A reference to the Secret with a certificate. An empty namespace means the Gateway's own."""

    name: str
    group: str = ""
    kind: str = "Secret"
    namespace: str = ""


class ListenerTLS(Input, frozen=True, kw_only=True):
    """TLS settings of a listener: whether TLS ends at the Gateway, and its certificates."""

    mode: Literal["Terminate", "Passthrough"] = "Terminate"
    certificate_refs: tuple[SecretReference, ...] = ()


class CaReference(Input, frozen=True, kw_only=True):
    """A reference to a ConfigMap with CA certificates. An empty namespace means that of the referring object."""

    group: str
    kind: str
    name: str
    namespace: str = ""


class FrontendTLSValidation(Input, frozen=True, kw_only=True):
    """How a Gateway validates client certificates: by the authorities in ConfigMaps.

    With AllowInsecureFallback, it accepts clients without a certificate too, and those with a certificate of another authority.
    """

    ca_certificate_refs: tuple[CaReference, ...] = ()
    mode: Literal["AllowValidOnly", "AllowInsecureFallback"] = "AllowValidOnly"


class ClientTLS(Input, frozen=True, kw_only=True):
    """The TLS settings of ports towards clients. Without `validation`, clients need no certificate."""

    validation: FrontendTLSValidation | None = None


class TLSPortConfig(Input, frozen=True, kw_only=True):
    """The TLS settings of one port, which replace the default."""

    port: int
    tls: ClientTLS = ClientTLS()


class FrontendTLSConfig(Input, frozen=True, kw_only=True):
    """The TLS settings of all listeners that end TLS, and those of single ports."""

    default: ClientTLS = ClientTLS()
    per_port: tuple[TLSPortConfig, ...] = ()


class GatewayBackendTLS(Input, frozen=True, kw_only=True):
    """TLS between a Gateway and its backends: the certificate that it presents to them."""

    client_certificate_ref: SecretReference | None = None


class GatewayTLS(Input, frozen=True, kw_only=True):
    """The TLS settings of a whole Gateway."""

    frontend: FrontendTLSConfig = FrontendTLSConfig()
    backend: GatewayBackendTLS = GatewayBackendTLS()


class RouteNamespaces(Input, frozen=True, kw_only=True):
    """The namespaces whose routes may attach to a listener."""

    from_: Literal["All", "Selector", "Same", "None"] = field(name="from", default="Same")
    selector: LabelSelector | None = None


class RouteGroupKind(Input, frozen=True, kw_only=True):
    """A kind of route that may attach to a listener."""

    kind: str
    group: str = GROUP


class AllowedRoutes(Input, frozen=True, kw_only=True):
    """The routes that may attach to a listener. Without `kinds`, all kinds that the listener's protocol allows."""

    namespaces: RouteNamespaces = RouteNamespaces()
    kinds: tuple[RouteGroupKind, ...] = ()


class Listener(Input, frozen=True, kw_only=True):
    """A listener of a Gateway. An empty `hostname` means any host. The compiler reports unknown protocols."""

    name: str
    port: int
    protocol: str
    hostname: str = ""
    tls: ListenerTLS | None = None
    allowed_routes: AllowedRoutes = AllowedRoutes()

    @property
    def is_udp(self) -> bool:
        """Whether the listener takes datagrams; all other listeners take TCP connections."""
        return self.protocol == "UDP"

    @property
    def socket(self) -> tuple[int, bool]:
        """The port number, and whether it is of UDP: TCP and UDP have ports of their own."""
        return self.port, self.is_udp

    @property
    def terminates_tls(self) -> bool:
        """Whether the proxy ends the TLS of connections, with the listener's certificates."""
        passes = self.tls is not None and self.tls.mode == "Passthrough"
        return self.protocol == "HTTPS" or (self.protocol == "TLS" and not passes)


class ListenerNamespaces(Input, frozen=True, kw_only=True):
    """The namespaces whose ListenerSets may add listeners to a Gateway."""

    from_: Literal["All", "Selector", "Same", "None"] = field(name="from", default="None")
    selector: LabelSelector | None = None


class AllowedListeners(Input, frozen=True, kw_only=True):
    """The ListenerSets that may add listeners to a Gateway: by default, none."""

    namespaces: ListenerNamespaces = ListenerNamespaces()


class GatewayAddress(Input, frozen=True, kw_only=True):
    """A requested or assigned address of a Gateway. Without a value, any address of the type is requested."""

    value: str = ""
    type: str = IP_ADDRESS


class Infrastructure(Input, frozen=True, kw_only=True):
    """Settings of the infrastructure that serves a Gateway.

    On a cluster, the objects that headgate creates for the Gateway get these labels and annotations.
    """

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    parameters_ref: ParametersReference | None = None


class GatewaySpec(Input, frozen=True, kw_only=True):
    """`spec` of a Gateway: its class, listeners, the ListenerSets that may add some, requested addresses and TLS settings."""

    gateway_class_name: str
    listeners: tuple[Listener, ...] = ()
    allowed_listeners: AllowedListeners = AllowedListeners()
    addresses: tuple[GatewayAddress, ...] = ()
    infrastructure: Infrastructure = Infrastructure()
    tls: GatewayTLS = GatewayTLS()
    default_scope: str = ""


class GatewayStatus(Input, frozen=True, kw_only=True):
    """The part of a Gateway's status that the compiler reads: the assigned addresses."""

    addresses: tuple[GatewayAddress, ...] = ()


class Gateway(Resource, frozen=True, kw_only=True):
    """A Gateway: the entry for traffic from outside the mesh."""

    spec: GatewaySpec
    status: GatewayStatus = GatewayStatus()

    @property
    def is_default(self) -> bool:
        """Whether routes with `useDefaultGateways: All` attach to it without naming it (GEP-3793)."""
        return self.spec.default_scope == "All"

    @property
    def address(self) -> str:
        """The address at which clients reach the Gateway; empty until an address is assigned.

        It is an IP address, or on a cluster the name of a load balancer.
        """
        by_type = {given.type: given.value for given in reversed(self.status.addresses)}
        return by_type.get(IP_ADDRESS) or by_type.get(HOSTNAME, "")


_WITHOUT_TLS = frozenset({"HTTP", "TCP", "UDP"})
_WITHOUT_HOSTNAME = frozenset({"TCP", "UDP"})


def gateway_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a Gateway that its schema can't express."""
    yield from listener_causes(obj)
    yield from _selector_causes(
        part(part(part(obj, "spec"), "allowedListeners"), "namespaces"), "spec.allowedListeners"
    )


def listener_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in the listeners of a Gateway or a ListenerSet that its schema can't express."""
    listeners = part(obj, "spec").get("listeners")
    yield from _clashes(listeners)
    for index, listener in rows(listeners):
        yield from _listener_causes(listener, f"spec.listeners[{index}]")
    yield from _repeated_ports(part(part(part(obj, "spec"), "tls"), "frontend").get("perPort"))


def _repeated_ports(entries: object) -> Iterator[Cause]:
    """Yield a mistake for each entry of `perPort` that has the port of an earlier one."""
    ports: dict[object, int] = {}
    for index, entry in rows(entries):
        first = ports.setdefault(entry.get("port"), index)
        if first != index:
            place = "spec.tls.frontend.perPort"
            yield Cause(f"{place}[{index}].port", f"is the port of {place}[{first}] too; ports must differ")


def _clashes(listeners: object) -> Iterator[Cause]:
    """Yield a mistake for each listener that has the name, or the port, protocol and hostname, of an earlier listener."""
    names: dict[str, int] = {}
    places: dict[str, int] = {}
    for index, listener in rows(listeners):
        where = f"spec.listeners[{index}]"
        first = names.setdefault(str(listener.get("name")), index)
        if first != index:
            message = f"{listener.get('name')!r} is the name of spec.listeners[{first}] too; names must differ"
            yield Cause(f"{where}.name", message)
        place = "/".join(str(listener.get(field) or "") for field in ("port", "protocol", "hostname"))
        first = places.setdefault(place, index)
        if first != index:
            yield Cause(
                where, f"has the same port, protocol and hostname as spec.listeners[{first}]; change one of the three"
            )


def _listener_causes(listener: Mapping[str, Any], where: str) -> Iterator[Cause]:
    protocol, tls = listener.get("protocol"), part(listener, "tls")
    mode, written = tls.get("mode") or "Terminate", listener.get("tls") is not None
    if written and protocol in _WITHOUT_TLS:
        yield Cause(
            f"{where}.tls", f"is not possible with protocol {protocol}; use protocol HTTPS or TLS, or leave it out"
        )
    if not written and protocol in ("HTTPS", "TLS"):
        yield Cause(f"{where}.tls", f"is missing: protocol {protocol} needs it")
    if protocol == "HTTPS" and mode != "Terminate":
        yield Cause(f"{where}.tls.mode", "must be Terminate with protocol HTTPS; use protocol TLS for passthrough")
    named = tls.get("certificateRefs") or tls.get("options")
    if written and protocol not in _WITHOUT_TLS and mode == "Terminate" and not named:
        yield Cause(f"{where}.tls.certificateRefs", "is missing: name the Secret with the certificate")
    if listener.get("hostname") and protocol in _WITHOUT_HOSTNAME:
        yield Cause(
            f"{where}.hostname",
            f"is not possible with protocol {protocol}: its connections carry no host name; leave it out",
        )
    yield from _selector_causes(part(part(listener, "allowedRoutes"), "namespaces"), f"{where}.allowedRoutes")


def _selector_causes(namespaces: Mapping[str, Any], where: str) -> Iterator[Cause]:
    if namespaces.get("from") == "Selector" and namespaces.get("selector") is None:
        yield Cause(f"{where}.namespaces.selector", "is missing: `from: Selector` needs it")


KIND = Kind(
    names_of("Gateway", GATEWAY),
    versions=("v1", "v1beta1"),
    status=True,
    shape=Gateway,
    checks=gateway_causes,
    unread=re.compile(r"spec\.allowedListeners\b.*"),
    left_out="allowedListeners",
    columns=(
        NAME,
        Column("Class", cell=cells.at("spec.gatewayClassName")),
        Column(
            "Address",
            "",
            "The IP addresses of the Gateway's listeners.",
            cell=cells.listed("status.addresses", lambda address: address.get("value")),
        ),
        Column("Programmed", "", PROGRAMMED, cell=cells.condition("Programmed")),
        AGE,
        Column("Listeners", cell=cells.names("spec.listeners"), wide=True),
    ),
    recorded=True,
    ready_by=ReadyBy.CONDITIONS,
)
