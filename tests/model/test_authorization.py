"""The authorization of requests, by the specification (003, R67 to R76, D15, D21)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headgate.model.access import Access, ConnectionRule, Grant, RequestRule
from headgate.model.authorization import Refusals, authorize, grants_allowing, port_of, protocol_at, would_refuse
from headgate.model.mutual_tls import TlsMode
from headgate.model.requests import ANY, Header, Match, Path, Request, Text
from headgate.model.routing import InboundPort, PortProtocol, PortRef, Protocol, Workload
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
def test_the_example_in_specification_003(identity, request_, allowed):
    """R68, R70."""
    assert ask(identity=identity, **request_).allowed == allowed


def test_an_allowed_request_names_the_target_and_the_rule():
    found = ask(target="/version")
    assert (found.origin, found.rule) == (TEST, "http-route/version")
    found = ask(protocol=Protocol.TCP)
    assert (found.origin, found.rule) == (TEST, "tcp-route")


def test_a_rule_applies_only_to_ports_of_its_protocol():
    """R68, R69. HTTP rules apply to HTTP ports, TCP rules to all other ports."""
    only_tcp, only_http = granted(requests=()), granted(connections=())
    assert not ask(only_tcp, target="/version").allowed
    assert ask(only_tcp, protocol=Protocol.TCP).allowed
    assert not ask(only_http, protocol=Protocol.TCP).allowed
    assert ask(only_http, target="/version").allowed


@pytest.mark.parametrize(("ports", "allowed"), [((), True), ((8080,), True), ((9000,), True), ((5432,), False)])
def test_a_tcp_rule_names_the_port_of_the_pod_or_of_a_service(ports, allowed):
    """R68."""
    found = ask(granted(connections=(ConnectionRule(name="tcp", ports=ports),)), protocol=Protocol.TCP)
    assert found.allowed == allowed


def test_a_tcp_rule_does_not_apply_to_the_port_of_an_http_service():
    """R69."""
    web = PortProtocol(protocol=Protocol.HTTP, services=(PortRef("default/service-1", 80),))
    port = structs.replace(PORT, protocols=(web, PORT.protocols[1]))
    workload = structs.replace(granted(connections=(ConnectionRule(name="tcp", ports=(80,)),)), ports=(port,))
    assert not ask(workload, protocol=Protocol.TCP).allowed


@pytest.mark.parametrize(("port", "allowed"), [(0, True), (8080, True), (9090, False)])
def test_a_v1alpha1_target_applies_to_one_port_of_the_pods(port, allowed):
    assert ask(granted(port=port), target="/version").allowed == allowed


def test_without_a_traffic_target_a_workload_is_open():
    """D21."""
    assert ask(OPEN, identity="").allowed
    assert ask(OPEN, identity=SA_3).allowed
    assert ask(OPEN, protocol=Protocol.TCP).allowed


def test_a_workload_without_grants_denies_all_callers():
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
def test_the_tls_mode_is_checked_before_the_grants(tls_mode, plaintext, tls):
    """R74, R76."""
    workload = structs.replace(OPEN, tls_mode=tls_mode)
    assert ask(workload, identity="").allowed == plaintext
    assert ask(workload, identity=SA_3).allowed == tls


def test_a_strict_workload_refuses_plaintext_before_authorization():
    """R74. This holds for open and for closed workloads."""
    for workload in (OPEN, EXAMPLE):
        found = ask(structs.replace(workload, tls_mode=TlsMode.STRICT), identity="")
        assert found.why == "it accepts mutual TLS only, and this is plaintext"


@pytest.mark.parametrize(
    "path",
    ["/version//x", "/version/./x", "/version/../x", "/version/.", "/version/..", "/version\\x", "/version/%2e%2E/x"]
    + [f"/version{code}x" for code in ("%2f", "%2F", "%5c", "%5C", "%2e", "%2E", "%00", "%252e", "%25u002e", "%255C")]
    + [
        f"/version{code}x"
        for code in ("%c0%ae", "%C0%AF", "%c1%9c", "%e0%80%ae", "%f0%80%80%ae", "%u002e", "%U2215", "%zz", "%2")
    ]
    + ["/version/..%00/x", "/version/..;a/x", "/version/..%3Ba", "/version/%"],
)
def test_a_rule_with_a_path_never_allows_an_ambiguous_path(path):
    found = ask(target=path)
    assert not found.allowed
    assert "may read as another path" in found.why


@pytest.mark.parametrize(
    "end", ["%20", "%C3%A4", "%e0%a4%85", "%f0%9f%98%80", "%25", "%25-1", "...", ".a", "a..b", ";a", "%3d", "~"]
)
def test_a_rule_with_a_path_allows_other_escapes(end):
    assert ask(target=f"/version/x{end}").allowed


@pytest.mark.parametrize("target", ["/version/é", "/version/\udcc0\udcae\udcc0\udcae/x", "/version/\udcff"])
def test_a_rule_with_a_path_never_allows_bytes_that_are_not_ascii(target):
    """Only HTTP/2 can carry them, and the last two are not UTF-8."""
    assert "may read as another path" in ask(target=target, authority="a", version="2").why


def test_a_rule_without_a_path_allows_any_path():
    assert ask(granted(requests=(RequestRule(name="all", match=ANY),)), target="/a/../b").allowed


def test_the_query_is_not_checked_for_ambiguous_segments():
    assert ask(target="/version?next=//x/../%2f").allowed


def test_a_rule_can_match_headers():
    """R13."""
    match = Match(headers=(Header(name="user-agent", text=Text(value=".*Firefox.*", regex=True)),))
    firefox = granted(requests=(RequestRule(name="g/firefox", match=match),))
    assert ask(firefox, headers=(("User-Agent", "Mozilla Firefox"),)).allowed
    found = ask(firefox, headers=(("User-Agent", "curl"),))
    assert found.why == "TrafficTarget default/test, g/firefox: header user-agent is 'curl', wanted regex .*Firefox.*"


def test_a_denied_request_gets_the_reason_of_the_closest_rule():
    found = ask(target="/other")
    assert (found.origin, found.rule) == (None, "")
    expected = "TrafficTarget default/test, http-route/version: path is '/other', wanted regex /version"
    assert found.why == expected
    assert ask(identity=SA_3).why == "no TrafficTarget or XAuthorizationPolicy allows this caller"
    other_rules = "the rules for this caller apply to other ports or another protocol"
    assert ask(granted(port=9090)).why == other_rules
    assert "plaintext has none" in ask(identity="").why


def test_the_grants_of_several_targets_are_combined():
    """Requirement 2.3: TrafficTargets are additive."""
    other = structs.replace(GRANT, sources=(SA_3,), requests=(RequestRule(name="all", match=ANY),))
    both = structs.replace(EXAMPLE, access=Access(closed=True, grants=(GRANT, other)))
    assert ask(both, SA_3, target="/other").allowed
    assert not ask(both, SA_2, target="/other").allowed


def test_a_port_without_a_service_accepts_plaintext_if_the_workload_is_open():
    assert ask(OPEN, identity="", port=9999).allowed
    assert not ask(EXAMPLE, identity="", port=9999).allowed
    assert not ask(OPEN, identity=SA_2, port=9999).allowed  # no mutual TLS without a Service
    assert not ask(structs.replace(OPEN, capture="explicit"), identity="", port=9999).allowed


def test_grants_allowing_returns_the_grants_for_any_caller():
    assert grants_allowing(EXAMPLE, 8080, protocol=Protocol.HTTP, request=Request(target="/version")) == (GRANT,)
    assert grants_allowing(EXAMPLE, 8080, protocol=Protocol.HTTP, request=Request(target="/other")) == ()


def test_only_mtls_clients_use_the_protocol_of_the_service_that_they_call():
    """R67, D15. Plaintext clients use the protocol of the oldest Service."""
    port = port_of(EXAMPLE, 8080)
    assert port
    assert protocol_at(port, HTTP, has_identity=True) is Protocol.HTTP
    assert protocol_at(port, TCP, has_identity=True) is Protocol.TCP
    assert protocol_at(port, TCP, has_identity=False) is Protocol.HTTP
    assert protocol_at(port, PortRef("elsewhere/other", 1), has_identity=True) is Protocol.HTTP


AUDITED = structs.replace(OPEN, access=Access(audited=True, grants=(GRANT,)))


@pytest.mark.parametrize("identity", ["", SA_2, SA_3])
@pytest.mark.parametrize("target", ["/version", "/other"])
@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.TCP])
def test_an_audited_workload_allows_what_it_would_refuse_if_it_were_closed(identity, target, protocol):
    request = Request(target=target)
    enforced = ask(identity=identity, protocol=protocol, target=target)
    assert ask(AUDITED, identity, protocol, target=target).allowed
    found = would_refuse(AUDITED, 8080, protocol=protocol, identity=identity, request=request)
    assert found is not enforced.allowed
    assert not would_refuse(EXAMPLE, 8080, protocol=protocol, identity=identity, request=request)


def test_an_audited_workload_says_which_rule_allows_a_request_or_why_it_would_be_refused():
    found = ask(AUDITED, target="/version")
    assert (found.origin, found.rule) == (TEST, "http-route/version")
    assert (
        "audit mode: the workload would refuse it, because no TrafficTarget or XAuthorizationPolicy allows this caller"
        in ask(AUDITED, SA_3).why
    )


def test_an_audit_allows_no_request_that_every_workload_refuses():
    """A request that the sidecar refuses as malformed is refused with and without access rules."""
    assert not ask(AUDITED, target="*", method="OPTIONS").allowed
    assert not would_refuse(AUDITED, 8080, protocol=Protocol.HTTP, identity=SA_2, request=Request(target="no-slash"))


def refusal(identity, **changes):
    return Refusals([structs.replace(GRANT, **changes)]).reason(8080, identity)


def test_a_refusal_says_what_holds_for_all_calls_of_a_caller_to_a_port():
    no_match = "no rule for this caller matches these calls"
    no_grant = "no TrafficTarget or XAuthorizationPolicy allows this caller"
    assert refusal(SA_2) == no_match
    assert refusal(SA_3) == no_grant
    assert refusal("") == "it allows only callers with an identity, and plaintext has none"
    assert refusal(SA_2, port=9) == "the rules for this caller apply to other ports or another protocol"
    assert refusal("", sources=("*",)) == no_match
    assert refusal(SA_2, sources=(SA_3, f"{SA_2[:-4]}*")) == no_match
    assert refusal(SA_2, sources=(f"{SA_2}*",)) == no_match
    assert refusal(SA_2, sources=(f"{SA_2}-*", "spiffe://other/*")) == no_grant
    several = [structs.replace(GRANT, sources=sources, port=port) for sources, port in (((SA_2,), 9), (("*",), 8080))]
    assert Refusals(several).reason(8080, SA_2) == no_match


@given(
    sources=st.lists(st.text("ab", max_size=3).flatmap(lambda text: st.sampled_from((text, f"{text}*"))), max_size=5),
    caller=st.text("ab", max_size=4),
)
def test_refusals_apply_grants_to_the_same_callers_as_rules_do(sources, caller):
    grant = structs.replace(GRANT, sources=tuple(filter(None, sources)))
    assert (Refusals([grant]).reason(8080, caller) == "no rule for this caller matches these calls") == grant.includes(
        caller
    )
