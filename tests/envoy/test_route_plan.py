"""A split becomes one cluster with weighted localities, or a cluster for each backend if necessary."""

import pytest

from headgate.envoy.cluster_plan import ClusterPlan, Locality
from headgate.envoy.planned_routes import ClusterWeight, PlannedRoute, RoutePlan, with_own_sessions
from headgate.envoy.port_plan import plan_service_port
from headgate.envoy.upstream_tls import peer_key
from headgate.model.edge_tls import AltName, BackendTls
from headgate.model.requests import ANY, Filters, HeaderEdit, Path
from headgate.model.routing import (
    Broken,
    Endpoint,
    ExternalAuth,
    Mirror,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
    Target,
)
from headgate.model.sessions import PersistentSession, cookie_path
from headgate.resources.meta import Key

WEB, BLUE, GREEN = (PortRef(f"default/{name}", 80) for name in ("web", "blue", "green"))
ONE, TWO, THREE = (Endpoint(address=f"10.0.0.{number}", port=80) for number in (1, 2, 3))
SHARES = (Target(ref=BLUE, weight=9), Target(ref=GREEN, weight=1))


def planned(ready, *targets, broken=()):
    return plan_service_port(RouteTable(ref=WEB, routes=(Route(split=Split(targets=targets, broken=broken)),)), ready)


def test_a_split_is_one_cluster_with_a_locality_for_each_backend():
    route, clusters = planned({BLUE: (ONE, TWO), GREEN: (THREE,)}, *SHARES)
    whole = ClusterWeight(cluster="outbound/default/web/80", weight=1)
    assert route == RoutePlan(name="outbound/default/web/80", routes=(PlannedRoute(match=ANY, clusters=(whole,)),))
    assert clusters == (
        ClusterPlan(
            name="outbound/default/web/80",
            localities=(
                Locality(backend="default/blue", weight=9, endpoints=(ONE, TWO)),
                Locality(backend="default/green", weight=1, endpoints=(THREE,)),
            ),
        ),
    )


def test_a_change_of_weights_changes_no_route_and_no_cluster():
    ready = {BLUE: (ONE,), GREEN: (TWO,)}
    before, after = planned(ready, *SHARES), planned(ready, *reversed(SHARES))
    assert before[0] == after[0]
    assert [item.name for item in before[1]] == [item.name for item in after[1]]


def test_a_split_without_backends_is_a_cluster_without_endpoints():
    _, clusters = planned({})
    assert clusters == (ClusterPlan(name="outbound/default/web/80"),)


def test_a_service_without_endpoints_is_a_cluster_without_localities():
    _, clusters = planned({WEB: ()}, Target(ref=WEB, weight=1))
    assert clusters == (ClusterPlan(name="outbound/default/web/80"),)


def test_an_authorization_server_is_called_over_a_protocol_of_its_own():
    auth = ExternalAuth(ref=GREEN, protocol="HTTP", server_protocol=Protocol.HTTP2)
    table = RouteTable(ref=WEB, routes=(Route(split=Split(targets=SHARES[:1]), external_auth=auth),))
    _, clusters = plan_service_port(table, {BLUE: (ONE,), GREEN: (TWO,)})
    protocols = {cluster.name: cluster.protocol for cluster in clusters}
    assert protocols == {"outbound/default/web/80": Protocol.HTTP, "auth/default/green/80": Protocol.HTTP2}


def test_backends_that_share_an_endpoint_get_separate_clusters():
    route, clusters = planned({BLUE: (ONE, TWO), GREEN: (TWO,)}, *SHARES)
    assert [(item.cluster.rpartition("/")[2], item.weight) for item in route.routes[0].clusters] == [
        ("blue", 9),
        ("green", 1),
    ]
    assert [item.localities[0].endpoints for item in clusters] == [(ONE, TWO), (TWO,)]


@pytest.mark.parametrize("targets", [SHARES, ()])
def test_a_share_that_must_fail_gets_a_cluster_without_endpoints(targets):
    broken = (Broken(weight=2, reason="NoReadyEndpoints"), Broken(weight=3, reason="NoReadyEndpoints"))
    route, clusters = planned({BLUE: (ONE,), GREEN: (TWO,)}, *targets, broken=broken)
    assert route.routes[0].clusters[-1] == ClusterWeight(cluster="none/default/web/80", weight=5)
    assert clusters[-1] == ClusterPlan(name="none/default/web/80")
    assert len(clusters) == len(targets) + 1


def policy_tls(name):
    """Return the TLS of a policy that trusts the proxy's system; all have the same hostname."""
    names_of = (AltName(kind="dns", value=f"{name}.example"),)
    return BackendTls(origin=Key("", "BackendTLSPolicy", "default", name), hostname="internal.example", names=names_of)


def test_policies_with_the_same_hostname_and_roots_keep_the_names_of_their_own_servers():
    targets = tuple(Target(ref=ref, weight=1, tls=policy_tls(ref.service.partition("/")[2])) for ref in (BLUE, GREEN))
    _, (cluster,) = planned({BLUE: (ONE,), GREEN: (TWO,)}, *targets)
    assert len({peer_key(peer) for peer in cluster.peers}) == 2
    assert {peer.names[0].value for peer in cluster.peers} == {"blue.example", "green.example"}


def test_clusters_have_the_tls_of_servers_before_they_have_endpoints():
    blue, green = policy_tls("blue"), policy_tls("green")
    targets = (Target(ref=BLUE, weight=1, tls=blue), Target(ref=GREEN, weight=1, tls=green))
    mirror = Mirror(ref=GREEN, targets=targets[1:], numerator=1, denominator=1)
    routes = (Route(split=Split(targets=targets), mirrors=(mirror,)),)
    for ready in ({BLUE: (ONE,)}, {BLUE: (ONE,), GREEN: (ONE,)}, {}):
        _, clusters = plan_service_port(RouteTable(ref=WEB, routes=routes), ready)
        of_mirror = next(cluster for cluster in clusters if cluster.is_mirror)
        assert of_mirror.peers == (green,)
        assert {peer.origin.name for cluster in clusters if not cluster.is_mirror for peer in cluster.peers} == {
            "blue",
            "green",
        }


def test_a_backend_without_a_weight_is_no_standby_of_a_random_order():
    """GEP-1619: it keeps its sessions, whose endpoints each cluster has, and gets no retry of another request."""
    red = PortRef("default/red", 80)
    ready = {BLUE: (ONE,), GREEN: (TWO,), red: (THREE,)}

    def drawn(*weights):
        targets = tuple(Target(ref=ref, weight=weight) for ref, weight in zip(ready, weights, strict=False))
        route = Route(split=Split(targets=targets, order="random"))
        plan, clusters = plan_service_port(RouteTable(ref=WEB, routes=(route,)), ready)
        parts = [[(part.backend, part.weight, part.standby) for part in cluster.localities] for cluster in clusters]
        return plan.routes[0].draws, parts

    assert drawn(1, 0) == (False, [[("default/blue", 1, False), ("default/green", 0, False)]])
    draws, (blue, green) = drawn(9, 1, 0)
    assert draws
    assert blue == [("default/blue", 1, False), ("default/green", 1, True), ("default/red", 0, True)]
    assert green == [("default/green", 1, False), ("default/blue", 9, True), ("default/red", 0, True)]


def test_two_shares_of_one_cluster_keep_the_names_of_their_sessions_when_one_is_drained():
    session = PersistentSession(kind="cookie", name="user")
    first, second = (
        ClusterWeight(cluster="blue", weight=1, filters=Filters(request=HeaderEdit(set=(("side", side),))))
        for side in "ab"
    )
    before = [share.session for share in with_own_sessions((first, second), session)]
    after = [share.session for share in with_own_sessions((second, first), session)]
    assert before == after[::-1]
    assert before[0] != before[1]


def test_two_backends_of_one_service_have_cookies_of_their_own_beside_a_backend_without_sessions():
    session = PersistentSession(kind="cookie", name="user", service="default/web")
    red = PortRef("default/red", 80)
    ready = {BLUE: (ONE,), GREEN: (TWO,), red: (THREE,)}
    kept = (Target(ref=ref, weight=1, session=session) for ref in (BLUE, GREEN))
    plan, _clusters = planned(ready, *kept, Target(ref=red, weight=1))
    (route,) = plan.routes
    names = [share.session.name for share in route.kept if share.session]
    assert len({*names}) == 2
    assert all(name.startswith("user-") for name in names)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (None, "/"),
        (Path(kind="prefix", value="/"), "/"),
        (Path(kind="prefix", value="/slash/"), "/slash"),
        (Path(kind="exact", value="/slash/"), "/slash/"),
        (Path(kind="prefix", value="/a;Domain=example"), "/"),
        (Path(kind="regex", value="/a.*"), "/"),
    ],
)
def test_the_path_of_a_cookie_fits_the_paths_of_its_match_and_adds_no_attribute(path, expected):
    assert cookie_path(path) == expected
