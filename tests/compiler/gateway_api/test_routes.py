"""The effect of Gateway API routes on mesh and statuses (R44 to R60, D3, D11, D13, D14)."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.compiler.compile import compile_mesh
from headgate.compiler.reasons import Reason
from headgate.compiler.snapshot import Snapshot
from headgate.model.routing import Target
from headgate.resources import gateway as gw
from headgate.resources import routes as rt
from headgate.resources.core import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort, ServiceSpec
from headgate.resources.meta import Key, Metadata
from headgate.resources.registry import SERVICE, TRAFFIC_SPLIT
from headgate.resources.smi import Backend, TrafficSplit, TrafficSplitSpec
from headgate.settings import Settings

EDGE = Key(gw.GROUP, "Gateway", "default", "edge")
SHOP = Key(gw.GROUP, "HTTPRoute", "default", "shop")


def services(*names, namespace="default", dead=()):
    found = {}
    for name in names:
        found[SERVICE.key(namespace, name)] = Service(spec=ServiceSpec(ports=(ServicePort(port=80),)))
        if name not in dead:
            found[Key("discovery.k8s.io", "EndpointSlice", namespace, name)] = EndpointSlice(
                metadata=Metadata(labels={"kubernetes.io/service-name": name}),
                endpoints=(Endpoint(addresses=(f"10.1.0.{len(found) + 1}",)),),
                ports=(EndpointPort(name="", port=8080),),
            )
    return found


def split(root, weights):
    backends = tuple(Backend(service=name, weight=weight) for name, weight in weights.items())
    return {TRAFFIC_SPLIT.key("default", root): TrafficSplit(spec=TrafficSplitSpec(service=root, backends=backends))}


def edge(*hostnames, **more):
    listeners = tuple(
        gw.Listener(name=f"l{index}", port=80, protocol="HTTP", hostname=hostname, **more)
        for index, hostname in enumerate(hostnames or ("",))
    )
    return {
        EDGE: gw.Gateway(
            spec=gw.GatewaySpec(gateway_class_name="headgate", listeners=listeners),
            status=gw.GatewayStatus(addresses=(gw.GatewayAddress(value="10.2.0.1"),)),
        )
    }


def ref(name, **more):
    return rt.RouteBackend(name=name, port=80, **more)


def mirror(name, **more):
    wanted = rt.RequestMirror(backend_ref=rt.BackendReference(name=name, port=80, **more))
    return rt.RouteFilter(type="RequestMirror", request_mirror=wanted)


def route(*backends, name="shop", hostnames=(), filters=(), parent="edge"):
    rule = rt.HTTPRouteRule(backend_refs=backends, filters=filters)
    spec = rt.HTTPRouteSpec(parent_refs=(rt.ParentReference(name=parent),), hostnames=hostnames, rules=(rule,))
    return {Key(gw.GROUP, "HTTPRoute", "default", name): rt.HTTPRoute(spec=spec)}


def compiled(objects):
    return compile_mesh(Snapshot(objects=objects), Settings())


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


WORLD = services("a", "b", "dead", "root", "v1", "v2", "nested", "x", dead=("dead",))
WORLD |= split("root", {"v1": 3, "v2": 1, "nested": 1}) | split("nested", {"x": 1})
WORLD |= split("halted", {"v1": 0}) | services("halted")
PARTS = {
    "a": {"a": Fraction(1)},
    "b": {"b": Fraction(1)},
    "gone": {500: Fraction(1)},
    "dead": {503: Fraction(1)},
    "root": {"v1": Fraction(3, 5), "v2": Fraction(1, 5), "nested": Fraction(1, 5)},
    "halted": {503: Fraction(1)},
}


@given(st.lists(st.tuples(st.sampled_from(sorted(PARTS)), st.integers(0, 1_000_000)), min_size=1, max_size=5))
def test_shares_are_exact(backends):
    """D11, D13. An invalid backend keeps its share. A split's backends replace its root; their own splits do not apply."""
    total = sum(weight for _, weight in backends)
    wanted = Counter()
    for name, weight in backends:
        for part, share in PARTS[name].items():
            wanted[part] += share * weight
    result = compiled(WORLD | edge() | route(*(ref(name, weight=weight) for name, weight in backends)))
    found = shares(only_route(result))
    assert found == ({part: weight / total for part, weight in wanted.items() if weight} if total else {500: 1})


def test_the_default_weight_is_one():
    assert shares(only_route(compiled(WORLD | edge() | route(ref("a"), ref("b", weight=3))))) == {
        "a": Fraction(1, 4),
        "b": Fraction(3, 4),
    }


def test_a_mirror_works_only_while_its_grant_exists():
    """R55. The grant starts the mirror, and its deletion stops it."""
    world = WORLD | services("copy", namespace="other") | edge()
    world |= route(ref("a"), filters=(mirror("copy", namespace="other"),))
    grant = gw.ReferenceGrant(
        spec=gw.ReferenceGrantSpec(
            from_=(gw.GrantFrom(group=gw.GROUP, kind="HTTPRoute", namespace="default"),),
            to=(gw.GrantTo(group="", kind="Service", name="copy"),),
        )
    )
    key = Key(gw.GROUP, "ReferenceGrant", "other", "copies")
    for objects, allowed in ((world, False), (world | {key: grant}, True), (world, False)):
        result = compiled(objects)
        assert [item.ref.service for item in only_route(result).mirrors] == (["other/copy"] if allowed else [])
        assert shares(only_route(result)) == {"a": 1}
        assert verdict(result, SHOP, "ResolvedRefs").reason == ("ResolvedRefs" if allowed else "RefNotPermitted")


def test_a_mirror_to_the_root_of_a_split_goes_to_the_backends_by_weight():
    """D13. This is the same as in a backendRef."""
    (found,) = only_route(compiled(WORLD | edge() | route(ref("a"), filters=(mirror("root"),)))).mirrors
    assert {target.ref.service: target.weight for target in found.targets} == {
        "default/v1": 3,
        "default/v2": 1,
        "default/nested": 1,
    }
    assert (found.ref.service, Fraction(found.numerator, found.denominator)) == ("default/root", 1)


@pytest.mark.parametrize("name", ["dead", "halted"])
def test_a_mirror_without_endpoints_is_reported(name):
    result = compiled(WORLD | edge() | route(ref("a"), filters=(mirror(name),)))
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
    key = SERVICE.key("default", "db")
    world = WORLD | services("db")
    world[key] = Service(spec=ServiceSpec(ports=(ServicePort(port=80, app_protocol="tcp"),)))
    result = compiled(world | edge() | route(ref("a"), filters=(mirror("db"),)))
    found = verdict(result, SHOP, "ResolvedRefs")
    assert (found.status, found.reason) == (False, "UnsupportedProtocol")
    assert "this mirror gets no requests: port 80 of Service default/db is tcp" in found.message
    assert only_route(result).mirrors == ()


@pytest.mark.parametrize(
    ("reference", "reason", "words"),
    [
        (rt.BackendReference(name="gone", port=80), "BackendNotFound", "Service default/gone not found"),
        (rt.BackendReference(name="a", port=81), "BackendNotFound", "its ports are: 80"),
        (rt.BackendReference(name="x", group="example.com", kind="Bucket"), "InvalidKind", "Bucket x is not a Service"),
        (rt.BackendReference(name="a", namespace="other", port=80), "RefNotPermitted", "create a ReferenceGrant"),
    ],
)
def test_a_mirror_with_an_invalid_reference_is_left_out_and_reported(reference, reason, words):
    """R54 to R57, D14."""
    filters = (rt.RouteFilter(type="RequestMirror", request_mirror=rt.RequestMirror(backend_ref=reference)),)
    result = compiled(WORLD | edge() | route(ref("a"), filters=filters))
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
    world = WORLD | edge(*listeners)
    for index, hostnames in enumerate(routes):
        world |= route(ref("a"), name=f"r{index}", hostnames=tuple(hostnames))
    listener = max((item for item in listeners if stands_for(item, name)), key=length, default=None)
    wanted = {
        f"r{index}"
        for index, hostnames in enumerate(routes)
        if listener is not None and any(stands_for(item, name) for item in hostnames or [listener])
    }
    hosts = {host.host: host.routes for port in compiled(world).mesh.gateways for host in port.hosts.values()}
    best = max((host for host in hosts if stands_for(host, name)), key=length, default=None)
    assert {found.origin.name for found in hosts.get(best, ())} == wanted


def test_a_gateway_of_another_class_is_ignored():
    foreign = Key(gw.GROUP, "GatewayClass", "", "foreign")
    theirs = gw.Gateway(spec=gw.GatewaySpec(gateway_class_name="foreign"))
    result = compiled(
        WORLD
        | {foreign: gw.GatewayClass(spec=gw.GatewayClassSpec(controller_name="example.com/x")), EDGE: theirs}
        | route(ref("a"))
    )
    assert (result.mesh.gateways, result.report.gateways, result.report.parents) == ((), (), ())


def test_attached_routes_are_counted_at_each_listener():
    result = compiled(WORLD | edge("*.a", "d") | route(ref("a"), hostnames=("b.a",)) | route(ref("a"), name="all"))
    (outcome,) = result.report.gateways
    assert [(item.name, item.attached) for item in outcome.listeners] == [("l0", 2), ("l1", 1)]


def test_a_listener_allows_namespaces_by_label():
    all_namespaces = gw.AllowedRoutes(namespaces=gw.RouteNamespaces(from_="None"))
    result = compiled(WORLD | edge(allowed_routes=all_namespaces) | route(ref("a")))
    assert verdict(result, SHOP, "Accepted").reason == "NotAllowedByListeners"
    assert result.mesh.gateways[0].hosts["*"].routes == ()


def test_routes_of_a_service_apply_before_its_split():
    """GAMMA. A backendRef to the Service itself is no loop; it means the Service without the route."""
    rule = rt.HTTPRouteRule(matches=(rt.HTTPRouteMatch(path=rt.PathMatch(value="/shop")),), backend_refs=(ref("root"),))
    parent = rt.ParentReference(group="", kind="Service", name="root")
    mesh = {SHOP: rt.HTTPRoute(spec=rt.HTTPRouteSpec(parent_refs=(parent,), rules=(rule,)))}
    result = compiled(WORLD | mesh)
    (table,) = (table for table in result.mesh.tables if table.ref.service == "default/root")
    (found,) = table.routes
    assert found.match.path.value == "/shop"
    assert shares(found) == PARTS["root"]
    assert verdict(result, SHOP, "Accepted").status


def test_the_split_of_a_service_applies_again_after_its_route_is_deleted():
    """R27."""
    (table,) = (table for table in compiled(WORLD).mesh.tables if table.ref.service == "default/root")
    assert shares(table.routes[0]) == PARTS["root"]
