"""Computes the statuses of TLSConfigs and access policies: whether the selected pods enforce the object."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from cryptography import x509

from headgate.compiler.reasons import ConditionType, Reason
from headgate.compiler.report import StatusCondition, pod_list
from headgate.envoy.config import CLUSTER, LISTENER, ROUTES, SECRET
from headgate.envoy.names import IDENTITY, INBOUND, ROOTS
from headgate.envoy.node_ids import SIDECAR
from headgate.plane.status import audit
from headgate.plane.status.conditions import (
    ObjectReport,
    StatusInputs,
    by_condition,
    few,
    programmed,
    programmed_condition,
    timed,
)
from headgate.plane.status.receipts import Acknowledgment, AckState, Progress, Receipts, Resource
from headgate.resources.gateway_api.authorization_policy import (
    AncestorReference,
    AuthorizationPolicyStatus,
    PolicyAncestor,
)
from headgate.resources.gateway_api.gateway import CONTROLLER
from headgate.resources.mesh.tls_config import TLSConfigStatus
from headgate.resources.meta import Object, generation_of, namespace_of, status_of
from headgate.resources.registry import AUTHORIZATION_POLICY, TLS_CONFIG
from headgate.resources.smi.traffic_target import TrafficTargetStatus
from headgate.resources.status import ProxyProgress, SelectedPodCounts, status_fields

_TRUE_CONDITIONS = {
    ConditionType.ACCEPTED: ("Accepted", "the object is valid"),
    ConditionType.RESOLVED_REFS: ("ResolvedRefs", "all objects and matches that this object refers to exist"),
}
_INBOUND = (LISTENER, ROUTES, CLUSTER)


def mesh_status(obj: Object, report: ObjectReport, inputs: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a TLSConfig or access policy; None while a newer generation is not compiled yet.

    `ancestors` of an XAuthorizationPolicy keeps the entries of other controllers.
    """
    generation = generation_of(obj)
    if report.generation not in {0, generation}:  # 0: the object can't be decoded
        return None
    workloads = report.selected.workloads if report.selected else ()
    without_sidecar = report.selected.without_sidecar if report.selected else ()
    progress, holding = _progress(workloads, inputs.receipts)
    done = len(holding.difference(report.migrating, report.incomplete_certificates))
    is_tls = obj["kind"] == TLS_CONFIG.kind
    message_start = f"strict on {done} of {progress.total} pods" if is_tls else ""
    conditions = [
        *by_condition(report.findings, _TRUE_CONDITIONS),
        _programmed(report, progress, inputs.blocking, message_start=message_start),
        *audit.conditions(report.audit),
    ]
    dated = timed(conditions, status_of(obj).get("conditions"), generation=generation, now=inputs.time)
    pods = SelectedPodCounts(total=len(workloads) + len(without_sidecar), sidecars=len(workloads))
    proxies = ProxyProgress(programmed=done, total=progress.total)
    if is_tls:
        return status_fields(
            TLSConfigStatus(observed_generation=generation, conditions=dated, pods=pods, proxies=proxies)
        )
    refused = audit.refused_calls(report.audit)
    if obj["kind"] == AUTHORIZATION_POLICY.kind:
        namespace = AncestorReference(group="", kind="Namespace", name=namespace_of(obj))
        ancestor = PolicyAncestor(ancestor_ref=namespace, controller_name=CONTROLLER, conditions=dated)
        fields = status_fields(
            AuthorizationPolicyStatus(
                observed_generation=generation,
                conditions=dated,
                ancestors=(ancestor,),
                pods=pods,
                proxies=proxies,
                would_refuse=refused,
            )
        )
        entries = status_of(obj).get("ancestors") or []
        foreign = [entry for entry in entries if entry.get("controllerName") != CONTROLLER]
        return {**fields, "ancestors": [*foreign, *fields["ancestors"]]}
    return status_fields(
        TrafficTargetStatus(
            observed_generation=generation,
            conditions=dated,
            pods=pods,
            proxies=proxies,
            would_refuse=refused,
        )
    )


@lru_cache(maxsize=4096)
def names_in(chain: str) -> frozenset[str]:
    """Return the DNS names of the first certificate in a PEM chain."""
    certificate = x509.load_pem_x509_certificate(chain.encode())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(names.get_values_for_type(x509.DNSName))


def _progress(workloads: Sequence[str], receipts: Receipts) -> tuple[Progress, frozenset[str]]:
    """Return the progress of the workloads' sidecars, and the workloads with a sidecar that is up to date.

    A sidecar is up to date if it has acknowledged its inbound configuration. A disconnected sidecar counts as lagging.
    """
    lagging, refused, holding = [], [], []
    for name in workloads:
        node_id = f"{SIDECAR}/{name}"
        state = receipts.states.get(node_id)
        answer = state.answer(_out_of_sync_inbound(state)) if state else Acknowledgment(holds=False)
        if answer.error:
            refused.append((node_id, answer.error))
        elif answer.holds:
            holding.append(name)
        else:
            lagging.append(node_id)
    progress = Progress(holding=len(holding), lagging=tuple(lagging), refused=tuple(refused))
    return progress, frozenset(holding)


def _out_of_sync_inbound(state: AckState) -> frozenset[Resource]:
    """Return the inbound resources and secrets that a sidecar has refused or not acknowledged yet."""
    resources = state.out_of_sync or ((refusal.type_url, refusal.name) for refusal in state.refused)
    return frozenset(filter(is_inbound, resources))


def is_inbound(resource: Resource) -> bool:
    """Return whether a resource belongs to a sidecar's inbound side, or is its certificate or the root certificates."""
    kind, name = resource
    return name in {IDENTITY, ROOTS} if kind == SECRET else kind in _INBOUND and name.startswith(INBOUND)


def _programmed(
    report: ObjectReport, progress: Progress, blocking: Sequence[str], *, message_start: str
) -> StatusCondition:
    """Return the condition Programmed, which is False if a pod has no sidecar.

    `message_start` is for example `strict on 2 of 3 pods`.
    """
    if any(finding.reason is Reason.INVALID for finding in report.findings):
        return programmed(progress, accepted=False)
    if unenforced := [finding.message for finding in report.findings if finding.reason is Reason.NOT_ENFORCED]:
        return programmed_condition(Reason.NOT_ENFORCED.value, "; ".join(unenforced))
    if not progress.total:
        return programmed_condition("Programmed", "the object selects no pod", status=True)
    condition = programmed(progress, accepted=True, message_start=message_start)
    pending = _pending_step(report, blocking) if condition.status else ""
    return programmed_condition("Pending", f"{condition.message}; {pending}") if pending else condition


def _pending_step(report: ObjectReport, blocking: Sequence[str]) -> str:
    """Return why the object is not enforced although every proxy has acknowledged it; empty if it is enforced."""
    if report.migrating:
        blockers = f"; waiting for {few(blocking)}" if blocking else ""
        return f"not in the wanted TLS mode yet: {pod_list(report.migrating)}{blockers}"
    if report.incomplete_certificates:
        return f"waiting for certificates with all DNS names: {pod_list(report.incomplete_certificates)}"
    return ""
