"""Find the pod template of a workload."""

from collections.abc import Mapping

from headgate.resources.kind import split_api_version
from headgate.resources.meta import Object, part

_TEMPLATE, _OF_CRON_JOB = "spec.template", "spec.jobTemplate.spec.template"
_PATHS: Mapping[tuple[str, str], str] = {
    **{("apps", kind): _TEMPLATE for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")},
    ("batch", "CronJob"): _OF_CRON_JOB,
    ("batch", "Job"): _TEMPLATE,
}
"""The path of the pod template, by group and kind."""


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
