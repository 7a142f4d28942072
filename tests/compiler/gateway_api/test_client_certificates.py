"""Client certificates of Gateways: which authorities apply at a port, and which references to them are mistakes (GEP-91)."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.authority import Authority
from tests.make.objects import GATEWAY_API, Object, config_map, gateway, listener, obj
from tests.make.server_certificates import BROKEN, PAIRS, of_unknown_version, secret
from tests.make.values import compiled

from headgate.compiler.report import Compiled
from headgate.model.edge_tls import ClientCertificates

EMPLOYEES, PARTNERS = Authority("employees").pem, Authority("partners").pem
STATUS = {"addresses": [{"value": "10.2.0.1"}]}
DEFAULT = "spec.tls.frontend.default.validation"


def validation(*names: str, mode: str = "AllowValidOnly") -> Mapping[str, Any]:
    refs = [{"group": "", "kind": "ConfigMap", "name": name} for name in names]
    return {"validation": {"caCertificateRefs": refs, "mode": mode}}


def compiled_gateway(
    default: Mapping[str, Any], *objects: Object, per_port: Mapping[int, Mapping[str, Any]] | None = None
) -> Compiled:
    """Compile a Gateway with HTTPS on the ports 443 and 8443, and HTTP on port 80."""
    tls = {"certificateRefs": [{"name": "server"}]}
    listeners = [listener(number, f"https-{number}", protocol="HTTPS", tls=tls) for number in (443, 8443)]
    ports = [{"port": port, "tls": settings} for port, settings in (per_port or {}).items()]
    frontend = {"frontend": {"default": default, "perPort": ports}}
    edge = gateway("edge", *listeners, listener(80, "web"), tls=frontend, status=STATUS)
    return compiled(edge, secret("server", PAIRS["P-256"]), *objects)


def required(result: Compiled) -> Mapping[int, ClientCertificates | None]:
    """Return the certificates that clients of each served port need."""
    return {port.port: port.client_certificates for port in result.mesh.gateways}


def reported(result: Compiled) -> set[tuple[str, str]]:
    """Return reason and field of each finding about the Gateway."""
    return {(finding.reason.value, finding.field) for finding in result.report.findings if finding.about.name == "edge"}


def test_the_settings_of_a_port_replace_the_default():
    result = compiled_gateway(
        validation("employees"), config_map("employees", {"ca.crt": EMPLOYEES}), per_port={8443: {}}
    )
    employees = ClientCertificates(authorities=EMPLOYEES, sources=("default/employees",))
    assert required(result) == {80: None, 443: employees, 8443: None}
    assert reported(result) == set()


def test_the_authorities_of_all_usable_references_are_trusted():
    text = f"comment\n{PARTNERS}another\n{EMPLOYEES}"
    maps = config_map("employees", {"ca.crt": EMPLOYEES}), config_map("both", {"ca.crt": text})
    result = compiled_gateway(validation("employees", "gone", "both"), *maps)
    certificates = required(result)[443]
    assert certificates is not None
    assert certificates.authorities == EMPLOYEES + PARTNERS
    assert certificates.sources == ("default/employees", "default/both")
    assert reported(result) == {("InvalidCACertificateRef", f"{DEFAULT}.caCertificateRefs[1].name")}
    (outcome,) = result.report.gateways
    states = {item.type: item.status for item in outcome.listeners[0].conditions}
    assert (states["Accepted"], states["ResolvedRefs"]) == (True, False)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"ca.crt": ""},
        {"ca.crt": "text"},
        {"ca.crt": PAIRS["P-256"].key},
        {"other": EMPLOYEES},
        {"ca.crt": EMPLOYEES + BROKEN.format(label="CERTIFICATE")},
        {"ca.crt": of_unknown_version(EMPLOYEES)},
    ],
    ids=["no keys", "empty", "no PEM", "a key", "another key of the data", "one unreadable certificate", "version 4"],
)
def test_a_port_without_a_usable_authority_is_not_served(data: Mapping[str, str]):
    result = compiled_gateway(validation("employees", mode="AllowInsecureFallback"), config_map("employees", data))
    assert set(required(result)) == {80}
    assert reported(result) == {
        ("InvalidCACertificateRef", f"{DEFAULT}.caCertificateRefs[0].name"),
        ("NoValidCACertificate", f"{DEFAULT}.caCertificateRefs"),
        ("InsecureFrontendValidationMode", f"{DEFAULT}.mode"),
    }


def test_a_validation_that_applies_to_no_listener_is_reported():
    settings = {443: {}, 8443: {}, 80: validation("employees")}
    result = compiled_gateway(
        validation("employees"), config_map("employees", {"ca.crt": EMPLOYEES}), per_port=settings
    )
    assert set(required(result).values()) == {None}
    assert reported(result) == {
        ("FieldIgnored", DEFAULT),
        ("FieldIgnored", "spec.tls.frontend.perPort[2].port"),
    }


def test_listeners_of_listener_sets_have_the_settings_of_the_gateways_port():
    tls = {"certificateRefs": [{"name": "server"}]}
    added = [listener(port, f"own-{port}", protocol="HTTPS", hostname="own.example", tls=tls) for port in (443, 9443)]
    parent = {"group": GATEWAY_API, "kind": "Gateway", "name": "edge"}
    own = obj("ListenerSet", "own", spec={"parentRef": parent, "listeners": added})
    edge = gateway(
        "edge",
        listener(443, "https", protocol="HTTPS", tls=tls),
        allowedListeners={"namespaces": {"from": "Same"}},
        tls={"frontend": {"default": validation("employees")}},
        status=STATUS,
    )
    server, employees = secret("server", PAIRS["P-256"]), config_map("employees", {"ca.crt": EMPLOYEES})
    with_authority = required(compiled(edge, own, server, employees))
    assert {port: bool(certificates) for port, certificates in with_authority.items()} == {443: True, 9443: True}
    assert required(compiled(edge, own, server)) == {}
