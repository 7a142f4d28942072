"""Gateways that validate the certificates of their clients (GEP-91): what the conformance suite tests, and changes to authorities."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.authority import Authority
from tests.e2e.gateway_api.objects import PORT, edge_gateway, edge_route, route_grant, rule_of, web_listener
from tests.e2e.gateway_api.site import CLOSED, Site, conditions
from tests.make.objects import config_map, manifest
from tests.make.server_certificates import PAIRS
from tests.make.server_certificates import secret as server_secret
from tests.waiting import until
from tests.wire import Address

HOST, SECOND = "example.org", "second-example.org"
EMPLOYEES, PARTNERS = Authority("employees"), Authority("partners")
EMPLOYEE, PARTNER = EMPLOYEES.issue("", "employee.example.org"), PARTNERS.issue("", "partner.example.org")
CLIENTS = {"employee": EMPLOYEE, "partner": PARTNER, "none": None}
TRUE = ("True", "True", "True")


def validation(*names: str, **more: Any) -> Mapping[str, Any]:
    """Return a validation of client certificates by the authorities in ConfigMaps; `more` has further fields."""
    refs = [{"group": "", "kind": "ConfigMap", "name": name} for name in names]
    return {"validation": {"caCertificateRefs": refs, **more}}


def bundle(name: str, *authorities: Authority) -> str:
    """Return a ConfigMap with the certificates of authorities."""
    return manifest(config_map(name, {"ca.crt": "".join(authority.pem for authority in authorities)}, namespace=""))


def secure_listener(name: str = "https", **more: Any) -> Mapping[str, Any]:
    """Return an HTTPS listener."""
    return web_listener(name, protocol="HTTPS", tls={"certificateRefs": [{"name": "server"}]}, **more)


def secure_gateway(default: Mapping[str, Any], *listeners: Mapping[str, Any], **ports: Mapping[str, Any]) -> str:
    """Return a Gateway with HTTPS listeners; `ports` has TLS settings of listeners' ports by the listener's name."""
    numbers = {listener["name"]: listener["port"] for listener in listeners}
    per_port = [{"port": numbers[name], "tls": settings} for name, settings in ports.items()]
    tls = {"frontend": {"default": default, "perPort": per_port}}
    return edge_gateway(*listeners, tls=tls)


def prepare(site: Site) -> None:
    """Create the server's certificate, and the ConfigMaps of two authorities."""
    secret = manifest(server_secret("server", PAIRS["P-256"], namespace=""))
    site.apply(secret, bundle("employees", EMPLOYEES), bundle("partners", PARTNERS))


def answers(site: Site, address: Address, host: str) -> Mapping[str, str]:
    """Return the status that each client gets."""
    return {name: site.ask_tls(address, host, host, client) for name, client in CLIENTS.items()}


def states(site: Site, listener: str) -> tuple[str, ...]:
    """Return the statuses of a listener's conditions: ResolvedRefs, Accepted and Programmed."""
    reported = site.listener(listener)["conditions"]
    return tuple(reported[kind][0] for kind in ("ResolvedRefs", "Accepted", "Programmed"))


@pytest.mark.conformance("GatewayFrontendClientCertificateValidation")
def test_a_port_accepts_the_clients_of_its_own_authority_only(site: Site) -> None:
    prepare(site)
    second = secure_listener("second", hostname=SECOND, port=PORT + 1)
    site.apply(
        secure_gateway(validation("employees"), secure_listener(), second, second=validation("partners")),
        edge_route("app", rule_of("v1"), hosts=[HOST]),
        edge_route("second", rule_of("v2"), parent={"sectionName": "second"}),
    )
    address = site.accepted("app", "second")
    assert answers(site, address, HOST) == {"employee": "200", "partner": CLOSED, "none": CLOSED}
    assert "x-forwarded-client-cert" not in site.backends["v1"].last.headers
    other = answers(site, address._replace(port=PORT + 1), SECOND)
    assert other == {"employee": CLOSED, "partner": "200", "none": CLOSED}


@pytest.mark.conformance("GatewayFrontendClientCertificateValidationInsecureFallback")
def test_with_the_insecure_fallback_a_port_accepts_every_client(site: Site) -> None:
    prepare(site)
    mode = {"mode": "AllowInsecureFallback"}
    second = secure_listener("second", hostname=SECOND, port=PORT + 1)
    fallbacks = validation("employees", **mode), validation("partners", **mode)
    site.apply(
        secure_gateway(fallbacks[0], secure_listener(), second, second=fallbacks[1]),
        edge_route("app", rule_of("v1"), hosts=[HOST]),
        edge_route("second", rule_of("v2"), parent={"sectionName": "second"}),
    )
    address = site.accepted("app", "second")
    insecure = conditions(site.status("gateway/edge"))["InsecureFrontendValidationMode"]
    assert insecure == ("True", "ConfigurationChanged")
    all_accepted = dict.fromkeys(CLIENTS, "200")
    assert answers(site, address, HOST) == all_accepted
    assert answers(site, address._replace(port=PORT + 1), SECOND) == all_accepted
    site.apply(secure_gateway(validation("employees"), secure_listener()))
    site.accepted("app")
    assert "InsecureFrontendValidationMode" not in conditions(site.status("gateway/edge"))
    assert answers(site, address, HOST) == {"employee": "200", "partner": CLOSED, "none": CLOSED}


@pytest.mark.conformance("GatewayInvalidFrontendClientCertificateValidation")
def test_each_listener_reports_the_mistakes_in_its_authorities(site: Site) -> None:
    prepare(site)
    other = site.neighbor()
    other.apply(bundle("ca", EMPLOYEES))
    names = {"missing": PORT + 1, "kind": PORT + 2, "grant": PORT + 3}
    listeners = [secure_listener(name, port=port) for name, port in names.items()]
    service = {"group": "", "kind": "Service", "name": "v2"}
    elsewhere = {"group": "", "kind": "ConfigMap", "name": "ca", "namespace": other.namespace}
    site.apply(
        secure_gateway(
            validation("employees"),
            secure_listener(),
            *listeners,
            missing=validation("missing"),
            kind={"validation": {"caCertificateRefs": [service]}},
            grant={"validation": {"caCertificateRefs": [elsewhere]}},
        ),
        edge_route("app", rule_of("v1"), hosts=[HOST]),
    )
    address = site.accepted("app")
    assert states(site, "https") == TRUE
    reasons = {"missing": "InvalidCACertificateRef", "kind": "InvalidCACertificateKind", "grant": "RefNotPermitted"}
    for name, reason in reasons.items():
        reported = site.listener(name)["conditions"]
        assert reported["ResolvedRefs"] == ("False", reason)
        assert reported["Accepted"] == ("False", "NoValidCACertificate")
        assert reported["Programmed"][0] == "False"
        assert answers(site, address._replace(port=names[name]), HOST) == dict.fromkeys(CLIENTS, CLOSED)
    other.apply(route_grant("grant", site.namespace, kind="Gateway", to="ConfigMap"))
    until(lambda: states(site, "grant") == TRUE, "the listener whose authority is in another namespace")
    site.host.wait_for_port(address._replace(port=names["grant"]))
    assert site.ask_tls(address._replace(port=names["grant"]), HOST, HOST, EMPLOYEE) == "200"
    other.delete("referencegrant/grant")


@pytest.mark.conformance("GatewayFrontendInvalidDefaultClientCertificateValidation")
def test_a_default_without_an_authority_stops_listeners_with_tls_only(site: Site) -> None:
    prepare(site)
    plain = web_listener("http", port=PORT + 1)
    site.apply(
        secure_gateway(validation("missing"), secure_listener(), plain), edge_route("app", rule_of("v1"), hosts=[HOST])
    )
    address = site.accepted("app")
    assert states(site, "http") == TRUE
    assert site.ask(address._replace(port=PORT + 1), f"{HOST}/").answered_by == "v1"
    reported = site.listener("https")["conditions"]
    assert (reported["ResolvedRefs"], reported["Accepted"], reported["Programmed"][0]) == (
        ("False", "InvalidCACertificateRef"),
        ("False", "NoValidCACertificate"),
        "False",
    )
    assert answers(site, address, HOST) == dict.fromkeys(CLIENTS, CLOSED)


def test_other_authorities_apply_to_new_connections_and_no_request_is_lost(site: Site) -> None:
    prepare(site)
    site.apply(
        secure_gateway(validation("employees"), secure_listener()), edge_route("app", rule_of("v1"), hosts=[HOST])
    )
    address = site.accepted("app")
    with site.asking_tls(address, HOST, EMPLOYEE) as counted:
        for authorities in ((EMPLOYEES, PARTNERS), (EMPLOYEES,), (PARTNERS, EMPLOYEES)):
            site.apply(bundle("employees", *authorities))
            expected = {"employee": "200", "partner": "200" if PARTNERS in authorities else CLOSED, "none": CLOSED}
            assert answers(site, address, HOST) == expected
            before = counted["200"]
            until(lambda before=before: counted["200"] > before, "another request of the employee")
        assert set(counted) == {"200"}
    site.apply(bundle("employees", PARTNERS))
    assert answers(site, address, HOST) == {"employee": CLOSED, "partner": "200", "none": CLOSED}
    site.delete("configmap/employees")
    until(lambda: states(site, "https")[1] == "False", "the listener without an authority")
    site.host.settle()
    assert answers(site, address, HOST) == dict.fromkeys(CLIENTS, CLOSED)


def test_a_tls_listener_that_ends_tls_validates_clients(site: Site) -> None:
    prepare(site)
    site.start("plain", "db", port=PORT)
    site.apply(
        secure_gateway(validation("employees"), {**secure_listener(), "protocol": "TLS"}),
        edge_route("db", rule_of("db", port=PORT), hosts=[HOST], kind="TLSRoute"),
    )
    address = site.accepted("tlsroute/db")
    greetings = {name: site.greeting(address, HOST, client) for name, client in CLIENTS.items()}
    assert greetings == {"employee": "shop.example.com: db", "partner": CLOSED, "none": CLOSED}
