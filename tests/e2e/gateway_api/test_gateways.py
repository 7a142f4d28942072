"""Gateways and GatewayClasses: what the conformance suite tests for the feature Gateway and its extensions."""

import base64
import datetime as dt
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.e2e.gateway_api.objects import (
    PORT,
    edge_gateway,
    edge_route,
    gateway_api_object,
    path,
    route_grant,
    rule_of,
    web_listener,
)
from tests.e2e.gateway_api.site import Site, conditions
from tests.make.objects import GATEWAY_API, manifest, route
from tests.make.server_certificates import NAME, PAIRS, Pair, pem
from tests.make.server_certificates import certificate as server_certificate
from tests.make.server_certificates import secret as server_secret
from tests.protocols import certificate
from tests.waiting import until
from tests.wire import Address

HTTP_ROUTE = [{"group": GATEWAY_API, "kind": "HTTPRoute"}]


def secret(name: str, directory: Path, *, malformed: bool = False) -> str:
    text = base64.b64encode(b"no PEM" if malformed else certificate(directory).read_bytes()).decode()
    data = {"tls.crt": text, "tls.key": text}
    metadata = {"name": name}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}
    )


def https(name: str = "https", reference: Mapping[str, Any] | None = None, **more: Any) -> Mapping[str, Any]:
    """Return a listener with TLS whose certificateRef has the fields of `reference`."""
    tls = {"certificateRefs": [{"name": "certificate", **(reference or {})}]}
    return web_listener(name, protocol="HTTPS", tls=tls, **more)


@pytest.mark.conformance("GatewayClassObservedGenerationBump")
def test_a_gateway_class_reports_its_newest_generation(site: Site) -> None:
    name = f"class-of-{site.namespace}"
    spec = {"controllerName": "headgate.dev/gateway-controller"}
    site.apply(gateway_api_object("GatewayClass", name, spec))
    assert conditions(site.status(f"gatewayclass/{name}"))["Accepted"] == ("True", "Accepted")
    site.patch(f"gatewayclass/{name}", {"description": "changed"})
    assert conditions(site.status(f"gatewayclass/{name}"))["Accepted"] == ("True", "Accepted")
    assert site.generation(f"gatewayclass/{name}") == 2
    site.delete(f"gatewayclass/{name}")


@pytest.mark.conformance("GatewayInvalidRouteKind")
@pytest.mark.parametrize("known", [[], [{"kind": "HTTPRoute"}]], ids=["alone", "with a known kind"])
def test_a_listener_reports_unknown_route_kinds(site: Site, known: list[Any]) -> None:
    site.apply(edge_gateway(web_listener(allowedRoutes={"kinds": [{"kind": "InvalidRoute"}, *known]})))
    found = site.listener()
    assert found["conditions"]["ResolvedRefs"] == ("False", "InvalidRouteKinds")
    assert found["supportedKinds"] == (HTTP_ROUTE if known else [])
    assert found["attachedRoutes"] == 0


@pytest.mark.conformance("GatewayInvalidTLSConfiguration")
@pytest.mark.parametrize(
    "reference",
    [{"name": "missing"}, {"group": "example.org"}, {"kind": "NotASecret"}, {"name": "malformed"}],
    ids=str,
)
def test_a_listener_reports_an_invalid_certificate(site: Site, tmp_path: Path, reference: Mapping[str, str]) -> None:
    site.apply(
        secret("certificate", tmp_path),
        secret("malformed", tmp_path, malformed=True),
        edge_gateway(https(reference=reference, allowedRoutes={"kinds": HTTP_ROUTE})),
    )
    found = site.listener("https")
    assert found["conditions"]["ResolvedRefs"] == ("False", "InvalidCertificateRef")
    assert (found["supportedKinds"], found["attachedRoutes"]) == (HTTP_ROUTE, 0)


@pytest.mark.parametrize(("signature", "expected"), [("RSA-PSS+SHA256", "RSA-PSS"), ("ECDSA+SHA256", "ECDSA")])
def test_the_client_selects_one_of_the_usable_certificates_by_its_key(
    site: Site, signature: str, expected: str
) -> None:
    pairs = {"rsa": PAIRS["RSA of 2048 bits"], "ecdsa": PAIRS["P-256"], "mixed": PAIRS["key of another certificate"]}
    refs = [{"name": name} for name in ("mixed", "missing", "rsa", "ecdsa")]
    listener = web_listener("https", protocol="HTTPS", tls={"certificateRefs": refs})
    secrets = [manifest(server_secret(name, pair, namespace="")) for name, pair in pairs.items()]
    site.apply(*secrets, edge_gateway(listener), edge_route("app", rule_of("v1")))
    address = site.accepted("app")
    found = site.listener("https")["conditions"]
    assert (found["ResolvedRefs"], found["Programmed"][0]) == (("False", "InvalidCertificateRef"), "True")
    command = ["openssl", "s_client", "-connect", f"{address.host}:{address.port}", "-sigalgs", signature]
    ended = subprocess.run([*command, "-servername", NAME], input="", capture_output=True, text=True, check=False)
    assert f"Peer signature type: {expected}" in ended.stdout


def test_the_end_of_a_certificate_is_announced(site: Site) -> None:
    key, hour = ec.generate_private_key(ec.SECP256R1()), dt.timedelta(hours=1)

    def ends_in(time: dt.timedelta) -> str:
        """Return the Secret with a certificate in the last tenth of its validity, of which the user is warned."""
        chain = server_certificate(key, begin=dt.datetime.now(dt.UTC) - 20 * hour, validity=20 * hour + time)
        return manifest(server_secret("short", Pair(chain, pem(key)), namespace=""))

    site.apply(ends_in(hour), edge_gateway(https(reference={"name": "short"})))

    def announced(text: str) -> list[str]:
        events = site.host.get("events", site.namespace)["items"]
        own = [item for item in events if item["reason"].startswith("CertificateExpires")]
        return [item["message"] for item in own if text in item["message"]]

    until(lambda: announced("expires at"), "the warning before the end")
    site.apply(ends_in(dt.timedelta(seconds=5)))
    until(lambda: announced("expired at"), "the warning after the end")
    site.apply(manifest(server_secret("short", PAIRS["P-256"], namespace="")))
    until(lambda: announced("is valid now"), "the Event about a new certificate")


@pytest.mark.conformance("GatewayModifyListeners", "GatewayObservedGenerationBump")
def test_listeners_can_be_added_and_removed(site: Site, tmp_path: Path) -> None:
    secure = https(hostname="secure.test.com", port=PORT + 1, allowedRoutes={"kinds": HTTP_ROUTE})
    plain = web_listener(hostname="data.test.com", allowedRoutes={"kinds": HTTP_ROUTE})
    site.apply(secret("certificate", tmp_path), edge_gateway(secure), edge_route("app", rule_of("v1")))
    address, generation = site.accepted("app"), site.generation("gateway/edge")
    site.wait_for_attached({"https": 1})

    def check(name: str) -> None:
        found = site.listener(name)
        assert found["supportedKinds"] == HTTP_ROUTE
        for kind in ("Accepted", "ResolvedRefs", "Programmed"):
            assert found["conditions"][kind][0] == "True"

    site.apply(edge_gateway(secure, plain))
    site.wait_for_attached({"https": 1, "http": 1})
    site.accepted("app")
    check("https")
    check("http")
    assert site.ask(address, "data.test.com/").answered_by == "v1"
    site.apply(edge_gateway(plain))
    site.wait_for_attached({"http": 1})
    site.accepted("app")
    check("http")
    assert site.ask(address, "data.test.com/").answered_by == "v1"
    assert site.generation("gateway/edge") == generation + 2
    until(lambda: site.ask(Address(address.host, PORT + 1), "secure.test.com/").status == 0, "a closed port")


@pytest.mark.conformance(
    "GatewaySecretMissingReferenceGrant",
    "GatewaySecretInvalidReferenceGrant",
    "GatewaySecretReferenceGrantSpecific",
    "GatewaySecretReferenceGrantAllInNamespace",
)
def test_a_certificate_of_another_namespace_needs_a_grant(site: Site, tmp_path: Path) -> None:
    other = site.neighbor()
    other.apply(secret("certificate", tmp_path))
    site.apply(edge_gateway(https(reference={"namespace": other.namespace}, allowedRoutes={"kinds": HTTP_ROUTE})))
    missing, resolved = ("False", "RefNotPermitted"), ("True", "ResolvedRefs")

    def wait_for(wanted: tuple[str, str]) -> None:
        until(lambda: site.listener("https")["conditions"]["ResolvedRefs"] == wanted, str(wanted))
        assert site.listener("https")["attachedRoutes"] == 0

    def with_grant(wanted: tuple[str, str], *, kind: str = "Gateway", source: str = "", **to: str) -> None:
        other.apply(route_grant("certificates", source or site.namespace, kind=kind, **to))
        wait_for(wanted)

    wait_for(missing)
    with_grant(resolved, to="Secret", only="certificate")
    with_grant(missing, to="Secret", only="other")
    with_grant(resolved, to="Secret")
    with_grant(missing, to="Service")
    with_grant(resolved, to="Secret")
    with_grant(missing, to="Secret", kind="HTTPRoute")
    with_grant(resolved, to="Secret")
    with_grant(missing, to="Secret", source=other.namespace)
    wait_for(missing)


@pytest.mark.conformance("GatewayWithAttachedRoutes")
def test_listeners_count_their_attached_routes(site: Site) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": site.namespace}}
    allowed = {"kinds": [{"kind": "HTTPRoute"}], "namespaces": {"from": "Selector", "selector": selector}}
    site.apply(edge_gateway(web_listener(allowedRoutes=allowed)), edge_route("one", rule_of("v1")))
    site.accepted("one")
    site.wait_for_attached({"http": 1})
    site.apply(edge_route("two", rule_of("v1")))
    site.accepted("one", "two")
    site.wait_for_attached({"http": 2})
    assert site.listener()["supportedKinds"] == HTTP_ROUTE
    broken = https(reference={"name": "missing"}, port=PORT + 1, allowedRoutes={"kinds": HTTP_ROUTE})
    site.apply(
        edge_gateway(broken, name="unresolved"), edge_route("three", rule_of("v1"), parent={"name": "unresolved"})
    )
    site.wait_for_attached({"https": 1}, "unresolved")
    found = site.listener("https", "unresolved")["conditions"]
    assert (found["Accepted"][0], found["ResolvedRefs"]) == ("True", ("False", "InvalidCertificateRef"))
    assert found["Programmed"][0] == "False"


@pytest.mark.conformance("GatewayWithAttachedRoutesWithPort8080")
def test_a_route_attaches_to_the_named_listener_only(site: Site) -> None:
    listeners = web_listener("unattached", port=8080), web_listener()
    site.apply(edge_gateway(*listeners), edge_route("app", rule_of("v1"), parent={"sectionName": "http"}))
    address = site.accepted("app")
    site.wait_for_attached({"unattached": 0, "http": 1})
    assert site.ask(address, "any/").answered_by == "v1"
    assert site.ask(Address(address.host, 8080), "any/").status == 404


@pytest.mark.conformance("GatewayOptionalAddressValue")
def test_an_address_without_a_value_lets_headgate_choose(site: Site) -> None:
    site.apply(edge_gateway(addresses=[{"type": "IPAddress"}]), edge_route("app", rule_of("v1")))
    assert site.ask(site.accepted("app"), "any/").answered_by == "v1"


@pytest.mark.conformance("GatewayStaticAddresses")
def test_a_gateway_reports_unsupported_and_unusable_addresses(site: Site) -> None:
    """The order of the changes is that of the Gateway API's conformance test."""
    site.apply(edge_gateway())
    address = site.accepted()
    unknown, usable = {"type": "example.com/strange", "value": "a"}, {"type": "IPAddress", "value": address.host}
    unusable = {"type": "IPAddress", "value": "192.0.2.1"}

    def wait_for(accepted: tuple[str, str], programmed: tuple[str, str]) -> None:
        wanted = {"Accepted": accepted, "Programmed": programmed}
        until(lambda: conditions(site.status("gateway/edge")) == wanted, str(wanted))

    site.patch("gateway/edge", {"addresses": [unknown, unusable, usable]})
    wait_for(("False", "UnsupportedAddress"), ("False", "Invalid"))
    site.patch("gateway/edge", {"addresses": [unusable, usable]})
    wait_for(("True", "Accepted"), ("False", "AddressNotUsable"))
    assert site.status("gateway/edge")["addresses"] == [usable]
    assert site.ask(address, "any/").status == 404  # the Gateway still listens on its own address
    site.patch("gateway/edge", {"addresses": [usable]})
    wait_for(("True", "Accepted"), ("True", "Programmed"))
    assert site.status("gateway/edge")["addresses"] == [usable]


@pytest.mark.conformance("GatewayInvalidParametersRef")
@pytest.mark.parametrize(
    "reference",
    [{"group": "", "kind": "ConfigMap"}, {"group": "example.com", "kind": "Unknown"}],
    ids=["missing", "of an unknown kind"],
)
def test_a_gateway_with_an_invalid_reference_to_parameters_is_not_accepted(
    site: Site, reference: Mapping[str, str]
) -> None:
    site.apply(edge_gateway(name="tuned", infrastructure={"parametersRef": {**reference, "name": "missing"}}))
    assert conditions(site.status("gateway/tuned"))["Accepted"] == ("False", "InvalidParameters")


@pytest.mark.conformance("GatewayListenerUnsupportedProtocol")
def test_a_gateway_serves_its_listeners_beside_one_with_an_unknown_protocol(site: Site) -> None:
    strange = web_listener("strange", protocol="example.com/unknown", port=PORT + 1)
    site.apply(edge_gateway(strange, name="strange"), edge_gateway(web_listener(), strange))
    site.apply(edge_route("app", rule_of("v1")))
    address = site.accepted("app")
    assert site.ask(address, "any/").answered_by == "v1"
    for gateway, accepted in (("strange", "False"), ("edge", "True")):
        assert conditions(site.status(f"gateway/{gateway}"))["Accepted"] == (accepted, "ListenersNotValid")
        refused = site.listener("strange", gateway)
        assert refused["conditions"]["Accepted"] == ("False", "UnsupportedProtocol")
        assert (refused["supportedKinds"], refused["attachedRoutes"]) == ([], 0)
    site.wait_for_attached({"http": 1, "strange": 0})
    assert site.listener("http")["conditions"]["Accepted"] == ("True", "Accepted")


@pytest.mark.conformance("HTTPRouteMultipleGateways")
def test_a_route_with_two_gateways_is_served_by_both(site: Site) -> None:
    shared = json.loads(edge_route("shared", rule_of("v1", matches=[path("/shared")])))
    shared["spec"]["parentRefs"] = [{"name": "edge"}, {"name": "second"}]
    site.apply(
        edge_gateway(),
        edge_gateway(name="second"),
        json.dumps(shared),
        edge_route("of-edge", rule_of("v2")),
        edge_route("of-second", rule_of("v3"), parent={"name": "second"}),
    )
    addresses = {"v2": site.accepted("of-edge"), "v3": site.accepted("of-second", name="second")}

    def is_accepted_twice() -> bool:
        parents = {
            entry["parentRef"]["name"]: conditions(entry) for entry in site.status("httproute/shared")["parents"]
        }
        return parents.keys() == {"edge", "second"} and all(
            status == "True" for reported in parents.values() for status, _ in reported.values()
        )

    until(is_accepted_twice, "the route's statuses for both Gateways")
    for own, address in addresses.items():
        assert site.answers(address, "any/shared", "any/") == {"any/shared": "v1", "any/": own}


ISOLATED = {  # the hostname of each listener, and a host that belongs to it
    "": "bar.com",
    "*.example.com": "bar.example.com",
    "*.foo.example.com": "bar.foo.example.com",
    "abc.foo.example.com": "abc.foo.example.com",
}


@pytest.mark.conformance("GatewayHTTPListenerIsolation")
@pytest.mark.parametrize("hosts_of_routes", [[], list(ISOLATED.values())], ids=["without hosts", "with all hosts"])
def test_a_request_is_answered_by_its_listener_only(site: Site, hosts_of_routes: list[str]) -> None:
    names = {f"l{index}": hostname for index, hostname in enumerate(ISOLATED)}
    listeners = [web_listener(name, hostname) for name, hostname in names.items()]
    routes = [
        edge_route(name, rule_of("v1", matches=[path(f"/{name}")]), parent={"sectionName": name}, hosts=hosts_of_routes)
        for name in names
    ]
    site.apply(edge_gateway(*listeners), *routes)
    address = site.accepted(*names)
    expected = {
        f"{ISOLATED[hostname]}/{other}": "v1" if other == name else "404"
        for name, hostname in names.items()
        for other in names
    }
    assert site.answers(address, *expected) == expected


@pytest.mark.conformance("HTTPRouteHTTPSListener", "HTTPRouteHTTPSListenerDetectMisdirectedRequests")
def test_the_server_name_selects_the_listener_with_tls(site: Site, tmp_path: Path) -> None:
    hosts = {"any": "example.org", "second": "second-example.org", "third": "third-example.wildcard.org"}
    site.apply(
        secret("certificate", tmp_path),
        edge_gateway(
            https("any"),
            https("second", hostname="second-example.org"),
            https("third", hostname="*.wildcard.org"),
        ),
        edge_route("any", rule_of("v1"), parent={"sectionName": "any"}, hosts=[hosts["any"]]),
        edge_route("second", rule_of("v2"), parent={"sectionName": "second"}),
        edge_route("third", rule_of("v3"), parent={"sectionName": "third"}),
    )
    address = site.accepted("any", "second", "third")
    expected = {
        ("example.org", "example.org"): "200",
        ("example.org", "second-example.org"): "421",
        ("example.org", "unknown-example.org"): "404",
        ("second-example.org", "second-example.org"): "200",
        ("second-example.org", "example.org"): "421",
        ("second-example.org", "unknown-example.org"): "421",
        ("third-example.wildcard.org", "fifth-example.wildcard.org"): "200",
        ("third-example.wildcard.org", "second-example.org"): "421",
        ("unknown-example.org", "example.org"): "200",
        ("unknown-example.org", "unknown-example.org"): "404",
    }
    assert {pair: site.ask_tls(address, *pair) for pair in expected} == expected


@pytest.mark.parametrize(
    "hosts", [[], ["*.dev.example.com", "dev.example.com"]], ids=["without hosts", "with both hosts"]
)
def test_one_route_serves_a_domain_and_its_wildcard(site: Site, tmp_path: Path, hosts: list[str]) -> None:
    """Report 16: each name gets the listener, and a request for the other one on its connection gets 421."""
    secrets = {"apex": "dev.example.com", "wildcard": "*.dev.example.com"}
    site.apply(
        *(manifest(server_secret(name, PAIRS["P-256"], namespace="")) for name in secrets),
        edge_gateway(*(https(name, {"name": name}, hostname=hostname) for name, hostname in secrets.items())),
        edge_route("app", rule_of("v1"), hosts=hosts),
    )
    address = site.accepted("app")
    names = ("dev.example.com", "a.dev.example.com", "a.b.dev.example.com", "A.DEV.example.com")
    expected = {(name, name): "200" for name in names} | {
        ("dev.example.com", "a.dev.example.com"): "421",
        ("a.dev.example.com", "dev.example.com"): "421",
        ("a.dev.example.com", "a.b.dev.example.com"): "200",
    }
    assert {pair: site.ask_tls(address, *pair) for pair in expected} == expected


def test_a_route_of_default_gateways_follows_the_scope_of_a_gateway(site: Site) -> None:
    """GEP-3793: the status of the route names the Gateway that takes it, which it does not name."""
    website = route("web", rule_of("v1"), parents=[], useDefaultGateways="All", namespace="")
    site.apply(edge_gateway(defaultScope="All"), manifest(website))
    address = site.accepted("web")
    (entry,) = site.status("httproute/web")["parents"]
    assert entry["parentRef"] == {
        "group": GATEWAY_API,
        "kind": "Gateway",
        "namespace": site.namespace,
        "name": "edge",
    }
    assert conditions(site.status("gateway/edge"))["DefaultGateway"] == ("True", "DefaultGateway")
    assert site.ask(address, "a.com/").answered_by == "v1"
    site.patch("gateway/edge", {"defaultScope": None})
    until(lambda: not site.host.get("httproute/web", site.namespace)["status"]["parents"], "the status of the route")
    site.host.settle()
    assert site.ask(address, "a.com/").status == 404
    assert "DefaultGateway" not in conditions(site.status("gateway/edge"))
