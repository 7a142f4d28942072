"""Types of the Gateway API's Gateway, GatewayClass and ReferenceGrant, with the fields that headgate reads."""

import hashlib
from collections.abc import Mapping
from typing import Literal

from msgspec import field

from headgate.kinds import GATEWAY
from headgate.resources.meta import Input, Resource
from headgate.resources.workloads import LabelSelector

GROUP = GATEWAY
CONTROLLER = "headgate.dev/gateway-controller"
OWN_CLASS = "headgate"  # headgate's class, which needs no GatewayClass object
IP_ADDRESS, HOSTNAME = "IPAddress", "Hostname"


class GrantFrom(Input, frozen=True, kw_only=True):
    """The kind and the namespace of objects that may refer to objects of another namespace."""

    group: str
    kind: str
    namespace: str


class GrantTo(Input, frozen=True, kw_only=True):
    """Objects of the grant's namespace that may be referred to. Without a name, all objects of the kind."""

    group: str
    kind: str
    name: str = ""


class ReferenceGrantSpec(Input, frozen=True, kw_only=True):
    """`spec` of a ReferenceGrant: any object of `from` may refer to any object of `to`."""

    from_: tuple[GrantFrom, ...] = field(name="from")
    to: tuple[GrantTo, ...]


class ReferenceGrant(Resource, frozen=True, kw_only=True):
    """A ReferenceGrant: it allows references to objects of its namespace from other namespaces (requirements 2.5, D12)."""

    spec: ReferenceGrantSpec


class ParametersReference(Input, frozen=True, kw_only=True):
    """A reference to an object with implementation-specific settings."""

    group: str
    kind: str
    name: str
    namespace: str = ""


class GatewayClassSpec(Input, frozen=True, kw_only=True):
    """`spec` of a GatewayClass: the controller that implements its Gateways."""

    controller_name: str
    parameters_ref: ParametersReference | None = None


PARAMETERS = "headgate.dev/gateway-parameters"
"""Label of ConfigMaps with parameters of Gateways. headgate reads no other ConfigMaps of users."""
OWN_KEYS = ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by")
"""Labels of all objects of a Gateway on a cluster; the first two select its pods."""
PROXY_OF = "headgate.dev/gateway"
"""Annotation of a pod in `headgate-system`, written by headgate: the Gateway whose proxy it runs, as `namespace/name`."""
PROXY_OF_SERVICE = "headgate.dev/gateway-service"
"""Annotation of a pod in `headgate-system`, written by headgate: the Service whose proxy it runs, as `namespace/name`."""
SERVICE_GATEWAY = PROXY_OF
"""Annotation of a Service, or of a Canary for its root Service: the proxy behind it for clients without a sidecar."""
ENVOY, NGINX = PROXIES = ("envoy", "nginx")
"""The values of the annotation."""


def proxy_name(namespace: str, name: str, of: str = "gateway") -> str:
    """Return the name of the Deployment of a Gateway, or `of` a `service`, on a cluster; it is unique for each of them."""
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:8]
    return f"{f'{of}-{namespace}-{name}'.replace('.', '-')[:54].rstrip('-')}-{digest}"


class GatewayClass(Resource, frozen=True, kw_only=True):
    """A GatewayClass. headgate implements a class if its `controller_name` is `CONTROLLER`."""

    spec: GatewayClassSpec


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
    """`spec` of a Gateway: its class, listeners and requested addresses."""

    gateway_class_name: str
    listeners: tuple[Listener, ...] = ()
    addresses: tuple[GatewayAddress, ...] = ()
    infrastructure: Infrastructure = Infrastructure()


class GatewayStatus(Input, frozen=True, kw_only=True):
    """The part of a Gateway's status that the compiler reads: the assigned addresses."""

    addresses: tuple[GatewayAddress, ...] = ()


class Gateway(Resource, frozen=True, kw_only=True):
    """A Gateway: the entry for traffic from outside the mesh."""

    spec: GatewaySpec
    status: GatewayStatus = GatewayStatus()

    @property
    def address(self) -> str:
        """The address at which clients reach the Gateway; empty until an address is assigned.

        It is an IP address, or on a cluster the name of a load balancer.
        """
        by_type = {given.type: given.value for given in reversed(self.status.addresses)}
        return by_type.get(IP_ADDRESS) or by_type.get(HOSTNAME, "")
