"""Computes the statuses of Sidecars: which pods have their containers (R79, D18)."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.compiler.reasons import ConditionType, Reason
from headgate.compiler.report import Finding, SidecarPods, StatusCondition
from headgate.plane.status.conditions import ObjectReport, StatusInputs, by_condition, timed
from headgate.resources.mesh.sidecar import InjectedPodCounts, SidecarStatus
from headgate.resources.meta import Object, generation_of, status_of
from headgate.resources.status import status_fields

_TRUE_CONDITIONS = {ConditionType.ACCEPTED: ("Accepted", "the object is valid")}
_UNFINISHED = (Reason.RESTART_NEEDED, Reason.NOT_INJECTED, Reason.NAME_CONFLICT)


def sidecar_status(obj: Object, report: ObjectReport, inputs: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a Sidecar; None while a newer generation is not compiled yet."""
    generation = generation_of(obj)
    if report.generation not in {0, generation}:  # 0: the object can't be decoded
        return None
    conditions = [*by_condition(report.findings, _TRUE_CONDITIONS), _programmed(report.findings, report.sidecar)]
    pods = report.sidecar
    return status_fields(
        SidecarStatus(
            observed_generation=generation,
            conditions=timed(conditions, status_of(obj).get("conditions"), generation=generation, now=inputs.time),
            pods=InjectedPodCounts(
                total=pods.total,
                injected=len(pods.current),
                restart_needed=len(pods.outdated),
                conflicts=len({pod for pod, _ in pods.conflicts}),
            )
            if pods
            else None,
        )
    )


def _programmed(findings: Sequence[Finding], pods: SidecarPods | None) -> StatusCondition:
    """Return the condition Programmed, which is True if all selected pods have everything that the Sidecar adds."""
    unfinished = [finding for finding in findings if finding.reason in _UNFINISHED]
    if pods is None:
        reason, message = "Invalid", "nothing is added to pods; see the other conditions"
    elif unfinished:
        count = f"{len(pods.current)} of {pods.total} pods have the current generation"
        reason, message = unfinished[0].reason.value, "; ".join([count, *(finding.message for finding in unfinished)])
    else:
        reason, message = "Programmed", _complete(pods)
    status = reason == "Programmed"
    return StatusCondition(type=ConditionType.PROGRAMMED.value, status=status, reason=reason, message=message)


def _complete(pods: SidecarPods) -> str:
    if not pods.total:
        return "the object selects no pod"
    return f"{len(pods.current)} of {pods.total} pods have the current generation"
