"""The status of a Job: its counts, which survive the deletion of its pods, and its conditions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from headgate.resources.batch.job import Job
from headgate.resources.core.pod_spec import Pod
from headgate.resources.meta import Object, rows, timestamp
from headgate.standalone.controllers.actions import TypedObject
from headgate.standalone.controllers.completion_indexes import from_text, index_of, to_text
from headgate.standalone.controllers.job_pods import JobPods, index_failures, is_tracked, matching_rule


class Ending(NamedTuple):
    """How a Job ends: the condition `Complete` or `Failed`, with its reason and message."""

    condition: str
    reason: str
    message: str


class JobCounts(NamedTuple):
    """The successes and failures of a Job.

    `succeeded` and `failed` come from the status; the pods with the uids in `new_succeeded` and `new_failed` are not in
    them yet. `completed` has the indexes that have succeeded, `failed_indexes` those whose limit of failures is exceeded.
    """

    succeeded: int
    failed: int
    new_succeeded: tuple[str, ...]
    new_failed: tuple[str, ...]
    completed: frozenset[int]
    failed_indexes: frozenset[int] = frozenset()

    @property
    def all_succeeded(self) -> int:
        """The number of all successes: of indexes in an Indexed Job, else of pods."""
        return self.succeeded + len(self.new_succeeded)

    @property
    def all_failed(self) -> int:
        """The number of all failed pods."""
        return self.failed + len(self.new_failed)


def count_pods(job: Job, pods: JobPods) -> JobCounts:
    """Count the ended pods of a Job exactly once, although pods may be deleted at any time.

    A pod keeps the finalizer TRACKING until the status names its uid. A named uid is counted once its pod has no finalizer.
    """
    status = job.status
    tracked = {pod.typed.metadata.uid for pod in (*pods.succeeded, *pods.failed) if is_tracked(pod.object)}
    before = status.uncounted_terminated_pods
    failed = status.failed + sum(uid not in tracked for uid in before.failed)
    new_failed = _tracked_uids(pods.failed, tracked)
    if job.indexed:
        indexes = {index for pod in pods.succeeded if (index := index_of(pod.typed)) is not None}
        below = job.spec.completions or 0
        completed = from_text(status.completed_indexes, below=below) | indexes
        failed_indexes = from_text(status.failed_indexes, below=below) | (_failed_indexes(job, pods) - completed)
        return JobCounts(len(completed), failed, (), new_failed, completed, failed_indexes)
    succeeded = status.succeeded + sum(uid not in tracked for uid in before.succeeded)
    return JobCounts(succeeded, failed, _tracked_uids(pods.succeeded, tracked), new_failed, frozenset())


def _failed_indexes(job: Job, pods: JobPods) -> frozenset[int]:
    """Return the indexes whose pods have failed too often, or in a way that the failure policy does not accept."""
    if (limit := job.spec.backoff_limit_per_index) is None:
        return frozenset()
    refused = {
        index
        for pod in pods.failed
        if (rule := matching_rule(job, pod.object)) and rule.action == "FailIndex"
        if (index := index_of(pod.typed)) is not None
    }
    return frozenset(index for index, failures in index_failures(pods).items() if failures > limit) | refused


def _tracked_uids(pods: Sequence[TypedObject[Pod]], tracked: set[str]) -> tuple[str, ...]:
    return tuple(pod.typed.metadata.uid for pod in pods if pod.typed.metadata.uid in tracked)


def is_counted(job: Job, pod: Pod) -> bool:
    """Return whether the stored status has an ended pod, so that the pod may be deleted."""
    uncounted = job.status.uncounted_terminated_pods
    if pod.metadata.uid in (*uncounted.succeeded, *uncounted.failed):
        return True
    if not job.indexed or pod.status.phase != "Succeeded":
        return False
    return index_of(pod) in from_text(job.status.completed_indexes, below=job.spec.completions or 0)


def job_status(
    subject: TypedObject[Job], pods: JobPods, counts: JobCounts, ending: Ending | None, *, now: float
) -> Object:
    """Return the status of a Job that has not finished. `ending` says how it will end, None while it is not decided."""
    job, typed = subject
    suspended = typed.spec.suspend and ending is None
    numbers = {"active": len(pods.active), "succeeded": counts.all_succeeded if typed.indexed else counts.succeeded}
    numbers["failed"] = counts.failed
    start = "" if suspended else typed.status.start_time or timestamp(now)
    uncounted = {"succeeded": list(counts.new_succeeded), "failed": list(counts.new_failed)}
    indexes = {"completedIndexes": to_text(counts.completed), "failedIndexes": to_text(counts.failed_indexes)}
    return {
        "conditions": _conditions(job, typed, ending, now=now),
        **({"startTime": start} if start else {}),
        **{name: number for name, number in numbers.items() if number},
        "ready": sum(pod.typed.ready_since is not None for pod in pods.active),
        "terminating": len(pods.terminating),
        **{name: text for name, text in indexes.items() if text},
        "uncountedTerminatedPods": {name: uids for name, uids in uncounted.items() if uids},
    }


def finished_status(status: Object, ending: Ending, *, now: float) -> Object:
    """Return the status of a Job whose pods have all ended, with the condition `Complete` or `Failed`."""
    finished = {**status, "conditions": [*status["conditions"], _condition(ending.condition, *ending[1:], now=now)]}
    return {**finished, "completionTime": timestamp(now)} if ending.condition == "Complete" else finished


TARGETS = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}
"""The condition that a Job gets when its end is decided and pods still run, by its last condition."""


def decided(job: Job) -> Ending | None:
    """Return how a Job ends if its status says so already."""
    for condition, target in TARGETS.items():
        if fact := job.reached(target):
            return Ending(condition, fact.reason, fact.message)
    return None


def _conditions(job: Object, typed: Job, ending: Ending | None, *, now: float) -> list[Object]:
    conditions = [fact for _, fact in rows((job.get("status") or {}).get("conditions"))]
    if ending and not typed.reached(TARGETS[ending.condition]):
        return [*conditions, _condition(TARGETS[ending.condition], *ending[1:], now=now)]
    before = next((fact for fact in conditions if fact["type"] == "Suspended"), None)
    if ending or (before is None and not typed.spec.suspend):
        return conditions
    if before and before["status"] == str(typed.spec.suspend):
        return conditions
    reason, message = ("JobSuspended", "Job suspended") if typed.spec.suspend else ("JobResumed", "Job resumed")
    new: dict[str, Any] = {**_condition("Suspended", reason, message, now=now), "status": str(typed.spec.suspend)}
    return [*(fact for fact in conditions if fact["type"] != "Suspended"), new]


def _condition(type: str, reason: str, message: str, *, now: float) -> Object:
    times = {"lastProbeTime": timestamp(now), "lastTransitionTime": timestamp(now)}
    return {"type": type, "status": "True", **times, "reason": reason, "message": message}
