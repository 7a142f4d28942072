"""Checks of Jobs, as Kubernetes checks them."""

from collections.abc import Iterator

from headgate.admission.pod_template_rules import template_causes
from headgate.errors import Cause
from headgate.resources.batch.job import Job, JobSpec
from headgate.resources.decode import read
from headgate.resources.meta import Object, part

_RESTARTS = ("Never", "OnFailure")
_MODES = ("NonIndexed", "Indexed")
_REPLACEMENTS = ("TerminatingOrFailed", "Failed")
_ACTIONS = ("FailJob", "Ignore", "Count")
_OPERATORS = ("In", "NotIn")
_NOT_CARRIED_OUT = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy", "managedBy")


def job_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a Job."""
    yield from job_spec_causes(read(obj, Job).spec, part(obj, "spec"), "spec")


def job_spec_causes(spec: JobSpec, written: Object, where: str) -> Iterator[Cause]:
    """Yield the mistakes in the spec of a Job, which is at the path `where`; `written` is the same spec as JSON."""
    for name in _NOT_CARRIED_OUT:
        if written.get(name) is not None:
            yield Cause(f"{where}.{name}", "is not carried out on one machine; leave it out")
    numbers = {
        "parallelism": spec.parallelism,
        "completions": spec.completions,
        "backoffLimit": spec.backoff_limit,
        "activeDeadlineSeconds": spec.active_deadline_seconds,
        "ttlSecondsAfterFinished": spec.ttl_seconds_after_finished,
    }
    for name, number in numbers.items():
        if number is not None and number < 0:
            yield Cause(f"{where}.{name}", "must be 0 or more")
    yield from _choice(spec.completion_mode, _MODES, f"{where}.completionMode")
    yield from _choice(spec.pod_replacement_policy, _REPLACEMENTS, f"{where}.podReplacementPolicy")
    if spec.completion_mode == "Indexed" and spec.completions is None:
        yield Cause(f"{where}.completions", "is missing: an Indexed Job needs the number of its indexes")
    restart = str(part(spec.template, "spec").get("restartPolicy") or "Always")
    yield from _choice(restart, _RESTARTS, f"{where}.template.spec.restartPolicy")
    yield from _policy_causes(spec, restart, where)
    yield from template_causes(spec.template, f"{where}.template")


def _policy_causes(spec: JobSpec, restart: str, where: str) -> Iterator[Cause]:
    rules = spec.pod_failure_policy.rules
    if rules and restart != "Never":
        yield Cause(f"{where}.podFailurePolicy", f"needs {where}.template.spec.restartPolicy: Never")
    for index, rule in enumerate(rules):
        place = f"{where}.podFailurePolicy.rules[{index}]"
        yield from _choice(rule.action, _ACTIONS, f"{place}.action")
        if (rule.on_exit_codes is None) == (not rule.on_pod_conditions):
            yield Cause(place, "must have either onExitCodes or onPodConditions")
        if rule.on_exit_codes:
            yield from _choice(rule.on_exit_codes.operator, _OPERATORS, f"{place}.onExitCodes.operator")


def _choice(value: str, allowed: tuple[str, ...], where: str) -> Iterator[Cause]:
    if value not in allowed:
        yield Cause(where, f"must be {' or '.join(allowed)}, not {value!r}")
