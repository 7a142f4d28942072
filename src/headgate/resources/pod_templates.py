"""The kinds with pod templates: where the template is, and how many pods they need. Every list of workloads derives from them."""

from collections.abc import Mapping
from typing import NamedTuple

from headgate.kinds import names_of
from headgate.resources.kind import split_api_version
from headgate.resources.meta import Object, part

_TEMPLATE, _OF_CRON_JOB = "spec.template", "spec.jobTemplate.spec.template"


class TemplatedKind(NamedTuple):
    """A kind with a pod template at `path`.

    - `replicated`: whether it keeps a number of pods running.
    - `owns_pods`: whether it owns its pods, not another kind that it creates: a ReplicaSet, a Job.
    - `replaces_pods`: whether it replaces its pods after a change to the template.
    """

    kind: str
    path: str = _TEMPLATE
    replicated: bool = True
    owns_pods: bool = True
    replaces_pods: bool = False

    @property
    def group(self) -> str:
        """The API group."""
        return names_of(self.kind).group


TEMPLATED_KINDS = (
    TemplatedKind("Deployment", owns_pods=False, replaces_pods=True),
    TemplatedKind("ReplicaSet"),
    TemplatedKind("StatefulSet", replaces_pods=True),
    TemplatedKind("DaemonSet", replaces_pods=True),
    TemplatedKind("ReplicationController"),
    TemplatedKind("Job", replicated=False),
    TemplatedKind("CronJob", _OF_CRON_JOB, replicated=False, owns_pods=False),
)
"""All workloads, those that people write most first."""
REPLACING_KINDS = tuple((templated.group, templated.kind) for templated in TEMPLATED_KINDS if templated.replaces_pods)
"""The group and name of workloads that replace their pods after a change to the template."""
REPLICATED_KINDS = tuple((templated.group, templated.kind) for templated in TEMPLATED_KINDS if templated.replicated)
"""The group and name of workloads that keep a number of pods running."""
_PATHS: Mapping[tuple[str, str], str] = {
    (templated.group, templated.kind): templated.path for templated in TEMPLATED_KINDS
}
_DAEMON_SET = "DaemonSet"


def template_path(obj: Object) -> str:
    """Return the path of the pod template in a workload, such as `spec.template`; empty for objects of other kinds."""
    group, _ = split_api_version(str(obj.get("apiVersion", "")))
    return _PATHS.get((group, str(obj.get("kind", ""))), "")


def pod_template(obj: Object) -> Object:
    """Return the pod template of a workload; empty if it has none."""
    node = obj
    for field in template_path(obj).split("."):
        node = part(node, field)
    return node


def pod_of_template(obj: Object) -> Object:
    """Return a pod with the labels, annotations and spec of a workload's template, in the workload's namespace."""
    template = pod_template(obj)
    metadata = {**part(template, "metadata"), "namespace": part(obj, "metadata").get("namespace", "")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": part(template, "spec")}


def needed_pods(obj: Object) -> int:
    """Return how many pods a replicated workload needs: its replicas, or for a DaemonSet one on each node."""
    if obj["kind"] == _DAEMON_SET:
        return int(part(obj, "status").get("desiredNumberScheduled", 0))
    replicas = part(obj, "spec").get("replicas")
    return 1 if replicas is None else int(replicas)


def available_pods(obj: Object) -> int:
    """Return how many pods of a replicated workload are available, by its status."""
    field = "numberAvailable" if obj["kind"] == _DAEMON_SET else "availableReplicas"
    return int(part(obj, "status").get(field, 0))
