"""Regression tests: faults that random access worlds found, and attacks, each in one small world."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from tests.differential.access_comparison import check
from tests.differential.access_expectation import expected
from tests.differential.access_worlds import (
    BEGINNINGS,
    CERTIFICATE,
    ENDS,
    HEADERS,
    OF_HTTP1,
    SENT_METHODS,
    Call,
)
from tests.differential.sidecar_lab import ADDRESS, CALLERS, PLAINTEXT, POD, STRANGERS, AccessWorld
from tests.make.objects import (
    Object,
    account_ref,
    authorization_policy,
    caller_rule,
    endpoint,
    endpoint_slice,
    headgate_keys,
    http_route_group,
    http_rule,
    pod,
    port,
    service,
    smi_tcp_route,
    tcp_rule,
    traffic_target,
)

from headgate.model.mutual_tls import TlsMode
from headgate.resources.registry import key_of
from headgate.settings import Settings

pytestmark = pytest.mark.e2e


def world(
    *services: Sequence[Object],
    match: Mapping[str, Any] | None = None,
    port: int = 0,
    ports: Iterable[int] = (),
    tls_mode: TlsMode | None = None,
    is_open: bool = False,
    mode: str = "enforce",
    policies: Sequence[Object] = (),
) -> AccessWorld:
    """Return a pod that `a` may call by one HTTPRouteGroup and one TCPRoute; `services` lead to its port 8080.

    With `is_open`, the pod has no TrafficTarget and allows all calls. `mode` is that of the TrafficTarget.
    `policies` are XAuthorizationPolicies.
    """
    allowed = traffic_target(
        "w",
        account_ref("a") | ({"port": port} if port else {}),
        ["a"],
        [http_rule("g"), tcp_rule("t")],
        version="access.smi-spec.io/v1alpha2",
        annotations=headgate_keys(mode=mode),
    )
    objects = [
        pod(
            "app",
            ADDRESS,
            account="a",
            labels=APP,
            annotations=headgate_keys(sidecar_mode="explicit", application_ports="8080=member-0"),
        ),
        *(written for objects in services or [http()] for written in objects),
        http_route_group("g", {"m": match or {}}),
        smi_tcp_route("t", *ports),
        *([] if is_open else [allowed]),
        *policies,
    ]
    tls_modes = {POD: tls_mode} if tls_mode else {}
    by_key = {key_of(written): written for written in objects}
    return AccessWorld(objects=by_key, leads=(), settings=Settings(), tls_modes=tls_modes)


def http(name: str = "s1", number: int = 80, protocol: str = "http") -> tuple[Object, Object]:
    """Return a Service that leads to the port 8080 of the pod."""
    return (
        service(name, port(number, "p", app=protocol)),
        endpoint_slice(name, [endpoint(ADDRESS, "app")], {"p": 8080}),
    )


tcp = partial(http, protocol="tcp")


def call(target="/a", *headers, **more):
    """Return a mesh call by the account `a` to the Service s1."""
    usual = {
        "caller": "a",
        "service": ("s1", 80),
        "mesh_alpn": True,
        "version": "1.1",
        "method": "GET",
        "authority": "a",
    }
    return Call(port=8080, target=target, headers=headers, absolute=False, **usual | more)


def lets_in(lab, found, made):
    """Check that the sidecar agrees with the model; return whether the call arrives."""
    workload = lab.serve(found)
    check(lab, workload, made)
    return expected(workload, made).arrives


@pytest.mark.parametrize(("port", "arrives"), [(0, True), (8080, True), (80, False)])
@pytest.mark.parametrize("called", [http, tcp])
def test_the_port_of_a_traffic_target_is_the_pods_port(sidecar_lab, called, port, arrives):
    """Requirement 2.3: the port is not compared with the port of a Service."""
    assert lets_in(sidecar_lab, world(called(), port=port), call()) is arrives


@pytest.mark.parametrize(("target", "marked"), [("/a", False), ("/b", True), ("/a/../b", True)])
@pytest.mark.parametrize("caller", ["a", "b", PLAINTEXT])
def test_an_audit_marks_what_it_would_refuse(sidecar_lab, caller, target, marked):
    workload = sidecar_lab.serve(world(match={"pathRegex": "/a"}, mode="audit"))
    made = call(target, caller=caller)
    check(sidecar_lab, workload, made)
    assert expected(workload, made).arrives
    assert expected(workload, made).audited is (marked or caller != "a")


APP = {"app": "app"}
ANY_SOURCE = {}
POLICY_CALLS = [
    (caller_rule("a"), {"a"}),
    (caller_rule("b", "spiffe://cluster.local/ns/default/sa/a"), {"a", "b"}),
    (caller_rule("*"), {"a", "b"}),
    (caller_rule("*", "b", "blue/*"), {"a", "b", "blue"}),
    (caller_rule(), set()),
    (ANY_SOURCE, {"a", "b", "blue", PLAINTEXT}),
    (caller_rule("a", ports=[8080]), {"a"}),
    (caller_rule("a", ports=[80, 9090]), set()),
]
"""Rules of an XAuthorizationPolicy, and the callers that they allow at port 8080, to which port 80 of a Service leads."""


@pytest.mark.parametrize(("rule", "allowed"), POLICY_CALLS)
@pytest.mark.parametrize("called", [http, tcp])
def test_an_authorization_policy_allows_its_sources_on_its_ports(sidecar_lab, called, rule, allowed):
    """GEP-3779: absent sources are all callers, in plaintext too, and empty ones are none. Ports are those of the pod."""
    workload = sidecar_lab.serve(world(called(), policies=[authorization_policy("p", APP, rule)], is_open=True))
    for caller in ("a", "b", "blue", PLAINTEXT):
        made = call(caller=caller, service=None if caller == PLAINTEXT else ("s1", 80))
        check(sidecar_lab, workload, made)
        assert expected(workload, made).arrives is (caller in allowed)


def test_policies_and_traffic_targets_add_up(sidecar_lab):
    """D21: the TrafficTarget allows `a` one path; the policy allows `b` all requests, and no other pod selects `blue`."""
    policies = [authorization_policy("p", APP, caller_rule("b")), authorization_policy("closed", {})]
    workload = sidecar_lab.serve(world(match={"pathRegex": "/a"}, policies=policies))
    for caller, target, arrives in (("a", "/a", True), ("a", "/b", False), ("b", "/b", True), ("blue", "/a", False)):
        made = call(target, caller=caller)
        check(sidecar_lab, workload, made)
        assert expected(workload, made).arrives is arrives


@pytest.mark.parametrize(("mode", "arrives"), [("audit", True), ("enforce", False)])
def test_a_policy_in_audit_mode_closes_no_pod(sidecar_lab, mode, arrives):
    """A policy without rules allows nothing; in audit mode, the sidecar marks what it would refuse."""
    policy = authorization_policy("p", APP, annotations=headgate_keys(mode=mode))
    workload = sidecar_lab.serve(world(policies=[policy], is_open=True))
    check(sidecar_lab, workload, call())
    assert expected(workload, call()).arrives is arrives
    assert expected(workload, call()).audited is arrives


@pytest.mark.parametrize(("port", "arrives"), [(9000, True), (8080, True), (80, False), (5432, False)])
def test_a_tcp_route_ignores_the_ports_of_http_services(sidecar_lab, port, arrives):
    """R69: a rule for the port of an HTTP Service allows no TCP call, although the pod port is the same."""
    found = world(http("s1", 80), tcp("s2", 9000), ports=[port])
    assert lets_in(sidecar_lab, found, call(service=("s2", 9000))) is arrives


@pytest.mark.parametrize("version", ["1.1", "2"])
@pytest.mark.parametrize("values", [("1",), ("1", "a"), ("a", "1"), ("1", "1"), ("", "1"), ("a",), ()])
def test_repeated_headers_are_matched_as_one_value(sidecar_lab, values, version):
    """A client must not hide a forbidden value behind an allowed one."""
    made = call("/a", *(("x-a", value) for value in values), version=version)
    assert lets_in(sidecar_lab, world(match={"headers": {"x-a": "1"}}), made) is (values == ("1",))


@pytest.mark.parametrize("pattern", ["a=1; b=2", "a=1,b=2", "a=1"])
def test_repeated_cookies_are_joined_as_http_defines(sidecar_lab, pattern):
    workload = sidecar_lab.serve(world(match={"headers": {"cookie": pattern}}))
    for version in ("1.1", "2"):
        check(sidecar_lab, workload, call("/a", ("cookie", "a=1"), ("cookie", "b=2"), version=version))
        check(sidecar_lab, workload, call("/a", ("cookie", "a=1"), version=version))


@pytest.mark.parametrize("name", CALLERS)
@pytest.mark.parametrize("pattern", [".*sa/b.*", "By=.*/sa/a;.*;URI=.*/sa/a", ".+"])
def test_a_client_cannot_forge_the_client_certificate_header(sidecar_lab, pattern, name):
    """R70: a rule for that header matches the value that the application receives."""
    workload = sidecar_lab.serve(world(match={"headers": {CERTIFICATE: pattern}}))
    forged = (CERTIFICATE, "By=spiffe://x;URI=spiffe://cluster.local/ns/default/sa/b")
    for headers in ((), (forged,), (forged, forged)):
        check(sidecar_lab, workload, call("/a", *headers, caller=name))


@pytest.mark.parametrize("pattern", ["/a", "/a$", ".*b"])
def test_the_model_and_envoy_agree_on_ambiguous_paths(sidecar_lab, pattern):
    """D5, D21."""
    workload = sidecar_lab.serve(world(match={"pathRegex": pattern}))
    for target in [beginning + end for beginning in sorted({*BEGINNINGS}) for end in ("", *ENDS)]:
        check(sidecar_lab, workload, call(target))
    for target in [f"/a{end}" for end in ENDS]:
        check(sidecar_lab, workload, call(target, version="2"))


@pytest.mark.parametrize(
    ("condition", "headers", "arrives"),
    [
        ("x-a", [("x-a", "1"), ("connection", "x-a")], False),
        ("x-a", [("x-a", "1"), ("connection", "upgrade, x-a"), ("upgrade", "websocket")], True),
        ("x-a", [("x-a", "1"), ("connection", "upgrade, x-a"), ("upgrade", "h2c")], False),
        ("x-a", [("x-a", "1"), ("connection", "upgrade"), ("upgrade", "other")], True),
        ("x-a", [("x-a", "1"), ("connection", "host")], False),
        ("keep-alive", [("keep-alive", "5")], False),
        ("te", [("te", "gzip, trailers")], True),
        ("expect", [("expect", "100-continue")], True),
        ("referer", [("referer", "http://user@a/")], False),
        ("x-envoy-retry-on", [("x-envoy-retry-on", "5xx")], False),
        ("x-forwarded-proto", [], True),
        ("x-a", [("x-a", "1"), ("x-forwarded-proto", "")], True),
    ],
)
def test_a_rule_matches_sanitized_headers(sidecar_lab, condition, headers, arrives):
    """R70: the rule matches the headers that the application receives."""
    found = world(match={"headers": {condition: ".+"}})
    assert lets_in(sidecar_lab, found, call("/a", *headers)) is arrives


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_sidecar_refuses_an_upgrade_that_names_a_protocol_twice(sidecar_lab, version):
    workload = sidecar_lab.serve(world())
    for named in ("websocket", "websocket, WebSocket", "websocket, h2c"):
        headers = (("connection", "upgrade"), ("upgrade", named))
        check(sidecar_lab, workload, call("/a", *headers, version=version))
        check(sidecar_lab, workload, call("/a", *headers, ("upgrade", "websocket"), version=version))


def test_the_first_fault_of_a_request_decides_the_status(sidecar_lab):
    workload = sidecar_lab.serve(world())
    codings = (("transfer-encoding", "gzip"), ("transfer-encoding", "chunked"))
    for header in (*codings, ("connection", "host"), ("x-a", "\x01"), ("x-b", "1" * 70_000)):
        for method, target in (("CONNECT", "/a"), ("CONNECT", "a:80"), ("GET", "/a#b"), ("GET", "a"), ("get", "/a")):
            check(sidecar_lab, workload, call(target, header, method=method))


@pytest.mark.parametrize("target", ["", "*", "a"])
def test_the_model_and_envoy_agree_on_targets_that_are_not_paths(sidecar_lab, target):
    workload = sidecar_lab.serve(world(match={"pathRegex": ".*"}))
    for version in ("1.1", "2"):
        check(sidecar_lab, workload, call(target, version=version))


def test_the_model_and_envoy_agree_on_unusual_methods_and_headers(sidecar_lab):
    workload = sidecar_lab.serve(world(match={"methods": ["GET", "POST"]}))
    for version in ("1.0", "1.1", "2"):
        for method in sorted({*SENT_METHODS}):
            check(sidecar_lab, workload, call(method=method, version=version))
        for header in HEADERS if version == "2" else HEADERS + OF_HTTP1:
            check(sidecar_lab, workload, call("/a", header, version=version))
            check(sidecar_lab, workload, call("/a", header, version=version, method="DELETE"))


@pytest.mark.parametrize("tls_mode", TlsMode)
@pytest.mark.parametrize("first", [http, tcp])
@pytest.mark.parametrize("is_open", [True, False])
def test_the_model_and_envoy_agree_for_every_caller_in_every_tls_mode(sidecar_lab, tls_mode, first, is_open):
    """R67, R74, R76, D15, D21: two Services give one pod port different protocols."""
    second = tcp if first is http else http
    workload = sidecar_lab.serve(world(first("s1", 80), second("s2", 9000), tls_mode=tls_mode, is_open=is_open))
    for caller in (*CALLERS, *STRANGERS):
        for meant in (("s1", 80), ("s2", 9000), None):
            check(sidecar_lab, workload, call(caller=caller, service=meant))
            check(sidecar_lab, workload, call(caller=caller, service=meant, mesh_alpn=False))
    check(sidecar_lab, workload, call(caller=PLAINTEXT))
