"""Splits also apply to requests that reach their root by the rule of a route (D13, R30, R60)."""

from collections import defaultdict
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from tests.compiler.gateway_api.test_routes import compiled, edge, mirror, ref, services

from headgate.compiler.gateway_api.rules import MOST_ROWS
from headgate.compiler.reasons import Reason
from headgate.model.check import check
from headgate.model.evaluate import decide
from headgate.model.requests import Request
from headgate.model.routing import PortRef
from headgate.resources import gateway as gw
from headgate.resources import routes as rt
from headgate.resources.meta import Key, Metadata
from headgate.resources.registry import ROUTE_GROUP, TRAFFIC_SPLIT
from headgate.resources.smi import (
    NO_ENDPOINTS,
    STICKY,
    Backend,
    HttpMatch,
    HTTPRouteGroup,
    HTTPRouteGroupSpec,
    MatchReference,
    TrafficSplit,
    TrafficSplitSpec,
)

SHOP = Key(gw.GROUP, "HTTPRoute", "default", "shop")
PATTERNS = (None, "/", "/a", "/a$", "/.*b", "/(a|b)/?$", "^/a/b", ".*")
PATHS = ("/", "/a", "/a/", "/a/b", "/ab", "/b", "/b/", "/x", "/a?b", "/x?/ab", "/a/b?x=1")
RULE_PATHS = (
    ("PathPrefix", "/"),
    ("PathPrefix", "/"),
    ("PathPrefix", "/a"),
    ("PathPrefix", "/a/b"),
    ("Exact", "/a"),
    ("Exact", "/b/"),
    ("RegularExpression", "/.*b"),
    ("RegularExpression", "/a.*"),
)
VALUES = ("1", "12", "a")
HEADERS = st.dictionaries(st.sampled_from(("x-a", "x-b")), st.sampled_from(("1", "1.*", ".*", "[a-z]")), max_size=2)
WEIGHTS = st.sampled_from((0, 1, 1, 2, 3))
ROOTS, PLAIN = ("r1", "r2", "r3"), ("a", "b", "dead")


@st.composite
def groups(draw):
    def match(number):
        return HttpMatch(
            name=f"m{number}",
            path_regex=draw(st.sampled_from(PATTERNS)),
            methods=draw(st.sampled_from((None, None, ("GET",), ("*",)))),
            headers=draw(HEADERS) or None,
        )

    return {
        ROUTE_GROUP.key("default", name): HTTPRouteGroup(
            spec=HTTPRouteGroupSpec(matches=tuple(match(number) for number in range(draw(st.integers(1, 3)))))
        )
        for name in ("g1", "g2")
    }


@st.composite
def splits(draw):
    found = {}
    for number in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from((*PLAIN, "gone")), min_size=1, max_size=3, unique=True))
        used = draw(st.lists(st.sampled_from(("g1", "g2")), max_size=2, unique=True))
        annotations = draw(st.sampled_from(({}, {}, {NO_ENDPOINTS: "fail"}, {STICKY: "header:x-user"})))
        found[TRAFFIC_SPLIT.key("default", f"s{number}")] = TrafficSplit(
            metadata=Metadata(annotations=annotations, creation_timestamp=f"2026-01-0{number + 1}T00:00:00Z"),
            spec=TrafficSplitSpec(
                service=draw(st.sampled_from(ROOTS)),
                backends=tuple(Backend(service=name, weight=draw(WEIGHTS)) for name in names),
                matches=tuple(MatchReference(kind="HTTPRouteGroup", name=name) for name in used),
            ),
        )
    return found


@st.composite
def rules(draw):
    def match():
        kind, value = draw(st.sampled_from(RULE_PATHS))
        headers = tuple(
            rt.NameMatch(name=name, type="RegularExpression", value=value) for name, value in draw(HEADERS).items()
        )
        return rt.HTTPRouteMatch(path=rt.PathMatch(type=kind, value=value), headers=headers)

    names = draw(st.lists(st.sampled_from((*ROOTS, *ROOTS, *PLAIN, "gone")), min_size=1, max_size=3))
    copied = draw(st.lists(st.sampled_from((*ROOTS, "a")), max_size=2, unique=True))
    return rt.HTTPRouteRule(
        matches=tuple(match() for _ in range(draw(st.integers(1, 2)))),
        backend_refs=tuple(ref(name, weight=draw(WEIGHTS)) for name in names),
        filters=tuple(mirror(name) for name in copied),
    )


def requests():
    headers = st.lists(st.tuples(st.sampled_from(("x-a", "x-b")), st.sampled_from(VALUES)), max_size=3)
    return st.builds(
        lambda method, target, found: Request(authority="shop", method=method, target=target, headers=tuple(found)),
        st.sampled_from(("GET", "POST")),
        st.sampled_from(PATHS),
        headers,
    )


def route(written):
    spec = rt.HTTPRouteSpec(parent_refs=(rt.ParentReference(name="edge"),), rules=tuple(written))
    return {SHOP: rt.HTTPRoute(spec=spec)}


def at_service(mesh, name, request):
    """Return the receivers of a request to the Service itself."""
    return decide(mesh, PortRef(f"default/{name}", 80), request).receivers


def of_backends(mesh, rule, request):
    found = defaultdict(Fraction)
    total = sum(backend.weight for backend in rule.backend_refs)
    for backend in rule.backend_refs if total else ():
        parts = {500: Fraction(1)} if backend.name == "gone" else at_service(mesh, backend.name, request)
        for receiver, part in parts.items():
            found[receiver] += part * Fraction(backend.weight, total)
    return {receiver: part for receiver, part in found.items() if part} or {500: Fraction(1)}


def of_mirrors(mesh, rule, request):
    found = defaultdict(Fraction)
    for item in rule.filters:
        for receiver, part in at_service(mesh, item.request_mirror.backend_ref.name, request).items():
            if isinstance(receiver, PortRef):
                found[receiver] += part
    return dict(found)


def copies(decision, dead):
    found = defaultdict(Fraction)
    for item in decision.mirrors:
        total = sum(target.weight for target in item.targets)
        for target in item.targets:
            if target.ref not in dead:
                found[target.ref] += Fraction(item.numerator * target.weight, item.denominator * total)
    return dict(found)


BASE = services(*ROOTS, *PLAIN, dead=("dead", "r3")) | edge()
DEAD = {PortRef("default/dead", 80), PortRef("default/r3", 80)}


@given(groups(), splits(), st.lists(rules(), min_size=1, max_size=2), st.lists(requests(), min_size=1, max_size=8))
def test_splits_apply_to_requests_that_reach_their_root_by_a_rule(named, split, written, asked):
    world = BASE | named | split
    services_alone, route_alone = compiled(world).mesh, compiled(BASE | route(written)).mesh
    mesh = compiled(world | route(written)).mesh
    assert check(mesh) == ()
    for request in asked:
        found = decide(mesh, mesh.gateways[0], request)
        chosen = decide(route_alone, route_alone.gateways[0], request).route
        assert (found.route and found.route.name) == (chosen and chosen.name)
        if chosen is None:
            continue
        rule = written[int(chosen.name)]
        assert dict(found.receivers) == of_backends(services_alone, rule, request)
        served = any(isinstance(receiver, PortRef) for receiver in found.receivers)
        assert copies(found, DEAD) == (of_mirrors(services_alone, rule, request) if served else {})


def ab_test(root, header, matches):
    """Return a split and its group of `matches` matches: requests to `root` that fit one of them go to `a`."""
    group = HTTPRouteGroup(
        spec=HTTPRouteGroupSpec(
            matches=tuple(HttpMatch(name=f"m{number}", headers={header: f"{number}.*"}) for number in range(matches))
        )
    )
    split = TrafficSplit(
        spec=TrafficSplitSpec(
            service=root,
            backends=(Backend(service="a", weight=1),),
            matches=(MatchReference(kind="HTTPRouteGroup", name=root),),
        )
    )
    return {ROUTE_GROUP.key("default", root): group, TRAFFIC_SPLIT.key("default", root): split}


def test_too_many_combinations_are_reported_and_matches_of_the_last_root_are_ignored():
    rule = rt.HTTPRouteRule(backend_refs=(ref("r1"), ref("r2")))
    result = compiled(BASE | ab_test("r1", "x-a", 11) | ab_test("r2", "x-b", 11) | route([rule]))
    (finding,) = (item for item in result.report.findings if item.reason is Reason.TOO_MANY_MATCHES)
    assert (finding.about, finding.field) == (SHOP, "spec.rules[0].backendRefs")
    assert "default/r2:80" in finding.message
    request = Request(authority="shop", headers=(("x-a", "1"), ("x-b", "1")))
    found = decide(result.mesh, result.mesh.gateways[0], request).receivers
    assert found == {PortRef("default/a", 80): Fraction(1, 2), PortRef("default/r2", 80): Fraction(1, 2)}


def test_a_single_root_can_have_any_number_of_matches():
    rule = rt.HTTPRouteRule(backend_refs=(ref("r1"), ref("b")))
    result = compiled(BASE | ab_test("r1", "x-a", 2 * MOST_ROWS) | route([rule]))
    assert not [item for item in result.report.findings if item.reason is Reason.TOO_MANY_MATCHES]
    request = Request(authority="shop", headers=(("x-a", str(2 * MOST_ROWS - 1)),))
    found = decide(result.mesh, result.mesh.gateways[0], request).receivers
    assert found == {PortRef("default/a", 80): Fraction(1, 2), PortRef("default/b", 80): Fraction(1, 2)}


def test_a_grpc_route_uses_the_matches_of_its_backend():
    """The gRPC method and the path of the split are two conditions on one path."""
    group = HTTPRouteGroup(
        spec=HTTPRouteGroupSpec(matches=(HttpMatch(name="shop", path_regex="/shop.*", headers={"x-user": "a.*"}),))
    )
    split = TrafficSplit(
        spec=TrafficSplitSpec(
            service="r1",
            backends=(Backend(service="a", weight=1), Backend(service="b", weight=0)),
            matches=(MatchReference(kind="HTTPRouteGroup", name="g"),),
        )
    )
    rule = rt.GRPCRouteRule(
        matches=(rt.GRPCRouteMatch(method=rt.GRPCMethodMatch(method="Get")),), backend_refs=(ref("r1"),)
    )
    spec = rt.GRPCRouteSpec(parent_refs=(rt.ParentReference(name="edge"),), rules=(rule,))
    world = BASE | {ROUTE_GROUP.key("default", "g"): group, TRAFFIC_SPLIT.key("default", "s"): split}
    mesh = compiled(world | {Key(gw.GROUP, "GRPCRoute", "default", "calls"): rt.GRPCRoute(spec=spec)}).mesh

    def receivers(target, user):
        request = Request(authority="shop", method="POST", target=target, headers=(("x-user", user),))
        return dict(decide(mesh, mesh.gateways[0], request).receivers)

    assert receivers("/shop.v1.Cart/Get", "alice") == {PortRef("default/a", 80): 1}
    assert receivers("/shop.v1.Cart/Get", "bob") == {PortRef("default/r1", 80): 1}
    assert receivers("/other.Cart/Get", "alice") == {PortRef("default/r1", 80): 1}
    assert receivers("/shop.v1.Cart/List", "alice") == {404: 1}


def test_a_root_without_endpoints_and_backends_keeps_its_share():
    """D9, D11. The share fails instead of moving to another backend."""
    split = TrafficSplit(spec=TrafficSplitSpec(service="r3", backends=(Backend(service="gone", weight=1),)))
    rule = rt.HTTPRouteRule(backend_refs=(ref("r3"), ref("a")))
    result = compiled(BASE | {TRAFFIC_SPLIT.key("default", "s"): split} | route([rule]))
    (found,) = result.mesh.gateways[0].hosts["*"].routes
    assert [(item.weight, item.status) for item in found.split.broken] == [(1, 503)]
    assert [item.ref for item in found.split.targets] == [PortRef("default/a", 80)]
    assert check(result.mesh) == ()
