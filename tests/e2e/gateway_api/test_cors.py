"""The CORS filter of HTTPRoutes: what the conformance suite tests for it, and what browsers need besides."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.e2e.gateway_api.objects import edge_gateway, edge_route, path, redirect, rule_of
from tests.e2e.gateway_api.site import Site
from tests.wire import Address, Answer

FOO, BAR = "https://www.foo.com", "https://www.bar.com"
FAR, OTHER = "https://foobar.com", "https://other.foo.com"
HEADERS = "x-header-1,x-header-2"
MANY = {
    "allowOrigins": [FOO, "https://*.bar.com"],
    "allowMethods": ["GET", "OPTIONS"],
    "allowHeaders": HEADERS.split(","),
    "exposeHeaders": ["x-header-3", "x-header-4"],
    "allowCredentials": True,
    "maxAge": 3600,
}
ALL = {"allowOrigins": ["*"], "allowMethods": ["*"], "allowHeaders": ["*"]}
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "/many": MANY,
    "/methods": {"allowOrigins": [FOO], "allowMethods": ["*"]},
    "/origin": {"allowOrigins": ["*"], "allowMethods": ["PUT"]},
    "/all": {**ALL, "allowCredentials": True},
    "/all-without-credentials": ALL,
}


def rule_with(policy: Mapping[str, Any], *matches: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a rule with a CORS filter, whose backend is v1."""
    return rule_of("v1", matches=list(matches), filters=[{"type": "CORS", "cors": policy}])


def allowed(answer: Answer) -> dict[str, str]:
    """Return what a response says to browsers, without spaces: the values by the ends of the headers' names."""
    beginning = "access-control-"
    return {
        name.removeprefix(beginning): value.replace(" ", "")
        for name, value in answer.headers.items()
        if name.startswith(beginning)
    }


def preflight(site: Site, address: Address, url: str, origin: str, announced: str) -> dict[str, str]:
    """Send a preflight, which the backend must not receive; return what the response says to browsers.

    It announces a method with headers: `PUT x-a,x-b`.
    """
    before = site.backends["v1"].requests
    method, _, headers = announced.partition(" ")
    sent = {"origin": origin, "access-control-request-method": method, "access-control-request-headers": headers}
    answer = site.ask(address, url, method="OPTIONS", **{name: value for name, value in sent.items() if value})
    assert (answer.status, answer.body) == (200, "")
    assert site.backends["v1"].requests == before
    return allowed(answer)


@pytest.mark.conformance("HTTPRouteCORS")
def test_preflights_are_answered_and_responses_name_the_origin_that_may_read_them(site: Site) -> None:
    rules = [rule_with(policy, path(target, "Exact")) for target, policy in POLICIES.items()]
    site.apply(edge_gateway(), edge_route("cors", *rules))
    address = site.accepted("cors")
    for origin in (FOO, BAR, "https://xpto.www.bar.com"):
        assert preflight(site, address, "a.com/many", origin, f"GET {HEADERS}") == {
            "allow-origin": origin,
            "allow-methods": "GET,OPTIONS",
            "allow-headers": HEADERS,
            "allow-credentials": "true",
            "max-age": "3600",
            "expose-headers": "x-header-3,x-header-4",
        }
    assert "allow-origin" not in preflight(site, address, "a.com/many", FAR, "GET")
    for origin in (FOO, BAR):
        answer = site.ask(address, "a.com/many", origin=origin)
        assert (answer.answered_by, allowed(answer)["allow-origin"]) == ("v1", origin)
    answer = site.ask(address, "a.com/many", origin=FAR)
    assert (answer.answered_by, allowed(answer)) == ("v1", {})
    assert preflight(site, address, "a.com/methods", FOO, "POST") == {
        "allow-origin": FOO,
        "allow-methods": "POST",
        "max-age": "5",
    }
    for origin in (FAR, f"{FAR}:12345"):
        put = preflight(site, address, "a.com/origin", origin, "PUT")
        assert (put["allow-origin"], put["allow-methods"]) == (origin, "PUT")
        assert "allow-credentials" not in put
        assert allowed(site.ask(address, "a.com/origin", method="PUT", origin=origin)) == {"allow-origin": origin}
    for target, credentials in (("all", {"allow-credentials": "true"}), ("all-without-credentials", {})):
        wide = {"allow-origin": OTHER, **credentials}
        announced = {"allow-methods": "PUT", "allow-headers": HEADERS, "max-age": "5"}
        assert preflight(site, address, f"a.com/{target}", OTHER, f"PUT {HEADERS}") == {**wide, **announced}
        assert allowed(site.ask(address, f"a.com/{target}", origin=OTHER, cookie="foo=bar")) == wide


def test_a_rule_for_a_method_answers_its_preflights(site: Site) -> None:
    """The method of a preflight is OPTIONS. Preflights of other methods and other requests with OPTIONS fit no rule."""
    site.apply(edge_gateway(), edge_route("cors", rule_with(POLICIES["/origin"], path("/", method="PUT"))))
    address = site.accepted("cors")
    assert preflight(site, address, "a.com/", FOO, "PUT")["allow-origin"] == FOO
    answer = site.ask(address, "a.com/", method="PUT", origin=FOO)
    assert (answer.answered_by, answer.headers["vary"]) == ("v1", "Origin")
    announced = {"origin": FOO, "access-control-request-method": "GET"}
    assert site.ask(address, "a.com/", method="OPTIONS", **announced).status == 404
    assert site.ask(address, "a.com/", method="OPTIONS").status == 404


def test_redirects_and_failures_have_the_policy_too(site: Site) -> None:
    """Envoy's filter does nothing on a route without a cluster; a browser follows no redirect of a preflight."""
    policy = {"type": "CORS", "cors": MANY}
    moved = redirect("/moved", hostname="new.com")
    moved = {**moved, "filters": [*moved["filters"], policy]}
    zero = rule_of("v1:0", matches=[path("/zero")], filters=[policy])
    site.apply(edge_gateway(), edge_route("cors", moved, zero))
    address = site.accepted("cors")
    readable = {"allow-origin": BAR, "allow-credentials": "true", "expose-headers": "x-header-3,x-header-4"}
    for target, status in (("moved", 302), ("zero", 500)):
        assert preflight(site, address, f"a.com/{target}", BAR, "GET")["allow-origin"] == BAR
        assert "allow-origin" not in preflight(site, address, f"a.com/{target}", FAR, "GET")
        answer = site.ask(address, f"a.com/{target}", origin=BAR)
        assert (answer.status, allowed(answer)) == (status, readable)
        answer = site.ask(address, f"a.com/{target}", origin=FAR)
        assert (answer.status, allowed(answer)) == (status, {})
        assert site.ask(address, f"a.com/{target}").status == status


def test_clients_in_the_mesh_get_the_answers_of_the_filter(site: Site) -> None:
    """The filter belongs to the route, whose parent is a Service."""
    mesh = site.in_mesh()
    mesh.serve("echo", "v1")
    parent = {"group": "", "kind": "Service", "name": "echo", "port": 8080}
    mesh.apply(edge_route("cors", rule_with(POLICIES["/origin"]), parent=parent))
    mesh.wait_for_parent("httproute/cors", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
    assert preflight(mesh, mesh.address("echo"), "echo/", FOO, "PUT")["allow-origin"] == FOO
