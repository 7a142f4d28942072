"""Computes the statuses of GatewayClasses, Gateways, ListenerSets, routes, policies, XBackends and XMeshes, except the addresses of a Gateway."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from headgate.compiler.gateway_api.statuses import joined
from headgate.compiler.reasons import ConditionType, Reason, prefixed
from headgate.compiler.report import AncestorOutcome, Finding, ListenerOutcome, ParentStatus, StatusCondition
from headgate.envoy.names import GatewayRef
from headgate.plane.status.conditions import (
    ObjectReport,
    StatusInputs,
    by_condition,
    policy_ports,
    ports_of,
    programmed,
    programmed_condition,
    refs_of,
    timed_rows,
)
from headgate.plane.status.receipts import Receipts
from headgate.resources.gateway_api.features import OF_MESH, SUPPORTED
from headgate.resources.gateway_api.gateway import CONTROLLER, GROUP
from headgate.resources.gateway_api.mesh import MESH_CONTROLLER
from headgate.resources.gateway_api.routes import PROGRAMMED_AT_PARENT
from headgate.resources.inspect import Severity
from headgate.resources.meta import Key, Object, generation_of, rows, status_of

_PROGRAMMED = "Programmed"
_REJECTIONS = {Reason.INVALID, Reason.NO_RESOURCES, Reason.OBJECT_REJECTED}
_REJECTED_LISTENER = "the cluster rejects objects of the Gateway's proxies; see the condition Programmed of the Gateway"
MOST_ANCESTORS = 16  # the limit of the released schema
MOST_PARENTS = 32  # the limit of the released schema of XBackends
_BACKEND_CONDITIONS = {
    ConditionType.ACCEPTED: ("Accepted", "routes can name the server as a backend"),
    ConditionType.RESOLVED_REFS: ("ResolvedRefs", "all references are usable"),
}
_OPTIONAL = ("namespace", "sectionName", "port")
_CLASS_ACCEPTED = StatusCondition(
    type="Accepted", status=True, reason="Accepted", message="headgate implements Gateways of this class"
)


def class_status(obj: Object, report: ObjectReport, inputs: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a GatewayClass; None if another controller owns it."""
    if (obj.get("spec") or {}).get("controllerName") != CONTROLLER or not report.generation:
        return None
    before = status_of(obj)
    faults = [finding for finding in report.findings if finding.reason is Reason.INVALID_PARAMETERS]
    accepted = (
        structs.replace(_CLASS_ACCEPTED, status=False, reason=faults[0].reason.value, message=joined(faults))
        if faults
        else _CLASS_ACCEPTED
    )
    conditions = timed_rows([accepted], before.get("conditions"), generation=report.generation, now=inputs.time)
    return {**before, "conditions": conditions, "supportedFeatures": [{"name": name} for name in SUPPORTED]}


def mesh_features(obj: Object, report: ObjectReport, inputs: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of an XMesh, with the features of the mesh; None if another controller owns it (GEP-3949)."""
    spec = obj.get("spec") or {}
    if spec.get("controllerName") != MESH_CONTROLLER or not report.generation:
        return None
    before = status_of(obj)
    accepted = StatusCondition(type="Accepted", status=True, reason="Accepted", message="headgate implements the mesh")
    if spec.get("parametersRef"):
        message = "headgate has no parameters of a mesh; remove parametersRef, and use options of the installation"
        accepted = structs.replace(accepted, status=False, reason=Reason.INVALID_PARAMETERS.value, message=message)
    conditions = timed_rows([accepted], before.get("conditions"), generation=report.generation, now=inputs.time)
    return {**before, "conditions": conditions, "supportedFeatures": [{"name": name} for name in OF_MESH]}


def gateway_status(obj: Object, report: ObjectReport, inputs: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a Gateway or ListenerSet.

    Return None for a foreign class, or while its generation is not compiled yet.
    """
    outcome = report.gateway
    generation = generation_of(obj)
    if outcome is None or report.generation != generation:
        return None
    before = status_of(obj)
    if outcome.withdraws and not any(
        (row.get("type"), row.get("status")) == ("Accepted", "True") for _, row in rows(before.get("conditions"))
    ):
        return None
    refs = {(ref.port, ref.is_udp): ref for ref in refs_of(outcome)}

    rejected = [finding for finding in report.findings if finding.reason in _REJECTIONS]

    def listener(served: ListenerOutcome) -> Mapping[str, Any]:
        ref = refs.get((served.port, served.is_udp)) if served.is_served else None
        conditions = _with_progress(_listener_with_rejections(served, rejected), [ref] if ref else [], inputs)
        old = _of_listener(before, served.name)
        return {
            "name": served.name,
            "supportedKinds": [{"group": group, "kind": kind} for group, kind in served.kinds],
            "attachedRoutes": served.attached,
            "conditions": timed_rows(conditions, old, generation=generation, now=inputs.time),
        }

    conditions = _with_progress(_with_rejections(outcome.conditions, rejected), list(refs.values()), inputs)
    return {
        **before,
        "conditions": timed_rows(conditions, before.get("conditions"), generation=generation, now=inputs.time),
        "listeners": [listener(served) for served in outcome.listeners],
        **({"attachedListenerSets": outcome.sets} if outcome.sets is not None else {}),
    }


def differ_in_counts_only(status: object, other: object) -> bool:
    """Return whether two statuses of a Gateway differ in the numbers of attached routes, and in nothing else."""
    return status != other and _without_counts(status) == _without_counts(other)


def _without_counts(status: object) -> object:
    if not isinstance(status, Mapping) or not isinstance(status.get("listeners"), Sequence):
        return status
    return {**status, "listeners": [{**listener, "attachedRoutes": 0} for listener in status["listeners"]]}


def _with_rejections(conditions: Sequence[StatusCondition], rejected: Sequence[Finding]) -> Sequence[StatusCondition]:
    """Return the conditions of a Gateway; if the cluster rejects objects of its proxies, Programmed says so.

    A missing address, which the compiler reports, is then a consequence.
    """
    if not rejected:
        return conditions
    message = "; ".join(finding.message for finding in rejected)
    condition = StatusCondition(type=_PROGRAMMED, status=False, reason=rejected[0].reason.value, message=message)
    return [*(other for other in conditions if other.type != _PROGRAMMED), condition]


def _listener_with_rejections(listener: ListenerOutcome, rejected: Sequence[Finding]) -> Sequence[StatusCondition]:
    """Return the conditions of a listener; if the cluster rejects objects of the Gateway's proxies, Programmed says so.

    The current generation of the listener is not active then, even if the proxies serve an earlier one.
    """
    if not rejected or any(old.type == _PROGRAMMED and old.reason == "Invalid" for old in listener.conditions):
        return listener.conditions
    reason = rejected[0].reason.value
    condition = StatusCondition(type=_PROGRAMMED, status=False, reason=reason, message=_REJECTED_LISTENER)
    return [*(old for old in listener.conditions if old.type != _PROGRAMMED), condition]


def _with_progress(
    conditions: Sequence[StatusCondition], refs: Sequence[GatewayRef], inputs: StatusInputs
) -> list[StatusCondition]:
    """Return the conditions. If the compiler has not set Programmed, add it from the proxies' acknowledgments."""
    if any(condition.type == _PROGRAMMED for condition in conditions):
        return list(conditions)
    progress = inputs.receipts.progress(refs)
    if refs and not progress.total:
        message = "no proxy of the Gateway runs yet"
        return [*conditions, StatusCondition(type=_PROGRAMMED, status=False, reason="Pending", message=message)]
    return [*conditions, programmed(progress, accepted=bool(refs))]


def _of_listener(status: Mapping[str, Any], name: str) -> object:
    listeners = (listener for listener in status.get("listeners") or () if listener.get("name") == name)
    return next((listener.get("conditions") for listener in listeners), None)


def route_status(obj: Object, report: ObjectReport, inputs: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a route, with the unchanged entries of other controllers; None to leave it unchanged.

    While a newer generation is not compiled yet, the result is None, because the parents may differ.
    """
    generation = generation_of(obj)
    if report.generation != generation:
        return None
    before = status_of(obj)
    entries = before.get("parents") or []
    if not entries and not report.parents:
        return None
    foreign = [entry for entry in entries if entry.get("controllerName") != CONTROLLER]
    ours = [entry for entry in entries if entry.get("controllerName") == CONTROLLER]
    return {
        **before,
        "parents": [
            *foreign,
            *(_parent_status(obj, parent, ours, inputs, report) for parent in report.parents),
        ],
    }


def _parent_status(
    obj: Object,
    parent: ParentStatus,
    before: Sequence[Mapping[str, Any]],
    inputs: StatusInputs,
    report: ObjectReport,
) -> Mapping[str, Any]:
    reference = (
        parent_reference(obj["spec"]["parentRefs"][parent.index]) if parent.index >= 0 else _object(parent.parent)
    )
    old: Mapping[str, Any] = next((entry for entry in before if entry.get("parentRef") == reference), {})
    conditions = [
        *parent.conditions,
        _route_programmed(parent, inputs.receipts),
        *_copies_dropped(report.findings),
        *report.compared,
    ]
    generation = generation_of(obj)
    return {
        "parentRef": reference,
        "controllerName": CONTROLLER,
        "conditions": timed_rows(conditions, old.get("conditions"), generation=generation, now=inputs.time),
    }


def policy_status(obj: Object, report: ObjectReport, inputs: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a policy, with the unchanged entries of other controllers; None to leave it unchanged.

    It has an entry for each Gateway whose routes lead to a BackendTLSPolicy's Services, or for each Service that an
    XBackendTrafficPolicy targets, at most `MOST_ANCESTORS`.
    """
    generation, outcome = generation_of(obj), report.policy
    if outcome is None or report.generation != generation:
        return None
    before = status_of(obj)
    entries = before.get("ancestors") or []
    if not entries and not outcome.ancestors:
        return None
    foreign = [entry for entry in entries if entry.get("controllerName") != CONTROLLER]

    def entry(ancestor: AncestorOutcome) -> Mapping[str, Any]:
        reference = _object(ancestor.key)
        accepted = all(condition.status for condition in ancestor.conditions if condition.type == "Accepted")
        judged = programmed(inputs.receipts.progress(policy_ports(ancestor)), accepted=accepted)
        conditions = [*ancestor.conditions, structs.replace(judged, type=PROGRAMMED_AT_PARENT)]
        ours = (entry for entry in entries if entry.get("controllerName") == CONTROLLER)
        old: Mapping[str, Any] = next((entry for entry in ours if entry.get("ancestorRef") == reference), {})
        return {
            "ancestorRef": reference,
            "controllerName": CONTROLLER,
            "conditions": timed_rows(conditions, old.get("conditions"), generation=generation, now=inputs.time),
        }

    room = max(0, MOST_ANCESTORS - len(foreign))
    return {**before, "ancestors": [*foreign, *map(entry, outcome.ancestors[:room])]}


def backend_status(obj: Object, report: ObjectReport, inputs: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of an XBackend, with the unchanged entries of other controllers; None to leave it unchanged.

    It has an entry for each parent of the routes that lead to it, at most `MOST_PARENTS`.
    """
    generation = generation_of(obj)
    if report.generation != generation:
        return None
    before = status_of(obj)
    entries = before.get("parents") or []
    if not entries and not report.routes:
        return None
    foreign = [entry for entry in entries if entry.get("controllerName") != CONTROLLER]
    ours = [entry for entry in entries if entry.get("controllerName") == CONTROLLER]
    judged = list(by_condition(report.findings, _BACKEND_CONDITIONS))

    def entry(key: Key, parents: Sequence[ParentStatus]) -> Mapping[str, Any]:
        reference = _object(key)
        held = structs.replace(_backend_programmed(report, parents, inputs.receipts), type=PROGRAMMED_AT_PARENT)
        old: Mapping[str, Any] = next((entry for entry in ours if entry.get("parentRef") == reference), {})
        return {
            "parentRef": reference,
            "controllerName": CONTROLLER,
            "conditions": timed_rows([*judged, held], old.get("conditions"), generation=generation, now=inputs.time),
        }

    by_parent: dict[Key, list[ParentStatus]] = defaultdict(list)
    for parent in report.routes:
        if any(condition.type == "Accepted" and condition.status for condition in parent.conditions):
            by_parent[parent.parent].append(parent)
    room = max(0, MOST_PARENTS - len(foreign))
    return {**before, "parents": [*foreign, *(entry(key, by_parent[key]) for key in sorted(by_parent)[:room])]}


def _backend_programmed(report: ObjectReport, parents: Sequence[ParentStatus], receipts: Receipts) -> StatusCondition:
    """Return whether each proxy that serves these parents has an XBackend, and can call it."""
    faults = [finding for finding in report.findings if finding.reason.condition is ConditionType.PROGRAMMED]
    broken = [finding for finding in faults if finding.reason.severity is not Severity.NOTE]
    if broken:
        return programmed_condition(broken[0].reason.value, joined(broken))
    is_accepted = not any(finding.reason.condition is ConditionType.ACCEPTED for finding in report.findings)
    states = [
        programmed(
            receipts.progress(
                [port for parent in parents if parent.consumer == consumer for port in ports_of(parent)], consumer
            ),
            accepted=is_accepted,
        )
        for consumer in sorted({parent.consumer for parent in parents})
    ]
    return next((state for state in states if not state.status), states[0])


def _copies_dropped(findings: Sequence[Finding]) -> Iterator[StatusCondition]:
    """Yield the condition headgate.dev/CopiesDropped while mirrors of the route drop copies."""
    dropped = [finding for finding in findings if finding.reason is Reason.COPIES_DROPPED]
    if dropped:
        name = prefixed(Reason.COPIES_DROPPED.value)
        yield StatusCondition(type=name, status=True, reason="MirrorLimits", message=joined(dropped))


def _object(key: Key) -> Mapping[str, Any]:
    """Return a reference to an object for the status."""
    return {"group": key.group, "kind": key.kind, "namespace": key.namespace, "name": key.name}


def parent_reference(written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a `parentRef` for the status: with default group and kind, and the optional fields that the user wrote."""
    group = written.get("group")
    return {
        "group": GROUP if group is None else group,
        "kind": written.get("kind") or "Gateway",
        "name": written["name"],
        **{field: written[field] for field in _OPTIONAL if written.get(field) is not None},
    }


def _route_programmed(parent: ParentStatus, receipts: Receipts) -> StatusCondition:
    ports = ports_of(parent)
    accepted = all(condition.status for condition in parent.conditions if condition.type == "Accepted")
    judged = programmed(receipts.progress(ports, parent.consumer), accepted=accepted and bool(ports))
    return structs.replace(judged, type=PROGRAMMED_AT_PARENT)
