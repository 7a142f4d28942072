"""The CronJob controller, as in Kubernetes: creates a Job at each time of a schedule, and deletes old Jobs."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo

from headgate.errors import Cause, DecodeError
from headgate.resources.batch.cron_job import CronJob
from headgate.resources.batch.cron_schedule import CronSchedule, parse_schedule, parse_zone
from headgate.resources.batch.job import Job
from headgate.resources.core.pod_spec import owner_uid
from headgate.resources.meta import Object, controller_reference, epoch_seconds, part, timestamp
from headgate.resources.registry import key_of
from headgate.standalone.controllers.actions import (
    Action,
    Announce,
    Create,
    Delete,
    Recheck,
    TypedObject,
    with_status,
)

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""The annotation of a Job that has the time for which it was created."""


def plan_cron_job(subject: TypedObject[CronJob], jobs: Sequence[TypedObject[Job]], *, now: float) -> list[Action]:
    """Return the actions that create and delete Jobs of a CronJob and write its status.

    `jobs` has those of the namespace, `now` is in seconds since the epoch. Raises DecodeError for an invalid schedule.
    """
    owner, typed = subject
    if typed.metadata.deletion_timestamp:
        return []
    mine = [job for job in jobs if owner_uid(job.typed.metadata) == typed.metadata.uid]
    active = [
        job for job in mine if not job.typed.reached("Complete", "Failed") and not job.typed.metadata.deletion_timestamp
    ]
    actions = [*_finished(owner, typed, mine), *_old_jobs(owner, typed, mine)]
    last = typed.status.last_schedule_time
    if not typed.spec.suspend:
        schedule, zone = _parsed(typed)
        due = _due(typed, schedule, zone, now=now)
        if due is not None and not (active and typed.spec.concurrency_policy == "Forbid"):
            actions += _start(subject, active, due)
            last = timestamp(due)
            active = [] if typed.spec.concurrency_policy == "Replace" else active
        elif due is not None:
            running = ", ".join(job.typed.metadata.name for job in active)
            message = (
                f"Not starting the job of {timestamp(due)}: {running} still runs, and the concurrency policy is Forbid"
            )
            actions.append(Announce(owner, "Normal", "JobAlreadyActive", message, once=True))
        if (at := schedule.following(now, zone, start=_start_of_intervals(typed))) is not None:
            actions.append(Recheck(at))
    return [*actions, *with_status(owner, _status(typed, mine, active, last))]


def _parsed(typed: CronJob) -> tuple[CronSchedule, tzinfo | None]:
    try:
        schedule = parse_schedule(typed.spec.schedule)
    except ValueError as error:
        raise DecodeError(Cause("spec.schedule", str(error))) from error
    try:
        return schedule, parse_zone(typed.spec.time_zone)
    except ValueError as error:
        raise DecodeError(Cause("spec.timeZone", str(error))) from error


def _due(typed: CronJob, schedule: CronSchedule, zone: tzinfo | None, *, now: float) -> float | None:
    """Return the last scheduled time for which no Job was created; None if there is none or if it is too late for it."""
    start = earliest = _start_of_intervals(typed)
    if (deadline := typed.spec.starting_deadline_seconds) is not None:
        earliest = max(earliest, now - deadline)
    return schedule.latest(earliest, now, zone, start=start)


def _start_of_intervals(typed: CronJob) -> float:
    """Return the last scheduled time, else the creation, from which the next interval of `@every` counts."""
    return epoch_seconds(typed.status.last_schedule_time or typed.metadata.creation_timestamp)


def _start(subject: TypedObject[CronJob], active: Sequence[TypedObject[Job]], due: float) -> Iterator[Action]:
    """Yield the actions that create the Job of a scheduled time; with `Replace`, they first delete those that run."""
    owner, typed = subject
    if typed.spec.concurrency_policy == "Replace":
        yield from (Delete(key_of(job.object), job.typed.metadata.uid, owner) for job in active)
    template = typed.spec.job_template
    written = part(template, "metadata")
    labels, annotations = part(written, "labels"), dict(part(written, "annotations"))
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{typed.metadata.name}-{int(due) // 60}",
            "namespace": typed.metadata.namespace,
            **({"labels": labels} if labels else {}),
            "annotations": {**annotations, SCHEDULED: timestamp(due)},
            "ownerReferences": [controller_reference(owner)],
        },
        "spec": template.get("spec") or {},
    }
    yield Create(job, owner)


def _finished(owner: Object, typed: CronJob, jobs: Sequence[TypedObject[Job]]) -> Iterator[Action]:
    """Yield an Event for each Job that has finished since the status was written."""
    before = {reference.uid for reference in typed.status.active}
    for job in jobs:
        if job.typed.metadata.uid in before and (end := job.typed.reached("Complete", "Failed")):
            message = f"Saw completed job: {job.typed.metadata.name}, condition: {end.type}"
            yield Announce(owner, "Normal", "SawCompletedJob", message)


def _old_jobs(owner: Object, typed: CronJob, jobs: Sequence[TypedObject[Job]]) -> Iterator[Action]:
    """Yield the deletions of the oldest finished Jobs beyond the limits of the history."""
    limits = {
        "Complete": typed.spec.successful_jobs_history_limit,
        "Failed": typed.spec.failed_jobs_history_limit,
    }
    for condition, limit in limits.items():
        finished = [job for job in jobs if job.typed.reached(condition) and not job.typed.metadata.deletion_timestamp]
        finished.sort(key=lambda job: (job.typed.status.start_time, job.typed.metadata.name))
        for job in finished[: max(len(finished) - limit, 0)]:
            yield Delete(key_of(job.object), job.typed.metadata.uid, owner)


def _status(typed: CronJob, jobs: Sequence[TypedObject[Job]], active: Sequence[TypedObject[Job]], last: str) -> Object:
    successes = [
        str(part(job.object, "status").get("completionTime", "")) for job in jobs if job.typed.reached("Complete")
    ]
    success = max([*successes, typed.status.last_successful_time])
    references = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job.typed.metadata.name,
            "namespace": job.typed.metadata.namespace,
            "uid": job.typed.metadata.uid,
        }
        for job in active
    ]
    fields = {"active": references, "lastScheduleTime": last, "lastSuccessfulTime": success}
    return {name: value for name, value in fields.items() if value}
