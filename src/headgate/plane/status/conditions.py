"""Computes conditions from findings and acknowledgments, and the statuses of TrafficSplits and Services."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headgate import formatting
from headgate.compiler.reasons import ConditionType, Reason, prefixed
from headgate.compiler.report import (
    AncestorOutcome,
    Finding,
    GatewayOutcome,
    ParentStatus,
    PolicyOutcome,
    SelectedPods,
    Share,
    SidecarPods,
    SplitOutcome,
    StatusCondition,
)
from headgate.envoy.names import GatewayRef, RouteParent
from headgate.model.routing import PortRef
from headgate.plane.status.audit_outcome import AuditOutcome
from headgate.plane.status.receipts import Progress, Receipts
from headgate.resources.gateway_api.routes import PROGRAMMED_AT_PARENT
from headgate.resources.meta import Object, Value, generation_of, status_of
from headgate.resources.smi.traffic_split import BackendShare, PortShares, TrafficSplitStatus
from headgate.resources.status import ObjectCondition, ProxyProgress, status_fields

_TRUE_CONDITIONS = {
    ConditionType.ACCEPTED: ("Accepted", "the split is valid"),
    ConditionType.RESOLVED_REFS: (
        "ResolvedRefs",
        "every Service that the split names exists and offers the root's ports",
    ),
}
_BACKENDS_READY = (ConditionType.BACKENDS_READY.value, "every backend with a weight has ready endpoints")
_NOT_CHECKED = ("NotChecked", "the split applies to no port of its root, so no backend is checked")
_PORTS_RESOLVED = "the pods of the Service declare all of its target ports"
_CONFLICTED = "Conflicted"
_SERVICE_CONDITION = prefixed(ConditionType.RESOLVED_REFS.value)
_STATUSES: Mapping[bool | None, str] = {True: "True", False: "False", None: "Unknown"}
_NAMED = 5  # the maximum number of names in a message; a count replaces the rest


class ObjectReport(Value, frozen=True, kw_only=True):
    """The compiler's results for one object, from which its status is computed.

    Fields that do not apply to the object's kind are empty. `generation` is the compiled generation, or 0 if the object
    can't be decoded. `outcomes` has the backends' shares per port, and `routes` the results of the routes that lead to a
    split. `parents` has the results of a route per parent, and
    `gateway` is the result of a Gateway, and `policy` that of a policy. `selected` has the pods that a TLSConfig or TrafficTarget selects, and
    `sidecar` has the pods of a Sidecar. `migrating` are selected pods that are not in their wanted TLS mode yet.
    `incomplete_certificates` are selected pods with a certificate that lacks some DNS names. `compared` has conditions
    about the mirrors of a route, and `audit` has the calls that a TrafficTarget in audit mode would refuse.
    """

    generation: int
    findings: tuple[Finding, ...] = ()
    outcomes: tuple[SplitOutcome, ...] = ()
    routes: tuple[ParentStatus, ...] = ()
    parents: tuple[ParentStatus, ...] = ()
    gateway: GatewayOutcome | None = None
    policy: PolicyOutcome | None = None
    selected: SelectedPods | None = None
    sidecar: SidecarPods | None = None
    migrating: tuple[str, ...] = ()
    incomplete_certificates: tuple[str, ...] = ()
    compared: tuple[StatusCondition, ...] = ()
    audit: AuditOutcome | None = None


class StatusInputs(NamedTuple):
    """The inputs of all statuses, besides the reports of single objects.

    `receipts` has the proxies' acknowledgments, `time` is the current time (RFC 3339), and `blocking` has the node IDs
    of proxies that block mTLS migrations.
    """

    receipts: Receipts
    time: str
    blocking: Sequence[str] = ()


def conditions(
    findings: Sequence[Finding], progress: Progress, outcomes: Sequence[SplitOutcome]
) -> tuple[StatusCondition, ...]:
    """Return the conditions of a TrafficSplit in the order of its status: Accepted is first and Programmed last."""
    judged = (*by_condition(findings, _TRUE_CONDITIONS), _backends_ready(findings, outcomes))
    conflicted = [finding for finding in findings if finding.reason is Reason.CONFLICTED]
    conflict = StatusCondition(
        type=_CONFLICTED,
        status=bool(conflicted),
        reason=_CONFLICTED if conflicted else "NoConflicts",
        message=conflicted[0].message if conflicted else "no other split claims the root",
    )
    accepted = judged[0].status is True and not any(finding.reason is Reason.SERVICE_NOT_FOUND for finding in findings)
    return (*judged, conflict, programmed(progress, accepted=accepted))


def _backends_ready(findings: Sequence[Finding], outcomes: Sequence[SplitOutcome]) -> StatusCondition:
    """Return the condition BackendsReady: False if a backend with a weight gets nothing on a port, for whatever reason."""
    left_out = {
        f"spec.backends[{index}].service"
        for outcome in outcomes
        for index, share in enumerate(outcome.shares)
        if share.weight and share.left_out
    }
    faults = [
        finding
        for finding in findings
        if finding.reason.condition is ConditionType.BACKENDS_READY or finding.field in left_out
    ]
    if not faults and not outcomes:
        reason, message = _NOT_CHECKED
        return StatusCondition(type=ConditionType.BACKENDS_READY.value, status=None, reason=reason, message=message)
    return _judged(ConditionType.BACKENDS_READY, faults, _BACKENDS_READY)


def ports_of(parent: ParentStatus) -> Sequence[RouteParent]:
    """Return the ports of a route's parent where the route applies; those of a Gateway with their hosts."""
    is_udp = parent.about.kind == "UDPRoute"
    return [*parent.ports, *(GatewayRef(parent.gateway, port, host, is_udp) for port, host in parent.gateway_hosts)]


def refs_of(outcome: GatewayOutcome) -> Sequence[GatewayRef]:
    """Return the ports of a Gateway or ListenerSet that proxies serve."""
    udp = (GatewayRef(outcome.gateway, port, is_udp=True) for port in outcome.udp_ports)
    return [*(GatewayRef(outcome.gateway, port) for port in outcome.ports), *udp]


def policy_ports(ancestor: AncestorOutcome) -> Sequence[RouteParent]:
    """Return the ports where proxies apply a policy."""
    return [*ancestor.services, *(GatewayRef(f"{key.namespace}/{key.name}", port) for key, port in ancestor.ports)]


def gateway_ports(report: ObjectReport) -> Sequence[RouteParent]:
    """Return the ports of a Gateway or ListenerSet, or those where proxies apply a policy."""
    if report.policy:
        return list(dict.fromkeys(port for ancestor in report.policy.ancestors for port in policy_ports(ancestor)))
    return refs_of(report.gateway) if report.gateway else []


def by_condition(
    findings: Sequence[Finding], met: Mapping[ConditionType, tuple[str, str]]
) -> Iterator[StatusCondition]:
    """Yield each condition of `met`: False if a finding is about the condition, otherwise True.

    `met` maps each condition to its reason and message for True. A False condition has the reason and messages of the
    findings.
    """
    for condition in met:
        yield _judged(
            condition, [finding for finding in findings if finding.reason.condition is condition], met[condition]
        )


def _judged(condition: ConditionType, faults: Sequence[Finding], met: tuple[str, str]) -> StatusCondition:
    """Return a condition that is False for these findings; without any it is True, with the reason and message `met`."""
    if not faults:
        reason, message = met
        return StatusCondition(type=condition.value, status=True, reason=reason, message=message)
    text = "; ".join(dict.fromkeys(finding.message for finding in faults))
    return StatusCondition(type=condition.value, status=False, reason=faults[0].reason.value, message=text)


def programmed_condition(reason: str, message: str, *, status: bool = False) -> StatusCondition:
    """Return a condition Programmed."""
    return StatusCondition(type=ConditionType.PROGRAMMED.value, status=status, reason=reason, message=message)


def programmed(progress: Progress, *, accepted: bool, message_start: str = "") -> StatusCondition:
    """Return the condition Programmed: whether all proxies have acknowledged the resources of an object.

    The condition is False for an object that is not accepted. `message_start` is the start of the message; the default
    is for example `3 of 4 proxies have the configuration`.
    """
    message_start = message_start or f"{progress.holding} of {progress.total} proxies have the configuration"
    if not accepted:
        return programmed_condition("Invalid", "no proxy is configured for this object; see the other conditions")
    if progress.refused:
        words = [f"{proxy} rejected the configuration: {message.strip()}" for proxy, message in progress.refused]
        return programmed_condition(Reason.ENVOY_REJECTED.value, f"{message_start}; {few(words, '; ')}")
    if not progress.total:
        return programmed_condition("NoProxies", "no proxy needs the configuration")
    if progress.lagging:
        return programmed_condition("Pending", f"{message_start}; waiting for {few(progress.lagging)}")
    return programmed_condition("Programmed", message_start, status=True)


def few(words: Sequence[str], between: str = ", ") -> str:
    """Join the first five words, and count the rest: `a, b, c, d, e and 37 more`."""
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return between.join(words[:_NAMED]) + more


def shares(outcomes: Sequence[SplitOutcome]) -> tuple[PortShares, ...]:
    """Return `status.ports`: the share of each backend on each port of the root Service."""
    return tuple(
        PortShares(port=outcome.ref.port, backends=tuple(_share(share, outcome.ref) for share in outcome.shares))
        for outcome in outcomes
    )


def _share(share: Share, root: PortRef) -> BackendShare:
    return BackendShare(
        service=_name(share.service, root),
        weight=share.weight,
        percent=formatting.share(share.share),
        endpoints=share.endpoints,
        reason=share.left_out.value if share.left_out else "",
    )


def summary(outcomes: Sequence[SplitOutcome]) -> str:
    """Return the shares of backends as one line for an Event: `port 8080: website-v1 90%, website-v2 10%`."""
    return "; ".join(f"port {outcome.ref.port}: {', '.join(_parts(outcome))}" for outcome in outcomes)


def _parts(outcome: SplitOutcome) -> Iterator[str]:
    """Yield the share of each backend (`web-v1 90%`), then that of the remaining requests: `503 10%` (D9, D10)."""
    for backend in outcome.shares:
        yield f"{_name(backend.service, outcome.ref)} {formatting.share(backend.share)}"
    if outcome.root:
        yield f"the plain Service {_name(outcome.ref.service, outcome.ref)} {formatting.share(outcome.root)}"
    if outcome.failed:
        yield f"503 {formatting.share(outcome.failed)}"


def _name(service: str, root: PortRef) -> str:
    """Return the name of a backend as in a split: `card`, or `card.payments` if it is in another namespace than the root."""
    namespace, _, name = service.partition("/")
    return name if namespace == root.service.partition("/")[0] else f"{name}.{namespace}"


def timed(
    conditions: Sequence[StatusCondition], before: object, *, generation: int, now: str
) -> tuple[ObjectCondition, ...]:
    """Return conditions for a status.

    `before` has the conditions of the current status. The `lastTransitionTime` of a condition is unchanged
    while its status is; otherwise the time is `now`.
    """
    rows = before if isinstance(before, Sequence) else ()
    by_type = {row["type"]: row for row in rows if isinstance(row, Mapping) and "type" in row}
    dated: list[ObjectCondition] = []
    for condition in conditions:
        text = _STATUSES[condition.status]
        old = by_type.get(condition.type, {})
        same = old.get("status") == text and "lastTransitionTime" in old
        dated.append(
            ObjectCondition(
                type=condition.type,
                status=text,
                reason=condition.reason,
                message=condition.message,
                observed_generation=generation,
                last_transition_time=old["lastTransitionTime"] if same else now,
            )
        )
    return tuple(dated)


def timed_rows(
    conditions: Sequence[StatusCondition], before: object, *, generation: int, now: str
) -> list[Mapping[str, Any]]:
    """Return conditions as JSON for a status of Kubernetes or the Gateway API, as `timed`."""
    return [status_fields(condition) for condition in timed(conditions, before, generation=generation, now=now)]


def differ_in_progress_only(status: object, other: object) -> bool:
    """Return whether two statuses differ in the proxies' acknowledgments of one generation, and in nothing else."""
    return status != other and _without_progress(status) == _without_progress(other)


def _without_progress(status: object) -> object:
    """Return a status without its numbers of proxies and without what its conditions Programmed say."""
    if isinstance(status, Mapping):
        if status.get("type") in (ConditionType.PROGRAMMED.value, PROGRAMMED_AT_PARENT):
            return status.get("observedGeneration")
        return {name: _without_progress(value) for name, value in status.items() if name != "proxies"}
    if isinstance(status, Sequence) and not isinstance(status, str):
        return [_without_progress(part) for part in status]
    return status


def split_status(obj: Object, report: ObjectReport, inputs: StatusInputs) -> Mapping[str, Any]:
    """Return the whole status of a TrafficSplit."""
    through = (port for parent in report.routes for port in ports_of(parent))
    progress = inputs.receipts.progress([*(outcome.ref for outcome in report.outcomes), *through])
    generation = report.generation or generation_of(obj)
    current = conditions(report.findings, progress, report.outcomes)
    before = status_of(obj).get("conditions")
    return status_fields(
        TrafficSplitStatus(
            observed_generation=generation,
            conditions=timed(current, before, generation=generation, now=inputs.time),
            proxies=ProxyProgress(programmed=progress.holding, total=progress.total),
            ports=shares(report.outcomes),
        )
    )


def service_status(obj: Object, report: ObjectReport, inputs: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a Service, with a condition that says whether its pods declare its target ports.

    Returns None if there is no finding, and the status has no such condition. Conditions of other controllers stay
    unchanged.
    """
    before = status_of(obj)
    stored = before.get("conditions") or ()
    faults = [finding for finding in report.findings if finding.reason.condition is ConditionType.RESOLVED_REFS]
    if not faults and all(row.get("type") != _SERVICE_CONDITION for row in stored):
        return None
    text = "; ".join(dict.fromkeys(f"{finding.field}: {finding.message}" for finding in faults))
    condition = StatusCondition(
        type=_SERVICE_CONDITION,
        status=not faults,
        reason=faults[0].reason.value if faults else ConditionType.RESOLVED_REFS.value,
        message=text or _PORTS_RESOLVED,
    )
    generation = report.generation or generation_of(obj)
    own = timed_rows([condition], stored, generation=generation, now=inputs.time)
    return {
        **before,
        "conditions": [*(row for row in stored if row.get("type") != _SERVICE_CONDITION), *own],
    }
