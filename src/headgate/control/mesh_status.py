"""The status of TLSConfigs and TrafficTargets: whether the pods that they are about do what they say. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headgate.compiler.reasons import Condition, Reason
from headgate.compiler.report import Verdict
from headgate.compiler.unenforced import listed
from headgate.control.conditions import Present, Progress, Said, programmed, status_of, timed
from headgate.envoy.config import CLUSTER, LISTENER, ROUTES
from headgate.envoy.names import INBOUND
from headgate.envoy.view import SIDECAR
from headgate.resources.meta import Object
from headgate.xds.fleet import Proxy

_FINE = {
    Condition.ACCEPTED: ("Accepted", "the object is valid"),
    Condition.RESOLVED_REFS: ("ResolvedRefs", "everything that the object names exists"),
}
_DECIDING = (LISTENER, ROUTES, CLUSTER)


def mesh_status(obj: Object, said: Said, present: Present) -> Mapping[str, Any] | None:
    """Return the whole status; None while a newer generation is not compiled yet."""
    generation = obj["metadata"].get("generation", 0)
    if said.generation not in {0, generation}:  # 0 can't be decoded, whatever its generation
        return None
    workloads = said.selected.workloads if said.selected else ()
    others = said.selected.without_sidecar if said.selected else ()
    progress = _progress(workloads, present.proxies)
    verdicts = [*_from_findings(said), _programmed(said, progress, present.awaited)]
    return {
        "observedGeneration": generation,
        "conditions": timed(verdicts, status_of(obj).get("conditions"), generation=generation, now=present.time),
        "pods": {"total": len(workloads) + len(others), "sidecars": len(workloads)},
        "proxies": {"programmed": len(progress.holding), "total": progress.total},
    }


def _from_findings(said: Said) -> Iterator[Verdict]:
    for condition, (reason, message) in _FINE.items():
        broken = [item for item in said.findings if item.reason.condition is condition]
        text = "; ".join(dict.fromkeys(item.message for item in broken))
        word = broken[0].reason.value if broken else reason
        yield Verdict(type=condition.value, status=not broken, reason=word, message=text or message)


def _progress(workloads: Sequence[str], proxies: Sequence[Proxy]) -> Progress:
    """Say how far the pods' own proxies are with what others may send to them; one that is away lags."""
    connected = {proxy.id: proxy for proxy in proxies}
    holding, lagging, refused = [], [], []
    for name in (f"{SIDECAR}/{workload}" for workload in workloads):
        proxy = connected.get(name)
        words = [item.message for item in proxy.refusals() if item.name.startswith(INBOUND)] if proxy else []
        if words:
            refused.append((name, words[0]))
        elif proxy is None or _lags(proxy):
            lagging.append(name)
        else:
            holding.append(name)
    return Progress(holding=tuple(holding), lagging=tuple(lagging), refused=tuple(refused))


def _lags(proxy: Proxy) -> bool:
    config = proxy.config.get() or {}
    return any(
        name.startswith(INBOUND) and proxy.lags(type_url, name)
        for type_url in _DECIDING
        for name in config.get(type_url, {})
    )


def _programmed(said: Said, progress: Progress, awaited: Sequence[str]) -> Verdict:
    """Return whether all pods are as they should be; who has no sidecar never is."""

    def lacking(reason: str, message: str) -> Verdict:
        return Verdict(type=Condition.PROGRAMMED.value, status=False, reason=reason, message=message)

    if any(item.reason is Reason.INVALID for item in said.findings):
        return programmed(progress, accepted=False)
    if unenforced := [item.message for item in said.findings if item.reason is Reason.NOT_ENFORCED]:
        return lacking(Reason.NOT_ENFORCED.value, "; ".join(unenforced))
    if said.underway:
        whom = f"; waiting for {', '.join(awaited)}" if awaited else ""
        return lacking("Pending", f"not in the wanted TLS mode yet: {listed(said.underway)}{whom}")
    if not progress.total:
        return Verdict(
            type=Condition.PROGRAMMED.value, status=True, reason="Programmed", message="there is no such pod"
        )
    return programmed(progress, accepted=True)
