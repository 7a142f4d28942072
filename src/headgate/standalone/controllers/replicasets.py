"""The ReplicaSet controller, as in Kubernetes: creates, adopts, releases and deletes pods."""

from collections.abc import Sequence

from headgate.admission.workloads import check_selector
from headgate.resources.apps.replica_set import ReplicaSet
from headgate.resources.core.pod_spec import Pod
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.standalone.controllers.actions import (
    Action,
    Create,
    Delete,
    TypedObject,
    with_status,
)
from headgate.standalone.controllers.owned_pods import available, by_deletion_order, claims, new_pod, owns, rechecks


def plan_replicaset(subject: TypedObject[ReplicaSet], pods: Sequence[TypedObject[Pod]], *, now: float) -> list[Action]:
    """Return the actions that create, delete, adopt and release pods of a ReplicaSet and write its status.

    `pods` has those of the namespace, `now` is in seconds since the epoch. Raises DecodeError.
    """
    replicaset, typed = subject
    if typed.metadata.deletion_timestamp:
        return []
    check_selector(typed)
    selector = typed.spec.selector
    mine = [pod for pod in pods if owns(typed.metadata.uid, selector, pod.typed)]
    active = [pod for pod in mine if pod.typed.active]
    excess = len(active) - typed.spec.replicas
    return [
        *claims(replicaset, selector, pods),
        *(Create(new_pod(replicaset), replicaset) for _ in range(-excess)),
        *(
            Delete(key_of(pod), status.metadata.uid, replicaset)
            for pod, status in by_deletion_order(active, now)[: max(excess, 0)]
        ),
        *(Delete(key_of(pod), status.metadata.uid, replicaset) for pod, status in mine if _finished(status)),
        *_status(replicaset, typed, [pod.typed for pod in active], now=now),
        *rechecks([pod.typed for pod in active], typed.spec.min_ready_seconds, now),
    ]


def _finished(pod: Pod) -> bool:
    return not pod.active and not pod.metadata.deletion_timestamp


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
