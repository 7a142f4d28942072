"""The Job controller, as in Kubernetes: runs pods until enough have succeeded or too many have failed."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat

from headgate.resources.batch.job import CONTROLLER, Job
from headgate.resources.core.pod_spec import Pod, owner_uid
from headgate.resources.meta import Object, epoch_seconds, part, rows
from headgate.resources.registry import key_of
from headgate.standalone.controllers.actions import (
    Action,
    Announce,
    Create,
    Delete,
    Recheck,
    TypedObject,
    Update,
    with_status,
)
from headgate.standalone.controllers.completion_indexes import ranges
from headgate.standalone.controllers.job_pods import (
    JobPods,
    index_failures,
    index_replacement_times,
    is_held,
    is_tracked,
    matching_rule,
    missing_indexes,
    new_job_pod,
    replacement_time,
    restart_count,
    sort_pods,
    without_tracking,
)
from headgate.standalone.controllers.job_status import (
    Ending,
    JobCounts,
    count_pods,
    decided,
    finished_status,
    is_counted,
    job_status,
)
from headgate.standalone.controllers.owned_pods import by_deletion_order

MOST_CREATED = 500  # pods in one decision, as in Kubernetes


def plan_job(subject: TypedObject[Job], pods: Sequence[TypedObject[Pod]], *, now: float) -> list[Action]:
    """Return the actions that create and delete pods of a Job, count them, write its status, and delete it in time.

    `pods` has those of the namespace, `now` is in seconds since the epoch.
    """
    job, typed = subject
    if typed.metadata.deletion_timestamp or typed.spec.managed_by != CONTROLLER:
        return []
    mine = [pod for pod in pods if owner_uid(pod.typed.metadata) == typed.metadata.uid]
    grouped = sort_pods(typed, mine)
    released = [*_released(typed, grouped)]
    if finished := typed.reached("Complete", "Failed"):
        return [*released, *_expired(job, typed, epoch_seconds(finished.last_transition_time), now=now)]
    counts = count_pods(typed, grouped)
    ending = decided(typed) or _ending(typed, grouped, counts, now=now)
    status = job_status(subject, grouped, counts, ending, now=now)
    managed = [*_managed(subject, grouped, counts, ending, now=now)]
    running = any(_runs(pod) for pod in mine) or any(isinstance(action, Create) for action in managed)
    if ending and not running and not counts.new_succeeded and not counts.new_failed:
        status = finished_status(status, ending, now=now)
    written = with_status(job, status)
    return [*written, *(_events(job, status) if written else ()), *released, *managed]


def release_pods(jobs: Iterable[Job], pods: Iterable[TypedObject[Pod]]) -> list[Update]:
    """Return the actions that remove the finalizer from pods whose Job is gone or is being deleted."""
    counting = {job.metadata.uid for job in jobs if not job.metadata.deletion_timestamp}
    return [
        Update(without_tracking(pod.object))
        for pod in pods
        if is_tracked(pod.object) and owner_uid(pod.typed.metadata) not in counting
    ]


def _released(job: Job, pods: JobPods) -> Iterator[Action]:
    """Yield the actions that remove the finalizer from pods that the stored status has, or that do not count."""
    for pod in (*pods.succeeded, *pods.failed, *pods.ignored):
        if is_tracked(pod.object) and (pod in pods.ignored or is_counted(job, pod.typed)):
            yield Update(without_tracking(pod.object))


def _runs(pod: TypedObject[Pod]) -> bool:
    """Return whether processes of a pod may still run."""
    if pod.typed.status.phase in ("Succeeded", "Failed"):
        return False
    return not pod.typed.metadata.deletion_timestamp or is_held(pod.object)


def _ending(job: Job, pods: JobPods, counts: JobCounts, *, now: float) -> Ending | None:
    """Return how a Job ends now; None if it does not end."""
    spec = job.spec
    deadline = _deadline(job)
    if deadline and now >= deadline:
        return Ending("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    for pod in pods.failed:
        if (rule := matching_rule(job, pod.object)) and rule.action == "FailJob":
            number = spec.pod_failure_policy.rules.index(rule)
            name = f"{pod.typed.metadata.namespace}/{pod.typed.metadata.name}"
            message = f"Pod {name} has failed and matches the FailJob rule at index {number}"
            return Ending("Failed", "PodFailurePolicy", message)
    restarts = restart_count(pods.active) if _restarts_containers(job) else 0
    if counts.all_failed > spec.backoff_limit or restarts >= max(spec.backoff_limit, 1):
        return Ending("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    if ending := _failed_by_indexes(job, counts):
        return ending
    if (matched := _success_rule(job, counts)) is not None:
        return Ending("Complete", "SuccessPolicy", f"Matched rules at index {matched}")
    if spec.completions is None:
        is_complete = counts.all_succeeded > 0 and not pods.active and not pods.terminating
    else:
        is_complete = counts.all_succeeded >= spec.completions
    return (
        Ending("Complete", "CompletionsReached", "Reached expected number of succeeded pods") if is_complete else None
    )


def _failed_by_indexes(job: Job, counts: JobCounts) -> Ending | None:
    """Return how a Job fails because indexes have failed: when too many have, or when all indexes have ended."""
    most, failed = job.spec.max_failed_indexes, len(counts.failed_indexes)
    if most is not None and failed > most:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return Ending("Failed", "MaxFailedIndexesExceeded", message)
    if failed and failed + len(counts.completed) >= (job.spec.completions or 0):
        return Ending("Failed", "FailedIndexes", "Job has failed indexes")
    return None


def _success_rule(job: Job, counts: JobCounts) -> int | None:
    """Return the number of the first rule that ends a Job early; None if no rule holds."""
    completions = job.spec.completions or 0
    for number, rule in enumerate(job.spec.success_policy.rules):
        indexes = [*ranges(rule.succeeded_indexes or f"0-{completions}", below=completions)]
        needed = sum(map(len, indexes)) if rule.succeeded_count is None else rule.succeeded_count
        succeeded = sum(any(index in part for part in indexes) for index in counts.completed)
        if 0 < needed <= succeeded:
            return number
    return None


def _restarts_containers(job: Job) -> bool:
    return part(job.spec.template, "spec").get("restartPolicy") == "OnFailure"


def _deadline(job: Job) -> float:
    """Return when a Job is too long active, in seconds since the epoch; 0 for never, and while it is suspended."""
    seconds, start = job.spec.active_deadline_seconds, job.status.start_time
    return 0.0 if seconds is None or not start or job.spec.suspend else epoch_seconds(start) + seconds


def _managed(
    subject: TypedObject[Job], pods: JobPods, counts: JobCounts, ending: Ending | None, *, now: float
) -> Iterator[Action]:
    """Yield the actions that create missing pods and delete surplus ones."""
    job, typed = subject
    if ending:  # these pods count as failed
        yield from (Delete(key_of(pod), typed_pod.metadata.uid, job) for pod, typed_pod in pods.active)
        return
    if typed.spec.suspend:
        yield from _removed(job, pods.active)
        return
    if deadline := _deadline(typed):
        yield Recheck(deadline)
    missing = _needed(typed, pods, counts) - len(pods.active)
    if missing < 0:
        yield from _removed(job, by_deletion_order(pods.active, now)[:-missing])
    elif missing > 0 and typed.spec.backoff_limit_per_index is not None:
        yield from _new_by_index(subject, pods, counts, missing, now=now)
    elif missing > 0 and (at := replacement_time(pods)) > now:
        yield Recheck(at)
    elif missing > 0:
        count = min(missing, MOST_CREATED)
        free = missing_indexes(typed, pods, counts.completed) if typed.indexed else repeat(None)
        yield from (Create(new_job_pod(job, index), job) for index in islice(free, count))


def _new_by_index(
    subject: TypedObject[Job], pods: JobPods, counts: JobCounts, missing: int, *, now: float
) -> Iterator[Action]:
    """Yield new pods of indexes whose own pause is over, and the times at which other pauses are over."""
    job, typed = subject
    failures = index_failures(pods)
    ended = counts.completed | counts.failed_indexes
    waiting = {index: at for index, at in index_replacement_times(pods).items() if at > now and index not in ended}
    yield from map(Recheck, waiting.values())
    free = (index for index in missing_indexes(typed, pods, ended) if index not in waiting)
    for index in islice(free, min(missing, MOST_CREATED)):
        yield Create(new_job_pod(job, index, failures=failures.get(index, 0)), job)


def _needed(job: Job, pods: JobPods, counts: JobCounts) -> int:
    """Return how many pods a Job needs now."""
    free = max(job.spec.parallelism - len(pods.terminating), 0)
    if job.spec.completions is None:  # one success ends the Job, and no further pod starts
        return min(len(pods.active), free) if counts.all_succeeded else free
    return min(free, max(job.spec.completions - counts.all_succeeded - len(counts.failed_indexes), 0))


def _removed(job: Object, pods: Iterable[TypedObject[Pod]]) -> Iterator[Action]:
    """Yield the actions that delete pods without counting them as failed."""
    for pod, typed in pods:
        yield Update(without_tracking(pod))
        yield Delete(key_of(pod), typed.metadata.uid, job)


def _expired(job: Object, typed: Job, finished: float, *, now: float) -> Iterator[Action]:
    """Yield the deletion of a finished Job, or the time for it."""
    if typed.spec.ttl_seconds_after_finished is None:
        return
    at = finished + typed.spec.ttl_seconds_after_finished
    yield Delete(key_of(job), typed.metadata.uid) if at <= now else Recheck(at)


def _events(job: Object, status: Object) -> Iterator[Action]:
    """Yield an Event for each condition that the new status adds or changes."""
    before = {(fact["type"], fact["status"]) for _, fact in rows(part(job, "status").get("conditions"))}
    for fact in status["conditions"]:
        if (fact["type"], fact["status"]) in before:
            continue
        if fact["type"] == "Complete":
            yield Announce(job, "Normal", "Completed", "Job completed")
        elif fact["type"] == "Failed":
            yield Announce(job, "Warning", fact["reason"], fact["message"])
        elif fact["type"] == "Suspended":
            reason = "Suspended" if fact["status"] == "True" else "Resumed"
            yield Announce(job, "Normal", reason, fact["message"])
