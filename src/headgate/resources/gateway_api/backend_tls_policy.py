"""The Gateway API's BackendTLSPolicies: the TLS of connections from Gateways to the pods of a Service (GEP-1897)."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import field

from headgate.errors import Cause
from headgate.kinds import GATEWAY, names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.gateway_api.route_checks import items
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Input, Object, Resource, part

SYSTEM = "System"
_NAMES = {"Hostname": "hostname", "URI": "uri"}  # the field of a subjectAltName by its type


class TLSPolicyTarget(Input, frozen=True, kw_only=True):
    """A Service of the policy's namespace, or its port with the name `section_name`."""

    name: str
    group: str = ""
    kind: str = "Service"
    section_name: str = ""


class CertificateReference(Input, frozen=True, kw_only=True):
    """A ConfigMap or a Secret of the policy's namespace, with CA certificates."""

    name: str
    group: str = ""
    kind: str = "ConfigMap"


class SubjectAltName(Input, frozen=True, kw_only=True):
    """A name that a server's certificate may have: a DNS name or a URI."""

    type: Literal["Hostname", "URI"]
    hostname: str = ""
    uri: str = ""


class BackendTLSValidation(Input, frozen=True, kw_only=True):
    """What proves the identity of a server: a certificate of one of the CAs for one of the names.

    `hostname` is the server name (SNI) of connections, and without `subject_alt_names` the only name.
    """

    hostname: str
    ca_certificate_refs: tuple[CertificateReference, ...] = field(name="caCertificateRefs", default=())
    well_known: str = field(name="wellKnownCACertificates", default="")
    subject_alt_names: tuple[SubjectAltName, ...] = ()


class BackendTLSPolicySpec(Input, frozen=True, kw_only=True):
    """`spec` of a BackendTLSPolicy."""

    target_refs: tuple[TLSPolicyTarget, ...] = ()
    validation: BackendTLSValidation


class BackendTLSPolicy(Resource, frozen=True, kw_only=True):
    """A BackendTLSPolicy: Gateways call the pods of its Services over TLS."""

    spec: BackendTLSPolicySpec


def backend_tls_policy_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a BackendTLSPolicy that its schema can't express; they are CEL rules of the release."""
    spec = part(obj, "spec")
    yield from _target_causes(spec)
    yield from validation_causes(part(spec, "validation"), "spec.validation")


def validation_causes(validation: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield the mistakes in what proves the identity of a server."""
    named, system = bool(validation.get("caCertificateRefs")), bool(validation.get("wellKnownCACertificates"))
    if named and system:
        yield Cause(
            f"{where}.wellKnownCACertificates", "is not possible beside caCertificateRefs; leave one of the two out"
        )
    if not named and not system:
        yield Cause(
            where,
            "has no CA certificates: name a ConfigMap in caCertificateRefs, or write wellKnownCACertificates: System",
        )
    for place, name in items(validation, "subjectAltNames", where):
        kind = name.get("type")
        for other, key in _NAMES.items():
            if kind == other and not name.get(key):
                yield Cause(f"{place}.{key}", f"is missing: the type {kind} needs it")
            if kind != other and name.get(key):
                yield Cause(f"{place}.{key}", f"is not possible with the type {kind}; leave it out")


def _target_causes(spec: Object) -> Iterator[Cause]:
    """Yield a mistake for each target that is named twice, or as a whole and by a port."""
    seen: dict[tuple[str, ...], dict[str, str]] = {}
    for place, target in items(spec, "targetRefs", "spec"):
        sections = seen.setdefault(tuple(str(target.get(name)) for name in ("group", "kind", "name")), {})
        section = str(target.get("sectionName") or "")
        if section in sections:
            yield Cause(f"{place}.sectionName", f"names the same target as {sections[section]}; remove one of the two")
        elif sections and not (section and all(sections)):
            first = next(iter(sections.values()))
            yield Cause(f"{place}.sectionName", f"names the same Service as {first}: set sectionName in both entries")
        sections.setdefault(section, place)


KIND = Kind(
    names_of("BackendTLSPolicy", GATEWAY),
    status=True,
    shape=BackendTLSPolicy,
    checks=backend_tls_policy_causes,
    columns=(
        NAME,
        Column("Targets", cell=cells.names("spec.targetRefs")),
        Column("Hostname", cell=cells.at("spec.validation.hostname")),
        AGE,
    ),
    recorded=True,
    ready_by=ReadyBy.ANCESTORS,
)
