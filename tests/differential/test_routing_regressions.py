"""Regression tests: faults that random routing worlds found, each in one small world."""

import pytest
from tests.differential import edge
from tests.differential.routing_comparison import check, placed
from tests.differential.routing_expectation import expected
from tests.differential.worlds import Sent
from tests.draws import TIMES
from tests.make.objects import (
    Object,
    endpoint,
    endpoint_slice,
    external_backend,
    external_ref,
    http_route_group,
    path_match,
    port,
    route,
    rule,
    service,
    service_parent,
    split,
)

from headgate.resources.meta import Key
from headgate.resources.registry import key_of

pytestmark = pytest.mark.e2e

TIME = {"creationTimestamp": "2026-01-01T00:00:00Z"}


def world(pattern: str) -> dict[Key, Object]:
    """Return a world with a Service `a`, whose requests with a matching header `x-a` are sent to `b`."""
    objects = [
        http_route_group("g", {"m": {"headers": {"x-a": pattern}}}),
        split("a", {"b": 1}, name="s", matches=["g"]),
        *(service(name, clusterIP=f"address-{number}") for number, name in enumerate("ab", 1)),
        *(endpoint_slice(name, ["127.0.0.1"], {"http": f"member-{number}"}) for number, name in enumerate("ab")),
    ]
    return {key_of(written): written for written in objects}


def sent(*values):
    return Sent(
        service="default/a",
        port=8080,
        via="address",
        authority="a",
        method="GET",
        target="/",
        headers=tuple(("x-a", value) for value in values),
    )


def test_an_empty_expression_matches_the_empty_value(lab):
    mesh = lab.serve(world("")).mesh
    for values in ((), ("",), ("a",)):
        check(lab, mesh, sent(*values))


@pytest.mark.parametrize("pattern", ["a|b", "a,b", ",,b", ".*b"])
def test_repeated_headers_match_as_one_value(lab, pattern):
    mesh = lab.serve(world(pattern)).mesh
    for values in (("a", "b"), ("", "", "b"), ("b",), ("a", "a")):
        check(lab, mesh, sent(*values))


@pytest.mark.parametrize("target", ["*", "*a"])
@pytest.mark.parametrize("path", [".*", "[*]"])
def test_no_expression_matches_a_target_without_a_slash(lab, path, target):
    objects = world("")
    group = next(obj for obj in objects.values() if obj["kind"] == "HTTPRouteGroup")
    group["spec"]["matches"] = [{"name": "m", "pathRegex": path}]
    check(lab, lab.serve(objects).mesh, sent()._replace(method="OPTIONS", target=target))


@pytest.mark.parametrize("via", ["address", "proxy"])
@pytest.mark.parametrize(
    "headers",
    [
        [("connection", "x-a")],
        [("connection", "host")],
        [("connection", "content-length")],
        [("connection", "upgrade,x-a"), ("upgrade", "websocket")],
        [("connection", "upgrade,x-a"), ("upgrade", "other")],
        [("connection", "upgrade"), ("upgrade", "websocket"), ("te", "gzip")],
        [("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "websocket")],
        [("connection", "upgrade, http2-settings, x-a"), ("upgrade", "websocket"), ("te", "gzip")],
        [("x-forwarded-proto", "")],
        [("x-forwarded-proto", ""), ("x-forwarded-proto", "http")],
        [("expect", "100-continue")],
        [("transfer-encoding", "gzip")],
    ],
)
def test_routes_match_the_headers_that_backends_receive(lab, headers, via):
    """If the host has capitals, Envoy decides about upgrades before it finds a route."""
    mesh = lab.serve(world("1")).mesh
    for authority in ("a.default:8080", "a.default.:8080", "A.default:8080", "gone.default:8080"):
        check(lab, mesh, sent()._replace(via=via, authority=authority, headers=(("x-a", "1"), *headers)))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_server_may_ignore_the_offer_of_a_websocket(lab, method):
    """Envoy then announces chunks, and sends none after HEAD."""
    mesh = lab.serve(world("")).mesh
    offer = (("connection", "upgrade"), ("upgrade", "TLS/1.3, WebSocket"))
    check(lab, mesh, sent()._replace(method=method, headers=offer))


@pytest.mark.parametrize("host", ["a.default:8080", "A.default:8080"])
def test_a_rule_and_a_match_both_limit_the_path_for_hosts_in_any_case(lab, host):
    """Envoy first converts the host to lower case, then finds the route and applies the route's filters."""
    more = (
        http_route_group("g", {"m": {"pathRegex": ".*b"}}),
        route("r", rule({"a": 1}, matches=[path_match("/a")]), parents=[service_parent("a")], metadata=TIME),
    )
    mesh = lab.serve(world("") | {key_of(written): written for written in more}).mesh
    for target in ("/a/b", "/a", "/a?b", "/b"):
        check(lab, mesh, sent()._replace(via="proxy", authority=host, target=target))


def test_a_pod_that_two_ports_of_its_service_lead_to_has_each_name_once(lab):
    """Two scopes with one name would be rejected, with all other scopes of the response."""
    places = [endpoint("127.0.0.1", hostname="h0")]
    headless = service("a", port(8080, "one"), port(9090, "two"), clusterIP="None")
    objects = [headless, endpoint_slice("a", places, {"one": "member-0", "two": "member-0"})]
    mesh = lab.serve({key_of(written): written for written in objects}).mesh
    for tunnel in ("", "h0.a:member-0"):
        asked = sent()._replace(via="tunnel" if tunnel else "proxy", authority="h0.a.default:member-0", tunnel=tunnel)
        check(lab, mesh, placed(lab, asked))


def test_the_name_of_a_service_comes_before_that_of_a_pod_in_the_namespace_svc(lab):
    """`h0.a.svc` is the Service `h0` of the namespace `a` (Kubernetes DNS specification, 2.3.1)."""
    name = "h0.a.svc:{}"
    number = lab.filled_in("member-0")
    objects = [
        service("a", port(8080, "http"), namespace="svc", clusterIP="None"),
        endpoint_slice("a", [endpoint("127.0.0.1", hostname="h0")], {"http": "member-0"}, namespace="svc"),
        service("h0", port(number, "http"), namespace="a", clusterIP="address-1"),
        endpoint_slice("h0", ["127.0.0.1"], {"http": "member-1"}, namespace="a"),
    ]
    mesh = lab.serve({key_of(written): written for written in objects}).mesh
    asked = sent()._replace(via="proxy", authority=name.format(number))
    assert expected(mesh, asked, name_of=lab.member, draws=lab.draws).shares == {"member 1": 1}
    check(lab, mesh, asked)


def test_an_http_1_0_request_that_removes_its_host_gets_the_default_one(lab):
    mesh = lab.serve(world(".*")).mesh
    for version in ("1.0", "1.1"):
        check(lab, mesh, sent()._replace(version=version, headers=(("connection", "host"),)))


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_request_may_have_no_host(lab, version):
    """Examples of plans for any host have none."""
    mesh = lab.serve(world(".*")).mesh
    for via in ("address", "proxy"):
        check(lab, mesh, sent()._replace(version=version, via=via, authority=""))


@pytest.mark.parametrize("value", ["é", "\udce9"])
@pytest.mark.parametrize("pattern", [".", "..", "é", r"\xe9", r"[^\x00-\x7f]+"])
def test_expressions_match_bytes(lab, pattern, value):
    """In UTF-8, the first value has two bytes, and the second one is not valid."""
    check(lab, lab.serve(world(pattern)).mesh, sent(value))


@pytest.mark.parametrize("via", ["address", "tunnel"])
def test_connections_to_a_service_with_tls_routes_follow_their_server_name(lab, via):
    """Random worlds have few of them (`edge.NAMED`)."""
    names = {"a.example.com": "b", "*.example.com": "c", "other": "gone"}
    ports = {"named": "member-0"}, {"named": "member-1"}, {"named": "member-2"}
    objects = [
        *(
            service(name, port(edge.NAMED, "named", app="tls"), clusterIP=f"address-{n}")
            for n, name in enumerate("abc", 1)
        ),
        *(endpoint_slice(name, ["127.0.0.1"], port) for name, port in zip("abc", ports, strict=True)),
        *(
            route(
                f"r{n}",
                rule({backend: 1}, port=edge.NAMED),
                parents=[service_parent("a")],
                kind="TLSRoute",
                hostnames=[name],
                metadata=TIME,
            )
            for n, (name, backend) in enumerate(names.items())
        ),
    ]
    mesh = lab.serve({key_of(written): written for written in objects}).mesh
    responders = {}
    for name in (*edge.OF_NAMED, "unrouted.org"):
        asked = sent()._replace(via=via, port=edge.NAMED, server_name=name)
        if via == "tunnel":
            asked = asked._replace(tunnel=f"a.default:{edge.NAMED}")
        (responders[name],) = expected(mesh, asked, name_of=lab.member, draws=lab.draws).shares
        check(lab, mesh, asked)
    assert responders == {
        **dict.fromkeys(("a.example.com", "A.Example.com"), "member 1"),
        **dict.fromkeys(("b.example.com", "a.b.example.com"), "member 2"),
        **dict.fromkeys(("other", "", "unrouted.org"), "closed"),
    }


def test_a_proxy_calls_a_server_over_tls_with_the_tls_of_the_client_inside(lab):
    """Members answered no handshake inside of their connection with a proxy."""
    external = external_backend(
        "x-tls", "x-tls.example.org", tls={"mode": "ServerOnly", "validation": edge.validation(edge.AUTHORITY)}
    )
    external["spec"]["port"] = {"port": "member-1", "name": "web"}
    objects = [
        *edge.edge_gateway("address-100"),
        external,
        service("a", port(edge.NAMED, "named", app="tls"), clusterIP="address-1"),
        endpoint_slice("a", ["127.0.0.1"], {"named": "member-0"}),
        route("r", {"backendRefs": [external_ref("x-tls")]}, parents=[service_parent("a")], kind="TCPRoute"),
    ]
    mesh = lab.serve({key_of(written): written for written in objects}).mesh
    asked = sent()._replace(port=edge.NAMED, server_name="a.default")
    assert expected(mesh, asked, name_of=lab.member, draws=lab.draws).shares.keys() == {"member 1"}
    check(lab, mesh, asked)


def sticky_world(by: str) -> dict[Key, Object]:
    """Return a world with a Service `a`, whose users stay at `b` or at `c`."""
    objects = [
        split("a", {"b": 1, "c": 1}, name="s", annotations={"headgate.dev/sticky": by}),
        *(service(name, clusterIP=f"address-{number}") for number, name in enumerate("abc", 1)),
        *(endpoint_slice(name, ["127.0.0.1"], {"http": f"member-{number}"}) for number, name in enumerate("abc")),
    ]
    return {key_of(written): written for written in objects}


@pytest.mark.parametrize(
    "lines", [["firefox", "side=1"], ["a=b", "side=1"], ["side=1", "a=b"], ["side=", "a=b"], ["a=b; side=1"]]
)
def test_the_cookie_of_a_user_may_be_in_any_cookie_header(lab, lines):
    mesh = lab.serve(sticky_world("cookie:side")).mesh
    for _ in range(TIMES):  # a wrong proxy would draw a backend each time
        check(lab, mesh, sent()._replace(headers=tuple(("cookie", line) for line in lines)))


def test_a_user_is_known_by_its_address_in_tunnels_too(lab):
    mesh = lab.serve(sticky_world("source")).mesh
    for via, tunnel in (("address", ""), ("proxy", ""), ("tunnel", "a.default:8080"), ("tunnel", "A.default:8080")):
        for _ in range(TIMES):
            check(lab, mesh, sent()._replace(via=via, authority="a.default:8080", tunnel=tunnel))
