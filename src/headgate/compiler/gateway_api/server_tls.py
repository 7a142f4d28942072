"""Compile what proves the identity of a server outside mutual TLS of the mesh: its names, and the CAs that sign for them."""

from msgspec import structs

from headgate.compiler.gateway_api.certificates import readable_certificates
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.model.edge_tls import AltName, BackendTls
from headgate.resources.core.config_map import ConfigMap
from headgate.resources.core.secret import Secret
from headgate.resources.gateway_api.backend_tls_policy import SYSTEM, BackendTLSValidation, CertificateReference
from headgate.resources.meta import Key

_SOURCES = {("", "ConfigMap"), ("", "Secret")}


def server_tls(
    snapshot: Snapshot, about: Key, validation: BackendTLSValidation, *, where: str, effect: str
) -> tuple[BackendTls, list[Finding]]:
    """Return the TLS that the object `about` requires of servers, and findings about its certificates.

    `where` is the path of `validation`, and `effect` says what servers without a usable CA get, for messages.
    """
    names = tuple(
        AltName(kind="uri", value=name.uri) if name.type == "URI" else AltName(kind="dns", value=name.hostname.lower())
        for name in validation.subject_alt_names
    )
    hostname = validation.hostname.lower()
    tls = BackendTls(origin=about, hostname=hostname, names=names or (AltName(kind="dns", value=hostname),))
    if validation.well_known == SYSTEM and not validation.ca_certificate_refs:
        return tls, []
    field = f"{where}.caCertificateRefs"
    if validation.well_known and not validation.ca_certificate_refs:
        message = f"headgate does not know the CA certificates {validation.well_known}, so {effect}; write System, or name a ConfigMap in caCertificateRefs"
        finding = Finding(about, Reason.UNSUPPORTED_VALUE, f"{where}.wellKnownCACertificates", message)
        return structs.replace(tls, fault=finding.reason.value), [finding]
    read = [
        _roots(snapshot, about, ref, f"{field}[{index}]") for index, ref in enumerate(validation.ca_certificate_refs)
    ]
    findings = [finding for finding in read if isinstance(finding, Finding)]
    roots = "".join(dict.fromkeys(text for text in read if isinstance(text, str)))
    if roots:
        return structs.replace(tls, roots=roots), findings
    message = f"no CA certificate can be used, so {effect}; name a ConfigMap with CA certificates in the key ca.crt"
    findings.append(Finding(about, Reason.NO_VALID_CA_CERTIFICATE, field, message))
    return structs.replace(tls, fault=Reason.NO_VALID_CA_CERTIFICATE.value), findings


def _roots(snapshot: Snapshot, key: Key, ref: CertificateReference, field: str) -> str | Finding:
    """Return the CA certificates of a reference in PEM, or a finding that says why they can't be used."""
    if (ref.group, ref.kind) not in _SOURCES:
        message = f"{ref.kind} {ref.name} can't have CA certificates; write group: '' and kind: ConfigMap"
        return Finding(key, Reason.INVALID_KIND, f"{field}.kind", message)
    source = Key("", ref.kind, key.namespace, ref.name)
    holder = snapshot.objects.get(source)
    if isinstance(holder, ConfigMap):
        text = holder.data.get("ca.crt", "").encode()
    elif isinstance(holder, Secret) and holder.type == "kubernetes.io/tls":
        text = holder.roots
    else:
        text = b""
    if roots := readable_certificates(text):
        return "".join(roots)
    if holder is None:
        of_type = " with the type kubernetes.io/tls" if ref.kind == "Secret" else ""
        fault = f"not found; create it{of_type} or correct the name"
    elif isinstance(holder, Secret) and holder.type != "kubernetes.io/tls":
        fault = "has another type than kubernetes.io/tls, whose Secrets headgate reads; use a ConfigMap"
    elif not text:
        fault = "has no key ca.crt; put the CA certificates there in PEM"
    else:
        fault = "has no CA certificates in PEM in its key ca.crt; correct it"
    message = f"{ref.kind} {source.namespace}/{ref.name} {fault}"
    return Finding(key, Reason.INVALID_CA_CERTIFICATE_REF, f"{field}.name", message, (source,))
