"""CronJobs, with the fields that the local runtime reads."""

from typing import Any

from msgspec import field

from headgate.resources.meta import Input, Resource


class CronJobSpec(Input, frozen=True, kw_only=True):
    """`spec` of a CronJob; times are in seconds. An empty `time_zone` is that of this machine."""

    schedule: str = ""
    time_zone: str = ""
    concurrency_policy: str = "Allow"
    starting_deadline_seconds: int | None = None
    suspend: bool = False
    successful_jobs_history_limit: int = 3
    failed_jobs_history_limit: int = 1
    job_template: dict[str, Any] = field(default_factory=dict)


class JobReference(Input, frozen=True, kw_only=True):
    """A reference to a Job that has not finished."""

    name: str = ""
    uid: str = ""


class CronJobStatus(Input, frozen=True, kw_only=True):
    """`status` of a CronJob."""

    active: tuple[JobReference, ...] = ()
    last_schedule_time: str = ""
    last_successful_time: str = ""


class CronJob(Resource, frozen=True, kw_only=True):
    """A CronJob: it creates a Job at each time of a schedule."""

    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()
