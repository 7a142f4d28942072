"""Kubernetes' own kinds, as far as headgate reads them."""

import base64
import binascii
from collections.abc import Mapping

from msgspec import field

from headgate.resources.meta import Input, Resource


class ServicePort(Input, frozen=True, kw_only=True):
    """One port of a Service; `target_port` is a number, or a name that each pod resolves (R37, R38)."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""
    target_port: int | str | None = None


class ServiceSpec(Input, frozen=True, kw_only=True):
    """`spec` of a Service; `cluster_ip` is `None` in words for a headless one."""

    cluster_ip: str = field(name="clusterIP", default="")
    type: str = "ClusterIP"
    external_name: str = ""
    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] = ()

    @property
    def selected(self) -> Mapping[str, str]:
        """The labels of the pods behind the Service; none for a name outside the mesh, as in Kubernetes."""
        return {} if self.type == "ExternalName" else self.selector or {}


class Service(Resource, frozen=True, kw_only=True):
    """A name that clients call, its ports, and the labels of the pods behind it."""

    spec: ServiceSpec = ServiceSpec()


class EndpointConditions(Input, frozen=True, kw_only=True):
    """State of an endpoint; absent `ready` means ready, as Kubernetes says."""

    ready: bool | None = None


class ObjectReference(Input, frozen=True, kw_only=True):
    """Points at another object, loosely."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class Endpoint(Input, frozen=True, kw_only=True):
    """One address that serves; only the first of `addresses` is meaningful."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    target_ref: ObjectReference | None = None


class EndpointPort(Input, frozen=True, kw_only=True):
    """The number behind a Service port, matched by name."""

    name: str | None = None
    port: int | None = None
    protocol: str = "TCP"


class EndpointSlice(Resource, frozen=True, kw_only=True):
    """Addresses behind a Service, which the label `kubernetes.io/service-name` names."""

    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = ()
    ports: tuple[EndpointPort, ...] | None = ()


class Namespace(Resource, frozen=True, kw_only=True):
    """A room for objects; its labels decide whose routes a listener takes."""


class CertificateData(Input, frozen=True, kw_only=True):
    """The part of a Secret's `data` that headgate reads, in base64 as stored; never printed."""

    chain: str = field(name="tls.crt", default="")
    key: str = field(name="tls.key", default="")

    def __repr__(self) -> str:
        return "CertificateData([redacted])"


class Secret(Resource, frozen=True, kw_only=True):
    """A certificate and its key, when `type` is `kubernetes.io/tls`; other Secrets have nothing that is read here."""

    type: str = "Opaque"
    data: CertificateData = CertificateData()

    @property
    def certificate(self) -> tuple[bytes, bytes]:
        """Return chain and key as PEM; each is empty when it is absent or not base64."""
        return _from_base64(self.data.chain), _from_base64(self.data.key)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
