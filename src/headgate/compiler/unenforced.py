"""Find where no sidecar enforces TLSConfigs and TrafficTargets: pods without sidecar (R73, R77), bypassed ports (D26).

An explicit sidecar serves the ports that were known when the pod was created: declared container ports, and numeric
targetPorts of the Services at that time. Ports of later Services bypass it. Excluded ports bypass every sidecar.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, SelectedPods, pod_list
from headgate.compiler.similar_pods import SimilarPods
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.workloads import PodPort, excluded_ports, has_sidecar
from headgate.model.routing import PortRef, Workload
from headgate.resources.core.pod_metadata import EXCLUDED_PORTS, INJECT
from headgate.resources.meta import Key
from headgate.settings import Settings

ADD_SIDECAR = f'Give the pod template the label {INJECT}: "true" and replace the pods'
"""The advice in messages about pods without a sidecar."""


def selected(snapshot: Snapshot, about: Key, pods: Sequence[str]) -> SelectedPods:
    """Return the pods that an object selects, with and without a sidecar."""
    with_sidecar = tuple(name for name in pods if has_sidecar(snapshot.pods[name]))
    return SelectedPods(
        about=about, workloads=with_sidecar, without_sidecar=tuple(name for name in pods if name not in with_sidecar)
    )


Cause = Literal["excluded", "late", "written"]


class Bypass(NamedTuple):
    """A Service port that leads to a pod port that no sidecar serves, with the cause.

    - `excluded`: the pods' annotation excludes the port.
    - `late`: the Service selects the pods, but got the port after they were created.
    - `written`: no selector produced the endpoint; it is, for example, in an EndpointSlice that the user wrote.
    """

    port: int
    ref: PortRef
    cause: Cause


Bypasses = Mapping[str, tuple[Bypass, ...]]
"""Bypasses by pod (`namespace/name`)."""


_EXPLAINED = {
    "excluded": (
        f"The pods exclude the port with the annotation {EXCLUDED_PORTS}",
        "remove it from the annotation in the pod template and replace the pods, or remove the port from the Service",
    ),
    "late": (
        "No container declares the port, and the Service did not have it when the pods were created",
        "replace the pods (kubectl rollout restart)",
    ),
    "written": (
        "No container declares the port, and no Service with a selector has it",
        "add containerPort {port} to the pod template",
    ),
}


def bypasses(
    snapshot: Snapshot, pod_ports: Iterable[Iterable[PodPort]], workloads: Iterable[Workload], settings: Settings
) -> Bypasses:
    """Return the bypassed ports of the workloads, for Services in all namespaces."""
    candidates = {workload.address: workload for workload in workloads if _can_be_bypassed(snapshot, workload)}
    by_pod: dict[str, list[Bypass]] = defaultdict(list)
    for ref, _, address, port in (pod_port for ports in pod_ports for pod_port in ports) if candidates else ():
        if (
            (workload := candidates.get(address))
            and port >= settings.lowest_port
            and (cause := cause_at(snapshot, workload, port))
        ):
            late = cause == "written" and ref.service in snapshot.services_of(workload.name)
            by_pod[workload.name].append(Bypass(port, ref, "late" if late else cause))
    return {name: tuple(sorted(set(items))) for name, items in by_pod.items()}


class EffectTexts(NamedTuple):
    """Texts of the messages about an object's pods.

    `unselected` is the complete message for an object that selects no pod. `without_sidecar` and `bypassed` say
    what the missing enforcement permits at pods without a sidecar and at bypassed ports. `remedy`
    says how the pods get a sidecar.
    """

    unselected: str
    without_sidecar: str
    bypassed: str
    remedy: str = ADD_SIDECAR


def findings(
    pods: SelectedPods, field: str, bypasses: Bypasses, texts: EffectTexts, similar: SimilarPods | None = None
) -> Iterator[Finding]:
    """Yield a finding for each place where an object is not enforced; `field` selects its pods.

    `similar` finds the pods that a policy without pods probably means.
    """
    if not (pods.workloads or pods.without_sidecar):
        if meant := similar.of(pods.about) if similar else "":
            yield Finding(pods.about, Reason.NO_SUCH_PODS, field, f"{texts.unselected}; {meant}")
        else:
            yield Finding(pods.about, Reason.NO_PODS, field, texts.unselected)
    if pods.without_sidecar:
        message = f"no sidecar enforces this object at {pod_list(pods.without_sidecar)}: {texts.without_sidecar}. {texts.remedy}"
        yield Finding(pods.about, Reason.NOT_ENFORCED, field, message)
    at: dict[Bypass, list[str]] = defaultdict(list)
    for pod in pods.workloads:
        for bypass in bypasses.get(pod, ()):
            at[bypass].append(pod)
    for bypass, names in sorted(at.items()):
        why, remedy = _EXPLAINED[bypass.cause]
        route = (
            f"port {bypass.ref.port} of Service {bypass.ref.service} leads to port {bypass.port} of {pod_list(names)}"
        )
        message = f"{route} and bypasses the sidecar; {texts.bypassed}. {why}; {remedy.format(port=bypass.port)}"
        yield Finding(pods.about, Reason.NOT_ENFORCED, field, message)


def cause_at(snapshot: Snapshot, workload: Workload, port: int) -> Cause | None:
    """Return why traffic to a port of a workload bypasses its sidecar; None if it does not."""
    if port in excluded_ports(snapshot.pods[workload.name]):
        return "excluded"
    is_unknown = all(port != inbound.port for inbound in workload.ports)
    return "written" if workload.capture == "explicit" and is_unknown else None


def _can_be_bypassed(snapshot: Snapshot, workload: Workload) -> bool:
    return workload.capture == "explicit" or EXCLUDED_PORTS in snapshot.pods[workload.name].metadata.annotations
