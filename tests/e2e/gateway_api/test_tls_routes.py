"""TLSRoutes of Gateways: the server name of a TLS connection selects its backend, which may end TLS itself."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest
from tests.e2e.gateway_api.objects import (
    PORT,
    edge_gateway,
    edge_route,
    route_grant,
    rule_of,
    web_listener,
)
from tests.e2e.gateway_api.site import CLOSED, Site
from tests.make.objects import GATEWAY_API, manifest
from tests.make.server_certificates import NAME, PAIRS
from tests.make.server_certificates import secret as server_secret

REFUSALS = {
    "http": "NotAllowedByListeners",
    "https": "NotAllowedByListeners",
    "kinds": "NotAllowedByListeners",
    "exact": "NoMatchingListenerHostname",
    "wild": "NoMatchingListenerHostname",
    "missing": "NoMatchingParent",
}
BACKENDS = ("tls-v1", "tls-v2")


def serve(site: Site) -> None:
    """Start two TLS servers, each with a Service."""
    for name in BACKENDS:
        site.start("tls", name, port=PORT)


def tls_listener(name: str = "tls", hostname: str = "", **more: Any) -> Mapping[str, Any]:
    """Return a TLS listener that passes connections on."""
    return web_listener(name, hostname, **{"protocol": "TLS", "tls": {"mode": "Passthrough"}, **more})


def tls_route(name: str, *backends: str, hosts: list[str], **parent: Any) -> str:
    """Return a TLSRoute of the Gateway `edge`; `parent` has fields of its parentRef."""
    return edge_route(name, rule_of(*backends, port=PORT), hosts=hosts, parent=parent, kind="TLSRoute")


@pytest.mark.conformance("TLSRouteSimpleSameNamespace", "TLSRouteHostnameIntersection")
def test_the_server_name_selects_the_backend_that_ends_tls(site: Site) -> None:
    serve(site)
    site.apply(
        edge_gateway(tls_listener(hostname="abc.example.com")), tls_route("all", "tls-v2", hosts=["*.example.com"])
    )
    address = site.accepted("tlsroute/all")
    expected = {"abc.example.com": "db: tls-v2", "other.example.com": CLOSED, "non.matching.com": CLOSED, "": CLOSED}
    assert site.greetings(address, *expected) == expected
    site.apply(tls_route("one", "tls-v1", hosts=["abc.example.com"]))
    for hostname, outside in (
        ("*.example.com", "example.com"),
        ("*.com", "non.matching.com"),
        ("", "non.matching.org"),
    ):
        site.apply(edge_gateway(tls_listener(hostname=hostname)))
        site.accepted("tlsroute/all", "tlsroute/one")
        expected = {"abc.example.com": "db: tls-v1", "a.b.example.com": "db: tls-v2", outside: CLOSED, "": CLOSED}
        assert site.greetings(address, *expected) == expected


@pytest.mark.conformance("TLSRouteInvalidBackendRefNonexistent", "TLSRouteInvalidBackendRefUnknownKind")
def test_connections_to_a_backend_that_cannot_be_used_are_closed(site: Site) -> None:
    serve(site)
    unknown = {"group": "unknownkind.example.com", "kind": "NonExistent", "name": "tls-v1"}
    site.apply(
        edge_gateway(tls_listener()),
        tls_route("gone", "missing", hosts=["gone.example.com"]),
        edge_route("unknown", {"backendRefs": [unknown]}, hosts=["unknown.example.com"], kind="TLSRoute"),
        tls_route("used", "tls-v1", hosts=["*.example.com"]),
    )
    address = site.accepted("tlsroute/used")
    site.wait_for_parent("tlsroute/gone", Accepted="Accepted", ResolvedRefs="BackendNotFound")
    site.wait_for_parent("tlsroute/unknown", Accepted="Accepted", ResolvedRefs="InvalidKind")
    expected = {"gone.example.com": CLOSED, "unknown.example.com": CLOSED, "other.example.com": "db: tls-v1"}
    assert site.greetings(address, *expected) == expected
    site.apply(tls_route("gone", "missing:1", "tls-v2:1", hosts=["gone.example.com"]))
    site.wait_for_parent("tlsroute/gone", Accepted="Accepted", ResolvedRefs="BackendNotFound")
    site.host.settle()
    assert {site.greeting(address, "gone.example.com") for _ in range(40)} == {CLOSED, "db: tls-v2"}


@pytest.mark.conformance("TLSRouteInvalidReferenceGrant")
def test_a_backend_in_another_namespace_needs_a_grant_for_tls_routes(site: Site) -> None:
    serve(site)
    source = site.neighbor()
    parent = {"namespace": site.namespace}
    rule = {"backendRefs": [{"name": "tls-v1", "namespace": site.namespace, "port": PORT}]}
    allowed = {"namespaces": {"from": "All"}}
    site.apply(
        edge_gateway(tls_listener(allowedRoutes=allowed)),
        route_grant("other", source.namespace, kind="HTTPRoute"),
        route_grant("elsewhere", "elsewhere", kind="TLSRoute"),
        route_grant("one", source.namespace, kind="TLSRoute", only="tls-v2"),
    )
    source.apply(edge_route("far", rule, hosts=["far.example.com"], parent=parent, kind="TLSRoute"))
    source.wait_for_parent("tlsroute/far", Accepted="Accepted", ResolvedRefs="RefNotPermitted")
    address = site.accepted()
    assert site.greeting(address, "far.example.com") == CLOSED
    site.apply(route_grant("right", source.namespace, kind="TLSRoute"))
    source.wait_for_parent("tlsroute/far", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
    site.host.settle()
    assert site.greeting(address, "far.example.com") == "db: tls-v1"
    source.delete("tlsroute/far")


@pytest.mark.conformance("TLSRouteInvalidNoMatchingListener", "TLSRouteInvalidNoMatchingListenerHostname")
def test_a_tls_route_without_a_matching_listener_is_not_accepted(site: Site) -> None:
    ended = {"certificateRefs": [{"name": "ended"}]}
    only_web = {"kinds": [{"group": GATEWAY_API, "kind": "HTTPRoute"}]}
    site.apply(
        manifest(server_secret("ended", PAIRS["P-256"], namespace="")),
        edge_gateway(
            web_listener("http", port=PORT + 1),
            web_listener("https", protocol="HTTPS", port=PORT + 2, tls=ended),
            tls_listener("kinds", port=PORT + 3, allowedRoutes=only_web),
            tls_listener("exact", "exact.example.com"),
            tls_listener("wild", "*.wild.example.com"),
        ),
        *(tls_route(f"at-{name}", "v1", hosts=["a.example.com"], sectionName=name) for name in REFUSALS),
    )
    for name, reason in REFUSALS.items():
        site.wait_for_parent(f"tlsroute/at-{name}", Accepted=reason)
    site.wait_for_attached(dict.fromkeys(("http", "https", "kinds", "exact", "wild"), 0))


@pytest.mark.conformance("TLSRouteListenerPassthroughSupportedKinds", "TLSRouteListenerTerminateSupportedKinds")
def test_tls_listeners_support_tls_routes(site: Site) -> None:
    kinds = [{"group": GATEWAY_API, "kind": kind} for kind in ("TCPRoute", "TLSRoute")]
    ended = tls_listener("ended", port=PORT + 1, tls={"certificateRefs": [{"name": "ended"}]})
    site.apply(
        manifest(server_secret("ended", PAIRS["P-256"], namespace="")),
        edge_gateway(tls_listener("passed", allowedRoutes={"kinds": kinds}), ended),
    )
    reported = {name: site.listener(name) for name in ("passed", "ended")}
    assert [listener["supportedKinds"] for listener in reported.values()] == [kinds[1:]] * 2
    resolved = {name: listener["conditions"]["ResolvedRefs"] for name, listener in reported.items()}
    assert resolved == {"passed": ("False", "InvalidRouteKinds"), "ended": ("True", "ResolvedRefs")}


@pytest.mark.conformance(
    "TLSRouteTerminateSimpleSameNamespace",
    "TLSRouteMixedTerminationSameNamespace",
    "TLSRouteListenerTerminateNotSupported",
    "TLSRouteListenerMixedTerminationNotSupported",
)
def test_listeners_that_pass_tls_on_or_end_it_share_a_port(site: Site) -> None:
    """An HTTPS listener shares it too. The two last tests of the suite end at once where the features are supported."""
    serve(site)
    site.start("plain", "plain-v1", port=PORT)
    ended = {"certificateRefs": [{"name": "ended"}]}
    site.apply(
        manifest(server_secret("ended", PAIRS["P-256"], namespace="")),
        edge_gateway(
            tls_listener("passed", "*.example.com"),
            tls_listener("ended", "ended.example.com", tls=ended),
            web_listener("web", "web.example.com", protocol="HTTPS", tls=ended),
        ),
        tls_route("passed", "tls-v1", hosts=["*.example.com"], sectionName="passed"),
        tls_route("ended", "plain-v1", hosts=["ended.example.com"], sectionName="ended"),
        edge_route("web", rule_of("v1"), parent={"sectionName": "web"}),
    )
    address = site.accepted("tlsroute/passed", "tlsroute/ended", "web")
    site.wait_for_attached({"passed": 1, "ended": 1, "web": 1})
    expected = {
        "ended.example.com": f"{NAME}: plain-v1",
        "ENDED.example.com": f"{NAME}: plain-v1",
        "other.example.com": "db: tls-v1",
        "a.ended.example.com": "db: tls-v1",
        "other.example.org": CLOSED,
        "": CLOSED,
    }
    assert site.greetings(address, *expected) == expected
    hosts = {"web.example.com": "200", "ended.example.com": "421", "other.example.com": "421", "web.example.org": "404"}
    assert {host: site.ask_tls(address, "web.example.com", host) for host in hosts} == hosts


def test_the_end_of_one_tls_route_leaves_the_connections_of_another_one_open(site: Site) -> None:
    serve(site)
    routes = [tls_route(name, "tls-v1", hosts=[f"{name}.example.com"]) for name in ("first", "second")]
    site.apply(edge_gateway(tls_listener()), *routes)
    address = site.accepted("tlsroute/first", "tlsroute/second")
    with (
        closing(site.hold(address, "first.example.com")) as first,
        closing(site.hold(address, "second.example.com")) as second,
    ):
        site.apply(tls_route("third", "tls-v2", hosts=["third.example.com"]))
        site.accepted("tlsroute/third")
        site.delete("tlsroute/second")
        second.wait_closed()
        assert first.echo("still open") == "still open"
    expected = {"second.example.com": CLOSED, "third.example.com": "db: tls-v2"}
    assert site.greetings(address, *expected) == expected


@pytest.mark.conformance("HTTPRouteDisallowedKind")
def test_an_http_route_does_not_attach_to_a_listener_that_passes_tls_on(site: Site) -> None:
    site.apply(
        edge_gateway(tls_listener(), web_listener(port=PORT + 1)),
        edge_route("web", rule_of("v1"), parent={"sectionName": "tls"}),
    )
    site.wait_for_parent("httproute/web", Accepted="NotAllowedByListeners", ResolvedRefs="ResolvedRefs")
    site.wait_for_attached({"tls": 0, "http": 0})
