"""Requests and datagrams to the Gateway of random worlds, in worlds that are not random."""

import pytest
from tests.differential import edge
from tests.differential.backends import DECISIONS, DECISIVE, PERMIT
from tests.differential.gateway_lab import GatewayLab
from tests.differential.lab import Objects
from tests.differential.requests import address_of, head
from tests.differential.routing_comparison import check
from tests.differential.routing_expectation import expected
from tests.differential.worlds import Sent
from tests.make.objects import Object, backend_ref, endpoint_slice, port, route, rule, service

from headgate.resources.registry import key_of

pytestmark = pytest.mark.e2e

TIME = "2026-01-01T00:00:00Z"


def world(*objects: Object) -> Objects:
    """Return a world with the Gateway and the Services `a` and `b`, each with a TCP port and a UDP port."""
    services = [
        service(
            name,
            port(8080, "http"),
            port(edge.DATAGRAMS, "datagrams") | {"protocol": "UDP"},
            clusterIP=f"address-{number + 1}",
        )
        for number, name in enumerate("ab")
    ]
    slices = []
    for number, name in enumerate("ab"):
        written = endpoint_slice(name, ["127.0.0.1"], {"http": f"member-{number}", "datagrams": f"member-{number}"})
        written["ports"][1]["protocol"] = "UDP"
        slices.append(written)
    return {key_of(written): written for written in (*edge.edge_gateway("address-100"), *services, *slices, *objects)}


def sent(number: int, host: str, client: str = "") -> Sent:
    return Sent(
        service="default/a",
        port=number,
        via="gateway",
        authority=host,
        method="GET",
        target="/",
        headers=(),
        server_name=host if number in edge.SECURE else "",
        client=client,
    )


def test_datagrams_of_a_backend_that_cannot_be_used_are_dropped(lab: GatewayLab) -> None:
    backends = [backend_ref("a", edge.DATAGRAMS), backend_ref("gone", edge.DATAGRAMS), backend_ref("b", 8080)]
    mesh = lab.serve(world(edge.udp_route("u", TIME, backends))).mesh
    request = sent(edge.DATAGRAMS, "a.example.com")
    assert len(expected(mesh, request, name_of=lab.member, draws=lab.draws).shares) == 2
    check(lab, mesh, request)


@pytest.mark.parametrize("backends", [["a"], ["a", "b"], ["gone", "a"], []])
def test_connections_go_where_the_tls_route_of_their_name_sends_them(lab: GatewayLab, backends: list[str]) -> None:
    """The names `a` and `b` belong to listeners that pass TLS on, end it, or read requests."""
    refs = [backend_ref(name) for name in backends]
    several = [edge.TLS_HOSTNAMES[0], edge.TLS_HOSTNAMES[1]]
    written = [
        route(f"r{n}", {"backendRefs": refs}, parents=[{"name": edge.GATEWAY}], kind="TLSRoute", hostnames=list(hosts))
        for n, hosts in enumerate(several)
    ]
    mesh = lab.serve(world(*written)).mesh
    for host in edge.SERVER_NAMES:
        check(lab, mesh, sent(8447, host))


@pytest.mark.parametrize("client", edge.CLIENTS)
def test_a_port_accepts_the_clients_with_a_certificate_of_its_authority(lab: GatewayLab, client: str) -> None:
    parents = [{"name": edge.GATEWAY}, {"kind": "ListenerSet", "name": edge.SET}]
    objects = [edge.listener_set(TIME), route("r", rule({"a": 1}), parents=parents)]
    mesh = lab.serve(world(*objects)).mesh
    for number in (8443, 8446, 8448, 8001, 8003):
        for host in ("a.example.com", "b.example.com"):
            check(lab, mesh, sent(number, host, client))


SESSION = {"sessionPersistence": {"sessionName": "own"}}
PER_BACKEND = [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-n", "value": "1"}]}}]


@pytest.mark.parametrize("filters", [[], PER_BACKEND])
def test_requests_with_a_token_stay_at_an_endpoint(lab: GatewayLab, filters: list[Object]) -> None:
    backends = [backend_ref("a", weight=3, filters=filters), backend_ref("b")]
    written = route("r", {"backendRefs": backends, **SESSION}, parents=[{"name": edge.GATEWAY}])
    check(lab, lab.serve(world(written)).mesh, sent(8000, "a.example.com"))


@pytest.mark.parametrize("credentials", [False, True])
def test_the_cookie_of_a_session_over_tls_is_for_tls(lab: GatewayLab, *, credentials: bool) -> None:
    """Other websites may use it if the CORS policy of its rule allows their credentials."""
    cors = {"type": "CORS", "cors": {"allowOrigins": ["https://a.org"], "allowCredentials": credentials}}
    written = route("r", rule({"a": 1}, filters=[cors], **SESSION), parents=[{"name": edge.GATEWAY}])
    mesh = lab.serve(world(written)).mesh
    for number in (8000, 8443):
        check(lab, mesh, sent(number, "a.example.com"))


def test_a_drained_backend_without_endpoints_keeps_no_sessions(lab: GatewayLab) -> None:
    """Its filters give it a cookie of its own, whose requests would get 503 if they still went there."""
    request = sent(8000, "a.example.com")
    drained, served = (
        world(
            route(
                "r",
                {"backendRefs": [backend_ref("a", weight=weight, filters=PER_BACKEND), backend_ref("b")], **SESSION},
                parents=[{"name": edge.GATEWAY}],
            )
        )
        for weight in (0, 1000)
    )
    where = address_of(lab.serve(served).mesh, request, lab)
    assert where
    response = lab.send(where, head(request), 12).heads["member 0"]
    assert response
    token = ("cookie", response.get("set-cookie").partition(";")[0])
    empty = {
        key: written | {"endpoints": []} if (key.kind, key.name) == ("EndpointSlice", "a") else written
        for key, written in drained.items()
    }
    again = head(request._replace(headers=(token,)))
    for objects, member in ((drained, "member 0"), (empty, "member 1")):
        lab.serve(objects)
        assert lab.send(where, again, 6).counted.keys() == {member}


@pytest.mark.parametrize("server", ["b", "gone"])
def test_a_server_decides_about_requests(lab: GatewayLab, server: str) -> None:
    asked = {
        "protocol": "HTTP",
        "backendRef": backend_ref(server),
        "http": {"path": DECISIONS, "allowedHeaders": [DECISIVE], "allowedResponseHeaders": [PERMIT]},
    }
    written = route(
        "r", rule({"a": 1}, filters=[{"type": "ExternalAuth", "externalAuth": asked}]), parents=[{"name": edge.GATEWAY}]
    )
    mesh = lab.serve(world(written)).mesh
    for value in ("1", "a"):
        check(lab, mesh, sent(8000, "a.example.com")._replace(headers=((DECISIVE, value),)))


@pytest.mark.parametrize("authority", [edge.AUTHORITY, "gone"])
def test_a_gateway_calls_servers_over_tls(lab: GatewayLab, authority: str) -> None:
    policy = edge.backend_policy("p", TIME, ["a"], authority)
    parents = [{"name": edge.GATEWAY}]
    ended = route(
        "tls", {"backendRefs": [backend_ref("a")]}, parents=parents, kind="TLSRoute", hostnames=["*.example.com"]
    )
    mesh = lab.serve(world(policy, ended, route("r", rule({"a": 1}), parents=parents))).mesh
    for number in (8000, 8443, 8447):
        check(lab, mesh, sent(number, "a.b.example.com"))
