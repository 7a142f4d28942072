"""Decides which workloads can be restarted for their sidecars, and when a restarted one is ready. Pure."""

from collections.abc import Collection, Iterable, Mapping

from headgate.admission.sidecar_containers import CONTAINER, container_names
from headgate.cli.wait import (
    Readiness,
    ReadinessCheck,
    WaitProgress,
    daemon_set_progress,
    deployment_progress,
    stateful_set_progress,
)
from headgate.resources.inspect import Answer, Proxy
from headgate.resources.meta import Key, Object, part
from headgate.resources.pod_templates import pod_of_template
from headgate.resources.workload_sidecars import PodRestart, WorkloadSidecars

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""The annotation of pod templates that `kubectl rollout restart` writes."""
_SHOWN = 3
_APPS = "apps"
_STEPS = {
    "Pod": "no controller creates it again; delete it, and create it again",
    "Job": "a Job does not replace its pods; the pods of the next one get the new sidecar",
    "ReplicaSet": "a ReplicaSet does not replace its pods; delete them one by one",
    "ReplicationController": "a ReplicationController does not replace its pods; delete them one by one",
}
"""Why the pods of other kinds are not restarted, and what to do."""
_TEMPLATE = (
    "`headgate inject` wrote the sidecar into its pod template; run the new `headgate inject` on the original manifest,"
    " and apply the result"
)


class DueWorkload(Answer, frozen=True, kw_only=True):
    """A workload with outdated pods. `advice_message` says what to do if `headgate restart` can't replace them."""

    kind: str
    namespace: str
    name: str
    pods: int
    outdated_pods: int
    messages: tuple[str, ...]
    advice_message: str = ""


def due_workload(workload: WorkloadSidecars, obj: Object | None) -> DueWorkload | None:
    """Return a workload with outdated pods; None if all are up to date. `obj` is the stored object, None if it can't be read.

    The control plane does not read pod templates: new pods of a template with a sidecar have one, whatever the labels say.
    """
    pods = [pod for pod in workload.pods if pod.messages]
    if has_sidecar_in_template(obj):
        pods = [pod for pod in pods if pod.injected or not pod.sidecar]
    if not pods:
        return None
    return DueWorkload(
        kind=workload.object.kind,
        namespace=workload.object.namespace,
        name=workload.object.name,
        pods=len(workload.pods),
        outdated_pods=len(pods),
        messages=tuple(dict.fromkeys(message for pod in pods for message in pod.messages)),
        advice_message=obstacle(workload.object, obj) or (_TEMPLATE if has_sidecar_in_template(obj) else ""),
    )


def has_sidecar_in_template(obj: Object | None) -> bool:
    """Return whether the pod template of a workload has a sidecar already."""
    return obj is not None and CONTAINER in container_names(pod_of_template(obj))


def is_restartable(key: Key) -> bool:
    """Return whether a workload replaces its pods when its template changes."""
    return key.group == _APPS and key.kind in _PROGRESS


def obstacle(key: Key, obj: Object | None) -> str:
    """Return why a workload can't be restarted, with what to do; empty if it can. `obj` is None if it can't be read."""
    if not is_restartable(key):
        return _STEPS.get(key.kind, f"headgate does not restart a {key.kind}; restart it with its own tool")
    spec = part(obj, "spec") if obj else {}
    if spec.get("paused"):
        return f"its rollout is paused; run `kubectl -n {key.namespace} rollout resume deployment/{key.name}` first"
    strategy = part(spec, "updateStrategy")
    if strategy.get("type") == "OnDelete":
        return "its spec.updateStrategy is OnDelete; delete its pods one by one"
    if partition := part(strategy, "rollingUpdate").get("partition"):
        return f"its spec.updateStrategy.rollingUpdate.partition keeps pods below {partition}; set it to 0"
    return ""


def interruption(obj: Object) -> str:
    """Return why requests may fail while a workload restarts; empty if a pod serves all the time."""
    spec = part(obj, "spec")
    if part(spec, "strategy").get("type") == "Recreate":
        return "its strategy Recreate ends all pods before new ones start"
    if obj["kind"] == "DaemonSet":
        pods = part(obj, "status").get("desiredNumberScheduled", 0)
        bounds = part(part(spec, "updateStrategy"), "rollingUpdate")
        is_interrupted = pods == 1 and bounds.get("maxSurge") in {None, 0, "0%"}
    elif obj["kind"] == "Deployment":
        pods = spec.get("replicas", 1)
        bounds = part(part(spec, "strategy"), "rollingUpdate")
        is_interrupted = pods > 0 and _rounded_down(bounds.get("maxUnavailable") or 0, pods) >= pods
    else:
        pods = spec.get("replicas", 1)
        is_interrupted = pods == 1
    if not is_interrupted:
        return ""
    return (
        "it has one pod, which ends before the new one starts"
        if pods == 1
        else "its maxUnavailable allows all pods to end before new ones start"
    )


def _rounded_down(bound: int | str, pods: int) -> int:
    """Return the number of pods in a bound such as 1 or `25%`. Kubernetes rounds maxUnavailable of a Deployment down."""
    return bound if isinstance(bound, int) else pods * int(bound.removesuffix("%")) // 100


def restart_patch(time: str) -> Object:
    """Return the merge patch that makes a workload replace its pods."""
    return {"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: time}}}}}


def rollout_progress(obj: Object) -> WaitProgress:
    """Return whether all pods of a Deployment, StatefulSet or DaemonSet have its current template and are available."""
    progress = _PROGRESS[obj["kind"]](obj)
    failures = [
        condition.get("message", "")
        for condition in part(obj, "status").get("conditions") or ()
        if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True")
    ]
    if failures and progress.readiness is Readiness.PENDING:
        return progress._replace(message=f"{progress.message}; a new pod is not created: {failures[0]}")
    return progress


_PROGRESS: Mapping[str, ReadinessCheck] = {
    "Deployment": deployment_progress,
    "StatefulSet": stateful_set_progress,
    "DaemonSet": daemon_set_progress,
}


def lagging(proxies: Iterable[Proxy]) -> frozenset[str]:
    """Return the proxies that have not acknowledged their configuration yet, as `namespace/name`."""
    late = (proxy.metadata for proxy in proxies if proxy.status.state == "Lagging")
    return frozenset(f"{name.namespace}/{name.name}" for name in late)


def unsynchronized(workload: WorkloadSidecars | None, behind: Collection[str]) -> str:
    """Return which proxies are not in sync after the rollout of a workload; empty if all are.

    `behind` has proxies of the mesh that have lagged since the rollout: they may not know the new pods.
    """
    pods = [pod for pod in workload.pods if pod.sidecar and not _is_in_sync(pod)] if workload else []
    if pods:
        proxy = pods[0].proxy
        reason = f"{proxy.state}: {proxy.message}" if proxy else "headgate does not know its proxy yet"
        return f"the proxies of {_names([pod.name for pod in pods])} are not in sync ({reason})"
    return f"the proxies of {_names(sorted(behind))} have not acknowledged their configuration" if behind else ""


def _is_in_sync(pod: PodRestart) -> bool:
    return pod.proxy is not None and pod.proxy.state == "InSync"


def _names(names: Collection[str]) -> str:
    """Return the first names, and the number of the remaining ones."""
    first = ", ".join([*names][:_SHOWN])
    return f"{first} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else first
