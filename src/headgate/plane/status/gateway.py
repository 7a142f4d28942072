"""The status of Gateways and GatewayClasses. Pure. `status.addresses` belongs to whoever gives addresses."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from headgate.compiler.gateway_api.statuses import joined
from headgate.compiler.reasons import Reason
from headgate.compiler.report import ListenerOutcome, Verdict
from headgate.envoy.names import GatewayRef
from headgate.plane.status.conditions import Present, Said, programmed, status_of, timed
from headgate.resources.gateway import CONTROLLER
from headgate.resources.meta import Object

_PROGRAMMED = "Programmed"
_CLASS_ACCEPTED = Verdict(type="Accepted", status=True, reason="Accepted", message="headgate makes Gateways of it real")


def class_status(obj: Object, said: Said, present: Present) -> Mapping[str, Any] | None:
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


def gateway_status(obj: Object, said: Said, present: Present) -> Mapping[str, Any] | None:
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
        verdicts = _with_progress(item.verdicts, [ref] if ref else [], present)
        old = _of_listener(before, item.name)
        return {
            "name": item.name,
            "supportedKinds": [{"group": group, "kind": kind} for group, kind in item.kinds],
            "attachedRoutes": item.attached,
            "conditions": timed(verdicts, old, generation=generation, now=present.time),
        }

    verdicts = _with_progress(outcome.verdicts, list(refs.values()), present)
    return {
        **before,
        "conditions": timed(verdicts, before.get("conditions"), generation=generation, now=present.time),
        "listeners": [listener(item) for item in outcome.listeners],
    }


def _with_progress(verdicts: Sequence[Verdict], refs: Sequence[GatewayRef], present: Present) -> list[Verdict]:
    """Add how far the proxies are, unless the compiler knows that there is nothing to be held."""
    if any(verdict.type == _PROGRAMMED for verdict in verdicts):
        return list(verdicts)
    return [*verdicts, programmed(present.receipts.progress(refs), accepted=bool(refs))]


def _of_listener(status: Mapping[str, Any], name: str) -> object:
    found = (item for item in status.get("listeners") or () if item.get("name") == name)
    return next((item.get("conditions") for item in found), None)
