"""Find which pods have the containers of each Sidecar (R79, D18): from the annotations that injection writes."""

from collections.abc import Iterator
from typing import Literal

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, SidecarPods, pod_list
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.workloads import has_sidecar
from headgate.resources.core.pod import MeshPod
from headgate.resources.core.pod_metadata import ADDED, CONFLICTS, INJECT, PROCESS
from headgate.resources.mesh.sidecar import Sidecar
from headgate.resources.meta import Key
from headgate.resources.selectors import selects

_FIELD = "spec.selector"
_MOST_CONFLICTS = 5  # the most conflicts that a message names


def sidecar_pods(snapshot: Snapshot) -> tuple[SidecarPods, ...]:
    """Return the pods of each Sidecar."""
    return tuple(_pods(snapshot, key, sidecar) for key, sidecar in snapshot.of(Sidecar))


def findings(pods: SidecarPods) -> Iterator[Finding]:
    """Yield the findings about the pods that a Sidecar selects."""
    about = pods.about
    if not pods.total:
        yield Finding(about, Reason.NO_PODS, _FIELD, "no pod has these labels; new pods with them get the containers")
    if pods.outdated:
        message = (
            f"{pod_list(pods.outdated)} started without this generation; replace the pods (kubectl rollout restart)"
        )
        yield Finding(about, Reason.RESTART_NEEDED, _FIELD, message)
    if pods.without_proxy:
        message = (
            f"nothing is added to {pod_list(pods.without_proxy)}: a Sidecar applies only to pods with a proxy that "
            f'injection adds. Give the pod template the label {INJECT}: "true" and replace the pods, or make the selector narrower'
        )
        yield Finding(about, Reason.NOT_INJECTED, _FIELD, message)
    if pods.conflicts:
        named = "; ".join(f"pod {pod} has its own {name}" for pod, name in pods.conflicts[:_MOST_CONFLICTS])
        more = len(pods.conflicts) - _MOST_CONFLICTS
        rest = f" and {more} more" if more > 0 else ""
        message = f"{named}{rest}; these stay as they are. Choose other names in the Sidecar, and replace the pods"
        yield Finding(about, Reason.NAME_CONFLICT, "spec", message)


def _pods(snapshot: Snapshot, key: Key, sidecar: Sidecar) -> SidecarPods:
    states: dict[_State, list[str]] = {"current": [], "outdated": [], "without_proxy": []}
    conflicts = []
    for name in snapshot.pods_of_namespace.get(key.namespace, ()):
        pod = snapshot.pods[name]
        if selects(sidecar.spec.selector, pod.metadata.labels):
            states[_state(pod, f"{key.name}@{sidecar.metadata.generation}")].append(name)
            conflicts += [(name, conflict) for conflict in _conflicts(pod, key.name)]
    return SidecarPods(
        about=key,
        current=tuple(states["current"]),
        outdated=tuple(states["outdated"]),
        without_proxy=tuple(states["without_proxy"]),
        conflicts=tuple(conflicts),
    )


_State = Literal["current", "outdated", "without_proxy"]


def _state(pod: MeshPod, addition: str) -> _State:
    if not has_sidecar(pod) or PROCESS in pod.metadata.annotations:
        return "without_proxy"
    return "current" if addition in pod.metadata.annotations.get(ADDED, "").split(",") else "outdated"


def _conflicts(pod: MeshPod, sidecar: str) -> Iterator[str]:
    for conflict in pod.metadata.annotations.get(CONFLICTS, "").split(","):
        name, _, path = conflict.partition("/")
        if name == sidecar:
            yield path
