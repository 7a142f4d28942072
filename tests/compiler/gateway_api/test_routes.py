"""The effect of Gateway API routes on mesh and statuses (R44 to R60, D3, D11, D13, D14)."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.gateway_api.route_meshes import SHOP, edge, edge_route, mirror, ref, services
from tests.make.objects import (
    GATEWAY_API,
    gateway,
    grant,
    listener,
    obj,
    path_match,
    port,
    route,
    service,
    service_parent,
    split,
)
from tests.make.values import compiled, findings

from headgate.compiler.reasons import Reason
from headgate.model.routing import Target
from headgate.resources.meta import Key


def shop_route(*backends, filters=(), **more):
    return edge_route({"backendRefs": list(backends), "filters": list(filters)}, **more)


def only_route(result):
    (port,) = result.mesh.gateways
    (host,) = port.hosts.values()
    (found,) = host.routes
    return found


def verdict(result, about, type_):
    (status,) = (item for item in result.report.parents if item.about == about)
    (found,) = (item for item in status.conditions if item.type == type_)
    return found


def shares(found):
    weights = {
        share.ref.service.removeprefix("default/") if isinstance(share, Target) else share.status: share.weight
        for share in (*found.split.targets, *found.split.broken)
    }
    return {name: Fraction(weight, sum(weights.values())) for name, weight in weights.items()}


WORLD = services("a", "b", "dead", "root", "v1", "v2", "nested", "x", "halted", dead=("dead",))
WORLD += [split("root", {"v1": 3, "v2": 1, "nested": 1}), split("nested", {"x": 1}), split("halted", {"v1": 0})]
EDGE = *WORLD, edge()
PARTS = {
    "a": {"a": Fraction(1)},
    "b": {"b": Fraction(1)},
    "gone": {500: Fraction(1)},
    "dead": {503: Fraction(1)},
    "root": {"v1": Fraction(3, 5), "v2": Fraction(1, 5), "nested": Fraction(1, 5)},
    "halted": {503: Fraction(1)},
}


TEXTS = st.sampled_from(["", "a", "a b", "Permanent", "Header", "30m", "0s", "lifetimeType"])
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**40), 2**40),
        st.floats(allow_nan=False),
        TEXTS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
TYPES = st.one_of(JSON, st.sampled_from(["Cookie", "Header"]))
LIFETIMES = st.one_of(JSON, st.fixed_dictionaries({"lifetimeType": st.one_of(JSON, st.just("Permanent"))}))
SESSIONS = st.fixed_dictionaries(
    {}, optional={"sessionName": JSON, "absoluteTimeout": JSON, "type": TYPES, "cookieConfig": LIFETIMES}
)
RETRIES = st.fixed_dictionaries({}, optional={"attempts": JSON, "codes": JSON, "backoff": JSON})


@settings(max_examples=40)
@given(st.one_of(JSON, SESSIONS), st.one_of(JSON, RETRIES))
def test_stored_sessions_and_retries_of_any_shape_leave_their_rule_in_effect(session, retry):
    """Objects were stored before the schemas of these fields."""
    backends = {"backendRefs": [ref("a")], "sessionPersistence": session}
    result = compiled(
        *services("a"),
        edge("shop.example", "calls.example"),
        edge_route({**backends, "retry": retry}, hostnames=["shop.example"]),
        edge_route(backends, kind="GRPCRoute", name="calls", hostnames=["calls.example"]),
    )
    (port,) = result.mesh.gateways
    for host in port.hosts.values():
        assert shares(host.routes[0]) == {"a": 1}
        assert not host.routes[0].retry or 0 <= host.routes[0].retry.retries <= 10


@pytest.mark.parametrize(
    ("session", "field"),
    [
        ({"cookieConfig": "Permanent"}, ".cookieConfig"),
        ({"cookieConfig": ["Permanent"]}, ".cookieConfig"),
        ({"absoluteTimeout": ["1h"]}, ".absoluteTimeout"),
        ({"type": "header"}, ".type"),
        ("Cookie", ""),
    ],
)
def test_a_stored_session_with_a_mistake_has_no_effect_and_a_finding(session, field):
    route = edge_route({"backendRefs": [ref("a")], "sessionPersistence": session})
    result = compiled(*services("a"), edge(), route)
    assert only_route(result).session is None
    fields = [finding.field for finding in findings(result, Reason.FIELD_IGNORED)]
    assert f"spec.rules[0].sessionPersistence{field}" in fields


HEADERS = [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "side", "value": "a"}]}}]


@pytest.mark.parametrize(
    ("backends", "is_kept"),
    [
        ([ref("a", filters=HEADERS)], True),
        ([ref("root", filters=HEADERS)], False),
        ([ref("a", filters=HEADERS), ref("b")], False),
        ([ref("root"), ref("b")], True),
    ],
    ids=["one backend", "the backends of a split", "one of two backends", "no filters"],
)
def test_sessions_by_a_header_need_backends_without_filters_of_their_own(backends, is_kept):
    session = {"type": "Header", "sessionName": "x-session"}
    result = compiled(*EDGE, edge_route({"backendRefs": backends, "sessionPersistence": session}))
    assert bool(only_route(result).session) is is_kept
    fields = [finding.field for finding in findings(result, Reason.FIELD_IGNORED)]
    assert fields == ([] if is_kept else ["spec.rules[0].sessionPersistence.type"])


@given(st.lists(st.tuples(st.sampled_from(sorted(PARTS)), st.integers(0, 1_000_000)), min_size=1, max_size=5))
def test_shares_are_exact(backends):
    """D11, D13. An invalid backend keeps its share. A split's backends replace its root; their own splits do not apply."""
    total = sum(weight for _, weight in backends)
    wanted = Counter()
    for name, weight in backends:
        for part, share in PARTS[name].items():
            wanted[part] += share * weight
    result = compiled(*EDGE, shop_route(*(ref(name, weight=weight) for name, weight in backends)))
    found = shares(only_route(result))
    assert found == ({part: weight / total for part, weight in wanted.items() if weight} if total else {500: 1})


def test_the_default_weight_is_one():
    assert shares(only_route(compiled(*EDGE, shop_route(ref("a"), ref("b", weight=3))))) == {
        "a": Fraction(1, 4),
        "b": Fraction(3, 4),
    }


def test_a_mirror_works_only_while_its_grant_exists():
    """R55. The grant starts the mirror, and its deletion stops it."""
    world = (
        *EDGE,
        *services("copy", namespace="other"),
        shop_route(ref("a"), filters=[mirror("copy", namespace="other")]),
    )
    copies = grant("copies", (GATEWAY_API, "HTTPRoute", "default"), ("", "Service"), only="copy", namespace="other")
    for objects, allowed in ((world, False), ((*world, copies), True), (world, False)):
        result = compiled(*objects)
        assert [item.ref.service for item in only_route(result).mirrors] == (["other/copy"] if allowed else [])
        assert shares(only_route(result)) == {"a": 1}
        assert verdict(result, SHOP, "ResolvedRefs").reason == ("ResolvedRefs" if allowed else "RefNotPermitted")


def test_a_mirror_to_the_root_of_a_split_goes_to_the_backends_by_weight():
    """D13. This is the same as in a backendRef."""
    (found,) = only_route(compiled(*EDGE, shop_route(ref("a"), filters=(mirror("root"),)))).mirrors
    assert {target.ref.service: target.weight for target in found.targets} == {
        "default/v1": 3,
        "default/v2": 1,
        "default/nested": 1,
    }
    assert (found.ref.service, Fraction(found.numerator, found.denominator)) == ("default/root", 1)


@pytest.mark.parametrize("name", ["dead", "halted"])
def test_a_mirror_without_endpoints_is_reported(name):
    result = compiled(*EDGE, shop_route(ref("a"), filters=(mirror(name),)))
    (finding,) = (item for item in result.report.findings if item.about == SHOP)
    assert (finding.reason, finding.field) == (
        Reason.NO_READY_ENDPOINTS,
        "spec.rules[0].filters[0].requestMirror.backendRef.name",
    )
    assert finding.message.startswith("its copies are dropped: ")
    assert "copies are dropped" in verdict(result, SHOP, "Accepted").message
    assert shares(only_route(result)) == {"a": 1}


def test_a_mirror_to_a_tcp_port_is_left_out_and_reported():
    """R54. Only HTTP requests can be mirrored."""
    result = compiled(*EDGE, *services("db", app="tcp"), shop_route(ref("a"), filters=[mirror("db")]))
    found = verdict(result, SHOP, "ResolvedRefs")
    assert (found.status, found.reason) == (False, "UnsupportedProtocol")
    assert "this mirror gets no requests: port 80 of Service default/db is tcp" in found.message
    assert only_route(result).mirrors == ()


@pytest.mark.parametrize(
    ("reference", "reason", "words"),
    [
        ({"name": "gone", "port": 80}, "BackendNotFound", "Service default/gone not found"),
        ({"name": "a", "port": 81}, "BackendNotFound", "its ports are: 80"),
        ({"name": "x", "group": "example.com", "kind": "Bucket"}, "InvalidKind", "Bucket x is not a Service"),
        ({"name": "a", "namespace": "other", "port": 80}, "RefNotPermitted", "create a ReferenceGrant"),
    ],
)
def test_a_mirror_with_an_invalid_reference_is_left_out_and_reported(reference, reason, words):
    """R54 to R57, D14."""
    filters = [{"type": "RequestMirror", "requestMirror": {"backendRef": reference}}]
    result = compiled(*EDGE, shop_route(ref("a"), filters=filters))
    assert only_route(result).mirrors == ()
    assert shares(only_route(result)) == {"a": 1}
    found = verdict(result, SHOP, "ResolvedRefs")
    assert (found.status, found.reason) == (False, reason)
    assert "spec.rules[0].filters[0].requestMirror.backendRef" in found.message
    assert words in found.message
    assert verdict(result, SHOP, "Accepted").status


HOSTNAMES = ("*.a", "b.a", "*.b.a", "c.a", "d")
NAMES = ("b.a", "c.a", "x.a", "x.b.a", "d", "e")


def stands_for(pattern, name):
    return pattern in ("", "*", name) or (pattern.startswith("*.") and name.endswith(pattern[1:]))


def length(pattern):
    return (not pattern.startswith("*") and pattern != "", len(pattern.removeprefix("*")))


@given(
    st.lists(st.sampled_from(("", *HOSTNAMES)), min_size=1, max_size=4, unique=True),
    st.lists(st.lists(st.sampled_from(HOSTNAMES), max_size=3, unique=True), min_size=1, max_size=3),
    st.sampled_from(NAMES),
)
def test_a_request_uses_the_routes_of_the_most_specific_listener(listeners, routes, name):
    """R59. The test compares the result with the definition of listener isolation."""
    named = [shop_route(ref("a"), name=f"r{index}", hostnames=names) for index, names in enumerate(routes)]
    listener = max((item for item in listeners if stands_for(item, name)), key=length, default=None)
    wanted = {
        f"r{index}"
        for index, hostnames in enumerate(routes)
        if listener is not None and any(stands_for(item, name) for item in hostnames or [listener])
    }
    hosts = {
        host.host: host.routes
        for port in compiled(*services("a"), edge(*listeners), *named).mesh.gateways
        for host in port.hosts.values()
    }
    best = max((host for host in hosts if stands_for(host, name)), key=length, default=None)
    assert {found.origin.name for found in hosts.get(best, ())} == wanted


def test_a_gateway_of_another_class_is_ignored():
    foreign = obj("GatewayClass", "foreign", namespace="", spec={"controllerName": "example.com/x"})
    result = compiled(*WORLD, foreign, gateway("edge", class_name="foreign"), shop_route(ref("a")))
    assert (result.mesh.gateways, result.report.gateways, result.report.parents) == ((), (), ())


def test_attached_routes_are_counted_at_each_listener():
    result = compiled(
        *WORLD, edge("*.a", "d"), shop_route(ref("a"), hostnames=["b.a"]), shop_route(ref("a"), name="all")
    )
    (outcome,) = result.report.gateways
    assert [(item.name, item.attached) for item in outcome.listeners] == [("l0", 2), ("l1", 1)]


def test_a_listener_allows_namespaces_by_label():
    result = compiled(*WORLD, edge(allowedRoutes={"namespaces": {"from": "None"}}), shop_route(ref("a")))
    assert verdict(result, SHOP, "Accepted").reason == "NotAllowedByListeners"
    assert result.mesh.gateways[0].hosts["*"].routes == ()


def test_routes_of_a_service_apply_before_its_split():
    """GAMMA. A backendRef to the Service itself is no loop; it means the Service without the route."""
    matching = {"matches": [path_match("/shop")], "backendRefs": [ref("root")]}
    result = compiled(*WORLD, route("shop", matching, parents=[service_parent("root")]))
    (table,) = (table for table in result.mesh.tables if table.ref.service == "default/root")
    (found,) = table.routes
    assert found.match.path.value == "/shop"
    assert shares(found) == PARTS["root"]
    assert verdict(result, SHOP, "Accepted").status


def test_the_split_of_a_service_applies_again_after_its_route_is_deleted():
    """R27."""
    (table,) = (table for table in compiled(*WORLD).mesh.tables if table.ref.service == "default/root")
    assert shares(table.routes[0]) == PARTS["root"]


def tcp_route(name, *parents, created):
    metadata = {"creationTimestamp": f"2026-01-0{created}T00:00:00Z"}
    return route(name, {"backendRefs": [ref(name)]}, parents=list(parents), kind="TCPRoute", metadata=metadata)


def only_target(connections):
    (target,) = connections.split.targets
    return target.ref.service.removeprefix("default/")


def shadowed(result, name):
    """Return the messages of a TCPRoute's findings; the message of its condition Accepted, which is True, has them too."""
    about = Key(GATEWAY_API, "TCPRoute", "default", name)
    messages = [
        item.message for item in result.report.findings if item.about == about and item.reason is Reason.SHADOWED
    ]
    accepted = verdict(result, about, "Accepted")
    assert (accepted.status, accepted.reason) == (True, "Accepted")
    assert all(message in accepted.message for message in messages)
    return messages


@pytest.mark.parametrize("named", [["a", "b"], ["b", "a"]])
def test_the_oldest_tcp_route_of_a_listener_gets_its_connections_and_all_are_attached(named):
    """Gateway API v1.6. The newer route still gets the connections of the other listener."""
    older, newer = named
    listeners = listener(8000, name="first", protocol="TCP"), listener(8001, name="second", protocol="TCP")
    result = compiled(
        *WORLD,
        gateway("edge", *listeners, status={"addresses": [{"type": "IPAddress", "value": "10.2.0.1"}]}),
        tcp_route(newer, {"name": "edge"}, created=2),
        tcp_route(older, {"name": "edge", "sectionName": "first"}, created=1),
    )
    assert [only_target(port.connections) for port in result.mesh.gateways] == [older, newer]
    (outcome,) = result.report.gateways
    assert [item.attached for item in outcome.listeners] == [2, 1]
    assert {item.about.name: item.gateway_ports for item in result.report.parents} == {older: (8000,), newer: (8001,)}
    assert shadowed(result, older) == []
    (message,) = shadowed(result, newer)
    assert f"TCPRoute default/{older} has all connections of listener first, so" in message


def test_the_oldest_tcp_route_of_a_service_port_gets_its_connections():
    """The newer route gets those of the other port. A third route gets none, and its message names both older routes."""
    ports = (port(number, f"p{number}", app="mysql") for number in (1, 2))
    db = service("db", *ports, clusterIP="10.9.9.9")
    parent = service_parent("db")
    result = compiled(
        *WORLD,
        db,
        tcp_route("a", {**parent, "port": 1}, created=1),
        tcp_route("b", parent, created=2),
        tcp_route("v1", parent, created=3),
    )
    tables = {table.ref.port: table.routes for table in result.mesh.tables if table.ref.service == "default/db"}
    assert {port: only_target(*routes) for port, routes in tables.items()} == {1: "a", 2: "b"}
    assert {item.about.name: [ref.port for ref in item.ports] for item in result.report.parents} == {
        "a": [1],
        "b": [2],
        "v1": [],
    }
    assert shadowed(result, "a") == []
    assert "TCPRoute default/a has all connections to default/db:1, so" in shadowed(result, "b")[0]
    (message,) = shadowed(result, "v1")
    assert "default/a has all connections to default/db:1, the older TCPRoute default/b" in message
