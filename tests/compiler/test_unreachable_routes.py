"""A route that is reported as unreachable gets no request; an example request in the finding shows this."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.differential.worlds import HEADER_PATTERN, HEADERS, PATH_PATTERN, PATHS, SENT_METHODS, VALUES

from headgate.compiler.containment import contains
from headgate.compiler.reasons import Reason
from headgate.compiler.regex_samples import matches_no_path, matches_nothing, sample
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.unreachable_routes import RouteList, findings, first_matching_route, unreachable
from headgate.model.evaluate import RequestParts, first_unmet
from headgate.model.requests import ANY, Header, Match, Path, Query, Request, Text
from headgate.model.routing import Broken, PortRef, Route, Split
from headgate.resources.meta import Key
from headgate.resources.regexes import fault, matches

TEXTS = st.one_of(
    HEADER_PATTERN.filter(lambda pattern: not fault(pattern)).map(lambda pattern: Text(value=pattern, regex=True)),
    st.sampled_from(("a$b", "$x", "a|b", "[^a]", "(?i)y.s")).map(lambda pattern: Text(value=pattern, regex=True)),
    st.sampled_from(VALUES).map(lambda value: Text(value=value)),
)
GROUP_PATHS = PATH_PATTERN.filter(lambda pattern: not fault(pattern)).map(lambda pattern: f"(?:{pattern}).*")
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
    return first_unmet(match, RequestParts(request)) is None


@given(st.lists(MATCHES, min_size=2, max_size=6), st.lists(REQUESTS, min_size=20, max_size=20))
def test_every_finding_has_a_valid_example_and_no_counterexample(matches_, requests):
    routes = table(matches_)
    for item in unreachable(routes):
        assert first_matching_route(routes, item.example) == item.winner != routes[item.number]
        assert item.never is not fits(routes[item.number].match, item.example)
        for request in requests:
            assert first_matching_route(routes, request) != routes[item.number]


PARTS = st.sets(st.sampled_from(("path", "methods", "headers", "query")), max_size=3)


@given(MATCHES, MATCHES, PARTS, st.lists(REQUESTS, min_size=20, max_size=20))
def test_a_match_that_contains_another_match_fits_all_its_requests(outer, other, parts, requests):
    narrow = structs.replace(outer, **{part: getattr(other, part) for part in parts})
    if contains(outer, narrow):
        assert all(fits(outer, request) for request in requests if fits(narrow, request))


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


@pytest.mark.parametrize("pattern", ["a$b", "$x", "a^b", "[^\\x00-\\x{10FFFF}]", "(?:/a$b).*"])
def test_a_pattern_without_matches_is_detected(pattern):
    assert matches_nothing(pattern)
    assert sample(pattern) is None


@pytest.mark.parametrize("pattern", [*PATTERNS, "(?:/a\\B).*", "(?:/a$).*", "^$"])
def test_a_pattern_with_matches_is_not_reported(pattern):
    assert not matches_nothing(pattern)


@pytest.mark.parametrize(("pattern", "none"), [("(?:api).*", True), ("(?:/api).*", False), ("(?:.*api).*", False)])
def test_a_path_pattern_without_a_leading_slash_matches_no_path(pattern, none):
    assert matches_no_path(pattern) is none


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
