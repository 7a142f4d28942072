"""Finds the workloads whose pods have sidecars, and how these differ from those of new pods, for the inspect API."""

from collections.abc import Callable, Iterable, Mapping

from headgate.admission.injection import PodNamespace, Sidecars
from headgate.admission.outdated_sidecars import outdated_messages
from headgate.options import NEVER_INJECTED
from headgate.resources.core.pod import ENDED
from headgate.resources.core.pod_metadata import sidecar_mode
from headgate.resources.decode import read
from headgate.resources.inspect import ObjectName, Proxy, SidecarProxy
from headgate.resources.kind import split_api_version
from headgate.resources.meta import Key, Object, Resource, part
from headgate.resources.pod_owners import DEPLOYMENT, POD, deployment_of
from headgate.resources.workload_sidecars import PodRestart, WorkloadSidecars


def workload_sidecars(
    pods: Iterable[Object],
    sidecars: Sidecars,
    around: Callable[[Object], PodNamespace],
    proxies: Mapping[ObjectName, Proxy],
) -> tuple[WorkloadSidecars, ...]:
    """Return the workloads of pods that have a sidecar or would get one. `around` returns the namespace of a pod."""
    by_workload: dict[Key, list[PodRestart]] = {}
    for pod in pods:
        if _counts(pod) and (restart := _pod_restart(pod, sidecars, around(pod), proxies)):
            by_workload.setdefault(workload_of(pod), []).append(restart)
    return tuple(
        WorkloadSidecars(
            metadata=ObjectName(namespace=key.namespace, name=f"{key.kind.lower()}.{key.name}"),
            object=key,
            pods=tuple(sorted(by_workload[key], key=lambda pod: pod.name)),
        )
        for key in sorted(by_workload, key=lambda key: (key.namespace, key.kind, key.name))
    )


def _counts(pod: Object) -> bool:
    """Return whether a pod runs or will run, in a namespace whose pods may get sidecars."""
    metadata = pod["metadata"]
    is_ending = metadata.get("deletionTimestamp") or part(pod, "status").get("phase") in ENDED
    return not is_ending and metadata.get("namespace") not in NEVER_INJECTED


def _pod_restart(
    pod: Object, sidecars: Sidecars, around: PodNamespace, proxies: Mapping[ObjectName, Proxy]
) -> PodRestart | None:
    """Return the state of a pod; None if it has no sidecar and would get none."""
    metadata, mode = pod["metadata"], sidecar_mode(pod)
    injected = sidecars.decide(pod, around).injected
    if not (mode or injected):
        return None
    proxy = proxies.get(ObjectName(namespace=metadata.get("namespace", ""), name=metadata["name"]))
    status = proxy.status if proxy else None
    return PodRestart(
        name=metadata["name"],
        sidecar=mode,
        injected=injected,
        messages=outdated_messages(pod, sidecars, around),
        proxy=SidecarProxy(state=status.state, message=status.message, serves=status.serves) if status else None,
    )


def workload_of(pod: Object) -> Key:
    """Return the Deployment of a pod, or its other controller, or the pod itself if it has none."""
    metadata = pod["metadata"]
    namespace = metadata.get("namespace", "")
    if deployment := deployment_of(read({"metadata": metadata}, Resource).metadata):
        return Key("apps", DEPLOYMENT, namespace, deployment)
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            group, _ = split_api_version(owner.get("apiVersion", ""))
            return Key(group, owner["kind"], namespace, owner["name"])
    return Key("", POD, namespace, metadata["name"])
