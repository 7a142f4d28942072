"""Tap targets, sampling and events (D29)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.plane.access_meshes import BUYER, THIEF, web_server

from headgate.envoy.tap import ALL_REQUESTS
from headgate.envoy.traffic_stats import CalledServer
from headgate.model.access import RequestRule
from headgate.model.requests import Header, Match, Query, Text
from headgate.model.routing import Mesh, Workload
from headgate.plane.tap.events import NOT_ALLOWED, REDACTED, event, redacted_path
from headgate.plane.tap.taps import PROXY_LIMIT, missed_requests, next_share
from headgate.plane.tap.targets import PodTarget, RouteTarget, TapProxies
from headgate.resources.pod_owners import Ref
from headgate.telemetry.answers.object_graph import ObjectGraph, ObjectInfo
from headgate.telemetry.reports.tap_records import TapRecord

SA = "spiffe://cluster.local/ns/default/sa/"
POD, DEPLOYMENT, SERVICE = (
    Ref(kind, "default", name) for kind, name in (("Pod", "web-1"), ("Deployment", "web"), ("Service", "web"))
)
GRAPH = ObjectGraph(
    [
        ObjectInfo(ref=POD, owner=DEPLOYMENT, labels={"app": "web"}),
        ObjectInfo(ref=SERVICE, selector={"app": "web"}),
        ObjectInfo(ref=DEPLOYMENT),
    ]
)
SERVED = TapRecord(
    node="sidecar/default/web-1", time=1.0, port=8080, peer=f"{SA}buyer", rule="default/buyers/group/look"
)
SENT = TapRecord(
    node="sidecar/default/buyer-1",
    time=1.0,
    cluster="outbound/default/web/80",
    server=CalledServer("default/web-1", 8080, True),
)
ELSEWHERE = TapRecord(
    node="sidecar/default/buyer-1",
    time=1.0,
    cluster="outbound/default/db/80",
    server=CalledServer("default/db-1", 1, True),
)
REFUSED = TapRecord(
    node="sidecar/shop/server", time=1.0, port=80, peer=BUYER, method="GET", authority="server", denied=True
)
"""A request that the rules of `web_server` deny."""


def test_a_tap_of_a_deployment_shows_requests_recorded_by_both_sides() -> None:
    target = PodTarget(target=DEPLOYMENT, graph=GRAPH)
    assert [target.matches(record) for record in (SERVED, SENT, ELSEWHERE)] == [True, True, False]


def test_a_tap_of_a_service_shows_calls_to_its_name_even_if_no_pod_answered() -> None:
    target = PodTarget(target=SERVICE, graph=GRAPH)
    unanswered = TapRecord(node="gateway", time=1.0, cluster="outbound/default/web/80", status=503)
    assert [target.matches(record) for record in (SERVED, unanswered, ELSEWHERE)] == [True, True, False]


def test_a_tap_of_a_split_shows_requests_that_used_its_route() -> None:
    target = RouteTarget(kind="TrafficSplit", name="default/web")
    chosen = TapRecord(node="gateway", time=1.0, route="TrafficSplit default/web")
    assert [target.matches(record) for record in (chosen, SENT)] == [True, False]


def test_a_tap_of_a_gateway_shows_requests_that_entered_there() -> None:
    target = RouteTarget(kind="Gateway", name="default/edge")
    entered = TapRecord(node="gateway", time=1.0, cluster="gateway/default/edge/80/HTTPRoute/default/r/0")
    assert [target.matches(record) for record in (entered, SENT)] == [True, False]


def test_only_proxies_of_the_target_its_callers_and_the_gateways_record_requests() -> None:
    workloads = tuple(
        Workload(name=f"default/{name}-1", address="", identity=f"{SA}{name}", uid=name, capture="explicit")
        for name in ("web", "buyer", "other")
    )
    mesh = Mesh(domain="cluster.local", workloads=workloads)
    target = PodTarget(target=DEPLOYMENT, graph=GRAPH)
    before = target.proxies(TapProxies(mesh, ("gateway",), frozenset()))
    assert set(before) == {"gateway", "sidecar/default/web-1"}
    after = target.proxies(TapProxies(mesh, ("gateway",), frozenset({f"{SA}buyer"})))
    assert set(after) == {"gateway", "sidecar/default/web-1", "sidecar/default/buyer-1"}


@given(rates=st.lists(st.integers(0, 1_000_000), min_size=1, max_size=20))
def test_the_recorded_share_follows_the_rate_and_stays_above_zero(rates: list[int]) -> None:
    """A busy proxy records about as many requests as the limit. When its rate falls, it records all requests again."""
    share = ALL_REQUESTS
    for rate in rates:
        share = next_share(share, rate * share // ALL_REQUESTS)
        assert 1 <= share <= ALL_REQUESTS
    steady = rates[-1]
    for _ in range(60):
        share = next_share(share, steady * share // ALL_REQUESTS)
    assert steady * share // ALL_REQUESTS <= PROXY_LIMIT
    for _ in range(21):
        share = next_share(share, 0)
    assert share == ALL_REQUESTS


def test_requests_that_a_proxy_did_not_record_are_estimated() -> None:
    assert missed_requests(ALL_REQUESTS, 10) == 0
    assert missed_requests(ALL_REQUESTS // 10, 20) == 180


def test_values_are_redacted_unless_the_user_asks_for_them() -> None:
    record = TapRecord(node="gateway", time=0.0, path="/a?token=s3cret&x", headers=(("cookie", "s3cret"),))
    hidden, shown = (event(record, values=values).request for values in (False, True))
    assert (hidden.path, hidden.headers) == (f"/a?token={REDACTED}&x", {"cookie": REDACTED})
    assert (shown.path, shown.headers) == (record.path, {"cookie": "s3cret"})
    assert "s3cret" not in repr(hidden)


@given(path=st.text())
def test_a_path_without_a_query_is_not_redacted(path: str) -> None:
    before, _, _ = path.partition("?")
    assert redacted_path(before) == before
    assert redacted_path(path).partition("?")[0] == before


def test_a_server_event_names_the_access_rule_and_a_client_event_the_route() -> None:
    served = event(SERVED, values=False)
    assert served.side == "Server"
    assert served.access is not None
    assert (served.access.allowed, str(served.access.object), served.access.rule) == (
        True,
        "TrafficTarget default/buyers",
        "group/look",
    )
    sent = event(SENT, values=False)
    assert (sent.side, sent.access, sent.route, sent.secured) == ("Client", None, None, True)


def test_an_event_says_that_rules_in_audit_mode_would_deny_the_request_and_why() -> None:
    """The reason is that of `headgate explain`, and has no value that the tap redacts."""
    audited = structs.replace(REFUSED, peer=THIEF, rule="open", path="/a?token=s3cret", denied=False, would_deny=True)
    server = web_server()
    refused = event(audited, values=False, workload=server).access
    assert refused is not None
    assert (refused.allowed, refused.audited, refused.would_deny) == (True, True, True)
    assert refused.message == "no TrafficTarget or XAuthorizationPolicy allows this caller"
    partly = event(structs.replace(audited, peer=BUYER), values=False, workload=server).access
    assert partly is not None
    assert partly.message == "TrafficTarget shop/t, books/look: path is '/a', wanted exact /books"
    gone = event(audited, values=False).access
    assert gone is not None
    assert gone.message == NOT_ALLOWED


def test_an_event_says_why_enforced_rules_deny_the_request() -> None:
    """It is the reason of audit mode and of `headgate explain`; a client's proxy does not know it."""
    denied = structs.replace(REFUSED, path="/a?token=s3cret")
    access = event(denied, values=False, workload=web_server()).access
    assert access is not None
    assert (access.allowed, access.would_deny) == (False, False)
    assert access.message == "TrafficTarget shop/t, books/look: path is '/a', wanted exact /books"
    sent = event(structs.replace(SENT, denied=True), values=False, workload=web_server()).access
    assert sent is not None
    assert sent.message == NOT_ALLOWED


def reason(match: Match, *, values: bool = False, path: str = "/", headers: tuple[tuple[str, str], ...] = ()) -> str:
    """Return why the only rule of a server, with this match, denies a recorded request."""
    server, rule = web_server(), RequestRule(name="books/look", match=match)
    grants = tuple(structs.replace(grant, requests=(rule,)) for grant in server.access.grants)
    server = structs.replace(server, access=structs.replace(server.access, grants=grants))
    denied = structs.replace(REFUSED, path=path, headers=headers)
    access = event(denied, values=values, workload=server).access
    assert access is not None
    assert access.message.startswith("TrafficTarget shop/t, books/look: ") or access.message == NOT_ALLOWED
    return access.message.removeprefix("TrafficTarget shop/t, books/look: ")


def header(name: str, value: str) -> Match:
    return Match(headers=(Header(name=name, text=Text(value=value, regex=True)),))


@pytest.mark.parametrize(
    ("name", "hidden", "shown"),
    [
        ("referer", "header referer does not match", "header referer is 'http://s3cret/', wanted regex /p.ttern"),
        ("cookie", "header cookie is absent", "header cookie is absent, wanted regex /p.ttern"),
        ("end-user", "header end-user is not recorded", "header end-user is not recorded, wanted regex /p.ttern"),
        (
            "x-forwarded-client-cert",
            "header x-forwarded-client-cert is not recorded",
            "header x-forwarded-client-cert is not recorded, wanted regex /p.ttern",
        ),
        (
            ":authority",
            "header :authority is 'server', wanted regex /p.ttern",
            "header :authority is 'server', wanted regex /p.ttern",
        ),
    ],
)
def test_the_reason_of_a_denied_request_has_no_value_that_the_tap_redacts(name: str, hidden: str, shown: str) -> None:
    """Neither that of the request, nor that of the rule, nor one that the record lacks. The authority is not redacted."""
    headers = (("referer", "http://s3cret/"),)
    assert reason(header(name, "/p.ttern"), headers=headers) == hidden
    assert reason(header(name, "/p.ttern"), headers=headers, values=True) == shown


def test_the_reason_compares_query_parameters_with_the_values_of_the_request() -> None:
    """It compared the redacted ones, so that a parameter that fits had the blame."""
    token, side = Query(name="token", text=Text(value="s3cret")), Query(name="side", text=Text(value="p.ttern"))
    assert reason(Match(query=(token, side)), path="/a?token=s3cret&side=left") == "query side does not match"
    assert reason(Match(query=(token, side)), path="/a?token=s3cret") == "query side is absent"
    assert reason(Match(query=(token,)), path="/a?token=s3cret") == NOT_ALLOWED
    shown = reason(Match(query=(side,)), path="/a?side=left", values=True)
    assert shown == "query side is 'left', wanted exact p.ttern"


ODD_VALUES = st.sampled_from(
    [
        "s3cret",
        " s3cret\t",
        "a=s3cret; b=s3cret ",
        "'s3cret'",
        '"s3cret',
        "s3cret', wanted exact",
        "",
        "\\s3cret",
        "s3cret\x7f",
        "é s3cret",
    ]
)


@given(
    name=st.sampled_from(["cookie", "referer", "user-agent", "accept", "end-user"]),
    headers=st.lists(st.tuples(st.sampled_from(["cookie", "Cookie", "referer", "user-agent", "accept"]), ODD_VALUES)),
    query=st.lists(ODD_VALUES),
)
def test_no_form_of_a_redacted_value_is_in_a_tap_event(
    name: str, headers: list[tuple[str, str]], query: list[str]
) -> None:
    """Values are trimmed, joined and quoted on the way to the rules."""
    path = "/a?" + "&".join(f"side={value}" for value in query)
    for match in (header(name, "p.ttern"), Match(query=(Query(name="side", text=Text(value="p.ttern")),))):
        why = reason(match, path=path, headers=tuple(headers))
        assert "s3cret" not in why
        assert "p.ttern" not in why


def test_an_event_names_the_rule_in_audit_mode_that_would_allow_the_request() -> None:
    access = event(structs.replace(SERVED, rule="open", audit_rule="default/buyers/group/look"), values=False).access
    assert access is not None
    assert (access.audited, access.would_deny, str(access.object), access.rule) == (
        True,
        False,
        "TrafficTarget default/buyers",
        "group/look",
    )


def test_the_event_of_the_client_says_that_the_server_would_deny_the_request() -> None:
    access = event(structs.replace(SENT, would_deny=True), values=False).access
    assert access is not None
    assert (access.allowed, access.would_deny) == (True, True)
