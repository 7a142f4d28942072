"""Default values of workloads and Secrets, as Kubernetes sets them, and checks of workloads.

`kubectl describe` and `kubectl rollout` need some of the defaults. The objects have already passed the check against
their schema, so every field either has the type in the schema or is null.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headgate.admission.autoscaler_rules import autoscaler_causes
from headgate.admission.batch_rules import cron_job_causes, job_causes
from headgate.admission.immutable_fields import immutable_causes
from headgate.admission.pod_template_rules import container_causes, template_causes
from headgate.errors import Cause, DecodeError, Invalid
from headgate.resources.apps.daemon_set import DaemonSet
from headgate.resources.apps.deployment import Deployment
from headgate.resources.apps.replica_set import ReplicaSet
from headgate.resources.apps.stateful_set import StatefulSet
from headgate.resources.core.pod_fields import pod_field_causes, selector_causes
from headgate.resources.core.pod_spec import Pod
from headgate.resources.core.replication_controller import ReplicationController, completed_spec
from headgate.resources.decode import read
from headgate.resources.meta import Object, part
from headgate.resources.selectors import selects

_POD = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst"}
_ROLLING = {"maxSurge": "25%", "maxUnavailable": "25%"}
_DEPLOYMENT = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
_STATEFUL_SET = {
    "replicas": 1,
    "revisionHistoryLimit": 10,
    "podManagementPolicy": "OrderedReady",
    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
}
_DAEMON_SET = {"revisionHistoryLimit": 10}
_DAEMON_ROLLING = {"maxSurge": 0, "maxUnavailable": 1}
_JOB = {
    "completionMode": "NonIndexed",
    "suspend": False,
}
_NO_LIMIT = 2**31 - 1  # of the failures of a Job whose indexes have limits of their own
_CRON_JOB = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
}
_CPU_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
# Defaults of kinds that headgate only stores, without which kubectl shows them wrong, or crashes (describe of a StatefulSet).
_FURTHER: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("v1", "PersistentVolumeClaim"): {"volumeMode": "Filesystem"},
    ("v1", "PersistentVolume"): {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"},
    ("batch/v1", "CronJob"): _CRON_JOB,
    ("networking.k8s.io/v1", "NetworkPolicy"): {"policyTypes": ["Ingress"]},
}


def _secret(obj: Object) -> Object:
    """Move the write-only `stringData` to `data`, encoded in base64."""
    filled = {"type": "Opaque", **_given(obj)}
    texts = filled.pop("stringData", {})
    if not all(isinstance(text, str) for text in texts.values()):
        return obj
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    return {**filled, "data": {**filled.get("data", {}), **encoded}} if "stringData" in obj else filled


def _spec(complete: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Object], Object]:
    """Return a function that sets defaults in the `spec` of an object, if it has one."""
    return lambda obj: {**obj, "spec": complete(_given(obj["spec"]))} if obj.get("spec") is not None else obj


def _deployment_spec(given: dict[str, Any]) -> dict[str, Any]:
    strategy = {"type": "RollingUpdate", **_given(given.get("strategy", {}))}
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {**_ROLLING, **_given(strategy.get("rollingUpdate", {}))}
    return _replicaset_spec({**_DEPLOYMENT, **given, "strategy": strategy})


def _replicaset_spec(given: dict[str, Any]) -> dict[str, Any]:
    spec, template = {"replicas": 1, **given}, given.get("template", {})
    if template.get("spec") is not None:
        spec["template"] = {**template, "spec": _pod_spec(_given(template["spec"]))}
    return spec


def _pod_spec(given: dict[str, Any]) -> dict[str, Any]:
    filled = {**_POD, **given}
    if "containers" in filled:
        filled["containers"] = [_container(container) for container in filled["containers"]]
    return filled


def _container(container: Any) -> Any:
    if not container or not container.get("ports"):
        return container
    return {**container, "ports": [port and {"protocol": "TCP", **_given(port)} for port in container["ports"]]}


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _further_spec(defaults: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that sets the defaults of a kind, and those of the pods in its template."""

    def complete(given: dict[str, Any]) -> dict[str, Any]:
        spec, template = {**defaults, **given}, given.get("template")
        if isinstance(template, Mapping) and isinstance(template.get("spec"), Mapping):
            spec["template"] = {**template, "spec": _pod_spec(_given(template["spec"]))}
        return spec

    return complete


def _updated(defaults: Mapping[str, Any], rolling: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that sets the defaults of a kind with an update strategy; `rolling` has those of rolling updates."""

    def complete(given: dict[str, Any]) -> dict[str, Any]:
        strategy = {"type": "RollingUpdate", **_given(given.get("updateStrategy", {}))}
        if strategy["type"] == "RollingUpdate":
            strategy["rollingUpdate"] = {**rolling, **_given(strategy.get("rollingUpdate", {}))}
        return _further_spec(defaults)({**given, "updateStrategy": strategy})

    return complete


def _job_spec(given: dict[str, Any]) -> dict[str, Any]:
    """Set the defaults of a Job. Without completions and parallelism, one pod must succeed.

    With a failure policy, a pod is replaced when it has ended: only then is its exit code known.
    """
    alone = {"completions": 1} if "completions" not in given and "parallelism" not in given else {}
    limit = 6 if given.get("backoffLimitPerIndex") is None else _NO_LIMIT
    replacement = "TerminatingOrFailed" if given.get("podFailurePolicy") is None else "Failed"
    defaults = {**_JOB, "podReplacementPolicy": replacement, **alone, "parallelism": 1, "backoffLimit": limit}
    return _further_spec(defaults)(given)


def _autoscaler_spec(given: dict[str, Any]) -> dict[str, Any]:
    return {"minReplicas": 1, **given, "metrics": given.get("metrics") or [_CPU_METRIC]}


DEFAULTERS: Mapping[tuple[str, str], Callable[[Object], Object]] = {
    ("v1", "Secret"): _secret,
    # kubectl debug crashes without a securityContext. In templates it would change their hashes.
    ("v1", "Pod"): _spec(lambda given: {"securityContext": {}, **_pod_spec(given)}),
    ("apps/v1", "ReplicaSet"): _spec(_replicaset_spec),
    ("apps/v1", "Deployment"): _spec(_deployment_spec),
    ("v1", "ReplicationController"): _spec(lambda given: _further_spec({})({**completed_spec(given)})),
    ("apps/v1", "StatefulSet"): _spec(_updated(_STATEFUL_SET, {"partition": 0})),
    ("apps/v1", "DaemonSet"): _spec(_updated(_DAEMON_SET, _DAEMON_ROLLING)),
    ("autoscaling/v2", "HorizontalPodAutoscaler"): _spec(_autoscaler_spec),
    ("batch/v1", "Job"): _spec(_job_spec),
    **{kind: _spec(_further_spec(defaults)) for kind, defaults in _FURTHER.items()},
}
"""Functions that set the default values of an object, by apiVersion and kind."""


def check_workload(new: Object, old: Object | None, _view: object = None) -> Object:
    """Check a workload, as an `objects.ports.AdmissionStep`. Raises Invalid if the workload can't run."""
    causes = (*workload_causes(new), *(immutable_causes(new, old) if old else ()))
    if causes:
        raise Invalid(*causes)
    return new


def workload_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a workload. Objects of other kinds are not checked."""
    check = CHECKS.get((obj["apiVersion"], obj["kind"]))
    if check:
        try:
            yield from check(obj)
        except DecodeError as error:
            yield from error.causes


def _deployment_causes(obj: Object) -> Iterator[Cause]:
    typed = read(obj, Deployment)
    yield from _selector(obj, typed)
    if typed.spec.strategy.type not in ("RollingUpdate", "Recreate"):
        yield Cause("spec.strategy.type", f"must be RollingUpdate or Recreate, not {typed.spec.strategy.type!r}")
    yield from _replicas(typed.spec.replicas)
    yield from template_causes(typed.spec.template)


def _replicaset_causes(obj: Object) -> Iterator[Cause]:
    typed = read(obj, ReplicaSet)
    yield from _selector(obj, typed)
    yield from _replicas(typed.spec.replicas)
    yield from template_causes(typed.spec.template)


def _stateful_set_causes(obj: Object) -> Iterator[Cause]:
    typed = read(obj, StatefulSet)
    yield from _selector(obj, typed)
    yield from _replicas(typed.spec.replicas)
    policy, strategy = typed.spec.pod_management_policy, typed.spec.update_strategy.type
    if policy not in ("OrderedReady", "Parallel"):
        yield Cause("spec.podManagementPolicy", f"must be OrderedReady or Parallel, not {policy!r}")
    if strategy not in ("RollingUpdate", "OnDelete"):
        yield Cause("spec.updateStrategy.type", f"must be RollingUpdate or OnDelete, not {strategy!r}")
    for index, template in enumerate(typed.spec.volume_claim_templates):
        if not part(template, "metadata").get("name"):
            yield Cause(f"spec.volumeClaimTemplates[{index}].metadata.name", "is missing: name the volume")
    yield from _always_restarts(typed.spec.template)
    yield from template_causes(typed.spec.template)


def _daemon_set_causes(obj: Object) -> Iterator[Cause]:
    typed = read(obj, DaemonSet)
    yield from _selector(obj, typed)
    if (strategy := typed.spec.update_strategy.type) not in ("RollingUpdate", "OnDelete"):
        yield Cause("spec.updateStrategy.type", f"must be RollingUpdate or OnDelete, not {strategy!r}")
    yield from _always_restarts(typed.spec.template)
    yield from template_causes(typed.spec.template)


def _replication_controller_causes(obj: Object) -> Iterator[Cause]:
    typed = read(obj, ReplicationController).as_replica_set
    check_selector(typed)
    yield from _replicas(typed.spec.replicas)
    yield from _always_restarts(typed.spec.template)
    yield from template_causes(typed.spec.template)


def _always_restarts(template: Mapping[str, Any]) -> Iterator[Cause]:
    restart = part(template, "spec").get("restartPolicy") or "Always"
    if restart != "Always":
        yield Cause("spec.template.spec.restartPolicy", f"must be Always, not {restart!r}")


def _pod_causes(obj: Object) -> Iterator[Cause]:
    spec = read(obj, Pod).spec
    yield from container_causes(spec, "spec")
    yield from pod_field_causes(spec, "spec")


def _selector(obj: Object, typed: DaemonSet | Deployment | ReplicaSet | StatefulSet) -> Iterator[Cause]:
    check_selector(typed)
    yield from selector_causes(part(part(obj, "spec"), "selector"), "spec.selector")


def _replicas(number: int) -> Iterator[Cause]:
    if number < 0:
        yield Cause("spec.replicas", "must be 0 or more")


CHECKS: Mapping[tuple[str, str], Callable[[Object], Iterator[Cause]]] = {
    ("apps/v1", "Deployment"): _deployment_causes,
    ("apps/v1", "ReplicaSet"): _replicaset_causes,
    ("v1", "ReplicationController"): _replication_controller_causes,
    ("apps/v1", "StatefulSet"): _stateful_set_causes,
    ("apps/v1", "DaemonSet"): _daemon_set_causes,
    ("autoscaling/v2", "HorizontalPodAutoscaler"): autoscaler_causes,
    ("batch/v1", "Job"): job_causes,
    ("batch/v1", "CronJob"): cron_job_causes,
    ("v1", "Pod"): _pod_causes,
}
"""The kinds that `check_workload` checks, by apiVersion and kind."""


def check_selector(owner: DaemonSet | Deployment | ReplicaSet | StatefulSet) -> None:
    """Raise DecodeError if the selector does not select the template's pods: the controller would create pods forever."""
    labels = (owner.spec.template.get("metadata") or {}).get("labels") or {}
    chosen = owner.spec.selector
    if not (chosen.match_labels or chosen.match_expressions) or not selects(chosen, labels):
        raise DecodeError(
            Cause(
                "spec.selector",
                "does not select the labels of spec.template; make spec.selector.matchLabels equal to them",
            )
        )
