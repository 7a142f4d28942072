"""Who is let in, by the specification (003, R67 to R76, D15, D21)."""

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headgate.model.authorization import authorize, grants_allowing, is_ambiguous, port_of, protocol_at
from headgate.model.requests import ANY, Header, Match, Path, Request, Text
from headgate.model.routing import (
    AMBIGUOUS_PATH,
    Access,
    ConnectionRule,
    Grant,
    InboundPort,
    PortProtocol,
    PortRef,
    Protocol,
    RequestRule,
    TlsMode,
    Workload,
)
from headgate.resources.meta import Key

SA_1, SA_2, SA_3 = (f"spiffe://cluster.local/ns/default/sa/sa-{number}" for number in (1, 2, 3))
TEST = Key("access.smi-spec.io", "TrafficTarget", "default", "test")
VERSION = Match(path=Path(kind="regex", value="(?:/version).*"), methods=("GET",))
HTTP, TCP = PortRef("default/service-1", 8080), PortRef("default/service-2", 9000)
PORT = InboundPort(
    port=8080,
    application=8080,
    protocols=(
        PortProtocol(protocol=Protocol.HTTP, services=(HTTP,)),
        PortProtocol(protocol=Protocol.TCP, services=(TCP,)),
    ),
)
GRANT = Grant(
    origin=TEST,
    sources=(SA_2,),
    requests=(RequestRule(name="http-route/version", match=VERSION),),
    connections=(ConnectionRule(name="tcp-route", ports=(8080,)),),
)
OPEN = Workload(name="default/server", address="10.1.0.1", identity=SA_1, ports=(PORT,))
EXAMPLE = structs.replace(OPEN, access=Access(closed=True, grants=(GRANT,)))


def ask(workload=EXAMPLE, identity=SA_2, protocol=Protocol.HTTP, port=8080, **request):
    return authorize(workload, port, protocol=protocol, identity=identity, request=Request(**request))


def granted(**changes):
    return structs.replace(EXAMPLE, access=Access(closed=True, grants=(structs.replace(GRANT, **changes),)))


@pytest.mark.parametrize(
    ("identity", "request_", "allowed"),
    [
        (SA_2, {"target": "/version"}, True),
        (SA_2, {"target": "/version/2?a=b"}, True),
        (SA_2, {"target": "/other"}, False),
        (SA_2, {"target": "/version", "method": "POST"}, False),
        (SA_3, {"target": "/version"}, False),
        ("", {"target": "/version"}, False),
    ],
)
def test_the_example_of_003(identity, request_, allowed):
    """R68, R70."""
    assert ask(identity=identity, **request_).allowed == allowed


def test_what_allows_it_is_named():
    found = ask(target="/version")
    assert (found.origin, found.rule) == (TEST, "http-route/version")
    found = ask(protocol=Protocol.TCP)
    assert (found.origin, found.rule) == (TEST, "tcp-route")


def test_rules_are_for_one_protocol():
    """R68, R69: HTTP rules on HTTP ports, TCP rules on the others."""
    only_tcp, only_http = granted(requests=()), granted(connections=())
    assert not ask(only_tcp, target="/version").allowed
    assert ask(only_tcp, protocol=Protocol.TCP).allowed
    assert not ask(only_http, protocol=Protocol.TCP).allowed
    assert ask(only_http, target="/version").allowed


@pytest.mark.parametrize(("ports", "allowed"), [((), True), ((8080,), True), ((9000,), True), ((5432,), False)])
def test_a_connection_is_meant_by_the_pods_port_or_by_that_of_a_service(ports, allowed):
    """R68."""
    found = ask(granted(connections=(ConnectionRule(name="tcp", ports=ports),)), protocol=Protocol.TCP)
    assert found.allowed == allowed


def test_a_connection_is_not_meant_by_the_port_of_a_service_that_says_http():
    """R69."""
    web = PortProtocol(protocol=Protocol.HTTP, services=(PortRef("default/service-1", 80),))
    port = structs.replace(PORT, protocols=(web, PORT.protocols[1]))
    workload = structs.replace(granted(connections=(ConnectionRule(name="tcp", ports=(80,)),)), ports=(port,))
    assert not ask(workload, protocol=Protocol.TCP).allowed


@pytest.mark.parametrize(("port", "allowed"), [(0, True), (8080, True), (9090, False)])
def test_a_target_of_v1alpha1_is_for_one_port_of_the_pods(port, allowed):
    assert ask(granted(port=port), target="/version").allowed == allowed


def test_without_a_traffic_target_a_workload_is_open():
    """D21."""
    assert ask(OPEN, identity="").allowed
    assert ask(OPEN, identity=SA_3).allowed
    assert ask(OPEN, protocol=Protocol.TCP).allowed


def test_deny_is_closed_to_everybody():
    """D21."""
    denied = structs.replace(OPEN, access=Access(closed=True))
    assert not ask(denied).allowed
    assert not ask(denied, identity=SA_1).allowed


@pytest.mark.parametrize(
    ("tls_mode", "plaintext", "tls"),
    [
        (TlsMode.PLAIN, True, False),
        (TlsMode.READY, True, True),
        (TlsMode.PERMISSIVE, True, True),
        (TlsMode.STRICT, False, True),
    ],
)
def test_the_tls_mode_decides_before_the_grants(tls_mode, plaintext, tls):
    """R74, R76."""
    workload = structs.replace(OPEN, tls_mode=tls_mode)
    assert ask(workload, identity="").allowed == plaintext
    assert ask(workload, identity=SA_3).allowed == tls


def test_a_strict_workload_refuses_plaintext_by_tls():
    """R74: also where everybody may call it, and where nobody may."""
    for workload in (OPEN, EXAMPLE):
        found = ask(structs.replace(workload, tls_mode=TlsMode.STRICT), identity="")
        assert found.why == "it takes mutual TLS only, and this is plaintext"


@pytest.mark.parametrize(
    "path",
    ["/version//x", "/version/./x", "/version/../x", "/version/.", "/version/..", "/version\\x", "/version/%2e%2E/x"]
    + [f"/version{code}x" for code in ("%2f", "%2F", "%5c", "%5C", "%2e", "%2E")],
)
def test_a_rule_about_paths_never_allows_a_path_that_may_mean_another(path):
    found = ask(target=path)
    assert not found.allowed
    assert "may mean another one" in found.why


def test_a_rule_without_a_path_allows_any_path():
    assert ask(granted(requests=(RequestRule(name="all", match=ANY),)), target="/a/../b").allowed


def test_only_the_path_may_be_ambiguous_not_its_query():
    assert ask(target="/version?next=//x/../%2f").allowed


@given(st.lists(st.sampled_from(["/", ".", "..", "a", "\\", "%2f", "%2E", "%5C", "%2", "%25", "b"])))
def test_ambiguous_is_what_the_proxies_are_told(parts):
    path = "/" + "".join(parts)
    assert is_ambiguous(path) == bool(re2.search(AMBIGUOUS_PATH, path))


def test_headers_count_too():
    """R13."""
    match = Match(headers=(Header(name="user-agent", text=Text(value=".*Firefox.*", regex=True)),))
    firefox = granted(requests=(RequestRule(name="g/firefox", match=match),))
    assert ask(firefox, headers=(("User-Agent", "Mozilla Firefox"),)).allowed
    found = ask(firefox, headers=(("User-Agent", "curl"),))
    assert found.why == "TrafficTarget default/test, g/firefox: header user-agent is 'curl', wanted regex .*Firefox.*"


def test_why_not_names_the_rule_that_is_nearest():
    found = ask(target="/other")
    assert (found.origin, found.rule) == (None, "")
    expected = "TrafficTarget default/test, http-route/version: path is '/other', wanted regex (?:/version).*"
    assert found.why == expected
    assert ask(identity=SA_3).why == "nothing is allowed to this caller"
    about_others = "what is allowed to this caller is about other ports, or about another protocol"
    assert ask(granted(port=9090)).why == about_others
    assert "plaintext does not say" in ask(identity="").why


def test_several_targets_add_up():
    """2.3: additive."""
    other = structs.replace(GRANT, sources=(SA_3,), requests=(RequestRule(name="all", match=ANY),))
    both = structs.replace(EXAMPLE, access=Access(closed=True, grants=(GRANT, other)))
    assert ask(both, SA_3, target="/other").allowed
    assert not ask(both, SA_2, target="/other").allowed


def test_a_port_that_no_service_leads_to_is_for_open_workloads():
    assert ask(OPEN, identity="", port=9999).allowed
    assert not ask(EXAMPLE, identity="", port=9999).allowed
    assert not ask(OPEN, identity=SA_2, port=9999).allowed  # nobody can say there who he is
    assert not ask(structs.replace(OPEN, capture="explicit"), identity="", port=9999).allowed


def test_who_allows_a_request_to_others_can_be_asked():
    assert grants_allowing(EXAMPLE, 8080, protocol=Protocol.HTTP, request=Request(target="/version")) == (GRANT,)
    assert grants_allowing(EXAMPLE, 8080, protocol=Protocol.HTTP, request=Request(target="/other")) == ()


def test_clients_get_what_their_service_says_and_plaintext_what_the_oldest_says():
    """R67, D15."""
    port = port_of(EXAMPLE, 8080)
    assert port
    assert protocol_at(port, HTTP, known=True) is Protocol.HTTP
    assert protocol_at(port, TCP, known=True) is Protocol.TCP
    assert protocol_at(port, TCP, known=False) is Protocol.HTTP
    assert protocol_at(port, PortRef("elsewhere/other", 1), known=True) is Protocol.HTTP
