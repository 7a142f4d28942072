"""The Gateway API's XBackendTrafficPolicies: retry budgets and sessions of Services (GEP-3388, GEP-1619)."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.durations import milliseconds
from headgate.errors import Cause
from headgate.kinds import EXPERIMENTAL, names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.gateway_api.route_checks import items, session_causes
from headgate.resources.gateway_api.routes import SessionPersistence
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Input, Object, Resource, part

_LONGEST_MS = 60 * 60 * 1000


class TrafficPolicyTarget(Input, frozen=True, kw_only=True):
    """A Service of the policy's namespace, with all of its ports."""

    name: str
    group: str = ""
    kind: str = "Service"


class RetryBudgetDetails(Input, frozen=True, kw_only=True):
    """The maximum share of retries among the requests of an interval."""

    percent: int = 20
    interval: str = "10s"


class RequestRate(Input, frozen=True, kw_only=True):
    """A number of requests in an interval."""

    count: int = 10
    interval: str = "1s"


class RetryConstraint(Input, frozen=True, kw_only=True):
    """The retries that a proxy may send: a budget, and a rate that is always allowed."""

    budget: RetryBudgetDetails = RetryBudgetDetails()
    min_retry_rate: RequestRate = RequestRate()


class BackendTrafficPolicySpec(Input, frozen=True, kw_only=True):
    """`spec` of an XBackendTrafficPolicy."""

    target_refs: tuple[TrafficPolicyTarget, ...] = ()
    retry_constraint: RetryConstraint | None = None
    session_persistence: SessionPersistence | None = None


class XBackendTrafficPolicy(Resource, frozen=True, kw_only=True):
    """An XBackendTrafficPolicy: proxies limit retries of requests to its Services, and keep sessions at their endpoints."""

    spec: BackendTrafficPolicySpec


def backend_traffic_policy_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in an XBackendTrafficPolicy that its schema can't express; most are CEL rules of the release."""
    spec = part(obj, "spec")
    seen: dict[tuple[str, ...], str] = {}
    for place, target in items(spec, "targetRefs", "spec"):
        name = tuple(str(target.get(field)) for field in ("group", "kind", "name"))
        if name in seen:
            yield Cause(place, f"names the same target as {seen[name]}; remove one of the two")
        seen.setdefault(name, place)
    constraint = part(spec, "retryConstraint")
    yield from _interval_causes(part(constraint, "budget"), "spec.retryConstraint.budget", 1000)
    yield from _interval_causes(part(constraint, "minRetryRate"), "spec.retryConstraint.minRetryRate", 1)
    yield from session_causes(part(spec, "sessionPersistence"), "spec.sessionPersistence")


def _interval_causes(rate: Mapping[str, Any], where: str, shortest: int) -> Iterator[Cause]:
    try:
        length = milliseconds(rate.get("interval", "1s"))
    except (TypeError, ValueError):
        return  # a mistake by the schema
    if not shortest <= length <= _LONGEST_MS:
        yield Cause(f"{where}.interval", f"must be from {'1s' if shortest > 1 else '1ms'} to 1h")


KIND = Kind(
    names_of("XBackendTrafficPolicy", EXPERIMENTAL),
    versions=("v1alpha1",),
    status=True,
    shape=XBackendTrafficPolicy,
    checks=backend_traffic_policy_causes,
    columns=(NAME, Column("Targets", cell=cells.names("spec.targetRefs")), AGE),
    recorded=True,
    ready_by=ReadyBy.ANCESTORS,
)
