"""Compile XBackendTrafficPolicies: the retry budgets and the sessions of Services, for all proxies (GEP-3388, GEP-1619).

Envoy limits the retries that are active at once. The budget's percentage of the requests in its interval is exactly Envoy's
`budget_percent` and `budget_interval`. The minimum rate becomes a number of active retries: the rate for each second, because
so many retries at once reach this rate if each takes up to a second.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.gateway_api.backend_tls import leading_gateways
from headgate.compiler.gateway_api.parents import AttachedRoute, Parents
from headgate.compiler.gateway_api.sessions import FIELD as SESSION_FIELD
from headgate.compiler.gateway_api.sessions import session_of_service, timeout_findings
from headgate.compiler.gateway_api.statuses import first
from headgate.compiler.reasons import Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import AncestorOutcome, Finding, GatewayOutcome, PolicyOutcome
from headgate.compiler.resilience import SettingsByService, with_resilience
from headgate.compiler.service_sessions import unkept_headers
from headgate.compiler.services import routed_ports
from headgate.compiler.snapshot import Snapshot
from headgate.durations import milliseconds
from headgate.model.resilience import DEFAULT, Resilience, RetryBudget
from headgate.model.routing import Mesh, PortRef
from headgate.model.sessions import PersistentSession, words
from headgate.resources.core.service import Service
from headgate.resources.gateway_api.backend_traffic_policy import (
    RetryConstraint,
    TrafficPolicyTarget,
    XBackendTrafficPolicy,
)
from headgate.resources.meta import Key
from headgate.resources.registry import SERVICE
from headgate.resources.resilience import LIMITS

READ = (XBackendTrafficPolicy, Service)


class TargetedService(NamedTuple):
    """A Service (`namespace/name`) that a policy targets, its ports, and a finding if the policy does not decide about it."""

    service: Key
    ports: tuple[PortRef, ...]
    fault: Finding | None


class TrafficPolicies(NamedTuple):
    """All policies: budgets, sessions and effects by Service (`namespace/name`), findings, and by policy its targets."""

    budgets: Mapping[str, RetryBudget]
    sessions: Mapping[str, PersistentSession]
    findings: tuple[Finding, ...] = ()
    targets: Mapping[Key, tuple[TargetedService, ...]] = {}
    effects: Mapping[str, str] = {}


NO_POLICIES = TrafficPolicies({}, {})


def traffic_policies(snapshot: Snapshot) -> TrafficPolicies:
    """Compile all policies. Of two for the same Service the oldest one decides, about both fields."""
    policies = sorted(
        snapshot.of(XBackendTrafficPolicy), key=lambda entry: (entry[1].metadata.creation_timestamp, entry[0])
    )
    if not policies:
        return NO_POLICIES
    owners: dict[str, Key] = {}
    budgets: dict[str, RetryBudget] = {}
    sessions: dict[str, PersistentSession] = {}
    findings: list[Finding] = []
    targets: dict[Key, tuple[TargetedService, ...]] = {}
    effects: dict[str, str] = {}
    for key, policy in policies:
        spec = policy.spec
        named = [
            _target(snapshot, key, target, f"spec.targetRefs[{index}]", owners)
            for index, target in enumerate(spec.target_refs)
        ]
        targets[key] = tuple(named)
        findings += [target.fault for target in named if target.fault]
        if spec.session_persistence:
            findings += timeout_findings(spec.session_persistence, key, f"spec.{SESSION_FIELD}")
        for service in (f"{key.namespace}/{target.service.name}" for target in named if not target.fault):
            if spec.retry_constraint:
                budgets[service] = _budget(spec.retry_constraint)
            if spec.session_persistence:
                sessions[service] = session_of_service(spec.session_persistence, service)
            effects[service] = _effect(policy, sessions.get(service))
    return TrafficPolicies(budgets, sessions, tuple(findings), targets, effects)


def _target(
    snapshot: Snapshot, key: Key, target: TrafficPolicyTarget, field: str, owners: dict[str, Key]
) -> TargetedService:
    """Return a target of a policy, which becomes the owner of its Service if there is none yet."""
    named = Key(target.group, target.kind, key.namespace, target.name)
    if (target.group, target.kind) != (SERVICE.group, SERVICE.kind):
        message = f"{target.kind} {target.name} is not a Service; write group: '' and kind: Service"
        return TargetedService(named, (), Finding(key, Reason.TARGET_NOT_FOUND, f"{field}.kind", message))
    name = f"{key.namespace}/{target.name}"
    related = service_key(name)
    if name not in snapshot.services:
        message = f"Service {name} not found; create it or correct the name"
        return TargetedService(named, (), Finding(key, Reason.TARGET_NOT_FOUND, f"{field}.name", message, (related,)))
    ports = tuple(PortRef(name, port.port) for port in routed_ports(snapshot.services[name][1]))
    owner = owners.setdefault(name, key)
    if owner == key:
        return TargetedService(named, ports, None)
    message = f"{owner} is older and already decides about Service {name}; delete one of the two, or give them different targets"
    return TargetedService(named, ports, Finding(key, Reason.CONFLICTED, field, message, (owner,)))


def _budget(constraint: RetryConstraint) -> RetryBudget:
    rate = constraint.min_retry_rate
    return RetryBudget(
        percent=constraint.budget.percent,
        interval=milliseconds(constraint.budget.interval),
        minimum=-(-rate.count * 1000 // milliseconds(rate.interval)),
    )


def _effect(policy: XBackendTrafficPolicy, session: PersistentSession | None) -> str:
    """Return what proxies do, for the status: also how they approach the minimum rate, and the token's name."""
    constraint, texts = policy.spec.retry_constraint, []
    if constraint:
        budget, rate = _budget(constraint), constraint.min_retry_rate
        texts.append(
            f"each proxy has at most as many active retries as {budget.percent}% of its requests in the last "
            f"{constraint.budget.interval}, and at least {budget.minimum}: minRetryRate is {rate.count} in {rate.interval}, for "
            "retries of up to a second"
        )
    if session:
        texts.append(
            f"requests of a session go to one endpoint {words(session)}, unless their rule has a sessionPersistence of its own"
        )
    return "; ".join(texts) or "the policy has neither retryConstraint nor sessionPersistence, so it changes nothing"


def with_policies(
    mesh: Mesh, settings: Mapping[str, Resilience], policies: TrafficPolicies
) -> tuple[Mesh, tuple[Finding, ...]]:
    """Return the mesh with the settings of Services and their policies, and findings about what has no effect then."""
    resilient = with_resilience(mesh, SettingsByService(_with_budgets(settings, policies), policies.sessions))
    return resilient, (*_replaced_limits(settings, policies), *unkept_headers(mesh, resilient))


def _with_budgets(settings: Mapping[str, Resilience], policies: TrafficPolicies) -> Mapping[str, Resilience]:
    """Return the settings of Services, with the budgets of policies."""
    if not policies.budgets:
        return settings
    budgets = policies.budgets.items()
    return {**settings, **{name: structs.replace(settings.get(name, DEFAULT), budget=own) for name, own in budgets}}


def _replaced_limits(settings: Mapping[str, Resilience], policies: TrafficPolicies) -> Iterator[Finding]:
    """Yield a finding for each Service whose annotation limits retries, although it has the budget of a policy."""
    for name in policies.budgets:
        if name in settings and settings[name].limits.retries:
            message = "retries has no effect: the retryConstraint of an XBackendTrafficPolicy limits the retries; remove one of the two"
            yield Finding(service_key(name), Reason.FIELD_IGNORED, f"metadata.annotations.{LIMITS}", message)


def outcomes(
    policies: TrafficPolicies,
    parents: Parents,
    attached: Mapping[Key, AttachedRoute],
    gateways: Iterable[GatewayOutcome],
) -> Iterator[PolicyOutcome]:
    """Yield the status of each policy at each of its targets, which is an ancestor of the policy itself."""
    if not policies.targets:
        return
    leading = leading_gateways(parents, attached, gateways)
    notes: dict[Key, list[Finding]] = defaultdict(list)
    for finding in policies.findings:
        if finding.reason is Reason.FIELD_IGNORED:
            notes[finding.about].append(finding)
    for key, targets in policies.targets.items():
        yield PolicyOutcome(
            about=key,
            ancestors=tuple(
                AncestorOutcome(
                    key=target.service,
                    services=target.ports if target.fault is None else (),
                    ports=tuple(
                        sorted({port for ref in target.ports for port in leading.ports_to(ref)})
                        if target.fault is None
                        else ()
                    ),
                    conditions=(
                        first(
                            "Accepted",
                            [target.fault] if target.fault else [],
                            success=policies.effects.get(f"{target.service.namespace}/{target.service.name}", ""),
                            notes=notes[key],
                        ),
                    ),
                )
                for target in targets
            ),
        )
