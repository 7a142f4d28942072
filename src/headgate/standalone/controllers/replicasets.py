"""The ReplicaSet controller, as in Kubernetes: creates, adopts, releases and deletes pods."""

from collections.abc import Sequence

from headgate.admission.workloads import check_selector
from headgate.resources.apps.replica_set import ReplicaSet
from headgate.resources.core.pod_spec import Pod, owner_uid
from headgate.resources.meta import Object
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
from headgate.standalone.controllers.owned_pods import available, by_deletion_order, new_pod


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
        *(Delete(key_of(pod), pod["metadata"]["uid"]) for pod, _ in by_deletion_order(active, now)[: max(excess, 0)]),
        *(Delete(key_of(pod), status.metadata.uid) for pod, status in mine if _finished(status)),
        *_status(replicaset, typed, [pod.typed for pod in active], now=now),
    ]


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
