"""The status of HTTPRoutes, GRPCRoutes and TCPRoutes: an entry for each parent that is headgate's. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headgate.compiler.gateway_api.statuses import joined
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, ParentStatus, Verdict
from headgate.envoy.names import GatewayRef, Place
from headgate.plane.status.conditions import Present, Said, programmed, status_of, timed
from headgate.plane.status.receipts import Receipts
from headgate.resources.gateway import CONTROLLER, GROUP
from headgate.resources.meta import Object

_OPTIONAL = ("namespace", "sectionName", "port")


def route_status(obj: Object, said: Said, present: Present) -> Mapping[str, Any] | None:
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
    present: Present,
    findings: Sequence[Finding],
) -> Mapping[str, Any]:
    reference = parent_reference(obj["spec"]["parentRefs"][parent.index])
    old: Mapping[str, Any] = next((entry for entry in before if entry.get("parentRef") == reference), {})
    verdicts = [*parent.verdicts, _programmed(parent, present.receipts), *_dropping(findings)]
    generation = obj["metadata"].get("generation", 0)
    return {
        "parentRef": reference,
        "controllerName": CONTROLLER,
        "conditions": timed(verdicts, old.get("conditions"), generation=generation, now=present.time),
    }


def _dropping(findings: Sequence[Finding]) -> Iterator[Verdict]:
    """Yield the condition of a route whose copies are dropped; it is there while that happens."""
    found = [item for item in findings if item.reason is Reason.COPIES_DROPPED]
    if found:
        name = Reason.COPIES_DROPPED.value
        yield Verdict(type=name, status=True, reason="MirrorLimits", message=joined(found))


def parent_reference(written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a `parentRef` as a status tells it: group and kind in full, what is optional only where it was written."""
    group = written.get("group")
    return {
        "group": GROUP if group is None else group,
        "kind": written.get("kind") or "Gateway",
        "name": written["name"],
        **{field: written[field] for field in _OPTIONAL if written.get(field) is not None},
    }


def _programmed(parent: ParentStatus, receipts: Receipts) -> Verdict:
    gateway = f"{parent.parent.namespace}/{parent.parent.name}"
    places: list[Place] = [*parent.ports, *(GatewayRef(gateway, port) for port in parent.gateway_ports)]
    accepted = all(verdict.status for verdict in parent.verdicts if verdict.type == "Accepted")
    return programmed(receipts.progress(places), accepted=accepted and bool(places))
