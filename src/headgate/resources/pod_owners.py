"""Find the workload that a pod belongs to, for the metrics API, the labels of `/metrics`, `explain`, `try` and `tap`
(R82, R89).

A pod belongs to its controller, to that controller's controller, and so on: ReplicaSet, Deployment. Names help where an
object is missing:
- A ReplicaSet belongs to a Deployment if its name ends with the pod's `pod-template-hash`, as Deployments name them.
- A deleted pod belongs to the existing object whose name is a prefix of the pod's name.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from headgate.resources.meta import Metadata, Object, Value, epoch_seconds

POD = "Pod"
DEPLOYMENT = "Deployment"
TEMPLATE_HASH = "pod-template-hash"
"""The label by which a Deployment distinguishes the pods of its ReplicaSets."""
_OF_CONTROLLERS = ("controller-uid", "job-name", "pod-template-generation")
_HASH = "-hash"  # pod-template-hash, controller-revision-hash, rollouts-pod-template-hash of Argo Rollouts
_PREFIXES_OF_CONTROLLERS = (
    "apps.kubernetes.io/",
    "batch.kubernetes.io/",
    "statefulset.kubernetes.io/",
    "topology.kubernetes.io/",
)
_NAMED_AT_RANDOM = ("ReplicaSet", "DaemonSet", "Job", "ReplicationController")
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"  # the characters in random suffixes of Kubernetes' names
_OF_CONTROLLER = re.compile(rf"(?P<controller>.+)-(?:{_LETTERS}{{5}}|(?P<ordinal>[0-9]+))")
_OF_DEPLOYMENT = re.compile(rf"(?P<deployment>.+)-{_LETTERS}{{5,10}}-{_LETTERS}{{5}}")
_OF_CRON_JOB = re.compile(r"(?P<cron_job>.+)-(?P<minute>[0-9]{8,9})")  # the scheduled time in minutes since the epoch
_MINUTE_S = 60
_LONGEST_DELAY_S = (
    7 * 24 * 3600.0
)  # of a pod after the scheduled time of its Job: the Job may start late, and replace pods that fail
_CLOCK_SKEW_S = (
    60.0  # between the controller, which chooses the name, and the API server, which writes the creation time
)
_LONGEST_CHAIN = 8  # the longest chain of owners above a pod; a longer chain has a cycle


class Ref(Value, frozen=True, order=True, gc=False, cache_hash=True):
    """A reference to a resource that has traffic.

    `namespace` is empty for Nodes, Namespaces and peers outside the mesh.
    """

    kind: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace and self.name else self.namespace or self.name


def ref_of(obj: Object) -> Ref:
    """Return the reference to an object; a pod of a list may lack its kind."""
    return Ref(obj.get("kind", POD), obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


class OwnedObject(Protocol):
    """An object with its controller and the value of its label `pod-template-hash`."""

    @property
    def owner(self) -> Ref | None: ...
    @property
    def template_hash(self) -> str: ...


FindObject = Callable[[Ref], OwnedObject | None]
"""A function that returns an object by its reference; None if the object does not exist."""


class Ownership(NamedTuple):
    """An `OwnedObject` with only these two values: the controller and the label `pod-template-hash`."""

    owner: Ref | None = None
    template_hash: str = ""


def is_controller_label(key: str) -> bool:
    """Return whether controllers or the cluster give a label to pods, so that later pods of a workload have other values."""
    return key in _OF_CONTROLLERS or key.endswith(_HASH) or key.startswith(_PREFIXES_OF_CONTROLLERS)


def controller(obj: Object) -> Ref | None:
    """Return the controller of an object in JSON form; None if it has none."""
    metadata = obj["metadata"]
    reference = next(
        (reference for reference in metadata.get("ownerReferences") or () if reference.get("controller")), None
    )
    return Ref(reference["kind"], metadata.get("namespace", ""), reference["name"]) if reference else None


def ownership_of(metadata: Metadata) -> Ownership:
    """Return the ownership of an object from its typed metadata."""
    reference = next((reference for reference in metadata.owner_references if reference.controller), None)
    owner = Ref(reference.kind, metadata.namespace, reference.name) if reference else None
    return Ownership(owner, metadata.labels.get(TEMPLATE_HASH, ""))


def owners(pod: Ref, find: FindObject) -> Iterator[Ref]:
    """Yield the controller of a pod, then that controller's controller, and so on."""
    owned: OwnedObject = find(pod) or Ownership(_former_owner(pod, find))
    template_hash = owned.template_hash
    for _ in range(_LONGEST_CHAIN):
        owner = owned.owner
        if owner is None:
            return
        yield owner
        owned = find(owner) or Ownership(_deployment(owner, template_hash))


def topmost_owner(pod: Ref, find: FindObject) -> Ref:
    """Return a pod's topmost owner, or the pod itself if it has no owner.

    If the pod and all its owners are deleted, the Deployment's name is taken from the pod's name.
    """
    *_, last = (pod, *owners(pod, find))
    if last == pod and find(pod) is None and (match := _OF_DEPLOYMENT.fullmatch(pod.name)):
        return Ref(DEPLOYMENT, pod.namespace, match["deployment"])
    return last


def workload(pod: Ref, find: FindObject) -> str:
    """Return the name of a pod's topmost owner, or the pod's own name if it has no owner."""
    return topmost_owner(pod, find).name


def workloads_of(metadata: Metadata) -> tuple[Ref, ...]:
    """Return the workloads that own a pod, from the pod's metadata alone: its controller, then the Deployment or CronJob of that.

    A CronJob is found by the names of the Jobs that it creates at their times, not by those of `kubectl create job --from`. The number of
    a name is such a time only if the pod is at most a week younger: a Job of another origin may be named after a date.
    """
    pod = Ref(POD, metadata.namespace, metadata.name)
    ownerships = {pod: ownership_of(metadata)}
    of_pod = tuple(owners(pod, ownerships.get))
    last = of_pod[-1] if of_pod else pod
    if last.kind == "Job" and (match := _OF_CRON_JOB.fullmatch(last.name)):
        delay = epoch_seconds(metadata.creation_timestamp) - int(match["minute"]) * _MINUTE_S
        if -_CLOCK_SKEW_S <= delay <= _LONGEST_DELAY_S:
            return (*of_pod, Ref("CronJob", last.namespace, match["cron_job"]))
    return of_pod


def deployment_of(metadata: Metadata) -> str:
    """Return the name of a pod's Deployment, from the pod's metadata alone; empty if it has none."""
    return next((owner.name for owner in workloads_of(metadata) if owner.kind == DEPLOYMENT), "")


def _deployment(replicaset: Ref, template_hash: str) -> Ref | None:
    suffix = f"-{template_hash}"
    if replicaset.kind == "ReplicaSet" and template_hash and replicaset.name.endswith(suffix):
        return Ref(DEPLOYMENT, replicaset.namespace, replicaset.name.removesuffix(suffix))
    return None


def _former_owner(pod: Ref, find: FindObject) -> Ref | None:
    """Return the existing controller whose name is a prefix of a deleted pod's name."""
    match = _OF_CONTROLLER.fullmatch(pod.name)
    if match is None:
        return None
    kinds = ("StatefulSet",) if match["ordinal"] else _NAMED_AT_RANDOM
    refs = (Ref(kind, pod.namespace, match["controller"]) for kind in kinds)
    return next((ref for ref in refs if find(ref)), None)
