"""Functions of the Gateway API compiler: hosts, precedence, fractions and methods."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.compiler.gateway_api.backend_shares import FINEST, fitting, nearest, proportion
from headgate.compiler.gateway_api.conflicts import HostOwners
from headgate.compiler.gateway_api.parents import attached_hosts, intersection
from headgate.compiler.gateway_api.routes import method_path, to_match
from headgate.compiler.gateway_api.rules import CompiledRoute, Ranked, in_order, rank
from headgate.model.host_names import best_name, fitting_names, host_fits
from headgate.model.requests import ANY, Header, Match, Path, Query, Text
from headgate.model.routing import Route, Split
from headgate.resources.gateway_api.grpc_route import GRPCMethodMatch
from headgate.resources.gateway_api.http_route import HTTPRouteMatch, PathMatch
from headgate.resources.gateway_api.routes import BackendReference, NameMatch, RequestMirror
from headgate.resources.gateway_api.routes import Fraction as WrittenFraction
from headgate.resources.meta import Key
from headgate.resources.regexes import matches
from headgate.resources.weights import LARGEST_SUM

HOSTS = ("*", "*.a", "*.b.a", "b.a", "c.b.a", "c.a", "a")


@given(st.sampled_from(HOSTS), st.sampled_from(HOSTS), st.sampled_from([host for host in HOSTS if "*" not in host]))
def test_the_intersection_of_two_patterns_matches_the_names_that_both_match(first, second, name):
    both = host_fits(first, name) and host_fits(second, name)
    common = intersection(first, second)
    assert both == bool(common and host_fits(common, name))


@pytest.mark.parametrize(
    ("listener", "written", "hosts"),
    [
        ("*", (), ("*",)),
        ("*", ("Shop.Example",), ("shop.example",)),
        ("*.example", (), ("*.example",)),
        ("*.example", ("shop.example", "example", "other.org", "a.b.example"), ("shop.example", "a.b.example")),
        ("shop.example", ("*.example", "*"), ("shop.example",)),
        ("shop.example", ("cart.example",), ()),
    ],
)
def test_a_route_has_the_hosts_that_its_listener_allows(listener, written, hosts):
    """R59. A wildcard matches one or more labels."""
    assert attached_hosts(listener, written) == hosts


@given(st.lists(st.sampled_from(HOSTS), max_size=4), st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3))
def test_the_oldest_route_with_common_names_is_the_rival(older, hosts):
    known = HostOwners()
    routes = [CompiledRoute(key=Key("", "HTTPRoute", "", str(at)), created=str(at), parents=()) for at in range(4)]
    for route, host in zip(routes, older, strict=False):
        known.add(route, [host])
    rivals = (
        route for route, host in zip(routes, older, strict=False) if any(intersection(host, own) for own in hosts)
    )
    assert known.oldest(hosts) is next(rivals, None)


@given(st.sampled_from(HOSTS))
def test_matching_patterns_are_sorted_by_specificity(host):
    found = fitting_names(HOSTS, host)
    assert {pattern for pattern in HOSTS if host_fits(pattern, host)} == set(found)
    assert all(host_fits(wider, narrower) for narrower, wider in pairwise(found))


def test_a_host_belongs_to_the_most_specific_listener():
    listeners = ("*", "*.example", "shop.example", "*.shop.example")
    assert best_name(listeners, "shop.example") == "shop.example"
    assert best_name(listeners, "a.shop.example") == "*.shop.example"
    assert best_name(listeners, "cart.example") == "*.example"
    assert best_name(listeners, "example") == "*"
    assert best_name(("shop.example",), "cart.example") is None


def ranked(match, *, name="r", created="2026-01-01T00:00:00Z", rule=0):
    route = Route(split=Split(targets=()), match=match, name=f"{name}/{rule}")
    origin = Key("", "HTTPRoute", "default", name)
    return Ranked(rank(match, origin, created, rule, 0), (route,))


def prefix(value):
    return Match(path=Path(kind="prefix", value=value))


HEADERS = (Header(name="a", text=Text(value="1")), Header(name="b", text=Text(value="2")))
QUERIES = (Query(name="a", text=Text(value="1")), Query(name="b", text=Text(value="2")))
BEST_FIRST = (
    Match(path=Path(kind="exact", value="/a")),
    prefix("/a/long/one"),
    Match(path=Path(kind="prefix", value="/a/b"), methods=("GET",)),
    Match(path=Path(kind="prefix", value="/a/b"), headers=HEADERS, query=QUERIES),
    Match(path=Path(kind="prefix", value="/a/b"), headers=HEADERS[:1], query=QUERIES),
    Match(path=Path(kind="prefix", value="/a/b"), query=QUERIES),
    Match(path=Path(kind="prefix", value="/a/b"), query=QUERIES[:1]),
    prefix("/a"),
    Match(path=Path(kind="regex", value="/[a-z/]+")),
    Match(methods=("GET",)),
    Match(headers=HEADERS),
    ANY,
)


@given(st.permutations(BEST_FIRST))
def test_routes_are_sorted_by_gateway_api_precedence(shuffled):
    routes = in_order(ranked(match, rule=rule) for rule, match in enumerate(shuffled))
    assert tuple(route.match for route in routes) == BEST_FIRST


def test_equal_matches_are_sorted_by_age_name_and_rule():
    shuffled = (
        ranked(ANY, name="b", created="2026-01-02T00:00:00Z"),
        ranked(ANY, name="a", created="2026-01-02T00:00:00Z", rule=1),
        ranked(ANY, name="a", created="2026-01-02T00:00:00Z"),
        ranked(ANY, name="z", created="2026-01-01T00:00:00Z"),
    )
    assert [route.name for route in in_order(shuffled)] == ["z/0", "a/0", "a/1", "b/0"]


def test_the_first_of_two_header_matches_whose_names_differ_only_in_case_is_used():
    written = (NameMatch(name="X-Color", value="red"), NameMatch(name="x-color", value="blue"))
    assert to_match(HTTPRouteMatch(headers=written)).headers == (Header(name="x-color", text=Text(value="red")),)


def test_query_parameter_names_are_case_sensitive():
    written = (NameMatch(name="q", value="1"), NameMatch(name="Q", value="2"), NameMatch(name="q", value="3"))
    assert [(query.name, query.text.value) for query in to_match(HTTPRouteMatch(query_params=written)).query] == [
        ("Q", "2"),
        ("q", "1"),
    ]


@pytest.mark.parametrize(("written", "wanted"), [("/", None), ("/a", "/a"), ("/a/", "/a"), ("/a/b", "/a/b")])
def test_the_trailing_slash_of_a_prefix_is_ignored(written, wanted):
    found = to_match(HTTPRouteMatch(path=PathMatch(type="PathPrefix", value=written))).path
    assert found == (Path(kind="prefix", value=wanted) if wanted else None)


def mirror(**written):
    return RequestMirror(backend_ref=BackendReference(name="copy", port=80), **written)


@pytest.mark.parametrize(
    ("written", "share"),
    [
        ({}, Fraction(1)),  # R50
        ({"percent": 42}, Fraction(42, 100)),  # R45, R51
        ({"percent": 0}, Fraction(0)),  # R47
        ({"fraction": WrittenFraction(numerator=5, denominator=1000)}, Fraction(5, 1000)),  # R46
        ({"fraction": WrittenFraction(numerator=5)}, Fraction(5, 100)),  # R48
        ({"fraction": WrittenFraction(denominator=1000)}, Fraction(100, 1000)),
        ({"fraction": WrittenFraction()}, Fraction(1)),
        ({"fraction": WrittenFraction(numerator=0)}, Fraction(0)),
        ({"percent": 100, "fraction": WrittenFraction(numerator=1, denominator=10)}, Fraction(1, 10)),  # R49
    ],
)
def test_a_mirror_gets_the_written_fraction_of_the_requests(written, share):
    assert Fraction(*proportion(mirror(**written))) == share


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_a_fraction_is_rounded_to_the_nearest_millionth(numerator, denominator):
    assume(numerator <= denominator)
    assert abs(Fraction(nearest(numerator, denominator), FINEST) - Fraction(numerator, denominator)) <= Fraction(
        1, 2 * FINEST
    )


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=40))
def test_scaled_weights_fit_the_limit_and_stay_above_0(weights):
    found = fitting(weights)
    assert sum(found) <= LARGEST_SUM
    assert min(found) >= 1
    assert sum(weights) > LARGEST_SUM or found == tuple(weights)


@pytest.mark.parametrize(
    ("written", "fits", "other"),
    [
        (GRPCMethodMatch(service="a.B", method="C"), "/a.B/C", "/a.B/CD"),
        (GRPCMethodMatch(service="a.B"), "/a.B/Any", "/a.BC/Any"),
        (GRPCMethodMatch(method="C"), "/any.Service/C", "/any.Service/D"),
        (GRPCMethodMatch(type="RegularExpression", service="a[.].*", method="C|D"), "/a.B/D", "/b.B/D"),
        (GRPCMethodMatch(type="RegularExpression", method="C."), "/a.B/CD", "/a.B/C"),
    ],
)
def test_a_grpc_method_becomes_a_path(written, fits, other):
    def decide(found, target):
        if found.kind == "exact":
            return found.value == target
        return target.startswith(f"{found.value}/") if found.kind == "prefix" else matches(found.value, target)

    found = method_path(written)
    assert decide(found, fits)
    assert not decide(found, other)


def test_a_match_without_method_matches_every_call():
    assert method_path(GRPCMethodMatch()) is None
