"""Tests of the resources that a build encodes or reuses, and of their versions."""

import pytest

from headgate.envoy import names, pb
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES
from headgate.envoy.encode import Memo, encode, encode_resource
from headgate.envoy.view import Node, project
from headgate.model.routing import Endpoint, Endpoints, Frontend, Mesh, PortRef, Route, RouteTable, Split, Target

GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
MANY = 50


def ref(number):
    return PortRef(f"default/s{number}", 80)


def mesh(blue=9, green=1, *, services=MANY, **frontend):
    """Return a mesh with the Services s0, s1 and so on; s0 is split between s1 and s2."""
    targets = (Target(ref=ref(1), weight=blue), Target(ref=ref(2), weight=green))
    plain = [
        RouteTable(ref=ref(n), routes=(Route(split=Split(targets=(Target(ref=ref(n), weight=1),))),))
        for n in range(1, services)
    ]
    return Mesh(
        domain="cluster.local",
        frontends=tuple(
            Frontend(**{"service": ref(n).service, "address": f"10.0.0.{n}", "ports": (80,), **frontend})
            for n in range(services)
        ),
        tables=(RouteTable(ref=ref(0), routes=(Route(split=Split(targets=targets)),)), *plain),
        endpoints=tuple(
            Endpoints(ref=ref(n), ready=(Endpoint(address=f"10.1.0.{n}", port=80),)) for n in range(services)
        ),
    )


def build(memo, world):
    memo.begin_build()
    return encode(project(world, GATEWAY), memo)


@pytest.mark.parametrize("services", [5, MANY])
def test_a_weight_change_encodes_one_resource_whatever_the_number_of_services(services):
    memo = Memo()
    before = build(memo, mesh(services=services))
    cost = memo.encoded
    after = build(memo, mesh(8, 2, services=services))
    assert memo.encoded == cost + 1
    changed = [
        (type_url, name)
        for type_url, resources in after.items()
        for name, item in resources.items()
        if before[type_url][name] != item
    ]
    assert changed == [(ENDPOINTS, "outbound/default/s0/80")]


def test_two_proxies_share_encoded_resources():
    memo = Memo()
    memo.begin_build()
    one = encode(project(mesh(), GATEWAY), memo)
    two = encode(project(mesh(), Node(id="other", proxy_address="127.0.0.2", proxy_port=15001)), memo)
    for type_url in (CLUSTER, ENDPOINTS, ROUTES, SCOPES):
        assert all(two[type_url][name] is item for name, item in one[type_url].items())
    assert one[LISTENER]["proxy"] != two[LISTENER]["proxy"]


def test_a_resource_that_two_builds_did_not_use_is_dropped():
    memo = Memo()
    build(memo, mesh())
    cost = memo.encoded
    build(memo, mesh(8, 2))
    build(memo, mesh(8, 2))
    build(memo, mesh())
    assert memo.encoded == cost + 2


def test_a_version_is_a_digest_of_the_content():
    one, same, other = (encode_resource("a", pb.Cluster(name=name)) for name in ("a", "a", "b"))
    assert one == same
    assert one.digest != other.digest
    assert pb.Resource.FromString(one.body).version == one.digest


def test_a_route_needs_the_clusters_that_it_names():
    assert build(Memo(), mesh())[ROUTES]["outbound/default/s0/80"].needs == {"outbound/default/s0/80"}


def test_a_port_that_cannot_be_bound_has_scopes_but_no_listener():
    config = build(Memo(), mesh(unbindable=(80,)))
    assert list(config[LISTENER]) == [names.SCOPES, names.TUNNEL, names.PROXY]
    assert "host/default/s0/80/s0.default" in config[SCOPES]


def test_a_headless_service_has_scopes_but_no_listener():
    config = build(Memo(), mesh(address=""))
    assert list(config[LISTENER]) == [names.SCOPES, names.TUNNEL, names.PROXY]
    assert "host/default/s0/80/s0.default" in config[SCOPES]


def test_a_gateway_without_an_http_proxy_listener_has_no_scopes():
    config = encode(project(mesh(), Node(id="gateway")), Memo())
    assert config[SCOPES] == {}
    assert "proxy" not in config[LISTENER]
