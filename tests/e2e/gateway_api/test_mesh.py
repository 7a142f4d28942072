"""HTTPRoutes of Services: what the conformance suite tests for the feature Mesh and its extensions.

A client of the mesh sends its requests to the address of a Service.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from tests.e2e.gateway_api.hosts import NAMES
from tests.e2e.gateway_api.objects import (
    MODIFIED,
    RECEIVED,
    SENT,
    change,
    edge_route,
    fields,
    path,
    path_modifier,
    redirect,
    rule_of,
)
from tests.e2e.gateway_api.site import Site, assert_shares
from tests.wire import Address

GRPC_PORT = 9000
ECHO = {"group": "", "kind": "Service", "name": "echo", "port": 8080}


@pytest.fixture
def mesh_site(site: Site) -> Site:
    """Return a site whose requests come from a client in the mesh_site."""
    return site.in_mesh()


def echo(mesh_site: Site, *rules: Mapping[str, Any]) -> Address:
    """Create the Service `echo` with all backends, and a route of it; return the address of the Service."""
    mesh_site.serve("echo", *NAMES)
    if rules:
        mesh_site.apply(edge_route("app", *rules, parent=ECHO))
        mesh_site.wait_for_parent("httproute/app", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
    return mesh_site.address("echo")


@pytest.mark.conformance("MeshBasic")
def test_a_service_without_routes_is_reached(mesh_site: Site) -> None:
    address = echo(mesh_site)
    assert {mesh_site.ask(address, "echo/").answered_by for _ in range(6)} == {"v1", "v2", "v3"}


@pytest.mark.conformance("MeshHTTPRouteSimpleSameNamespace")
def test_a_route_of_a_service_replaces_its_endpoints(mesh_site: Site) -> None:
    address = echo(mesh_site, rule_of("v1"))
    assert {mesh_site.ask(address, "echo/").answered_by for _ in range(6)} == {"v1"}


@pytest.mark.conformance("MeshTrafficSplit", "MeshHTTPRouteMatching")
def test_paths_and_headers_in_the_mesh(mesh_site: Site) -> None:
    address = echo(
        mesh_site,
        rule_of("v1", matches=[path("/"), {"headers": fields(version="one")}]),
        rule_of("v2", matches=[path("/v2"), {"headers": fields(version="two")}]),
    )
    expected = {
        "echo/": "v1",
        "echo/example": "v1",
        "echo/v2": "v2",
        "echo/v2/": "v2",
        "echo/v2/example": "v2",
        "echo/v2example": "v1",
        "echo/foo/v2/example": "v1",
    }
    assert mesh_site.answers(address, *expected) == expected
    assert mesh_site.ask(address, "echo/", version="one").answered_by == "v1"
    assert mesh_site.ask(address, "echo/", version="two").answered_by == "v2"


def cut_cycles(mesh_site: Site, before: Counter[str], sent: int) -> int:
    """Return how many cycles of weights were cut short while a client sent requests: by a retry, or by new endpoints."""
    return max(0, (mesh_site.client_counters() - before).total() - sent)


@pytest.mark.conformance("MeshHTTPRouteWeight")
def test_weights_in_the_mesh(mesh_site: Site) -> None:
    address = echo(mesh_site, rule_of("v1:70", "v2:30"))
    before = mesh_site.client_counters()
    answers = Counter(mesh_site.ask(address, "echo/").answered_by for _ in range(500))
    assert_shares(answers, {"v1": 350, "v2": 150}, cut_cycles(mesh_site, before, 500))


@pytest.mark.conformance("MeshGRPCRouteWeight")
def test_weights_of_calls_in_the_mesh(mesh_site: Site) -> None:
    for name in NAMES:
        mesh_site.start("grpc", f"grpc-{name}", port=GRPC_PORT)
    parent = {"group": "", "kind": "Service", "name": "grpc-v3", "port": GRPC_PORT}
    mesh_site.apply(
        edge_route("app", rule_of("grpc-v1:70", "grpc-v2:30", port=GRPC_PORT), parent=parent, kind="GRPCRoute")
    )
    mesh_site.wait_for_parent("grpcroute/app", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
    address, before = mesh_site.address("grpc-v3", GRPC_PORT), mesh_site.client_counters()
    answers = mesh_site.host.call_in_mesh(address, 500)
    assert_shares(answers, {"grpc-v1": 350, "grpc-v2": 150}, cut_cycles(mesh_site, before, 500))


@pytest.mark.conformance(
    "MeshHTTPRouteRedirectHostAndStatus",
    "MeshHTTPRouteRedirectPath",
    "MeshHTTPRouteRedirectPort",
    "MeshHTTPRouteSchemeRedirect",
    "MeshHTTPRoute303Redirect",
    "MeshHTTPRoute307Redirect",
    "MeshHTTPRoute308Redirect",
)
def test_redirects_in_the_mesh(mesh_site: Site) -> None:
    contents: dict[str, tuple[Mapping[str, Any], int, str]] = {
        "/host": ({"hostname": "example.org"}, 302, "http://example.org:8080/host"),
        "/status": ({"hostname": "example.org", "statusCode": 301}, 301, "http://example.org:8080/status"),
        "/path": ({"path": path_modifier("ReplacePrefixMatch", "/new")}, 302, "http://echo:8080/new"),
        "/full": ({"path": path_modifier("ReplaceFullPath", "/new")}, 302, "http://echo:8080/new"),
        "/port": ({"port": 8083}, 302, "http://echo:8083/port"),
        "/port-host": ({"port": 8083, "hostname": "example.org"}, 302, "http://example.org:8083/port-host"),
        "/scheme": ({"scheme": "https", "hostname": "example.org"}, 302, "https://example.org/scheme"),
        "/303": ({"statusCode": 303, "port": 8083}, 303, "http://echo:8083/303"),
        "/307": ({"statusCode": 307, "port": 8083}, 307, "http://echo:8083/307"),
        "/308": ({"statusCode": 308, "port": 8083}, 308, "http://echo:8083/308"),
    }
    address = echo(mesh_site, *(redirect(target, **content) for target, (content, *_) in contents.items()))
    for target, (_, status, location) in contents.items():
        answer = mesh_site.ask(address, f"echo:8080{target}")
        assert (answer.status, answer.headers.get("location")) == (status, location), target


@pytest.mark.conformance("MeshHTTPRouteRequestHeaderModifier", "MeshHTTPRouteBackendRequestHeaderModifier")
def test_changes_of_request_headers_in_the_mesh(mesh_site: Site) -> None:
    of_backend = {"backendRefs": [{"name": "v1", "port": 8080, "filters": [MODIFIED]}], "matches": [path("/backend")]}
    address = echo(mesh_site, rule_of("v1", filters=[MODIFIED]), of_backend)
    for target in ("/", "/backend"):
        assert mesh_site.ask(address, f"echo{target}", **SENT).answered_by == "v1"
        assert mesh_site.changed_headers() == RECEIVED


@pytest.mark.conformance("MeshHTTPRouteRewritePath")
def test_rewrites_of_the_path_in_the_mesh(mesh_site: Site) -> None:
    def rewrite(prefix: str, kind: str, value: str, *more: Mapping[str, Any]) -> Mapping[str, Any]:
        return rule_of(
            "v1", matches=[path(prefix)], filters=[change("URLRewrite", path=path_modifier(kind, value)), *more]
        )

    address = echo(
        mesh_site,
        rewrite("/prefix/one", "ReplacePrefixMatch", "/one"),
        rewrite("/strip-prefix", "ReplacePrefixMatch", "/"),
        rewrite("/full/one", "ReplaceFullPath", "/one"),
        rewrite("/full/both", "ReplaceFullPath", "/test", MODIFIED),
    )
    expected = {
        "echo/prefix/one/two": "/one/two",
        "echo/strip-prefix/three": "/three",
        "echo/strip-prefix": "/",
        "echo/full/one/two": "/one",
        "echo/full/both/test": "/test",
    }
    for url, received in expected.items():
        assert mesh_site.ask(address, url, **SENT).answered_by == "v1"
        assert mesh_site.backends["v1"].last.target == received
    assert mesh_site.changed_headers() == RECEIVED


@pytest.mark.conformance("MeshHTTPRouteQueryParamMatching")
def test_query_parameters_in_the_mesh(mesh_site: Site) -> None:
    address = echo(
        mesh_site,
        rule_of("v1", matches=[{"queryParams": fields(animal="whale")}]),
        rule_of("v2", matches=[{"queryParams": fields(animal="dolphin")}]),
        rule_of("v3", matches=[{"queryParams": fields(animal="dolphin", color="blue")}]),
    )
    expected = {
        "echo/?animal=whale": "v1",
        "echo/?animal=dolphin": "v2",
        "echo/?animal=dolphin&color=blue": "v3",
        "echo/?animal=dog": "404",
        "echo/": "404",
    }
    assert mesh_site.answers(address, *expected) == expected


@pytest.mark.conformance("MeshHTTPRouteNamedRule")
def test_rules_with_and_without_a_name_in_the_mesh(mesh_site: Site) -> None:
    address = echo(
        mesh_site, rule_of("v1", matches=[path("/named")], name="rule-1"), rule_of("v2", matches=[path("/unnamed")])
    )
    assert mesh_site.answers(address, "echo/named", "echo/unnamed") == {"echo/named": "v1", "echo/unnamed": "v2"}


def marking(name: str, backend: str, **port: int) -> str:
    """Return a route of the Service `backend`; it sets the response header `x-header-set` to the route's name."""
    filters = [change("ResponseHeaderModifier", set=fields(X_Header_Set=name))]
    parent = {"group": "", "kind": "Service", "name": backend, **port}
    return edge_route(name, rule_of(backend, filters=filters), parent=parent)


@pytest.mark.conformance("MeshPorts")
def test_a_route_applies_to_the_port_of_its_parent_reference(mesh_site: Site) -> None:
    """A parent reference without a port selects all ports."""
    for name in ("one", "two"):
        mesh_site.serve(name, "v1", http=8080, other=8081)
    mesh_site.apply(marking("one", "one", port=8080), marking("two", "two"))

    def mark(name: str, port: int) -> str | None:
        answer = mesh_site.ask(mesh_site.address(name, port), f"{name}:{port}/")
        assert answer.status == 200
        return answer.headers.get("x-header-set")

    found = {(name, port): mark(name, port) for name in ("one", "two") for port in (8080, 8081)}
    assert found == {("one", 8080): "one", ("one", 8081): None, ("two", 8080): "two", ("two", 8081): "two"}


@pytest.mark.conformance("MeshFrontendHostname")
def test_the_address_of_a_service_selects_its_routes_for_any_host(mesh_site: Site) -> None:
    mesh_site.apply(marking("app", "v2"))
    one, two = (mesh_site.address(name) for name in ("v1", "v2"))
    answer = mesh_site.ask(two, "v1/")
    assert (answer.answered_by, answer.headers.get("x-header-set")) == ("v2", "app")
    answer = mesh_site.ask(one, "v2/")
    assert (answer.answered_by, answer.headers.get("x-header-set")) == ("v1", None)
