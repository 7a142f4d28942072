"""Where nothing enforces TLSConfigs and TrafficTargets: pods without a sidecar (R73, R77), and ports past one (D26).

An explicit sidecar takes the ports that it got when the pod was placed: those that containers declare, and the numeric
targetPorts of the Services that existed then. It does not take a port of a Service that came later. No sidecar takes the
ports that its pod excludes, and the port of the proxy's health checks where the pod has none.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, SelectedPods, pod_list
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.workloads import PodPort, excluded_ports, has_sidecar
from headgate.model.routing import PROBE_PORT, PortRef, Workload
from headgate.resources.meta import Key
from headgate.resources.pods import EXCLUDED_PORTS, INJECT
from headgate.settings import Settings

LABEL = f'Give the pod template the label {INJECT}: "true" and replace the pods'
"""How pods get a sidecar."""


def selected(snapshot: Snapshot, about: Key, pods: Sequence[str]) -> SelectedPods:
    """Sort the pods of an object into those with a sidecar and those without."""
    guarded = tuple(name for name in pods if has_sidecar(snapshot.pods[name]))
    return SelectedPods(
        about=about, workloads=guarded, without_sidecar=tuple(name for name in pods if name not in guarded)
    )


Cause = Literal["excluded", "late", "written", "probes"]


class Bypass(NamedTuple):
    """A port of pods that a Service port leads to and that no sidecar takes.

    The pods exclude it, or the Service selects them and came too late, or others wrote the Service's endpoints, or it is
    the port that redirection leaves to the proxy's health checks.
    """

    port: int
    ref: PortRef
    cause: Cause


Bypasses = Mapping[str, tuple[Bypass, ...]]
"""By pod (`namespace/name`)."""


_EXPLAINED = {
    "excluded": (
        f"The pods exclude the port by the annotation {EXCLUDED_PORTS}",
        "take it out of the annotation in the pod template and replace the pods, or lead no Service to it",
    ),
    "late": (
        "No container declares the port, and the Service did not lead there when the pods were created",
        "replace the pods (kubectl rollout restart)",
    ),
    "probes": (
        "Connections to this port are not redirected, because the sidecar answers health checks there for pods that have some",
        "let the application listen on another port",
    ),
    "written": (
        "No container declares the port, and no selector of a Service leads there",
        "add containerPort {port} to the pod template",
    ),
}


def bypasses(
    snapshot: Snapshot, led: Iterable[Iterable[PodPort]], workloads: Iterable[Workload], settings: Settings
) -> Bypasses:
    """Return the ports of pods with a sidecar that Services lead to past it, whatever their namespace."""
    exposed = {item.address: item for item in workloads if _can_be_bypassed(snapshot, item)}
    found: dict[str, list[Bypass]] = defaultdict(list)
    for ref, _, address, port in (place for places in led for place in places) if exposed else ():
        if (
            (item := exposed.get(address))
            and port >= settings.lowest_port
            and (cause := cause_at(snapshot, item, port))
        ):
            late = cause == "written" and ref.service in snapshot.services_of(item.name)
            found[item.name].append(Bypass(port, ref, "late" if late else cause))
    return {name: tuple(sorted(set(items))) for name, items in found.items()}


class Words(NamedTuple):
    """What to say of an object that selects no pod (`unselected`), pods without a sidecar, and ports past one.

    What follows from it at pods without a sidecar (`unguarded`), where `remedy` helps, and at such ports (`past`).
    """

    unselected: str
    unguarded: str
    past: str
    remedy: str = LABEL


def findings(found: SelectedPods, field: str, bypasses: Bypasses, words: Words) -> Iterator[Finding]:
    """Yield where nothing enforces an object; `field` is what selects its pods."""
    if not (found.workloads or found.without_sidecar):
        yield Finding(found.about, Reason.NO_PODS, field, words.unselected)
    if found.without_sidecar:
        where = f"nothing enforces it at {pod_list(found.without_sidecar)}, for want of a sidecar"
        message = f"{where}: {words.unguarded}. {words.remedy}"
        yield Finding(found.about, Reason.NOT_ENFORCED, field, message)
    at: dict[Bypass, list[str]] = defaultdict(list)
    for pod in found.workloads:
        for item in bypasses.get(pod, ()):
            at[item].append(pod)
    for item, names in sorted(at.items()):
        why, remedy = _EXPLAINED[item.cause]
        where = f"port {item.ref.port} of Service {item.ref.service} leads to port {item.port} of {pod_list(names)}"
        message = f"{where} past the sidecar: {words.past} there. {why}; {remedy.format(port=item.port)}"
        yield Finding(found.about, Reason.NOT_ENFORCED, field, message)


def cause_at(snapshot: Snapshot, item: Workload, port: int) -> Cause | None:
    """Return why a port of a workload leads past its sidecar; none where it does not."""
    if port in excluded_ports(snapshot.pods[item.name]):
        return "excluded"
    if item.capture == "explicit":
        return "written" if all(port != known.port for known in item.ports) else None
    return "probes" if port == PROBE_PORT and not item.probes else None


def _can_be_bypassed(snapshot: Snapshot, item: Workload) -> bool:
    if item.capture == "explicit" or EXCLUDED_PORTS in snapshot.pods[item.name].metadata.annotations:
        return True
    return not item.probes and any(port.port == PROBE_PORT for port in item.ports)
