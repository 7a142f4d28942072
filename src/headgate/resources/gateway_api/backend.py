"""The Gateway API's XBackends: servers outside the mesh, and the TLS of connections to them (GEP-4488)."""

from collections.abc import Iterator
from typing import Literal

from headgate.errors import Cause
from headgate.kinds import EXPERIMENTAL, names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.core.fields import fault_causes
from headgate.resources.gateway_api.backend_tls_policy import BackendTLSValidation, validation_causes
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Input, Object, Resource, label_fault, part


class ExternalHostname(Input, frozen=True, kw_only=True):
    """The DNS name of a server."""

    hostname: str


class BackendPort(Input, frozen=True, kw_only=True):
    """The port of a server."""

    port: int
    name: str = ""


class XBackendTLS(Input, frozen=True, kw_only=True):
    """The TLS of connections to a server; with `ClientAndServer`, clients have a certificate too."""

    mode: Literal["None", "ServerOnly", "ClientAndServer"]
    validation: BackendTLSValidation | None = None


class XBackendSpec(Input, frozen=True, kw_only=True):
    """`spec` of an XBackend: the server's name, its port, and how proxies call it."""

    type: Literal["ExternalHostname"]
    external_hostname: ExternalHostname
    port: BackendPort
    protocol: Literal["", "TCP", "HTTP", "HTTP2", "HTTP11", "H2C", "MCP"] = ""
    tls: XBackendTLS | None = None


class XBackend(Resource, frozen=True, kw_only=True):
    """An XBackend: a server outside the mesh that routes can name as a backend."""

    spec: XBackendSpec


def backend_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in an XBackend that its schema can't express; they are CEL rules of the release."""
    spec = part(obj, "spec")
    if spec.get("type") == "ExternalHostname" and not spec.get("externalHostname"):
        yield Cause("spec.externalHostname", "is missing: the type ExternalHostname needs it")
    if str(part(spec, "externalHostname").get("hostname")).endswith(".cluster.local"):
        yield Cause("spec.externalHostname.hostname", "is a Service of a cluster; use the Service as a backend")
    yield from fault_causes(part(spec, "port").get("name") or None, label_fault, "spec.port.name")
    tls = part(spec, "tls")
    has_certificate, needs_one = tls.get("clientCertificateRef") is not None, tls.get("mode") == "ClientAndServer"
    if needs_one and not has_certificate:
        yield Cause("spec.tls.clientCertificateRef", "is missing: the mode ClientAndServer needs it")
    if has_certificate and not needs_one:
        yield Cause("spec.tls.clientCertificateRef", "is only possible with the mode ClientAndServer; leave it out")
    if tls.get("validation"):
        yield from validation_causes(part(tls, "validation"), "spec.tls.validation")


KIND = Kind(
    names_of("XBackend", EXPERIMENTAL),
    versions=("v1alpha1",),
    status=True,
    shape=XBackend,
    checks=backend_causes,
    columns=(
        NAME,
        Column("Hostname", "", "The DNS name of the server.", cell=cells.at("spec.externalHostname.hostname")),
        Column("Port", "", "The port of the server.", cell=cells.at("spec.port.port")),
        Column("TLS", "", "The TLS of connections to the server.", cell=cells.at("spec.tls.mode")),
        AGE,
    ),
    recorded=True,
    ready_by=ReadyBy.PARENTS,
)
