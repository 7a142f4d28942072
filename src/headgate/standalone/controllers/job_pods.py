"""The pods of a Job: new ones, which of them have ended and how, and the pause after failures."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from headgate.resources.batch.job import FailureRule, Job
from headgate.resources.core.pod_spec import Pod
from headgate.resources.meta import Object, epoch_seconds, part, rows
from headgate.standalone.controllers.actions import TypedObject
from headgate.standalone.controllers.completion_indexes import COMPLETION_INDEX, index_of
from headgate.standalone.controllers.owned_pods import new_pod

TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer that keeps an ended pod until the status of its Job counts it."""
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
"""The annotation with how often a pod's index had failed before it, where each index has a limit."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0  # before a failed pod is replaced, as in Kubernetes
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


class JobPods(NamedTuple):
    """The pods of a Job: active ones, those that end after their deletion, and those that have ended.

    Pods of `ignored` have failed, and the failure policy says that they do not count. Pods of `removed` are being deleted
    and do not count any more, or never did.
    """

    active: tuple[TypedObject[Pod], ...]
    terminating: tuple[TypedObject[Pod], ...]
    succeeded: tuple[TypedObject[Pod], ...]
    failed: tuple[TypedObject[Pod], ...]
    ignored: tuple[TypedObject[Pod], ...]
    removed: tuple[TypedObject[Pod], ...]


def sort_pods(job: Job, pods: Sequence[TypedObject[Pod]]) -> JobPods:
    """Sort the pods of a Job by what they count as.

    A pod that is being deleted counts as failed at once, or with `podReplacementPolicy: Failed` when its processes are gone.
    """
    sorted_pods: dict[str, list[TypedObject[Pod]]] = {name: [] for name in JobPods._fields}
    for pod in pods:
        sorted_pods[_group(job, pod)].append(pod)
    return JobPods(*(tuple(sorted_pods[name]) for name in JobPods._fields))


def _group(job: Job, pod: TypedObject[Pod]) -> str:
    typed = pod.typed
    if typed.status.phase == "Succeeded":
        return "succeeded"
    is_removed = typed.metadata.deletion_timestamp and not is_tracked(pod.object)
    if typed.status.phase == "Failed" and not is_removed:
        rule = matching_rule(job, pod.object)
        return "ignored" if rule and rule.action == "Ignore" else "failed"
    if not typed.metadata.deletion_timestamp:
        return "active"
    if typed.status.phase != "Failed" and is_held(pod.object) and job.spec.pod_replacement_policy == "Failed":
        return "terminating"
    return "removed" if is_removed else "failed"


def matching_rule(job: Job, pod: Object) -> FailureRule | None:
    """Return the first rule of the failure policy that fits a failed pod; None if none does."""
    return next((rule for rule in job.spec.pod_failure_policy.rules if _fits(rule, pod)), None)


def _fits(rule: FailureRule, pod: Object) -> bool:
    status = part(pod, "status")
    if rule.on_exit_codes is None:
        conditions = {(fact.get("type"), fact.get("status")) for _, fact in rows(status.get("conditions"))}
        return any((pattern.type, pattern.status) in conditions for pattern in rule.on_pod_conditions)
    codes = rule.on_exit_codes
    failures = [
        code
        for name, code in _exit_codes(status)
        if code and (not codes.container_name or codes.container_name == name)
    ]
    return any((code in codes.values) == (codes.operator == "In") for code in failures)


def _exit_codes(status: Any) -> list[tuple[str, int]]:
    return [
        (str(container.get("name")), int(ended["exitCode"]))
        for field in ("initContainerStatuses", "containerStatuses")
        for _, container in rows(status.get(field))
        if (ended := part(part(container, "state"), "terminated"))
    ]


def restart_count(pods: Sequence[TypedObject[Pod]]) -> int:
    """Return how often the containers of pods were restarted, init containers too."""
    statuses = (pod.typed.status for pod in pods)
    return sum(
        container.restart_count
        for status in statuses
        for container in (*status.init_container_statuses, *status.container_statuses)
    )


def replacement_time(pods: JobPods) -> float:
    """Return from when on failed pods may be replaced, in seconds since the epoch; 0 for at once.

    The pause doubles with each failure after the last success, from FIRST_PAUSE_S to LONGEST_PAUSE_S. Failures that the
    failure policy ignores do not count for the Job, but for the pause: else their pods would start without end.
    """
    last_success = max((finish_time(pod.object) for pod in pods.succeeded), default=0.0)
    ends = (finish_time(pod.object) for pod in (*pods.failed, *pods.ignored))
    failures = [seconds for seconds in ends if seconds >= last_success]
    return _after_pause(max(failures, default=0.0), len(failures))


def index_replacement_times(pods: JobPods) -> dict[int, float]:
    """Return from when on the failed pods may be replaced, by index, where each index has a back-off of its own."""
    ignored = Counter(index_of(pod.typed) for pod in pods.ignored)
    failures = index_failures(pods)
    ends: dict[int, float] = {}
    for pod in (*pods.failed, *pods.ignored):
        if (index := index_of(pod.typed)) is not None:
            ends[index] = max(ends.get(index, 0.0), finish_time(pod.object))
    return {index: _after_pause(last, failures.get(index, 0) + ignored[index]) for index, last in ends.items()}


def index_failures(pods: JobPods) -> dict[int, int]:
    """Return how often the pods of each index have failed; each pod has the number of failures before it."""
    failures: dict[int, int] = {}
    for pod in pods.failed:
        if (index := index_of(pod.typed)) is not None:
            before = pod.typed.metadata.annotations.get(FAILURE_COUNT, "0")
            failures[index] = max(failures.get(index, 0), int(before) + 1 if before.isdecimal() else 1)
    return failures


def _after_pause(last: float, failures: int) -> float:
    return last + min(FIRST_PAUSE_S * (1 << min(failures - 1, 10)), LONGEST_PAUSE_S) if failures else 0.0


def finish_time(pod: Object) -> float:
    """Return when a pod ended, in seconds since the epoch: its last container, else its deletion, else its creation."""
    containers = rows(part(pod, "status").get("containerStatuses"))
    ends = [str(part(part(status, "state"), "terminated").get("finishedAt", "")) for _, status in containers]
    metadata = pod["metadata"]
    created = metadata.get("deletionTimestamp") or metadata.get("creationTimestamp", "")
    return max(map(epoch_seconds, ends), default=0.0) or epoch_seconds(created)


def new_job_pod(job: Object, index: int | None = None, *, failures: int | None = None) -> Object:
    """Return a new pod of a Job, with an index in an Indexed Job, and the failures of the index if it has a limit."""
    pod = new_pod(job)
    metadata = {**pod["metadata"], "finalizers": [*pod["metadata"].get("finalizers", ()), TRACKING]}
    if index is None:
        return {**pod, "metadata": metadata}
    name, number = job["metadata"]["name"], str(index)
    metadata = {
        **metadata,
        "generateName": f"{name}-{number}-",
        "labels": {**metadata.get("labels", {}), COMPLETION_INDEX: number},
        "annotations": {
            **metadata.get("annotations", {}),
            COMPLETION_INDEX: number,
            **({} if failures is None else {FAILURE_COUNT: str(failures)}),
        },
    }
    spec = {**pod["spec"], "hostname": pod["spec"].get("hostname") or f"{name}-{number}"}
    for field in ("initContainers", "containers"):
        if spec.get(field):
            spec[field] = [_with_index(container, number) for container in spec[field]]
    return {**pod, "metadata": metadata, "spec": spec}


def _with_index(container: Object, number: str) -> Object:
    variables = container.get("env") or []
    if any(variable.get("name") == _INDEX_VARIABLE for variable in variables):
        return container
    return {**container, "env": [*variables, {"name": _INDEX_VARIABLE, "value": number}]}


def without_tracking(pod: Object) -> Object:
    """Return a pod without the finalizer of Jobs."""
    finalizers = [name for name in pod["metadata"].get("finalizers") or () if name != TRACKING]
    return {**pod, "metadata": {**pod["metadata"], "finalizers": finalizers}}


def is_tracked(pod: Object) -> bool:
    """Return whether a pod has the finalizer of Jobs."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def is_held(pod: Object) -> bool:
    """Return whether a pod that is being deleted still runs: a finalizer besides that of Jobs keeps it."""
    return not set(pod["metadata"].get("finalizers") or ()) <= {TRACKING}


def missing_indexes(job: Job, pods: JobPods, ended: frozenset[int]) -> Iterator[int]:
    """Yield the indexes that are not in `ended` and have no pod that runs, the lowest first."""
    busy = {index_of(pod.typed) for pod in (*pods.active, *pods.terminating)}
    return (index for index in range(job.spec.completions or 0) if index not in ended and index not in busy)
