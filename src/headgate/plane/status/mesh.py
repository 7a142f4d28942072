"""The status of TLSConfigs and TrafficTargets: whether the pods that they are about do what they say. Pure."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from cryptography import x509

from headgate.compiler.reasons import ConditionType, Reason
from headgate.compiler.report import StatusCondition, pod_list
from headgate.envoy.config import CLUSTER, LISTENER, ROUTES, SECRET
from headgate.envoy.names import IDENTITY, INBOUND, ROOTS
from headgate.envoy.view import SIDECAR
from headgate.plane.status.conditions import ObjectReport, StatusInputs, by_condition, few, programmed, status_of, timed
from headgate.plane.status.receipts import AckState, Answer, Progress, Receipts, Resource
from headgate.resources.meta import Object
from headgate.resources.registry import TLS_CONFIG

_FINE = {
    ConditionType.ACCEPTED: ("Accepted", "the object is valid"),
    ConditionType.RESOLVED_REFS: ("ResolvedRefs", "everything that the object names exists"),
}
_INBOUND = (LISTENER, ROUTES, CLUSTER)


def mesh_status(obj: Object, said: ObjectReport, present: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status; None while a newer generation is not compiled yet."""
    generation = obj["metadata"].get("generation", 0)
    if said.generation not in {0, generation}:  # 0 can't be decoded, whatever its generation
        return None
    workloads = said.selected.workloads if said.selected else ()
    others = said.selected.without_sidecar if said.selected else ()
    progress, holding = _progress(workloads, present.receipts)
    done = len(holding.difference(said.underway, said.unnamed))
    held = f"strict on {done} of {progress.total} pods" if obj["kind"] == TLS_CONFIG.kind else ""
    conditions = [*by_condition(said.findings, _FINE), _programmed(said, progress, present.awaited, held=held)]
    return {
        "observedGeneration": generation,
        "conditions": timed(conditions, status_of(obj).get("conditions"), generation=generation, now=present.time),
        "pods": {"total": len(workloads) + len(others), "sidecars": len(workloads)},
        "proxies": {"programmed": done, "total": progress.total},
    }


@lru_cache(maxsize=4096)
def names_in(chain: str) -> frozenset[str]:
    """Return the DNS names of a certificate, the first of a chain (PEM)."""
    certificate = x509.load_pem_x509_certificate(chain.encode())
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(found.get_values_for_type(x509.DNSName))


def _progress(workloads: Sequence[str], receipts: Receipts) -> tuple[Progress, frozenset[str]]:
    """Say how far the pods' own proxies are with what others may send to them, and which pods' proxies hold it.

    One that is away lags.
    """
    lagging, refused, holding = [], [], []
    for name in workloads:
        node_id = f"{SIDECAR}/{name}"
        standing = receipts.of.get(node_id)
        answer = standing.answer(_deciding(standing)) if standing else Answer(holds=False)
        if answer.words:
            refused.append((node_id, answer.words))
        elif answer.holds:
            holding.append(name)
        else:
            lagging.append(node_id)
    progress = Progress(holding=len(holding), lagging=tuple(lagging), refused=tuple(refused))
    return progress, frozenset(holding)


def _deciding(standing: AckState) -> frozenset[Resource]:
    """Return what decides who is let in, and the proxy's certificate, of what it may lag with."""
    return frozenset(filter(decides, standing.lacking or ((item.type_url, item.name) for item in standing.refused)))


def decides(resource: Resource) -> bool:
    """Say whether a resource decides who is let in by the proxy's own pod, or is its certificate."""
    kind, name = resource
    return name in {IDENTITY, ROOTS} if kind == SECRET else kind in _INBOUND and name.startswith(INBOUND)


def _programmed(said: ObjectReport, progress: Progress, awaited: Sequence[str], *, held: str) -> StatusCondition:
    """Return whether all pods are as they should be; who has no sidecar never is. `held` says how many are."""
    if any(item.reason is Reason.INVALID for item in said.findings):
        return programmed(progress, accepted=False)
    if unenforced := [item.message for item in said.findings if item.reason is Reason.NOT_ENFORCED]:
        return _verdict(Reason.NOT_ENFORCED.value, "; ".join(unenforced))
    if not progress.total:
        return _verdict("Programmed", "there is no such pod", status=True)
    found = programmed(progress, accepted=True, held=held)
    missing = _missing(said, awaited) if found.status else ""
    return _verdict("Pending", f"{found.message}; {missing}") if missing else found


def _missing(said: ObjectReport, awaited: Sequence[str]) -> str:
    """Say what is to come, when every proxy holds what it is to hold now."""
    if said.underway:
        whom = f"; waiting for {few(awaited)}" if awaited else ""
        return f"not in the wanted TLS mode yet: {pod_list(said.underway)}{whom}"
    return f"waiting for a certificate with all names: {pod_list(said.unnamed)}" if said.unnamed else ""


def _verdict(reason: str, message: str, *, status: bool = False) -> StatusCondition:
    return StatusCondition(type=ConditionType.PROGRAMMED.value, status=status, reason=reason, message=message)
