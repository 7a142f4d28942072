"""Find the certificates that clients of a Gateway's ports need (`spec.tls.frontend`)."""

from collections.abc import Iterator
from typing import NamedTuple

from headgate.compiler.gateway_api.ca_certificates import authorities
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.model.edge_tls import ClientCertificates
from headgate.resources.gateway_api.gateway import FrontendTLSValidation, Gateway
from headgate.resources.meta import Key

_FIELD = "spec.tls.frontend"
INSECURE = "AllowInsecureFallback"


class PortValidation(NamedTuple):
    """The certificates that clients of a port need; with `faults`, no authority is usable, so the port accepts no client.

    Both are empty if clients need no certificate. `warnings` has findings about some of the authorities.
    """

    certificates: ClientCertificates | None = None
    faults: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()


def port_validation(snapshot: Snapshot, key: Key, gateway: Gateway, port: int) -> PortValidation:
    """Return the validation of client certificates at the listeners of a port that end TLS."""
    validation, field = _configured(gateway, port)
    if validation is None:
        return PortValidation()
    field = f"{field}.caCertificateRefs"
    trusted = authorities(snapshot, key, validation.ca_certificate_refs, field)
    if not trusted.certificates:
        message = (
            "no reference has a usable certificate of an authority, so the port accepts no client; correct one of them"
        )
        return PortValidation(faults=(*trusted.findings, Finding(key, Reason.NO_VALID_CA_CERTIFICATE, field, message)))
    certificates = ClientCertificates(
        authorities=trusted.certificates, sources=trusted.sources, optional=validation.mode == INSECURE
    )
    return PortValidation(certificates, warnings=trusted.findings)


def _configured(gateway: Gateway, port: int) -> tuple[FrontendTLSValidation | None, str]:
    """Return the validation for a port, and the path of its field. The settings of a port replace the default."""
    frontend = gateway.spec.tls.frontend
    for index, entry in enumerate(frontend.per_port):
        if entry.port == port:
            return entry.tls.validation, f"{_FIELD}.perPort[{index}].tls.validation"
    return frontend.default.validation, f"{_FIELD}.default.validation"


def insecure_modes(key: Key, gateway: Gateway) -> Iterator[Finding]:
    """Yield a finding for each validation that clients without a valid certificate pass too."""
    for validation, field, where in _validations(gateway):
        if validation.mode == INSECURE:
            message = f"{where} accepts clients without a valid certificate, and backends can't distinguish them; to refuse them, use AllowValidOnly"
            yield Finding(key, Reason.INSECURE_FRONTEND_VALIDATION_MODE, f"{field}.mode", message)


def without_listener(key: Key, gateway: Gateway) -> Iterator[Finding]:
    """Yield a finding for each validation that applies to no listener: none of its ports ends TLS.

    A Gateway that allows ListenerSets has none: they can add the listener.
    """
    frontend = gateway.spec.tls.frontend
    if gateway.spec.allowed_listeners.namespaces.from_ != "None":
        return
    ports = {listener.port for listener in gateway.spec.listeners if listener.terminates_tls}
    own = {entry.port for entry in frontend.per_port}
    for index, entry in enumerate(frontend.per_port):
        if entry.port not in ports:
            message = f"has no effect: no listener on port {entry.port} ends TLS; correct the port, or remove the entry"
            yield Finding(key, Reason.FIELD_IGNORED, f"{_FIELD}.perPort[{index}].port", message)
    if frontend.default.validation and not ports - own:
        message = "has no effect: no listener ends TLS on a port without an entry in perPort; remove it"
        yield Finding(key, Reason.FIELD_IGNORED, f"{_FIELD}.default.validation", message)


def _validations(gateway: Gateway) -> Iterator[tuple[FrontendTLSValidation, str, str]]:
    """Yield each validation with the path of its field and the words for its ports."""
    frontend = gateway.spec.tls.frontend
    if frontend.default.validation:
        yield frontend.default.validation, f"{_FIELD}.default.validation", "the Gateway"
    for index, entry in enumerate(frontend.per_port):
        if entry.tls.validation:
            yield entry.tls.validation, f"{_FIELD}.perPort[{index}].tls.validation", f"port {entry.port}"
