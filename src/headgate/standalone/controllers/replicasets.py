"""The ReplicaSet controller, as in Kubernetes: creates, adopts, releases and deletes pods."""

from collections.abc import Sequence
from typing import Any

from headgate.admission.workloads import check_selector
from headgate.resources.apps.replica_set import ReplicaSet
from headgate.resources.core.pod_spec import Pod, owner_uid
from headgate.resources.meta import Object, controller_reference, epoch_seconds
from headgate.resources.registry import key_of
from headgate.resources.selectors import selects
from headgate.standalone.controllers.actions import (
    Action,
    Create,
    Delete,
    TypedObject,
    adopt,
    with_owners,
    with_status,
)

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def plan_replicaset(subject: TypedObject[ReplicaSet], pods: Sequence[TypedObject[Pod]], *, now: float) -> list[Action]:
    """Return the actions that create, delete, adopt and release pods of a ReplicaSet and write its status.

    `pods` are those of the namespace, `now` is in seconds since the epoch. Raises DecodeError.
    """
    replicaset, typed = subject
    if typed.metadata.deletion_timestamp:
        return []
    check_selector(typed)
    mine = [pod for pod in pods if _owns(typed, pod.typed)]
    active = [pod for pod in mine if pod.typed.active]
    excess = len(active) - typed.spec.replicas
    return [
        *_claims(replicaset, typed, pods),
        *(Create(new_pod(replicaset)) for _ in range(-excess)),
        *(Delete(key_of(pod), pod["metadata"]["uid"]) for pod, _ in _by_deletion_order(active, now)[: max(excess, 0)]),
        *(Delete(key_of(pod), status.metadata.uid) for pod, status in mine if _finished(status)),
        *_status(replicaset, typed, [pod.typed for pod in active], now=now),
    ]


def available(pod: Pod, min_ready_seconds: int, now: float) -> bool:
    """Return whether a pod has been ready for at least `min_ready_seconds`."""
    since = pod.ready_since
    return pod.active and since is not None and now - since >= min_ready_seconds


def new_pod(replicaset: Object) -> Object:
    """Return a new pod of a ReplicaSet. The store generates its name."""
    template = replicaset["spec"].get("template") or {}
    metadata = template.get("metadata") or {}
    kept: dict[str, Any] = {
        name: metadata[name] for name in ("labels", "annotations", "finalizers") if metadata.get(name)
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **kept,
            "generateName": f"{replicaset['metadata']['name']}-",
            "namespace": replicaset["metadata"]["namespace"],
            "ownerReferences": [controller_reference(replicaset)],
        },
        "spec": template.get("spec") or {},
    }


def _owns(replicaset: ReplicaSet, pod: Pod) -> bool:
    """Return whether the selector matches a pod that the ReplicaSet owns, or can adopt because it has no owner."""
    owner = owner_uid(pod.metadata)
    mine = owner == replicaset.metadata.uid or (not owner and pod.active)
    return mine and selects(replicaset.spec.selector, pod.metadata.labels)


def _finished(pod: Pod) -> bool:
    return not pod.active and not pod.metadata.deletion_timestamp


def _claims(replicaset: Object, typed: ReplicaSet, pods: Sequence[TypedObject[Pod]]) -> list[Action]:
    """Return the actions that adopt matching pods without an owner, and release pods that no longer match the selector."""
    actions: list[Action] = []
    for obj, pod in pods:
        owner, matches = owner_uid(pod.metadata), selects(typed.spec.selector, pod.metadata.labels)
        if not owner and matches and pod.active:
            actions.append(adopt(obj, replicaset))
        elif owner == typed.metadata.uid and not matches:
            references = obj["metadata"]["ownerReferences"]
            actions.append(with_owners(obj, [reference for reference in references if reference["uid"] != owner]))
    return actions


def _by_deletion_order(pods: Sequence[TypedObject[Pod]], now: float) -> list[TypedObject[Pod]]:
    """Sort pods in the order of their deletion, as Kubernetes does.

    The first pods are unscheduled, not running or not ready. The next criteria are deletion cost, time since readiness,
    restarts and age.
    """

    def order(subject: TypedObject[Pod]) -> tuple[Any, ...]:
        pod = subject.typed
        cost = pod.metadata.annotations.get(_DELETION_COST, "0")
        return (
            bool(pod.spec.node_name),
            pod.status.phase == "Running",
            pod.ready_since is not None,
            int(cost) if cost.lstrip("-").isdigit() else 0,
            now - (pod.ready_since or now),
            -max((status.restart_count for status in pod.status.container_statuses), default=0),
            -epoch_seconds(pod.metadata.creation_timestamp),
            pod.metadata.name,
        )

    return sorted(pods, key=order)


def _status(replicaset: Object, typed: ReplicaSet, pods: Sequence[Pod], *, now: float) -> list[Action]:
    template = ((typed.spec.template.get("metadata") or {}).get("labels") or {}).items()
    status = {
        "replicas": len(pods),
        "fullyLabeledReplicas": sum(template <= pod.metadata.labels.items() for pod in pods),
        "readyReplicas": sum(pod.ready_since is not None for pod in pods),
        "availableReplicas": sum(available(pod, typed.spec.min_ready_seconds, now) for pod in pods),
        "observedGeneration": typed.metadata.generation,
    }
    return with_status(replicaset, status)
