"""Jobs, with the fields that the local runtime reads, and the labels by which a Job selects its pods."""

from typing import Any

from msgspec import field

from headgate.resources.core.pod_spec import Condition
from headgate.resources.meta import Input, Object, Resource, part

GROUP = "batch"
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
CONTROLLER = "kubernetes.io/job-controller"
"""The value of `managedBy` in Jobs that headgate carries out; another controller carries out the remaining ones."""
_FORMER_UID, _FORMER_NAME = "controller-uid", "job-name"


class ExitCodes(Input, frozen=True, kw_only=True):
    """A condition on the exit code of a failed container; without a name, of any container."""

    operator: str = "In"
    values: tuple[int, ...] = ()
    container_name: str = ""


class PodCondition(Input, frozen=True, kw_only=True):
    """A condition of a failed pod that a rule names."""

    type: str
    status: str = "True"


class FailureRule(Input, frozen=True, kw_only=True):
    """A rule about failed pods: `FailJob`, `FailIndex`, `Ignore` or `Count`."""

    action: str
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: tuple[PodCondition, ...] = ()


class FailurePolicy(Input, frozen=True, kw_only=True):
    """The rules about failed pods; the first rule that fits a pod counts."""

    rules: tuple[FailureRule, ...] = ()


class SuccessRule(Input, frozen=True, kw_only=True):
    """A rule that ends a Job early: so many successes among some indexes. Without a count, all of them must succeed."""

    succeeded_indexes: str = ""
    succeeded_count: int | None = None


class SuccessPolicy(Input, frozen=True, kw_only=True):
    """The rules that end a Job early; one rule that holds is enough."""

    rules: tuple[SuccessRule, ...] = ()


class JobSpec(Input, frozen=True, kw_only=True):
    """`spec` of a Job; times are in seconds. Without `completions`, one success ends the Job."""

    template: dict[str, Any] = field(default_factory=dict)
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    pod_replacement_policy: str = "TerminatingOrFailed"
    pod_failure_policy: FailurePolicy = FailurePolicy()
    success_policy: SuccessPolicy = SuccessPolicy()
    managed_by: str = CONTROLLER


class UncountedPods(Input, frozen=True, kw_only=True):
    """The uids of ended pods that the counts of the status do not contain yet."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Input, frozen=True, kw_only=True):
    """`status` of a Job: numbers of pods, and conditions."""

    conditions: tuple[Condition, ...] = ()
    start_time: str = ""
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    uncounted_terminated_pods: UncountedPods = UncountedPods()


class Job(Resource, frozen=True, kw_only=True):
    """A Job: it runs pods until a number of them has succeeded."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    def reached(self, *types: str) -> Condition | None:
        """Return the first condition of one of these types that is True; None if there is none."""
        return next((fact for fact in self.status.conditions if fact.type in types and fact.status == "True"), None)

    @property
    def indexed(self) -> bool:
        """Whether each completion has an index of its own."""
        return self.spec.completion_mode == "Indexed"


def with_selector(job: Object) -> Object:
    """Return a new Job that selects its pods by its own uid, as an API server completes it; none with `manualSelector`."""
    spec, metadata = part(job, "spec"), job["metadata"]
    if spec.get("manualSelector") or not spec:
        return job
    template = part(spec, "template")
    uid, name = metadata["uid"], metadata["name"]
    labels = {
        **part(part(template, "metadata"), "labels"),
        CONTROLLER_UID: uid,
        JOB_NAME: name,
        _FORMER_UID: uid,
        _FORMER_NAME: name,
    }
    template = {**template, "metadata": {**part(template, "metadata"), "labels": labels}}
    return {**job, "spec": {**spec, "selector": {"matchLabels": {CONTROLLER_UID: uid}}, "template": template}}
