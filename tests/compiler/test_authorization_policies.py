"""Authorization by XAuthorizationPolicies (GEP-3779, D21). The real Envoy enforces them in tests/differential."""

import pytest
from tests.make.objects import (
    authorization_policy,
    backed_service,
    caller_rule,
    headgate_keys,
    http_route_group,
    http_rule,
    meshed_pod,
    traffic_target,
)
from tests.make.values import compiled, findings, workloads

from headgate.compiler.reasons import Reason
from headgate.model.access import OPEN
from headgate.model.authorization import authorize
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import Protocol

WEB, OTHER = ("web", "10.1.0.1"), ("other", "10.1.0.2")
APP = {"app": "web"}
MESH = (
    meshed_pod(*WEB, labels=APP),
    meshed_pod(*OTHER, account="web"),
    *backed_service("web", WEB),
    *backed_service("other", OTHER),
)


def allows(result, caller, name="web", port=8080):
    """Return whether a pod allows a request of a ServiceAccount; an empty one is a caller in plaintext."""
    identity = f"spiffe://cluster.local/ns/{caller}" if caller else ""
    return authorize(workloads(result)[name], port, protocol=Protocol.HTTP, identity=identity).allowed


def test_only_pods_with_the_labels_are_closed_although_another_has_their_account():
    result = compiled(*MESH, authorization_policy("p", APP, caller_rule("client")))
    assert allows(result, "default/sa/client")
    assert not allows(result, "default/sa/stranger")
    assert not allows(result, "")
    assert workloads(result)["other"].access == OPEN


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], ()),
        ([caller_rule()], ()),
        ([{}], ("default/sa/a", "shop/sa/b", "")),
        ([caller_rule("*")], ("default/sa/a",)),
        ([caller_rule("shop/*")], ("shop/sa/b",)),
        ([caller_rule("a", ports=[9090])], ()),
        ([caller_rule("a"), caller_rule("shop/b", ports=[8080])], ("default/sa/a", "shop/sa/b")),
        ([caller_rule("spiffe://cluster.local/ns/shop/sa/b")], ("shop/sa/b",)),
        ([caller_rule("spiffe://other.example/ns/shop/sa/b")], ()),
    ],
)
def test_a_rule_allows_its_sources_on_its_ports(rules, allowed):
    result = compiled(*MESH, authorization_policy("p", APP, *rules))
    callers = ("default/sa/a", "shop/sa/b", "")
    assert tuple(caller for caller in callers if allows(result, caller)) == allowed


def test_a_policy_and_a_traffic_target_add_up():
    group = http_route_group("api", {"all": {}})
    target = traffic_target("t", "web", ["reader"], [http_rule("api")])
    result = compiled(*MESH, group, target, authorization_policy("p", APP, caller_rule("client")))
    assert [allows(result, f"default/sa/{name}") for name in ("reader", "client", "stranger")] == [True, True, False]
    assert not allows(result, "default/sa/client", "other")


def test_a_policy_in_audit_mode_closes_no_pod_unless_another_object_does():
    audit = authorization_policy("p", APP, annotations=headgate_keys(mode="audit"))
    result = compiled(*MESH, audit)
    assert workloads(result)["web"].access.audited
    assert allows(result, "default/sa/client")
    for other in (authorization_policy("q", {}), traffic_target("t", "web", [])):
        result = compiled(*MESH, audit, other)
        assert not allows(result, "default/sa/client")
        (finding,) = findings(result, Reason.AUDIT_WITHOUT_EFFECT)
        assert f"{other['kind']} default/{other['metadata']['name']} is enforced" in finding.message


@pytest.mark.parametrize(
    "change",
    [
        {"action": "DENY"},
        {"rules": [{"sources": [{"type": "ServiceAccount"}]}]},
        {"rules": [{"sources": [{"type": "SPIFFE", "spiffe": "spiffe://cluster.local/ns/*"}]}]},
        {"rules": [{"networkAttributes": {"ports": []}}]},
        {"rules": [{"paths": ["/"]}]},
    ],
)
def test_an_invalid_policy_keeps_its_pods_closed_and_allows_nothing(change):
    valid = authorization_policy("p", APP, caller_rule("client"))
    result = compiled(*MESH, {**valid, "spec": {**valid["spec"], **change}})
    assert not allows(result, "default/sa/client")
    assert workloads(result)["other"].access == OPEN
    assert findings(result, Reason.INVALID)


@pytest.mark.parametrize(
    ("selector", "is_closed"),
    [
        ({"matchLabels": APP, "matchExpressions": [{"key": "tier", "operator": "In"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In"}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Matches"}]}, False),
    ],
)
def test_an_invalid_policy_says_that_its_pods_stay_closed_only_if_they_do(selector, is_closed):
    policy = authorization_policy("p", APP, caller_rule("client"))
    targets = [{"group": "", "kind": "Pod", "selector": selector}]
    result = compiled(*MESH, {**policy, "spec": {**policy["spec"], "targetRefs": targets}})
    assert workloads(result)["web"].access.closed is is_closed
    reported = findings(result, Reason.INVALID)
    assert reported
    assert all(("stay closed" in finding.message) is is_closed for finding in reported)


@pytest.mark.parametrize(("mode", "is_closed"), [("audit", False), ("enforce", True), ("Audit", True)])
def test_a_mistake_in_a_policy_or_target_in_audit_mode_closes_no_pod(mode, is_closed):
    policy = authorization_policy("p", APP, annotations=headgate_keys(mode=mode))
    target = traffic_target("t", "web", ["reader"], annotations=headgate_keys(mode=mode))
    for obj in (policy, target):
        result = compiled(*MESH, {**obj, "spec": {**obj["spec"], "unknown": 1}})
        assert allows(result, "default/sa/client") is not is_closed
        assert workloads(result)["web"].access.audited is not is_closed
        assert all(("closes none" in finding.message) is not is_closed for finding in findings(result, Reason.INVALID))


def test_a_rule_without_sources_is_reported_because_it_allows_all_callers():
    result = compiled(*MESH, authorization_policy("p", APP, caller_rule("web"), {}, caller_rule()))
    assert [finding.field for finding in findings(result, Reason.ALL_CALLERS_ALLOWED)] == ["spec.rules[1].sources"]


@pytest.mark.parametrize(
    ("rule", "field"),
    [({"sources": None}, "sources"), ({"networkAttributes": {"ports": None}}, "networkAttributes.ports")],
)
def test_a_list_of_a_rule_that_is_null_is_a_mistake_and_allows_nothing(rule, field):
    result = compiled(*MESH, authorization_policy("p", APP, rule))
    assert [finding.field for finding in findings(result, Reason.INVALID)] == [f"spec.rules[0].{field}"]
    assert not allows(result, "default/sa/client")


def test_all_accounts_of_the_gateways_namespace_include_the_gateway():
    result = compiled(*MESH, authorization_policy("p", APP, caller_rule("headgate-system/*")))
    assert allows(result, "headgate-system/sa/gateway")
    assert not result.report.findings


def test_a_selected_pod_uses_mutual_tls_so_that_callers_prove_their_identity():
    modes = workloads(compiled(*MESH, authorization_policy("p", APP), mtls="off"))
    assert modes["web"].tls_mode is TlsMode.PERMISSIVE
    assert modes["other"].tls_mode is TlsMode.PLAIN


def test_an_identity_that_no_pod_has_is_reported_as_a_missing_service_account_is():
    """An ID with a typing mistake allows no caller, and nothing else reports it."""
    ids = [
        "spiffe://cluster.local/ns/default/sa/web",
        "spiffe://cluster.local/ns/shop/sa/gone",
        "spiffe://cluster.local/ns/headgate-system/sa/gateway",
        "spiffe://cluster.local/service/web",
    ]
    result = compiled(*MESH, authorization_policy("p", APP, caller_rule(*ids)))
    assert sorted((finding.reason.value, finding.field) for finding in result.report.findings) == [
        ("NoCallers", "spec.rules[0].sources[1].spiffe"),
        ("NoCallers", "spec.rules[0].sources[3].spiffe"),
    ]


def test_a_source_without_pods_and_a_port_without_a_service_are_reported():
    rules = caller_rule("web", "gone", "gone/*", "headgate-system/gateway", ports=[8080, 9090])
    result = compiled(*MESH, authorization_policy("p", APP, rules))
    reported = sorted((finding.reason.value, finding.field) for finding in result.report.findings)
    assert reported == [
        ("NoCallers", "spec.rules[0].sources[1].serviceAccount"),
        ("NoCallers", "spec.rules[0].sources[2].serviceAccount"),
        ("RuleNotApplicable", "spec.rules[0].networkAttributes.ports[1]"),
    ]
