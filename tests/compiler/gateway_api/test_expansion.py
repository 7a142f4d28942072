"""Splits also apply to requests that reach their root by the rule of a route (D13, R30, R60)."""

from collections import defaultdict
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from tests.compiler.gateway_api.route_meshes import SHOP, edge, edge_route, mirror, ref, services
from tests.make.objects import http_route_group, path_match, split
from tests.make.values import compiled, findings

from headgate.compiler.gateway_api.rules import MOST_ROWS
from headgate.compiler.reasons import Reason
from headgate.model.evaluate import decide
from headgate.model.requests import Request
from headgate.model.routing import PortRef
from headgate.resources.smi.split_fields import NO_ENDPOINTS, STICKY

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
    def match():
        fields = {
            "pathRegex": draw(st.sampled_from(PATTERNS)),
            "methods": draw(st.sampled_from((None, None, ["GET"], ["*"]))),
            "headers": draw(HEADERS),
        }
        return {key: value for key, value in fields.items() if value}

    return [
        http_route_group(name, {f"m{number}": match() for number in range(draw(st.integers(1, 3)))})
        for name in ("g1", "g2")
    ]


@st.composite
def splits(draw):
    drawn = []
    for number in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from((*PLAIN, "gone")), min_size=1, max_size=3, unique=True))
        used = draw(st.lists(st.sampled_from(("g1", "g2")), max_size=2, unique=True))
        annotations = draw(st.sampled_from(({}, {}, {NO_ENDPOINTS: "fail"}, {STICKY: "header:x-user"})))
        root, created = draw(st.sampled_from(ROOTS)), {"creationTimestamp": f"2026-01-0{number + 1}T00:00:00Z"}
        weights = {name: draw(WEIGHTS) for name in names}
        meta = {"annotations": annotations, "metadata": created}
        drawn.append(split(root, weights, name=f"s{number}", matches=used, **meta))
    return drawn


@st.composite
def rules(draw):
    def match():
        kind, value = draw(st.sampled_from(RULE_PATHS))
        headers = [{"name": name, "type": "RegularExpression", "value": text} for name, text in draw(HEADERS).items()]
        return path_match(value, kind, headers=headers)

    names = draw(st.lists(st.sampled_from((*ROOTS, *ROOTS, *PLAIN, "gone")), min_size=1, max_size=3))
    copied = draw(st.lists(st.sampled_from((*ROOTS, "a")), max_size=2, unique=True))
    return {
        "matches": [match() for _ in range(draw(st.integers(1, 2)))],
        "backendRefs": [ref(name, weight=draw(WEIGHTS)) for name in names],
        "filters": [mirror(name) for name in copied],
    }


def requests():
    headers = st.lists(st.tuples(st.sampled_from(("x-a", "x-b")), st.sampled_from(VALUES)), max_size=3)
    return st.builds(
        lambda method, target, found: Request(authority="shop", method=method, target=target, headers=tuple(found)),
        st.sampled_from(("GET", "POST")),
        st.sampled_from(PATHS),
        headers,
    )


def at_service(mesh, name, request):
    """Return the receivers of a request to the Service itself."""
    return decide(mesh, PortRef(f"default/{name}", 80), request).receivers


def of_backends(mesh, rule, request):
    found = defaultdict(Fraction)
    total = sum(backend["weight"] for backend in rule["backendRefs"])
    for backend in rule["backendRefs"] if total else ():
        parts = {500: Fraction(1)} if backend["name"] == "gone" else at_service(mesh, backend["name"], request)
        for receiver, part in parts.items():
            found[receiver] += part * Fraction(backend["weight"], total)
    return {receiver: part for receiver, part in found.items() if part} or {500: Fraction(1)}


def of_mirrors(mesh, rule, request):
    found = defaultdict(Fraction)
    for item in rule["filters"]:
        for receiver, part in at_service(mesh, item["requestMirror"]["backendRef"]["name"], request).items():
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


BASE = *services(*ROOTS, *PLAIN, dead=("dead", "r3")), edge()
DEAD = {PortRef("default/dead", 80), PortRef("default/r3", 80)}


@given(groups(), splits(), st.lists(rules(), min_size=1, max_size=2), st.lists(requests(), min_size=1, max_size=8))
def test_splits_apply_to_requests_that_reach_their_root_by_a_rule(named, divided, written, asked):
    world, shop = (*BASE, *named, *divided), edge_route(*written)
    services_alone, route_alone = compiled(*world).mesh, compiled(*BASE, shop).mesh
    result = compiled(*world, shop)
    assert findings(result, Reason.INVALID) == []
    mesh = result.mesh
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
    group = http_route_group(root, {f"m{number}": {"headers": {header: f"{number}.*"}} for number in range(matches)})
    return group, split(root, {"a": 1}, matches=[root])


def test_too_many_combinations_are_reported_and_matches_of_the_last_root_are_ignored():
    shop = edge_route({"backendRefs": [ref("r1"), ref("r2")]})
    result = compiled(*BASE, *ab_test("r1", "x-a", 11), *ab_test("r2", "x-b", 11), shop)
    (finding,) = findings(result, Reason.TOO_MANY_MATCHES)
    assert (finding.about, finding.field) == (SHOP, "spec.rules[0].backendRefs")
    assert "default/r2:80" in finding.message
    request = Request(authority="shop", headers=(("x-a", "1"), ("x-b", "1")))
    found = decide(result.mesh, result.mesh.gateways[0], request).receivers
    assert found == {PortRef("default/a", 80): Fraction(1, 2), PortRef("default/r2", 80): Fraction(1, 2)}


def test_a_single_root_can_have_any_number_of_matches():
    shop = edge_route({"backendRefs": [ref("r1"), ref("b")]})
    result = compiled(*BASE, *ab_test("r1", "x-a", 2 * MOST_ROWS), shop)
    assert findings(result, Reason.TOO_MANY_MATCHES) == []
    request = Request(authority="shop", headers=(("x-a", str(2 * MOST_ROWS - 1)),))
    found = decide(result.mesh, result.mesh.gateways[0], request).receivers
    assert found == {PortRef("default/a", 80): Fraction(1, 2), PortRef("default/b", 80): Fraction(1, 2)}


def test_a_grpc_route_uses_the_matches_of_its_backend():
    """The gRPC method and the path of the split are two conditions on one path."""
    group = http_route_group("g", {"shop": {"pathRegex": "/shop.*", "headers": {"x-user": "a.*"}}})
    calls = {"matches": [{"method": {"method": "Get"}}], "backendRefs": [ref("r1")]}
    divided = split("r1", {"a": 1, "b": 0}, matches=["g"])
    mesh = compiled(*BASE, group, divided, edge_route(calls, name="calls", kind="GRPCRoute")).mesh

    def receivers(target, user):
        request = Request(authority="shop", method="POST", target=target, headers=(("x-user", user),))
        return dict(decide(mesh, mesh.gateways[0], request).receivers)

    assert receivers("/shop.v1.Cart/Get", "alice") == {PortRef("default/a", 80): 1}
    assert receivers("/shop.v1.Cart/Get", "bob") == {PortRef("default/r1", 80): 1}
    assert receivers("/other.Cart/Get", "alice") == {PortRef("default/r1", 80): 1}
    assert receivers("/shop.v1.Cart/List", "alice") == {404: 1}


def test_a_root_without_endpoints_and_backends_keeps_its_share():
    """D9, D11. The share fails instead of moving to another backend."""
    result = compiled(*BASE, split("r3", {"gone": 1}), edge_route({"backendRefs": [ref("r3"), ref("a")]}))
    (found,) = result.mesh.gateways[0].hosts["*"].routes
    assert [(item.weight, item.status) for item in found.split.broken] == [(1, 503)]
    assert [item.ref for item in found.split.targets] == [PortRef("default/a", 80)]
