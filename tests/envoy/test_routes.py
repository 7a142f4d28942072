"""Route configurations: matches, mirrors, shares that get errors, and unmatched requests."""

import pytest

from headgate.envoy import names, pb
from headgate.envoy.config import CLUSTER, ROUTES
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project
from headgate.model.requests import Match, Path, Query, Redirect, Text
from headgate.model.routing import (
    Broken,
    Endpoint,
    Endpoints,
    Frontend,
    Mesh,
    Mirror,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
    Target,
    Timeouts,
)
from headgate.resources.meta import Key

WEB, COPIES = PortRef("default/web", 80), PortRef("default/copies", 80)
RULE = Key("gateway.networking.k8s.io", "HTTPRoute", "default", "shop")
TO_WEB = Split(targets=(Target(ref=WEB, weight=1),))


def config(*routes, protocol=Protocol.HTTP):
    mesh = Mesh(
        domain="cluster.local",
        frontends=(Frontend(service=WEB.service, address="10.0.0.1", ports=(80,)),),
        tables=(
            RouteTable(ref=WEB, routes=routes),
            RouteTable(ref=COPIES, routes=(Route(split=Split(targets=())),), protocol=protocol),
        ),
        endpoints=tuple(Endpoints(ref=ref, ready=(Endpoint(address="10.1.0.1", port=80),)) for ref in (WEB, COPIES)),
    )
    return encode(project(mesh, Node(id="gateway")), Memo())


def decoded(encoded, message):
    return message.FromString(pb.Resource.FromString(encoded.body).resource.value)


def routes(*given):
    return decoded(config(*given)[ROUTES][names.outbound(WEB)], pb.RouteConfiguration).virtual_hosts[0].routes


@pytest.mark.parametrize(
    ("value", "field", "rendered"),
    [("/a", "path_separated_prefix", "/a"), ("/a/", "path_separated_prefix", "/a"), ("/", "prefix", "/")],
)
def test_a_prefix_matches_whole_path_segments(value, field, rendered):
    route, *_ = routes(Route(split=TO_WEB, match=Match(path=Path(kind="prefix", value=value))))
    assert route.match.WhichOneof("path_specifier") == field
    assert getattr(route.match, field) == rendered


def test_query_parameters_combine_with_every_kind_of_path():
    query = (Query(name="x", text=Text(value="1")),)
    for kind in ("exact", "prefix", "regex"):
        route, *_ = routes(Route(split=TO_WEB, match=Match(path=Path(kind=kind, value="/a"), query=query)))
        assert [item.name for item in route.match.query_parameters] == ["x"]


@pytest.mark.parametrize(
    ("match", "answers"),
    [
        (Match(), [0, 0]),
        (Match(path=Path(kind="prefix", value="/")), [0, 0]),
        (Match(path=Path(kind="prefix", value="/a")), [0, 0, 404]),
        (Match(methods=("GET",)), [0, 404]),
    ],
)
def test_a_service_answers_unmatched_requests_with_its_own_404(match, answers):
    found = routes(Route(split=TO_WEB, match=match))
    assert [route.direct_response.status for route in found] == answers


@pytest.mark.parametrize(
    ("methods", "resets"),
    [
        ((), [False, True]),
        (("GET", "QUERY"), [True, False]),
        (("POST", "LIST"), [False, False]),
        (("GET", "POST"), [False, True]),
    ],
)
def test_only_routes_of_idempotent_methods_repeat_requests_after_a_reset(methods, resets):
    """D30. The last route of a Service with conditions answers 404."""
    found = routes(Route(split=TO_WEB, match=Match(methods=methods)))
    conditions = [route.route.retry_policy.retry_on.split(",") for route in found]
    assert ["reset" in several for several in conditions][:2] == resets


def test_after_a_timeout_no_request_is_repeated():
    (route,) = routes(Route(split=TO_WEB, timeouts=Timeouts(backend=500)))
    assert "reset" not in route.route.retry_policy.retry_on.split(",")


def test_a_share_that_is_answered_with_500_needs_no_cluster():
    split = Split(targets=TO_WEB.targets, broken=(Broken(weight=1, reason="BackendNotFound", status=500),))
    made = config(Route(split=split, origin=RULE, name="0"))
    assert made[ROUTES][names.outbound(WEB)].needs == {"route/default/web/80/HTTPRoute/default/shop/0/default/web/80"}
    assert names.MISSING not in made[CLUSTER]


def test_a_redirect_needs_no_cluster():
    made = config(Route(split=Split(targets=()), redirect=Redirect(scheme="https"), origin=RULE, name="0"))
    assert made[ROUTES][names.outbound(WEB)].needs == frozenset()


@pytest.mark.parametrize(("numerator", "clusters"), [(1, {"mirror/default/copies/80"}), (0, set())])
def test_a_route_needs_the_cluster_of_its_mirror(numerator, clusters):
    """R47: a mirror with the fraction 0 has no cluster."""
    mirror = Mirror(ref=COPIES, targets=(Target(ref=COPIES, weight=1),), numerator=numerator, denominator=100)
    made = config(Route(split=TO_WEB, mirrors=(mirror,)))
    assert made[ROUTES][names.outbound(WEB)].needs == {names.outbound(WEB)} | clusters
    assert {name for name in made[CLUSTER] if names.is_mirror(name)} == clusters


@pytest.mark.parametrize(("protocol", "http2"), [(Protocol.HTTP, False), (Protocol.HTTP2, True)])
def test_a_mirror_cluster_has_the_protocol_of_its_port_and_separate_limits(protocol, http2):
    mirror = Mirror(ref=COPIES, targets=(Target(ref=COPIES, weight=1),), numerator=1, denominator=1)
    made = config(Route(split=TO_WEB, mirrors=(mirror,)), protocol=protocol)
    cluster = decoded(made[CLUSTER]["mirror/default/copies/80"], pb.Cluster)
    (packed,) = cluster.typed_extension_protocol_options.values()
    options = pb.HttpProtocolOptions.FromString(packed.value)
    assert options.explicit_http_config.HasField("http2_protocol_options") == http2
    assert options.common_http_protocol_options.max_stream_duration.seconds
    assert cluster.circuit_breakers.thresholds[0].max_requests.value < 1024
