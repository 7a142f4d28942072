"""Types of Kubernetes' core kinds, with the fields that headgate reads."""

import base64
import binascii
from collections.abc import Iterable, Mapping

from msgspec import field

from headgate.resources.meta import Input, Resource
from headgate.resources.workloads import ContainerPort


class ServicePort(Input, frozen=True, kw_only=True):
    """One port of a Service. `target_port` is a number, or the name of a container port (R37, R38)."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""
    target_port: int | str | None = None
    node_port: int = 0

    def number_on(self, declared: Iterable[ContainerPort]) -> int:
        """Return the number of the port on a pod with these container ports; 0 if they lack a named targetPort."""
        if isinstance(self.target_port, str) and self.target_port:
            pair = (self.target_port, self.protocol)
            return next((port.container_port for port in declared if (port.name, port.protocol) == pair), 0)
        return int(self.target_port or self.port)


class ServiceSpec(Input, frozen=True, kw_only=True):
    """`spec` of a Service. `cluster_ip` is the text `None` for a headless Service.

    `compiler.service_fields` reports those fields that have no effect.
    """

    cluster_ip: str = field(name="clusterIP", default="")
    ip_families: tuple[str, ...] = ()
    type: str = "ClusterIP"
    external_name: str = ""
    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] = ()
    session_affinity: str = "None"
    internal_traffic_policy: str = "Cluster"
    external_traffic_policy: str = "Cluster"
    traffic_distribution: str = ""
    external_ips: tuple[str, ...] = field(name="externalIPs", default=())
    load_balancer_ip: str = field(name="loadBalancerIP", default="")
    load_balancer_class: str = ""
    load_balancer_source_ranges: tuple[str, ...] = ()
    health_check_node_port: int = 0
    topology_keys: tuple[str, ...] = ()

    @property
    def ip_family(self) -> str:
        """The family of the address that clients call, `IPv4` or `IPv6`; the first one of a Service with both."""
        if ":" in self.cluster_ip:
            return "IPv6"
        return self.ip_families[0] if self.ip_families else "IPv4"

    @property
    def selected(self) -> Mapping[str, str]:
        """The labels that select the Service's pods. An ExternalName Service selects no pods."""
        return {} if self.type == "ExternalName" else self.selector or {}


class Service(Resource, frozen=True, kw_only=True):
    """A Service: its ports and the labels of its pods."""

    spec: ServiceSpec = ServiceSpec()


class EndpointConditions(Input, frozen=True, kw_only=True):
    """The conditions of an endpoint. A missing `ready` means ready, and a missing `serving` serving, as in Kubernetes."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ObjectReference(Input, frozen=True, kw_only=True):
    """A reference to another object."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class Endpoint(Input, frozen=True, kw_only=True):
    """One endpoint of a Service. Only the first of `addresses` is used. `hostname` is the first part of a pod's DNS name."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    target_ref: ObjectReference | None = None
    hostname: str = ""


class EndpointPort(Input, frozen=True, kw_only=True):
    """The port number of the endpoints for the Service port of the same name."""

    name: str | None = None
    port: int | None = None
    protocol: str = "TCP"


class EndpointSlice(Resource, frozen=True, kw_only=True):
    """Endpoints of the Service that the label `kubernetes.io/service-name` names."""

    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = ()
    ports: tuple[EndpointPort, ...] | None = ()


class Namespace(Resource, frozen=True, kw_only=True):
    """A Namespace. Its labels decide which Gateway listeners accept its routes."""


class ConfigMap(Resource, frozen=True, kw_only=True):
    """A ConfigMap. headgate reads parameters of Gateways from it."""

    data: Mapping[str, str] = {}


class CertificateData(Input, frozen=True, kw_only=True):
    """The certificate and the key in a Secret's `data`, in base64. They are never printed."""

    chain: str = field(name="tls.crt", default="")
    key: str = field(name="tls.key", default="")

    def __repr__(self) -> str:
        return "CertificateData([redacted])"


class Secret(Resource, frozen=True, kw_only=True):
    """A Secret. headgate reads the certificate and the key of type `kubernetes.io/tls`."""

    type: str = "Opaque"
    data: CertificateData = CertificateData()

    @property
    def certificate(self) -> tuple[bytes, bytes]:
        """The certificate chain and the key as PEM; each is empty if it is missing or not base64."""
        return _from_base64(self.data.chain), _from_base64(self.data.key)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
