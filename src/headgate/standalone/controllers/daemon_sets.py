"""The DaemonSet controller, as in Kubernetes: one pod on each node, and this machine is the only one."""

from collections.abc import Collection, Mapping, Sequence

from headgate.admission.workloads import check_selector
from headgate.resources.apps.daemon_set import DaemonSet
from headgate.resources.core.pod_spec import Pod
from headgate.resources.meta import Object, part
from headgate.resources.registry import key_of
from headgate.standalone.controllers.actions import Action, Create, Delete, TypedObject, with_status
from headgate.standalone.controllers.controller_revisions import REVISION_HASH, plan_revisions, revision_of
from headgate.standalone.controllers.owned_pods import available, claims, new_pod, owns, rechecks


def plan_daemon_set(
    subject: TypedObject[DaemonSet],
    pods: Sequence[TypedObject[Pod]],
    revisions: Collection[Object],
    *,
    node: Object,
    now: float,
) -> list[Action]:
    """Return the actions that create, delete and replace the pod of a DaemonSet and write its status.

    `pods` and `revisions` have those of the namespace, `node` is the only node, `now` is in seconds since the epoch.
    Raises DecodeError.
    """
    owner, typed = subject
    if typed.metadata.deletion_timestamp:
        return []
    check_selector(typed)
    mine = [pod for pod in pods if owns(typed.metadata.uid, typed.spec.selector, pod.typed)]
    prefix = f"{typed.metadata.name}-"
    used = [prefix + revision_of(pod.typed) for pod in mine]
    plan = plan_revisions(owner, revisions, limit=typed.spec.revision_history_limit, used=used)
    revision = plan.update.removeprefix(prefix)
    scheduled = _fits(typed, part(node["metadata"], "labels"))
    status = _status(typed, [pod.typed for pod in mine if pod.typed.active], revision, scheduled=scheduled, now=now)
    return [
        *claims(owner, typed.spec.selector, pods),
        *plan.actions,
        *_steps(subject, mine, _pod(owner, revision, node["metadata"]["name"]), scheduled=scheduled, now=now),
        *with_status(owner, status),
        *rechecks([pod.typed for pod in mine], typed.spec.min_ready_seconds, now),
    ]


def _fits(typed: DaemonSet, labels: Mapping[str, str]) -> bool:
    """Return whether the node has the labels of the template's node selector."""
    selector = part(part(typed.spec.template, "spec"), "nodeSelector")
    return selector.items() <= labels.items()


def _pod(owner: Object, revision: str, node: str) -> Object:
    """Return a new pod. It is bound to the node at once: a DaemonSet also runs on a node that is cordoned."""
    pod = new_pod(owner)
    metadata = {**pod["metadata"], "labels": {**pod["metadata"].get("labels", {}), REVISION_HASH: revision}}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}}


def _steps(
    subject: TypedObject[DaemonSet], pods: Sequence[TypedObject[Pod]], new: Object, *, scheduled: bool, now: float
) -> list[Action]:
    """Return the next steps: delete ended and surplus pods, create a missing one, and replace one of an old revision.

    With maxSurge, the new pod starts first, and the old one ends when the new one is available.
    """
    owner, typed = subject
    active = [pod for pod in pods if pod.typed.active]
    ended = [pod for pod in pods if not pod.typed.active and not pod.typed.metadata.deletion_timestamp]
    if not scheduled:
        return _deleted(owner, [*ended, *active])
    if not active:
        is_free = all(pod in ended for pod in pods)  # else a pod still ends, and its ports are in use
        return [*_deleted(owner, ended), *([Create(new, owner)] if is_free else [])]
    revision = new["metadata"]["labels"][REVISION_HASH]
    updated = [pod for pod in active if revision_of(pod.typed) == revision]
    old = [pod for pod in active if pod not in updated]
    if any(available(pod.typed, typed.spec.min_ready_seconds, now) for pod in updated):
        return _deleted(owner, [*ended, *old, *updated[1:]])
    if typed.spec.update_strategy.type != "RollingUpdate" or not old:
        return _deleted(owner, [*ended, *updated[1:]])
    if _surges(typed):
        return [*_deleted(owner, ended), *([] if updated else [Create(new, owner)])]
    return _deleted(owner, [*ended, *old])


def _surges(typed: DaemonSet) -> bool:
    limits = typed.spec.update_strategy.rolling_update
    return limits is not None and str(limits.max_surge).removesuffix("%") != "0"


def _deleted(owner: Object, pods: Sequence[TypedObject[Pod]]) -> list[Action]:
    return [Delete(key_of(pod.object), pod.typed.metadata.uid, owner) for pod in pods]


def _status(typed: DaemonSet, pods: Sequence[Pod], revision: str, *, scheduled: bool, now: float) -> Object:
    """Return the status: numbers of nodes, which are 0 or 1."""

    def count(*pods: Pod) -> int:
        return int(scheduled and bool(pods))

    is_available = count(*(pod for pod in pods if available(pod, typed.spec.min_ready_seconds, now)))
    updated = count(*(pod for pod in pods if revision_of(pod) == revision))
    numbers = {
        "updatedNumberScheduled": updated,
        "numberAvailable": is_available,
        "numberUnavailable": int(scheduled) - is_available,
    }
    return {
        "currentNumberScheduled": count(*pods),
        "numberMisscheduled": int(not scheduled and bool(pods)),
        "desiredNumberScheduled": int(scheduled),
        "numberReady": count(*(pod for pod in pods if pod.ready_since is not None)),
        "observedGeneration": typed.metadata.generation,
        **{name: number for name, number in numbers.items() if number},
    }
