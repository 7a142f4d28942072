"""Regression tests: faults that random routing worlds found, each in one small world."""

import pytest
from tests.differential.test_routing import check
from tests.differential.worlds import Sent
from tests.properties.worlds import key_of, named

pytestmark = pytest.mark.e2e

TIME = {"creationTimestamp": "2026-01-01T00:00:00Z"}


def world(pattern):
    """Return a world with a Service `a`, whose requests with a matching header `x-a` are sent to `b`."""
    found = [
        named("HTTPRouteGroup", "default", "g", spec={"matches": [{"name": "m", "headers": {"x-a": pattern}}]}),
        named(
            "TrafficSplit",
            "default",
            "s",
            spec={
                "service": "a",
                "backends": [{"service": "b", "weight": 1}],
                "matches": [{"kind": "HTTPRouteGroup", "name": "g"}],
            },
        ),
    ]
    for number, name in enumerate("ab"):
        ports = [{"name": "http", "port": 8080}]
        found.append(named("Service", "default", name, spec={"clusterIP": f"address-{number + 1}", "ports": ports}))
        found.append(
            named(
                "EndpointSlice",
                "default",
                name,
                metadata={"labels": {"kubernetes.io/service-name": name}},
                addressType="IPv4",
                endpoints=[{"addresses": ["127.0.0.1"]}],
                ports=[{"name": "http", "port": f"member-{number}"}],
            )
        )
    return {key_of(obj): obj for obj in found}


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
    for authority in ("a.default:8080", "A.default:8080", "gone.default:8080"):
        check(lab, mesh, sent()._replace(via=via, authority=authority, headers=(("x-a", "1"), *headers)))


@pytest.mark.parametrize("host", ["a.default:8080", "A.default:8080"])
def test_a_rule_and_a_match_both_limit_the_path_for_hosts_in_any_case(lab, host):
    """Envoy first converts the host to lower case, then finds the route and applies the route's filters."""
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/a"}}],
        "backendRefs": [{"name": "a", "port": 8080}],
    }
    parent = {"group": "", "kind": "Service", "name": "a"}
    found = (
        named("HTTPRouteGroup", "default", "g", spec={"matches": [{"name": "m", "pathRegex": ".*b"}]}),
        named("HTTPRoute", "default", "r", metadata=TIME, spec={"parentRefs": [parent], "rules": [rule]}),
    )
    mesh = lab.serve(world("") | {key_of(obj): obj for obj in found}).mesh
    for target in ("/a/b", "/a", "/a?b", "/b"):
        check(lab, mesh, sent()._replace(via="proxy", authority=host, target=target))
