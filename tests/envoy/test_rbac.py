"""Grants as RBAC policies. The real Envoy enforces them in test_inbound_traffic.py."""

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from headgate.envoy import pb, rbac
from headgate.model.access import OPEN, Access, ConnectionRule, Grant, RequestRule
from headgate.model.ambiguous_paths import AMBIGUOUS_PATH
from headgate.model.requests import ANY, Header, Match, Path, Query, Text
from headgate.model.routing import InboundPort, PortProtocol, PortRef, Protocol
from headgate.resources.meta import Key
from headgate.resources.regexes import matches

ONE, TWO = (f"spiffe://cluster.local/ns/default/sa/{name}" for name in ("one", "two"))
TARGET = Key("access.smi-spec.io", "TrafficTarget", "shop", "cars")
PORT = InboundPort(
    port=8080,
    application=8080,
    protocols=(
        PortProtocol(protocol=Protocol.HTTP, services=(PortRef("shop/web", 80),)),
        PortProtocol(protocol=Protocol.TCP, services=(PortRef("shop/raw", 9000),)),
    ),
)


def access_grant(*, match=None, ports=None, **more):
    more = {"origin": TARGET, "sources": (ONE,), **more}
    requests = (RequestRule(name="routes/match", match=match),) if match is not None else ()
    connections = (ConnectionRule(name="raw", ports=ports),) if ports is not None else ()
    return Grant(requests=requests, connections=connections, **more)


def closed(*grants):
    return Access(closed=True, grants=grants)


def permission(match):
    """Return the permission of a request rule with this match; None if the rule allows nothing."""
    policies = rbac.request_rules(closed(access_grant(match=match)), PORT).policies
    return policies["shop/cars/routes/match"].permissions[0] if policies else None


def test_a_policy_has_the_name_of_its_rule():
    found = rbac.request_rules(closed(access_grant(match=ANY)), PORT)
    assert list(found.policies) == ["shop/cars/routes/match"]


def test_an_open_workload_has_a_policy_that_allows_all():
    (policy,) = rbac.request_rules(OPEN, PORT).policies.values()
    assert policy.permissions[0].any
    assert policy.principals[0].any


@pytest.mark.parametrize("access", [closed(), closed(access_grant()), closed(access_grant(match=ANY, sources=()))])
def test_a_closed_workload_without_rules_denies_all(access):
    found = rbac.request_rules(access, PORT)
    assert (found.action, len(found.policies)) == (pb.RBAC.Action.ALLOW, 0)
    assert rbac.allowed_sources(access, PORT) == ()


def test_only_the_uri_san_of_a_certificate_is_an_identity():
    """R70. A TLSConfig can add any DNS name to the certificate (R75), so DNS names prove no identity."""
    (policy,) = rbac.request_rules(closed(access_grant(match=ANY)), PORT).policies.values()
    (principal,) = policy.principals
    proven = pb.MtlsAuthenticated.FromString(principal.custom.typed_config.value)
    assert proven.san_matcher.san_type == pb.SubjectAltNameMatcher.SanType.URI
    assert proven.san_matcher.matcher.exact == ONE


@pytest.mark.parametrize(("port", "fits"), [(0, True), (8080, True), (80, False), (9000, False), (81, False)])
def test_a_traffic_targets_port_means_the_pods_port(port, fits):
    """2.3: the number of a Service port is ignored, even if that port leads to the pod's port."""
    assert bool(rbac.request_rules(closed(access_grant(match=ANY, port=port)), PORT).policies) == fits
    assert (rbac.allowed_sources(closed(access_grant(ports=(), port=port)), PORT) == (ONE,)) == fits


@pytest.mark.parametrize(("port", "fits"), [(8080, True), (9000, True), (80, False), (81, False)])
def test_a_tcp_route_names_the_pods_port_or_a_tcp_services_port(port, fits):
    """R68, R69: the ports of HTTP Services are ignored."""
    assert (rbac.allowed_sources(closed(access_grant(ports=(1, port))), PORT) == (ONE,)) == fits


def test_request_rules_allow_no_connections_and_connection_rules_no_requests():
    """R69."""
    assert rbac.allowed_sources(closed(access_grant(match=ANY)), PORT) == ()
    assert not rbac.request_rules(closed(access_grant(ports=())), PORT).policies


def test_allowed_sources_are_the_union_of_all_connection_rules():
    access = closed(
        access_grant(ports=(), sources=(TWO,)), access_grant(ports=(8080,), sources=(ONE, TWO)), access_grant(match=ANY)
    )
    assert rbac.allowed_sources(access, PORT) == (ONE, TWO)


def test_a_rule_with_query_parameters_allows_nothing():
    query = Match(query=(Query(name="a", text=Text(value="b")),))
    assert permission(query) is None


def test_all_conditions_of_a_rule_must_match():
    match = Match(
        path=Path(kind="exact", value="/a"),
        methods=("GET", "POST"),
        headers=(Header(name="x", text=Text(value="", regex=True)),),
    )
    header, methods, unambiguous, path = permission(match).and_rules.rules
    assert header.header.string_match.safe_regex.regex == "(?:)"
    assert (methods.header.name, methods.header.string_match.safe_regex.regex) == (":method", "GET|POST")
    assert unambiguous.HasField("not_rule")
    assert path.url_path.path.exact == "/a"


@pytest.mark.parametrize(
    ("prefix", "texts"),
    [("/", {"prefix": "/"}), ("/a", {"exact": "/a", "prefix": "/a/"}), ("/a/", {"exact": "/a", "prefix": "/a/"})],
)
def test_a_prefix_matches_whole_path_segments(prefix, texts):
    """As in routes, `/a` does not match `/ab`."""
    _, path = permission(Match(path=Path(kind="prefix", value=prefix))).and_rules.rules
    leaves = path.or_rules.rules or [path]
    found = [leaf.url_path.path for leaf in leaves]
    assert {
        text.WhichOneof("match_pattern"): getattr(text, text.WhichOneof("match_pattern")) for text in found
    } == texts


PIECES = st.lists(
    st.sampled_from(["/", "//", ".", "..", "\\", "%2e", "%2F", "%5c", "%25", "a", "b.c", "\n", "é"]), max_size=8
)


@given(pieces=PIECES)
def test_rbac_and_the_search_expression_match_the_same_ambiguous_paths(pieces):
    path = "/" + "".join(pieces)
    rule = permission(Match(path=Path(kind="prefix", value="/"))).and_rules.rules[0]
    whole = rule.not_rule.url_path.path.safe_regex.regex
    assert matches(whole, path) == bool(not path.isascii() or re2.search(AMBIGUOUS_PATH, path))
