"""The filter ExternalAuth: an authorization server decides about each request (GEP-1494)."""

from collections.abc import Mapping
from typing import Any

from tests.e2e.gateway_api.objects import edge_gateway, edge_route, path, redirect, rule_of
from tests.e2e.gateway_api.site import Site
from tests.wire import RESET

FOO = "https://www.foo.com"
SEEN = "x-allowed-by"


def asking(server: str, protocol: str = "HTTP", port: int = 8080, **more: Any) -> Mapping[str, Any]:
    """Return the filter for a server; `more` has further fields."""
    settings = {protocol.lower(): {}, **more}
    return {
        "type": "ExternalAuth",
        "externalAuth": {"protocol": protocol, "backendRef": {"name": server, "port": port}, **settings},
    }


def guarded(target: str, *filters: Mapping[str, Any], backend: str = "v1") -> Mapping[str, Any]:
    """Return a rule for a path with some filters, whose backend is v1."""
    return rule_of(backend, matches=[path(target, "Exact")], filters=list(filters))


def test_a_server_over_http_allows_requests_and_its_refusal_is_the_response(site: Site) -> None:
    site.apply(edge_gateway(), edge_route("auth", guarded("/a", asking("v2"))))
    address, server = site.accepted("auth"), site.backends["v2"]
    server.headers = {SEEN: "v2", "transfer-hint": "1"}
    assert site.ask(address, "a.com/a", x_user="ann", authorization="Bearer x").body == "v1\n"
    asked, passed = server.last, site.backends["v1"].last
    assert (asked.target, asked.headers["host"], asked.headers["authorization"]) == ("/a", "a.com", "Bearer x")
    assert "x-user" not in asked.headers
    assert (passed.headers[SEEN], passed.headers["transfer-hint"], passed.headers["x-user"]) == ("v2", "1", "ann")
    assert (passed.target, passed.headers["host"], passed.headers.get("content-length")) == ("/a", "a.com", None)
    reached = site.backends["v1"].requests
    server.headers, server.faults = {"www-authenticate": "Basic"}, ["401 Unauthorized", "302 Found"]
    answer = site.ask(address, "a.com/a")
    assert (answer.status, answer.body, answer.headers["www-authenticate"]) == (401, "v2\n", "Basic")
    assert site.ask(address, "a.com/a").status == 302
    assert site.backends["v1"].requests == reached


def test_the_settings_of_a_server_select_what_it_and_the_backend_get(site: Site) -> None:
    settings = {"path": "/check/", "allowedHeaders": ["X-User"], "allowedResponseHeaders": ["X-Allowed-By"]}
    site.apply(edge_gateway(), edge_route("auth", guarded("/a", asking("v2", http=settings))))
    address, server = site.accepted("auth"), site.backends["v2"]
    server.headers = {SEEN: "v2", "x-further": "1"}
    assert site.ask(address, "a.com/a?q=1", x_user="ann", x_other="1").status == 200
    assert (server.last.target, server.last.headers["x-user"]) == ("/check/a?q=1", "ann")
    assert "x-other" not in server.last.headers
    passed = site.backends["v1"].last.headers
    assert (passed[SEEN], passed.get("x-further"), passed["x-other"]) == ("v2", None, "1")


def test_a_server_over_grpc_decides(site: Site) -> None:
    site.host.start("auth", "ann", port=9000, namespace=site.namespace)
    site.apply(
        edge_gateway(),
        edge_route(
            "auth",
            guarded("/a", asking("ann", "GRPC", 9000)),
            guarded("/some", asking("ann", "GRPC", 9000, grpc={"allowedHeaders": ["x-user"]})),
        ),
    )
    address = site.accepted("auth")
    assert site.ask(address, "a.com/a", x_other="ann").status == 200
    assert site.backends["v1"].last.headers[SEEN] == "ann"
    assert site.ask(address, "a.com/a", x_user="bob").status == 403
    assert site.ask(address, "a.com/some", x_other="ann").status == 403
    assert site.ask(address, "a.com/some", x_user="ann").status == 200


def test_without_a_decision_no_request_passes_and_the_route_names_the_reason(site: Site) -> None:
    site.apply(edge_gateway(), edge_route("auth", guarded("/a", asking("v2")), rule_of("v3")))
    address, server = site.accepted("auth"), site.backends["v2"]
    server.faults = ["500 Broken", RESET]
    assert [site.ask(address, "a.com/a").status for _ in range(2)] == [403, 403]
    site.apply(edge_route("auth", guarded("/a", asking("missing")), rule_of("v3")))
    site.wait_for_parent("httproute/auth", Accepted="Accepted", ResolvedRefs="BackendNotFound")
    site.host.settle()
    assert site.answers(address, "a.com/a", "a.com/b") == {"a.com/a": "500", "a.com/b": "v3"}
    assert not site.backends["v1"].requests


def test_redirects_need_permission_and_preflights_do_not(site: Site) -> None:
    cors = {"type": "CORS", "cors": {"allowOrigins": [FOO]}}
    site.apply(
        edge_gateway(),
        edge_route(
            "auth",
            guarded("/cors", cors, asking("v2")),
            {
                "matches": [path("/old", "Exact")],
                "filters": [*redirect("/old", scheme="https")["filters"], asking("v2")],
            },
        ),
    )
    address, server = site.accepted("auth"), site.backends["v2"]
    preflight = {"origin": FOO, "access_control_request_method": "GET"}
    assert site.ask(address, "a.com/cors", method="OPTIONS", **preflight).headers["access-control-allow-origin"] == FOO
    assert not server.requests
    server.faults = ["403 Forbidden", "403 Forbidden"]
    assert site.answers(address, "a.com/cors", "a.com/old") == {"a.com/cors": "403", "a.com/old": "403"}
    assert site.ask(address, "a.com/old").status == 302


def test_every_spelling_of_a_host_needs_permission(site: Site) -> None:
    """Filters that look for the host's routes select another route than Envoy at first."""
    rule = guarded("/a", asking("v2"))
    site.apply(edge_gateway(), edge_route("named", rule, hosts=["a.com"]), edge_route("wild", rule, hosts=["*.b.com"]))
    address, server = site.accepted("named", "wild"), site.backends["v2"]
    hosts = ("a.com", "A.com", "a.com.", "a.com:18080", "x.b.com", "X.B.COM.")
    server.faults = ["403 Forbidden" for _ in hosts]
    assert {site.ask(address, f"{host}/a").status for host in hosts} == {403}
    assert server.requests == len(hosts)


def test_no_spelling_of_a_path_passes_the_server(site: Site) -> None:
    """A backend that normalizes paths would read each of them as one below /admin."""
    rule = rule_of("v1", matches=[path("/admin")], filters=[asking("v2")])
    site.apply(edge_gateway(), edge_route("auth", rule, rule_of("v1")))
    address = site.accepted("auth")
    spellings = ("//admin/x", "/a/../admin/x", "/%61dmin/x", "/admin%2fx")
    assert {site.ask(address, f"a.com{target}").status for target in spellings} == {400}
    assert not site.backends["v1"].requests
    assert site.ask(address, "a.com/na%C3%AFve?next=//admin").body == "v1\n"


def test_clients_in_the_mesh_need_permission_for_a_service(site: Site) -> None:
    route = edge_route(
        "auth", guarded("/a", asking("v2")), parent={"kind": "Service", "group": "", "name": "v1", "port": 8080}
    )
    site.in_mesh().apply(route)
    site.wait_for_parent("httproute/auth", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
    site.host.settle()
    address = site.host.address("v1", 8080, site.namespace)
    site.backends["v2"].faults = ["403 Forbidden"]
    assert site.ask(address, "v1/a").status == 403
    assert site.ask(address, "v1/a").body == "v1\n"
