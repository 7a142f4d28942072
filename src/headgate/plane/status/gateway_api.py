"""The status of GatewayClasses, Gateways and routes. Pure. `status.addresses` belongs to what assigns addresses."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from headgate.compiler.gateway_api.statuses import joined
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, ListenerOutcome, ParentStatus, StatusCondition
from headgate.envoy.names import GatewayRef, RouteParent
from headgate.plane.status.conditions import ObjectReport, StatusInputs, programmed, status_of, timed
from headgate.plane.status.receipts import Receipts
from headgate.resources.gateway import CONTROLLER, GROUP
from headgate.resources.meta import Object

_PROGRAMMED = "Programmed"
_OPTIONAL = ("namespace", "sectionName", "port")
_CLASS_ACCEPTED = StatusCondition(
    type="Accepted", status=True, reason="Accepted", message="headgate makes Gateways of it real"
)


def class_status(obj: Object, said: ObjectReport, present: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a GatewayClass; None for one of another controller."""
    if (obj.get("spec") or {}).get("controllerName") != CONTROLLER or not said.generation:
        return None
    before = status_of(obj)
    faults = [item for item in said.findings if item.reason is Reason.INVALID_PARAMETERS]
    accepted = (
        structs.replace(_CLASS_ACCEPTED, status=False, reason=faults[0].reason.value, message=joined(faults))
        if faults
        else _CLASS_ACCEPTED
    )
    conditions = timed([accepted], before.get("conditions"), generation=said.generation, now=present.time)
    return {**before, "conditions": conditions}


def gateway_status(obj: Object, said: ObjectReport, present: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a Gateway; None for one of another class, or while a newer one is not compiled yet."""
    outcome = said.gateway
    generation = obj["metadata"].get("generation", 0)
    if outcome is None or said.generation != generation:
        return None
    before = status_of(obj)
    name = f"{outcome.about.namespace}/{outcome.about.name}"
    ports = {item["name"]: item["port"] for item in obj["spec"]["listeners"]}
    refs = {port: GatewayRef(name, port) for port in outcome.ports}

    def listener(item: ListenerOutcome) -> Mapping[str, Any]:
        ref = refs.get(ports[item.name])
        conditions = _with_progress(item.conditions, [ref] if ref else [], present)
        old = _of_listener(before, item.name)
        return {
            "name": item.name,
            "supportedKinds": [{"group": group, "kind": kind} for group, kind in item.kinds],
            "attachedRoutes": item.attached,
            "conditions": timed(conditions, old, generation=generation, now=present.time),
        }

    conditions = _with_progress(outcome.conditions, list(refs.values()), present)
    return {
        **before,
        "conditions": timed(conditions, before.get("conditions"), generation=generation, now=present.time),
        "listeners": [listener(item) for item in outcome.listeners],
    }


def _with_progress(
    conditions: Sequence[StatusCondition], refs: Sequence[GatewayRef], present: StatusInputs
) -> list[StatusCondition]:
    """Add how far the proxies are, unless the compiler knows that there is nothing to be held."""
    if any(verdict.type == _PROGRAMMED for verdict in conditions):
        return list(conditions)
    return [*conditions, programmed(present.receipts.progress(refs), accepted=bool(refs))]


def _of_listener(status: Mapping[str, Any], name: str) -> object:
    found = (item for item in status.get("listeners") or () if item.get("name") == name)
    return next((item.get("conditions") for item in found), None)


def route_status(obj: Object, said: ObjectReport, present: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a route, with other controllers' entries as they are; None to leave it alone.

    It is left alone while what was compiled is not what the object says now: its parents may be others.
    """
    generation = obj["metadata"].get("generation", 0)
    if said.generation != generation:
        return None
    before = status_of(obj)
    entries = before.get("parents") or []
    if not entries and not said.parents:
        return None
    others = [entry for entry in entries if entry.get("controllerName") != CONTROLLER]
    ours = [entry for entry in entries if entry.get("controllerName") == CONTROLLER]
    return {
        **before,
        "parents": [*others, *(_entry(obj, parent, ours, present, said.findings) for parent in said.parents)],
    }


def _entry(
    obj: Object,
    parent: ParentStatus,
    before: Sequence[Mapping[str, Any]],
    present: StatusInputs,
    findings: Sequence[Finding],
) -> Mapping[str, Any]:
    reference = parent_reference(obj["spec"]["parentRefs"][parent.index])
    old: Mapping[str, Any] = next((entry for entry in before if entry.get("parentRef") == reference), {})
    conditions = [*parent.conditions, _route_programmed(parent, present.receipts), *_dropping(findings)]
    generation = obj["metadata"].get("generation", 0)
    return {
        "parentRef": reference,
        "controllerName": CONTROLLER,
        "conditions": timed(conditions, old.get("conditions"), generation=generation, now=present.time),
    }


def _dropping(findings: Sequence[Finding]) -> Iterator[StatusCondition]:
    """Yield the condition of a route whose copies are dropped; it is there while that happens."""
    found = [item for item in findings if item.reason is Reason.COPIES_DROPPED]
    if found:
        name = Reason.COPIES_DROPPED.value
        yield StatusCondition(type=name, status=True, reason="MirrorLimits", message=joined(found))


def parent_reference(written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a `parentRef` as a status tells it: group and kind in full, what is optional only where it was written."""
    group = written.get("group")
    return {
        "group": GROUP if group is None else group,
        "kind": written.get("kind") or "Gateway",
        "name": written["name"],
        **{field: written[field] for field in _OPTIONAL if written.get(field) is not None},
    }


def _route_programmed(parent: ParentStatus, receipts: Receipts) -> StatusCondition:
    gateway = f"{parent.parent.namespace}/{parent.parent.name}"
    places: list[RouteParent] = [*parent.ports, *(GatewayRef(gateway, port) for port in parent.gateway_ports)]
    accepted = all(verdict.status for verdict in parent.conditions if verdict.type == "Accepted")
    return programmed(receipts.progress(places), accepted=accepted and bool(places))
