"""A route that is reported as unreachable gets no request; an example request in the finding shows this."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.differential.worlds import HEADER_PATTERN, HEADERS, PATH_PATTERN, PATHS, SENT_METHODS, VALUES

from headgate.compiler.reasons import Reason
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.unreachable_routes import RouteList, findings, unreachable
from headgate.matching.conditions import Setting, conjunction
from headgate.matching.patterns import sample
from headgate.matching.requests import parts_of, request_of
from headgate.matching.solver import Solver
from headgate.model.evaluate import first_unmet
from headgate.model.requests import ANY, Header, Match, Path, Query, Request, Text
from headgate.model.routing import Broken, PortRef, Route, Split
from headgate.resources.meta import Key
from headgate.resources.regexes import fault, matches


def is_comparable(pattern):
    """Return whether an expression is valid, and some text in ASCII fits it: proofs know no other text."""
    return not fault(pattern) and "[^\\x00-\\x7f]" not in pattern


TEXTS = st.one_of(
    HEADER_PATTERN.filter(is_comparable).map(lambda pattern: Text(value=pattern, regex=True)),
    st.sampled_from(("a$b", "$x", "a|b", "[^a]", "(?i)y.s")).map(lambda pattern: Text(value=pattern, regex=True)),
    st.sampled_from(VALUES).map(lambda value: Text(value=value)),
)
GROUP_PATHS = PATH_PATTERN.filter(is_comparable).map(lambda pattern: f"(?:{pattern}).*")
ODD_PATHS = st.sampled_from(("/a", "/a/b", "(/a|/b)", "(?:/a\\B).*", "(?:a).*", "(?:/x$y).*", "[/a]+", "(?i)/A", "/a?"))
PLACES = st.one_of(
    st.none(),
    st.one_of(GROUP_PATHS, ODD_PATHS).map(lambda pattern: Path(kind="regex", value=pattern)),
    st.sampled_from(("/", "/a", "/a/", "/a/b", "/b")).map(lambda value: Path(kind="prefix", value=value)),
    st.sampled_from(("/", "/a", "/a/b", "/b/")).map(lambda value: Path(kind="exact", value=value)),
)
NAMES = st.sampled_from([*(name.lower() for name in HEADERS if name != "host"), ":authority"])
METHODS = st.lists(st.sampled_from(SENT_METHODS), max_size=2, unique=True).map(sorted).map(tuple)


def conditions(kind, names):
    found = st.lists(st.builds(kind, name=names, text=TEXTS), max_size=2, unique_by=lambda item: item.name)
    return found.map(lambda items: tuple(sorted(items)))


MATCHES = st.builds(
    Match,
    path=PLACES,
    methods=METHODS,
    headers=conditions(Header, NAMES),
    query=conditions(Query, st.sampled_from(("q", "r"))),
)
REQUESTS = st.builds(
    Request,
    authority=st.sampled_from(VALUES),
    method=st.sampled_from(SENT_METHODS),
    target=st.sampled_from([*PATHS, "/a?q=1", "/a/b?q=a&r=b", "/aB", "/ab"]),
    headers=st.lists(st.tuples(NAMES.filter(lambda name: name[0] != ":"), st.sampled_from(VALUES)), max_size=3).map(
        tuple
    ),
)


def table(matches_):
    return tuple(
        Route(match=match, name=str(index), origin=Key("", "Any", "", str(index)), split=Split(targets=()))
        for index, match in enumerate(matches_)
    )


def fits(match, request):
    parts = parts_of(request, Setting())
    return parts is not None and first_unmet(match, parts) is None


def first_matching_route(routes, request):
    return next((route for route in routes if fits(route.match, request)), None)


def sent(example):
    """Return an example as a client can send it: with a host, which is not shown if it does not matter."""
    return structs.replace(example, authority=example.authority or "other.example")


@given(st.lists(MATCHES, min_size=2, max_size=6), st.lists(REQUESTS, min_size=20, max_size=20))
def test_every_finding_has_a_valid_example_and_no_counterexample(matches_, requests):
    routes = table(matches_)
    for item in unreachable(routes):
        for request in requests:
            assert first_matching_route(routes, request) != routes[item.number]
        if item.never and item.example is None:
            continue
        assert first_matching_route(routes, sent(item.example)) == item.winner != routes[item.number]
        assert item.never is not fits(routes[item.number].match, sent(item.example))


@given(st.lists(MATCHES, min_size=2, max_size=6))
def test_every_other_route_gets_a_request(matches_):
    """The proof is complete: a route without a finding gets a request, unless one with the same effect takes them."""
    routes = table(matches_)
    missed = {item.number for item in unreachable(routes)}
    for number, route in enumerate(routes):
        if number not in missed:
            earlier = [conjunction(other.match) for other in routes[:number]]
            request = request_of(Solver(Setting()).solve(conjunction(route.match), earlier), Setting())
            assert first_matching_route(routes, request) == route


def prefix(value):
    return Match(path=Path(kind="prefix", value=value))


def test_a_route_whose_requests_several_earlier_routes_take_together_is_reported():
    methods = [Match(methods=(method,)) for method in ("GET", "POST")]
    routes = table([*methods, Match(path=Path(kind="prefix", value="/a"), methods=("GET", "POST"))])
    (item,) = unreachable(routes)
    assert (item.number, item.winner, item.never) == (2, routes[0], False)
    pattern = Match(path=Path(kind="regex", value="/(a|b)/x"))
    (item,) = unreachable(table([prefix("/a"), prefix("/b"), pattern]))
    assert item.number == 2


def test_many_routes_with_expressions_are_compared_in_bounded_time():
    """The proofs for one table share a number of steps; after them, each route has a few."""
    hard = [Match(path=Path(kind="regex", value=f"/.*(a|b{number}).{{40}}c.*")) for number in range(40)]
    routes = table([*hard, prefix("/a"), prefix("/a/b")])
    begun = time.process_time()
    assert [item.number for item in unreachable(routes)] == [41]
    assert time.process_time() - begun < 40 * 0.2  # one proof without a limit takes 0.2 s


PATTERNS = (
    ".*Firefox.*",
    "a|b",
    "[0-9]{3}x?",
    "(?:/api/v\\d+).*",
    "^/(?P<name>a+)$",
    "[^a-z]y",
    "\\bon\\b",
    "\\x41\\.",
    "[[:digit:]]-",
    "",
    "(?i)yes",
    "a{2,}?b",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_sample_generated_from_a_pattern_matches_the_pattern(pattern):
    found = sample(pattern)
    assert found is not None
    assert matches(pattern, found)


def possible(**conditions):
    """Return whether any request fits a match."""
    return Solver(Setting()).solve(conjunction(Match(**conditions)), ()) is not None


@pytest.mark.parametrize("pattern", ["a$b", "$x", "a^b", "[^\\x00-\\xff]", "(?:/a$b).*"])
def test_a_pattern_without_matches_is_detected(pattern):
    assert sample(pattern) is None
    assert not possible(headers=(Header(name="x-a", text=Text(value=pattern, regex=True)),))


@pytest.mark.parametrize("pattern", [*PATTERNS, "(?:/a\\B).*", "(?:/a$).*", "^$"])
def test_a_pattern_with_matches_is_not_reported(pattern):
    assert possible(headers=(Header(name="x-a", text=Text(value=pattern, regex=True)),))


@pytest.mark.parametrize(("pattern", "none"), [("(?:api).*", True), ("(?:/api).*", False), ("(?:.*api).*", False)])
def test_a_path_pattern_without_a_leading_slash_matches_no_path(pattern, none):
    assert possible(path=Path(kind="regex", value=pattern)) is not none


@pytest.mark.parametrize("pattern", ["é", "\\xe9+", "a|é"])
def test_texts_outside_of_ascii_are_not_said_to_be_impossible(pattern):
    """Clients can send them as the value of a header; the proofs are about ASCII only."""
    header = Header(name="x-a", text=Text(value=pattern, regex=True))
    assert unreachable(table([Match(headers=(header,)), prefix("/a")])) == ()


@pytest.mark.parametrize("value", ["x y", "a&b", "a#b"])
def test_a_value_that_no_url_has_is_reported_with_the_need_to_escape_it(value):
    match = Match(query=(Query(name="q", text=Text(value=value)),))
    origin = Key("gateway.networking.k8s.io", "HTTPRoute", "default", "r")
    routes = (Route(match=match, origin=origin, split=Split(targets=())),)
    listed = RouteList("default/a:80", PortRef("default/a", 80), routes, unreachable(routes))
    (finding,) = findings(Snapshot(), [listed])
    assert finding.reason is Reason.NEVER_MATCHES
    assert "no URL has such a value of q; escape" in finding.message


def test_two_equal_splits_are_not_reported():
    one, two = table([Match(path=Path(kind="prefix", value="/a"))] * 2)
    assert unreachable((one, two))
    again = Route(match=two.match, name=two.name, origin=one.origin, split=one.split)
    assert not unreachable((one, again))
    other = Route(
        match=two.match,
        name=two.name,
        origin=one.origin,
        split=Split(targets=(), broken=(Broken(weight=1, reason="any"),)),
    )
    assert unreachable((one, other))


def test_findings_are_stable_across_builds():
    key = Key("split.smi-spec.io", "TrafficSplit", "default", "one")
    older = Key("split.smi-spec.io", "TrafficSplit", "default", "older")

    def lists():
        routes = tuple(Route(match=ANY, origin=origin, split=Split(targets=())) for origin in (older, key))
        return [RouteList("default/a:80", PortRef("default/a", 80), routes, unreachable(routes))]

    first, second = (findings(Snapshot(), lists()) for _ in range(2))
    assert first == second
    assert {(item.about, item.reason) for item in first} == {(key, Reason.SHADOWED), (key, Reason.NO_EFFECT)}
