"""The pods that a controller owns: new ones, ready ones, and the order in which controllers delete them."""

from collections.abc import Sequence
from typing import Any

from headgate.resources.core.pod_spec import Pod
from headgate.resources.meta import Object, controller_reference, epoch_seconds
from headgate.standalone.controllers.actions import TypedObject

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def available(pod: Pod, min_ready_seconds: int, now: float) -> bool:
    """Return whether a pod has been ready for at least `min_ready_seconds`."""
    since = pod.ready_since
    return pod.active and since is not None and now - since >= min_ready_seconds


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
