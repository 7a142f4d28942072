"""XBackendTrafficPolicies: whose policy decides, the limits of proxies, and sessions of Services (GEP-3388, GEP-1619)."""

from typing import Any

import pytest
from tests.make.objects import (
    Object,
    backed_service,
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
    assert route_to_a.session.name == "user"
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
    assert (session.name, session.all_paths) == ("own", False)


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
    assert web.session.name == "user"
    assert not any(target.session for target in web.split.targets)


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
