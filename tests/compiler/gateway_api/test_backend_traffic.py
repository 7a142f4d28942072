"""XBackendTrafficPolicies: whose policy decides, the limits of proxies, and sessions of Services (GEP-3388, GEP-1619)."""

from typing import Any

import pytest
from tests.make.objects import (
    Object,
    backed_service,
    gateway,
    listener,
    obj,
    route,
    rule,
    service_parent,
    split,
    traffic_policy,
)
from tests.make.values import compiled

from headgate.compiler.report import Compiled
from headgate.model.resilience import RetryBudget
from headgate.model.routing import Route, Target
from headgate.resources.gateway_api.backend_traffic_policy import backend_traffic_policy_causes

USER = {"sessionName": "user"}


def services(*names: str, **more: Any) -> tuple[Object, ...]:
    places = {name: [("", f"10.0.0.{ord(name)}")] for name in names}
    return tuple(written for name in names for written in backed_service(name, *places[name], **more))


def first_route(result: Compiled, name: str = "a") -> Route:
    (table,) = (table for table in result.mesh.tables if table.ref.service == f"default/{name}")
    return table.routes[0]


def targets(result: Compiled, name: str = "a") -> dict[str, Target]:
    return {target.ref.service: target for target in first_route(result, name).split.targets}


def named(target: Target) -> str:
    return target.session.name if target.session else ""


@pytest.mark.parametrize(
    ("written", "budget"),
    [
        ({}, RetryBudget(percent=20, interval=10_000, minimum=10)),
        ({"budget": {"percent": 0, "interval": "1s"}}, RetryBudget(percent=0, interval=1000, minimum=10)),
        ({"budget": {"interval": "1h"}}, RetryBudget(percent=20, interval=3_600_000, minimum=10)),
        ({"minRetryRate": {"count": 1, "interval": "1h"}}, RetryBudget(percent=20, interval=10_000, minimum=1)),
        ({"minRetryRate": {"count": 3, "interval": "500ms"}}, RetryBudget(percent=20, interval=10_000, minimum=6)),
        ({"minRetryRate": {"interval": "3s"}}, RetryBudget(percent=20, interval=10_000, minimum=4)),
    ],
)
def test_the_minimum_rate_is_a_number_of_active_retries(written: Any, budget: RetryBudget) -> None:
    result = compiled(*services("a"), traffic_policy("limit", "a", retryConstraint=written))
    assert targets(result)["default/a"].resilience.budget == budget
    assert not result.report.findings


def test_the_oldest_policy_of_a_service_decides_about_both_fields() -> None:
    old = traffic_policy("old", "a", sessionPersistence=USER, metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})
    new = traffic_policy("new", "a", "b", retryConstraint={}, metadata={"creationTimestamp": "2026-02-01T00:00:00Z"})
    result = compiled(*services("a", "b"), new, old)
    route_to_a = first_route(result)
    assert route_to_a.session
    assert route_to_a.session.service == "default/a"
    assert targets(result)["default/a"].resilience.budget is None
    assert targets(result, "b")["default/b"].resilience.budget
    states = {
        outcome.about.name: [
            (ancestor.key.name, ancestor.conditions[0].status, ancestor.conditions[0].reason)
            for ancestor in outcome.ancestors
        ]
        for outcome in result.report.policies
    }
    assert states == {"old": [("a", True, "Accepted")], "new": [("a", False, "Conflicted"), ("b", True, "Accepted")]}


def test_the_status_says_how_the_minimum_rate_is_approached_and_names_missing_targets() -> None:
    policy = traffic_policy("limit", "a", "gone", retryConstraint={"minRetryRate": {"count": 30, "interval": "10s"}})
    (outcome,) = compiled(*services("a"), policy).report.policies
    served, missing = outcome.ancestors
    assert served.conditions[0].message == (
        "each proxy has at most as many active retries as 20% of its requests in the last 10s, and at least 3: minRetryRate is 30 "
        "in 10s, for retries of up to a second"
    )
    assert [ref.service for ref in served.services] == ["default/a"]
    assert (missing.conditions[0].reason, missing.services) == ("TargetNotFound", ())


def test_a_target_of_another_kind_is_named() -> None:
    policy = obj("XBackendTrafficPolicy", "limit", spec={"targetRefs": [{"group": "", "kind": "Pod", "name": "a"}]})
    (finding,) = compiled(*services("a"), policy).report.findings
    assert (finding.reason.value, finding.field) == ("TargetNotFound", "spec.targetRefs[0].kind")


def test_a_limit_of_retries_by_annotation_is_reported_as_replaced() -> None:
    limited = services("a", annotations={"headgate.dev/limits": "retries=3"})
    (finding,) = compiled(*limited, traffic_policy("limit", "a", retryConstraint={})).report.findings
    assert (finding.about.kind, finding.field) == ("Service", "metadata.annotations.headgate.dev/limits")


def test_the_sessions_of_a_rule_take_precedence_over_those_of_its_services() -> None:
    own = route("web", rule({"a": 1}, sessionPersistence={"sessionName": "own"}), parents=[service_parent("a")])
    result = compiled(*services("a"), own, traffic_policy("keep", "a", sessionPersistence=USER))
    session = first_route(result).session
    assert session
    assert (session.name, session.service) == ("own", "")


def test_each_backend_of_a_rule_keeps_its_own_sessions_also_without_a_weight() -> None:
    web = route("web", rule({"a": 1, "b": 0, "c": 1, "d": 0}), parents=[service_parent("a")])
    result = compiled(*services("a", "b", "c", "d"), web, traffic_policy("keep", "a", "b", sessionPersistence=USER))
    kept = targets(result)
    assert {name: target.weight for name, target in kept.items()} == {"default/a": 1, "default/b": 0, "default/c": 1}
    assert named(kept["default/a"]).startswith("user-")
    assert named(kept["default/b"]).startswith("user-")
    assert named(kept["default/a"]) != named(kept["default/b"])
    assert not named(kept["default/c"])


def test_the_backends_of_a_split_share_the_sessions_of_its_root() -> None:
    divided = split("a", {"b": 1, "c": 1})
    result = compiled(*services("a", "b", "c"), divided, traffic_policy("keep", "a", sessionPersistence=USER))
    web = first_route(result)
    assert web.session
    assert web.session.service == "default/a"
    assert not any(target.session for target in web.split.targets)


@pytest.mark.parametrize("kind", ["Cookie", "Header"])
def test_policies_with_one_session_name_have_sessions_of_their_own(kind: str) -> None:
    """Proxies find the backend of a session by the name of its token."""
    web = route("web", rule({"a": 1, "b": 9, "c": 1}), parents=[service_parent("a")])
    first = traffic_policy("first", "a", sessionPersistence={"sessionName": "user", "type": kind}, retryConstraint={})
    second = traffic_policy("second", "b", sessionPersistence={"sessionName": "user", "type": kind})
    result = compiled(*services("a", "b", "c"), web, first, second)
    kept = targets(result)
    names = [named(kept[f"default/{name}"]) for name in "abc"]
    assert names[0].startswith("user-")
    assert names[1].startswith("user-")
    assert names[0] != names[1]
    assert not names[2]
    assert first_route(result).session is None
    messages = [outcome.ancestors[0].conditions[0].message for outcome in result.report.policies]
    assert all(f"by the {kind.lower()} {name}," in text for name, text in zip(names, messages, strict=False))


def test_a_further_target_of_a_policy_renames_no_sessions() -> None:
    alone = compiled(*services("a", "b"), traffic_policy("keep", "a", sessionPersistence=USER))
    both = compiled(*services("a", "b"), traffic_policy("keep", "a", "b", sessionPersistence=USER))
    assert first_route(alone).session == first_route(both).session


@pytest.mark.parametrize("kind", ["TCPRoute", "UDPRoute"])
def test_connections_have_no_backend_without_a_weight(kind: str) -> None:
    protocol = kind.removesuffix("Route")
    used = {"name": "main", "port": 8080, "protocol": protocol, "appProtocol": "tcp"}
    backends = [
        written | {"spec": {"ports": [used]}} if written["kind"] == "Service" else written | {"ports": [used]}
        for written in services("a", "b")
    ]
    edge = gateway("edge", listener(protocol=protocol), status={"addresses": [{"value": "127.0.0.10"}]})
    forward = route("db", rule({"a": 1, "b": 0}), kind=kind, parents=[{"name": "edge"}])
    result = compiled(*backends, edge, forward, traffic_policy("keep", "b", sessionPersistence=USER))
    (edge_port,) = result.mesh.gateways
    assert edge_port.connections
    assert [target.ref.service for target in edge_port.connections.split.targets] == ["default/a"]


@pytest.mark.parametrize("weight", [0, 1])
@pytest.mark.parametrize("more", [{}, {"c": 1}])
def test_a_backend_that_a_rule_names_beside_its_root_has_the_sessions_of_the_root(
    weight: int, more: dict[str, int]
) -> None:
    web = route("web", rule({"a": 1, "r": weight, **more}), parents=[service_parent("x")])
    divided = split("r", {"a": 1, "b": 1})
    result = compiled(
        *services("a", "b", "c", "r", "x"), web, divided, traffic_policy("keep", "r", sessionPersistence=USER)
    )
    assert not result.report.findings
    whole = first_route(result, "x")
    owners = {
        target.ref.service: (session := whole.session or target.session) and session.service
        for target in whole.split.targets
    }
    assert owners == {"default/a": "default/r", "default/b": "default/r", **({"default/c": None} if more else {})}


def test_of_two_policies_that_reach_one_backend_its_own_one_decides_and_a_finding_says_so() -> None:
    web = route("web", rule({"a": 1, "r": 1}), parents=[service_parent("x")])
    keep = traffic_policy("keep", "a", "r", sessionPersistence=USER)
    result = compiled(*services("a", "b", "r", "x"), web, split("r", {"a": 1, "b": 1}), keep)
    owners = {name: target.session and target.session.service for name, target in targets(result, "x").items()}
    assert owners == {"default/a": "default/a", "default/b": "default/r"}
    (finding,) = result.report.findings
    assert (finding.reason.value, finding.field) == ("FieldIgnored", "spec.rules[0].backendRefs")
    assert "reach Service default/a by default/a and default/r" in finding.message


def test_a_backend_that_a_rule_names_beside_its_root_has_the_budget_of_the_root() -> None:
    web = route("web", rule({"a": 1, "r": 1}), parents=[service_parent("x")])
    limit = traffic_policy("limit", "r", retryConstraint={})
    result = compiled(*services("a", "b", "r", "x"), web, split("r", {"a": 1, "b": 1}), limit)
    assert all(target.resilience.budget for target in targets(result, "x").values())


@pytest.mark.parametrize("backends", [{"r": 1, "c": 1}, {"r": 0, "c": 1}])
def test_sessions_by_a_header_that_a_rule_can_not_keep_are_reported(backends: dict[str, int]) -> None:
    web = route("web", rule(backends), parents=[service_parent("x")])
    keep = traffic_policy("keep", "r", sessionPersistence={"type": "Header", "sessionName": "user"})
    result = compiled(*services("a", "b", "c", "r", "x"), web, split("r", {"a": 1, "b": 1}), keep)
    whole = first_route(result, "x")
    assert not any(whole.session or target.session for target in whole.split.targets)
    (finding,) = result.report.findings
    assert (finding.reason.value, finding.field) == ("FieldIgnored", "spec.rules[0].backendRefs")
    assert finding.message.startswith("Service default/r keeps no sessions by a header here")


@pytest.mark.parametrize("parent", [{"name": "edge"}, service_parent("x")])
def test_a_rule_with_sessions_by_a_header_reports_different_budgets_of_its_backends(parent: Object) -> None:
    edge = gateway("edge", listener(), status={"addresses": [{"value": "127.0.0.10"}]})
    by_header = {"type": "Header", "sessionName": "user"}
    web = route("web", rule({"a": 1, "b": 1, "c": 0}, sessionPersistence=by_header), parents=[parent])
    limit = traffic_policy("limit", "a", retryConstraint={})
    (finding,) = compiled(*services("a", "b", "c", "x"), edge, web, limit).report.findings
    assert (finding.about.name, finding.reason.value) == ("web", "FieldIgnored")
    assert finding.field == "spec.rules[0].sessionPersistence.type"
    same = traffic_policy("limit", "a", "b", "c", retryConstraint={})
    result = compiled(*services("a", "b", "c", "x"), edge, web, same)
    assert not result.report.findings


def test_sticky_users_and_connections_have_no_sessions_of_a_policy() -> None:
    sticky = split("a", {"b": 1, "c": 1}, annotations={"headgate.dev/sticky": "cookie:side"})
    tcp = services("d", app="tcp")
    keep = traffic_policy("keep", "a", "d", sessionPersistence=USER)
    result = compiled(*services("a", "b", "c"), *tcp, sticky, keep)
    for name in ("a", "d"):
        web = first_route(result, name)
        assert web.session is None
        assert not any(target.session for target in web.split.targets)


def test_a_timeout_that_proxies_do_not_enforce_is_a_note_of_the_status() -> None:
    policy = traffic_policy("keep", "a", sessionPersistence={"absoluteTimeout": "1h"})
    result = compiled(*services("a"), policy)
    (finding,) = result.report.findings
    assert (finding.reason.value, finding.field) == ("FieldIgnored", "spec.sessionPersistence.absoluteTimeout")
    (condition,) = result.report.policies[0].ancestors[0].conditions
    assert condition.status
    assert "absoluteTimeout" in condition.message


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"retryConstraint": {"budget": {"interval": "999ms"}}}, "spec.retryConstraint.budget.interval"),
        ({"retryConstraint": {"minRetryRate": {"interval": "0s"}}}, "spec.retryConstraint.minRetryRate.interval"),
        ({"retryConstraint": {"minRetryRate": {"interval": "2h"}}}, "spec.retryConstraint.minRetryRate.interval"),
        ({"sessionPersistence": {"type": "Header", "sessionName": "host"}}, "spec.sessionPersistence.sessionName"),
    ],
)
def test_a_mistake_names_its_field(spec: Any, field: str) -> None:
    assert [cause.field for cause in backend_traffic_policy_causes(traffic_policy("a", "b", **spec))] == [field]


def test_a_repeated_target_is_a_mistake() -> None:
    (cause,) = backend_traffic_policy_causes(traffic_policy("limit", "a", "a"))
    assert cause.field == "spec.targetRefs[1]"
