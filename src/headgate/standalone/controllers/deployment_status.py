"""The status of a Deployment: the numbers and conditions that `kubectl rollout status` and `kubectl wait` read."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from headgate.resources.apps.deployment import Deployment
from headgate.resources.apps.replica_set import ReplicaSet
from headgate.resources.core.pod_spec import Condition
from headgate.resources.meta import epoch_seconds, timestamp
from headgate.standalone.controllers.rollout import bounds

_Fact: TypeAlias = tuple[str, str, str]
"""A condition's status, reason and message."""


def deployment_status(
    deployment: Deployment, replicasets: Sequence[ReplicaSet], current: ReplicaSet | None, *, now: float
) -> dict[str, Any]:
    """Return the status of a Deployment.

    `replicasets` has all ReplicaSets that the Deployment owns. `current` is the ReplicaSet of its template, None if there is
    none. `now` is in seconds since the epoch.
    """
    available = sum(replicaset.status.available_replicas for replicaset in replicasets)
    replicas = deployment.spec.replicas
    numbers = {
        "replicas": sum(replicaset.status.replicas for replicaset in replicasets),
        "updatedReplicas": current.status.replicas if current else 0,
        "readyReplicas": sum(replicaset.status.ready_replicas for replicaset in replicasets),
        "availableReplicas": available,
        "unavailableReplicas": max(replicas - available, 0),
    }
    facts = {
        "Available": _available(deployment, available),
        "Progressing": _progressing(deployment, current, numbers, now),
    }
    progressed = _has_progressed(deployment, numbers)
    return {
        "observedGeneration": deployment.metadata.generation,
        **{name: number for name, number in numbers.items() if number},
        "conditions": [
            _condition_json(deployment, type, fact, progressed=progressed, now=now) for type, fact in facts.items()
        ],
    }


def settled(deployment: Deployment) -> bool:
    """Return whether the last rollout has completed or timed out. The status then no longer depends on time."""
    progressing = _condition(deployment, "Progressing")
    return progressing is not None and progressing.reason in {"NewReplicaSetAvailable", "ProgressDeadlineExceeded"}


def _available(deployment: Deployment, available: int) -> _Fact:
    _, least = bounds(deployment.spec.strategy, deployment.spec.replicas)
    if deployment.spec.strategy.type == "Recreate":
        least = deployment.spec.replicas
    if available >= least:
        return "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
    return "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."


def _progressing(deployment: Deployment, current: ReplicaSet | None, numbers: dict[str, int], now: float) -> _Fact:
    name = f'ReplicaSet "{current.metadata.name}"' if current else "ReplicaSet"
    if deployment.spec.paused:
        return "Unknown", "DeploymentPaused", "Deployment is paused"
    if current and _complete(deployment, numbers):
        return "True", "NewReplicaSetAvailable", f"{name} has successfully progressed."
    if _has_timed_out(deployment, numbers, now=now):
        return "False", "ProgressDeadlineExceeded", f"{name} has timed out progressing."
    return "True", "ReplicaSetUpdated", f"{name} is progressing."


def _complete(deployment: Deployment, numbers: dict[str, int]) -> bool:
    replicas = deployment.spec.replicas
    return numbers["updatedReplicas"] == numbers["replicas"] == numbers["availableReplicas"] == replicas


def _has_timed_out(deployment: Deployment, numbers: dict[str, int], *, now: float) -> bool:
    """Return whether there was no progress within progressDeadlineSeconds."""
    before = _condition(deployment, "Progressing")
    if before is None or before.reason == "NewReplicaSetAvailable" or _has_progressed(deployment, numbers):
        return False
    if before.reason == "ProgressDeadlineExceeded":
        return True
    return now - epoch_seconds(before.last_update_time) > deployment.spec.progress_deadline_seconds


def _has_progressed(deployment: Deployment, numbers: dict[str, int]) -> bool:
    status = deployment.status
    before = (status.updated_replicas, status.replicas, status.available_replicas)
    return before != (numbers["updatedReplicas"], numbers["replicas"], numbers["availableReplicas"])


def _condition(deployment: Deployment, type: str) -> Condition | None:
    return next((condition for condition in deployment.status.conditions if condition.type == type), None)


def _condition_json(deployment: Deployment, type: str, fact: _Fact, *, progressed: bool, now: float) -> dict[str, str]:
    """Return a condition as JSON. An unchanged condition keeps its times.

    Progress of the rollout updates `lastUpdateTime` of the condition Progressing. The progress deadline counts from
    that time.
    """
    before, stamp = _condition(deployment, type), timestamp(now)
    status, reason, message = fact
    same = before is not None and (before.status, before.reason, before.message) == fact
    same = same and not (progressed and type == "Progressing")
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": before.last_update_time if before and same else stamp,
        "lastTransitionTime": before.last_transition_time if before and before.status == status else stamp,
    }
