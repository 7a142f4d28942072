"""Routing decisions: hosts, conditions, precedence and exact shares (R11 to R16, D5, D9)."""

from fractions import Fraction

import pytest

from headgate.model.authorities import resolve
from headgate.model.evaluate import Unmet, best_host, decide
from headgate.model.hash_slots import slot_of
from headgate.model.host_names import by_host
from headgate.model.requests import Header, Match, Path, Query, Redirect, Request, Text, begins_with
from headgate.model.routing import (
    Broken,
    Endpoint,
    Endpoints,
    Frontend,
    GatewayPort,
    HostRoutes,
    Mesh,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    ServerName,
    Split,
    Sticky,
    Target,
)

WEB = PortRef("default/web", 80)
V1 = PortRef("default/web-v1", 80)
V2 = PortRef("default/web-v2", 80)


def to(*refs):
    return Split(targets=tuple(Target(ref=ref, weight=weight) for ref, weight in refs))


def mesh(*routes, ready=(WEB, V1, V2), **more):
    entries = tuple(
        Endpoints(ref=ref, ready=(Endpoint(address="10.0.0.1", port=1),) if ref in ready else ())
        for ref in (WEB, V1, V2)
    )
    tables = (RouteTable(ref=WEB, routes=(*routes, Route(split=to((WEB, 1)))), **more),)
    front = Frontend(service="default/web", address="10.9.0.1", ports=(80, 90))
    return Mesh(domain="cluster.local", frontends=(front,), tables=tables, endpoints=entries)


def asked(match, **request):
    """Return whether a route with this match gets the request."""
    decision = decide(mesh(Route(match=match, split=to((V1, 1)))), WEB, Request(**request))
    return decision.receivers == {V1: 1}


def test_shares_are_exact_fractions():
    decision = decide(mesh(Route(split=to((V1, 2), (V2, 1)))), WEB, Request())
    assert decision.receivers == {V1: Fraction(2, 3), V2: Fraction(1, 3)}
    assert [portion.endpoints for portion in decision.shares] == [1, 1]


def test_the_first_matching_route_wins_and_earlier_routes_have_an_unmet_condition():
    fails = Route(match=Match(methods=("PUT",), headers=(Header(name="a", text=Text(value="b")),)), split=to((V1, 1)))
    fits = Route(match=Match(methods=("GET",)), split=to((V2, 1)))
    decision = decide(mesh(fails, fits, fails), WEB, Request())
    assert decision.route == fits
    assert [item.unmet for item in decision.tried] == [Unmet(part="method", wanted="PUT", found="GET"), None]


@pytest.mark.parametrize(
    ("path", "target", "fits"),
    [
        (Path(kind="exact", value="/a"), "/a?b=c", True),
        (Path(kind="exact", value="/a"), "/a/", False),
        (Path(kind="prefix", value="/a"), "/a", True),
        (Path(kind="prefix", value="/a"), "/a/b", True),
        (Path(kind="prefix", value="/a/"), "/a", True),
        (Path(kind="prefix", value="/a"), "/ab", False),
        (Path(kind="prefix", value="/"), "/anything", True),
        (Path(kind="regex", value="/a.c"), "/abc?d", True),
        (Path(kind="regex", value="/a.c"), "/abcd", False),
    ],
)
def test_a_path_condition_is_an_exact_path_a_prefix_or_an_expression(path, target, fits):
    assert asked(Match(path=path), target=target) == fits


def test_header_names_ignore_case_and_values_are_joined():
    match = Match(headers=(Header(name="x-user", text=Text(value="a,b")),))
    assert asked(match, headers=(("X-User", "a"), ("x-uSER", "b")))
    assert not asked(match, headers=(("X-User", "b"),))


def test_a_missing_header_matches_no_expression():
    match = Match(headers=(Header(name="x-user", text=Text(value=".*", regex=True)),))
    assert asked(match, headers=(("x-user", ""),))
    assert not asked(match)


def test_the_first_of_two_query_parameters_with_the_same_name_is_used():
    match = Match(query=(Query(name="a", text=Text(value="1")),))
    assert asked(match, target="/?a=1&a=2")
    assert not asked(match, target="/?a=2&a=1")
    assert not asked(match, target="/")


def test_failing_shares_get_requests_by_their_weight():
    split = Split(targets=(Target(ref=V1, weight=3),), broken=(Broken(weight=1, reason="X", status=500),))
    assert decide(mesh(Route(split=split)), WEB, Request()).receivers == {V1: Fraction(3, 4), 500: Fraction(1, 4)}


def test_requests_to_a_split_without_backends_get_503():
    assert decide(mesh(Route(split=to())), WEB, Request()).receivers == {503: 1}
    assert decide(mesh(ready=()), WEB, Request()).receivers == {503: 1}


def test_a_redirected_request_reaches_no_backend():
    route = Route(split=to((V1, 1)), redirect=Redirect(status=301))
    assert decide(mesh(route), WEB, Request()).receivers == {301: 1}


def test_decisions_for_a_tcp_port_ignore_the_request():
    decision = decide(mesh(protocol=Protocol.TCP), WEB, Request())
    assert decision.receivers == {WEB: 1}
    assert decision.protocol is Protocol.TCP


@pytest.mark.parametrize(
    ("authority", "port"),
    [
        ("web", 80),
        ("web:90", 90),
        ("web.default.svc.cluster.local:80", 80),
        ("10.9.0.1", 80),
        ("web:91", None),
        ("gone", None),
    ],
)
def test_an_authority_resolves_to_a_service_port(authority, port):
    assert resolve(mesh(), authority) == (PortRef("default/web", port) if port else None)


def test_an_unknown_host_gets_404():
    assert decide(mesh(), "gone", Request()).receivers == {404: 1}


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("a.example.com", "a.example.com"),
        ("A.example.com:8080", "a.example.com"),
        ("b.example.com", "*.example.com"),
        ("c.b.example.com", "*.b.example.com"),
        ("example.com", "*"),
    ],
)
def test_a_gateway_uses_the_most_specific_host(authority, host):
    hosts = by_host(
        *(HostRoutes(host=name, routes=()) for name in ("*", "*.example.com", "a.example.com", "*.b.example.com"))
    )
    found = best_host(hosts, authority)
    assert found is not None
    assert found.host == host


def test_a_gateway_does_not_fall_back_to_a_less_specific_host():
    hosts = by_host(
        HostRoutes(host="*", routes=(Route(split=to((V1, 1))),)),
        HostRoutes(host="a.b", routes=(Route(match=Match(methods=("PUT",)), split=to((V2, 1))),)),
    )
    port = GatewayPort(gateway="default/g", address="10.9.0.2", port=80, hosts=hosts)
    assert decide(mesh(), port, Request(authority="a.b")).receivers == {404: 1}
    assert decide(mesh(), port, Request(authority="a.b", method="PUT")).receivers == {V2: 1}
    assert decide(mesh(), port, Request(authority="other")).receivers == {V1: 1}


@pytest.mark.parametrize(
    ("sticky", "headers", "key"),
    [
        (Sticky(kind="header", name="x-user"), (("X-User", "alice"),), "alice"),
        (Sticky(kind="header", name="x-user"), (), None),
        (Sticky(kind="cookie", name="side"), (("cookie", 'a=b; side="alice"; side=bob'),), "alice"),
        (Sticky(kind="cookie", name="side"), (("cookie", "other=side=1; side="),), None),
        (Sticky(kind="source"), (("x-user", "alice"),), None),
        (None, (("x-user", "alice"),), None),
    ],
)
def test_the_user_key_comes_from_the_cookie_or_header_of_the_split(sticky, headers, key):
    split = Split(targets=(Target(ref=V1, weight=10_000),), sticky=sticky)
    decision = decide(mesh(Route(split=split)), WEB, Request(headers=headers))
    assert decision.slot == (slot_of(key) if key else None)
    assert decision.receivers == {V1: 1}


@pytest.mark.parametrize(
    ("server_name", "host", "receivers"),
    [
        ("mail.example.com", "mail.example.com", {V1: 1}),
        ("MAIL.example.com", "mail.example.com", {V1: 1}),
        ("other.example.com", "*.example.com", {V2: 1}),
        ("closed.example.com", "closed.example.com", {503: 1}),
        ("example.org", "*", {503: 1}),
        ("", "*", {503: 1}),
    ],
)
def test_the_server_name_of_a_tls_connection_selects_its_backend(server_name, host, receivers):
    names = {"*": None, "*.example.com": V2, "closed.example.com": None, "mail.example.com": V1}
    port = GatewayPort(
        gateway="default/edge",
        address="10.0.0.9",
        port=443,
        protocol=Protocol.TLS,
        server_names=tuple(
            ServerName(host=name, route=Route(split=to((ref, 1))) if ref else None) for name, ref in names.items()
        ),
    )
    decision = decide(mesh(), port, Request(server_name=server_name))
    assert (decision.host, decision.receivers, decision.protocol) == (host, receivers, Protocol.TLS)


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        (begins_with("/items$"), "/items$"),
        (begins_with("/a|/b"), "/a|/b"),
        ("/(?:a)/.*", "/(?:a)/.*"),
        ("(?:/a)|(?:/b).*", "(?:/a)|(?:/b).*"),
    ],
)
def test_a_path_that_does_not_match_is_compared_with_the_pattern_as_the_user_wrote_it(pattern, written):
    chosen = Route(split=to((V1, 1)), match=Match(path=Path(kind="regex", value=pattern)))
    decision = decide(mesh(chosen), WEB, Request(target="/other"))
    assert str(decision.tried[0].unmet) == f"path is '/other', wanted regex {written}"
