"""The Gateway API's kinds that are not routes, as far as headgate reads them."""

from typing import Literal

from msgspec import field

from headgate.kinds import GATEWAY
from headgate.resources.meta import Input, Resource
from headgate.resources.workloads import LabelSelector

GROUP = GATEWAY
CONTROLLER = "headgate.dev/gateway-controller"
IP_ADDRESS = "IPAddress"


class GrantFrom(Input, frozen=True, kw_only=True):
    """Who may refer."""

    group: str
    kind: str
    namespace: str


class GrantTo(Input, frozen=True, kw_only=True):
    """What may be referred to, in the grant's own namespace; without a name, all of the kind."""

    group: str
    kind: str
    name: str = ""


class ReferenceGrantSpec(Input, frozen=True, kw_only=True):
    """Any of `from` may refer to any of `to`."""

    from_: tuple[GrantFrom, ...] = field(name="from")
    to: tuple[GrantTo, ...]


class ReferenceGrant(Resource, frozen=True, kw_only=True):
    """Consent of a namespace to be referred to from another one (requirements 2.5, D12)."""

    spec: ReferenceGrantSpec


class ParametersReference(Input, frozen=True, kw_only=True):
    """Names an object with settings of an implementation."""

    group: str
    kind: str
    name: str


class GatewayClassSpec(Input, frozen=True, kw_only=True):
    """Who makes Gateways of this class real."""

    controller_name: str
    parameters_ref: ParametersReference | None = None


class GatewayClass(Resource, frozen=True, kw_only=True):
    """A sort of Gateways. headgate cares for those whose `controller_name` is `CONTROLLER`."""

    spec: GatewayClassSpec


class SecretReference(Input, frozen=True, kw_only=True):
    """Names a certificate; an empty namespace is the Gateway's own."""

    name: str
    group: str = ""
    kind: str = "Secret"
    namespace: str = ""


class ListenerTLS(Input, frozen=True, kw_only=True):
    """Where TLS ends, and with which certificates."""

    mode: Literal["Terminate", "Passthrough"] = "Terminate"
    certificate_refs: tuple[SecretReference, ...] = ()


class RouteNamespaces(Input, frozen=True, kw_only=True):
    """Namespaces whose routes may attach."""

    from_: Literal["All", "Selector", "Same", "None"] = field(name="from", default="Same")
    selector: LabelSelector | None = None


class RouteGroupKind(Input, frozen=True, kw_only=True):
    """A kind of route."""

    kind: str
    group: str = GROUP


class AllowedRoutes(Input, frozen=True, kw_only=True):
    """Which routes may attach to a listener; no kinds are all that its protocol allows."""

    namespaces: RouteNamespaces = RouteNamespaces()
    kinds: tuple[RouteGroupKind, ...] = ()


class Listener(Input, frozen=True, kw_only=True):
    """A port that a Gateway opens. No `hostname` is any; a protocol that is not known is the compiler's to report."""

    name: str
    port: int
    protocol: str
    hostname: str = ""
    tls: ListenerTLS | None = None
    allowed_routes: AllowedRoutes = AllowedRoutes()


class GatewayAddress(Input, frozen=True, kw_only=True):
    """An address that a Gateway asks for, or has; without a value, any address of the type."""

    value: str = ""
    type: str = IP_ADDRESS


class Infrastructure(Input, frozen=True, kw_only=True):
    """Settings of what serves a Gateway."""

    parameters_ref: ParametersReference | None = None


class GatewaySpec(Input, frozen=True, kw_only=True):
    """What a Gateway opens, and who makes it real."""

    gateway_class_name: str
    listeners: tuple[Listener, ...] = ()
    addresses: tuple[GatewayAddress, ...] = ()
    infrastructure: Infrastructure = Infrastructure()


class GatewayStatus(Input, frozen=True, kw_only=True):
    """The part of the status that decides something: the addresses that the Gateway was given."""

    addresses: tuple[GatewayAddress, ...] = ()


class Gateway(Resource, frozen=True, kw_only=True):
    """A place where traffic from outside the mesh comes in."""

    spec: GatewaySpec
    status: GatewayStatus = GatewayStatus()

    @property
    def address(self) -> str:
        """The address that its listeners bind; empty while it has none."""
        return next((given.value for given in self.status.addresses if given.type == IP_ADDRESS), "")
