"""The pods that a controller owns: new ones, ready ones, and the order in which controllers delete them."""

from collections.abc import Iterable, Sequence
from typing import Any

from headgate.resources.core.pod_spec import Pod, owner_uid
from headgate.resources.meta import Object, controller_reference, epoch_seconds
from headgate.resources.selectors import LabelSelector, selects
from headgate.standalone.controllers.actions import Action, Recheck, TypedObject, adopt, with_owners

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def available(pod: Pod, min_ready_seconds: int, now: float) -> bool:
    """Return whether a pod has been ready for at least `min_ready_seconds`."""
    since = pod.ready_since
    return pod.active and since is not None and now - since >= min_ready_seconds


def rechecks(pods: Iterable[Pod], min_ready_seconds: int, now: float) -> list[Action]:
    """Return the requests to decide again when ready pods become available."""
    times = (pod.ready_since + min_ready_seconds for pod in pods if pod.active and pod.ready_since is not None)
    return [Recheck(at) for at in times if at > now]


def new_pod(owner: Object) -> Object:
    """Return a new pod from the template of its controller. The store generates its name."""
    template = owner["spec"].get("template") or {}
    metadata = template.get("metadata") or {}
    kept: dict[str, Any] = {
        name: metadata[name] for name in ("labels", "annotations", "finalizers") if metadata.get(name)
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **kept,
            "generateName": f"{owner['metadata']['name']}-",
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": [controller_reference(owner)],
        },
        "spec": template.get("spec") or {},
    }


def by_deletion_order(pods: Sequence[TypedObject[Pod]], now: float) -> list[TypedObject[Pod]]:
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


def owns(uid: str, selector: LabelSelector, pod: Pod) -> bool:
    """Return whether a selector matches a pod that a controller owns, or can adopt because it has no owner."""
    owner = owner_uid(pod.metadata)
    return (owner == uid or (not owner and pod.active)) and selects(selector, pod.metadata.labels)


def claims(owner: Object, selector: LabelSelector, pods: Sequence[TypedObject[Pod]]) -> list[Action]:
    """Return the actions that adopt matching pods without an owner, and release pods that no longer match the selector."""
    actions: list[Action] = []
    for obj, pod in pods:
        present, matches = owner_uid(pod.metadata), selects(selector, pod.metadata.labels)
        if not present and matches and pod.active:
            actions.append(adopt(obj, owner))
        elif present == owner["metadata"]["uid"] and not matches:
            references = obj["metadata"]["ownerReferences"]
            actions.append(with_owners(obj, [reference for reference in references if reference["uid"] != present]))
    return actions
