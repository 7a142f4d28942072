"""Checks of Jobs and CronJobs, as Kubernetes checks them."""

import re
from collections.abc import Callable, Iterator, Mapping

from headgate.admission.pod_template_rules import template_causes
from headgate.errors import Cause, DecodeError
from headgate.resources.batch.cron_job import CronJob
from headgate.resources.batch.cron_schedule import parse_schedule, parse_zone
from headgate.resources.batch.job import Job, JobSpec, SuccessRule
from headgate.resources.core.fields import required_choice_causes
from headgate.resources.decode import read
from headgate.resources.meta import Object, part

_RESTARTS = ("Never", "OnFailure")
_MODES = ("NonIndexed", "Indexed")
_REPLACEMENTS = ("TerminatingOrFailed", "Failed")
_POLICIES = ("Allow", "Forbid", "Replace")
LONGEST_NAME = 52  # of a CronJob, in characters
_ACTIONS = ("FailJob", "FailIndex", "Ignore", "Count")
_OPERATORS = ("In", "NotIn")
_INDEXES = re.compile(r"(0|[1-9][0-9]{0,9})(?:-([1-9][0-9]{0,9}))?")  # a part of a list of indexes: 3 or 0-2
_OF_INDEXES = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")


def job_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a Job."""
    yield from job_spec_causes(read(obj, Job).spec, part(obj, "spec"), "spec")


def cron_job_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a CronJob and in the Jobs that it creates."""
    typed = read(obj, CronJob)
    if len(typed.metadata.name) > LONGEST_NAME:
        yield Cause("metadata.name", f"must have at most {LONGEST_NAME} characters: the names of its Jobs have 11 more")
    yield from _fault(parse_schedule, typed.spec.schedule, "spec.schedule")
    yield from _fault(parse_zone, typed.spec.time_zone, "spec.timeZone")
    yield from required_choice_causes(typed.spec.concurrency_policy, _POLICIES, "spec.concurrencyPolicy")
    numbers = {
        "startingDeadlineSeconds": typed.spec.starting_deadline_seconds,
        "successfulJobsHistoryLimit": typed.spec.successful_jobs_history_limit,
        "failedJobsHistoryLimit": typed.spec.failed_jobs_history_limit,
    }
    yield from _negative(numbers, "spec")
    written = part(typed.spec.job_template, "spec")
    try:
        spec = read({"spec": written}, Job).spec
    except DecodeError as error:
        yield from (Cause(f"spec.jobTemplate.{cause.field}", cause.message) for cause in error.causes)
        return
    yield from job_spec_causes(spec, written, "spec.jobTemplate.spec")


def _fault(parse: Callable[[str], object], text: str, where: str) -> Iterator[Cause]:
    try:
        parse(text)
    except ValueError as error:
        yield Cause(where, str(error))


def job_spec_causes(spec: JobSpec, written: Object, where: str) -> Iterator[Cause]:
    """Yield the mistakes in the spec of a Job, which is at the path `where`; `written` is the same spec as JSON."""
    for name in _OF_INDEXES:
        if written.get(name) is not None and spec.completion_mode != "Indexed":
            yield Cause(f"{where}.{name}", f"needs {where}.completionMode: Indexed")
    if spec.max_failed_indexes is not None and spec.backoff_limit_per_index is None:
        yield Cause(f"{where}.maxFailedIndexes", f"needs {where}.backoffLimitPerIndex")
    numbers = {
        "parallelism": spec.parallelism,
        "completions": spec.completions,
        "backoffLimit": spec.backoff_limit,
        "backoffLimitPerIndex": spec.backoff_limit_per_index,
        "maxFailedIndexes": spec.max_failed_indexes,
        "activeDeadlineSeconds": spec.active_deadline_seconds,
        "ttlSecondsAfterFinished": spec.ttl_seconds_after_finished,
    }
    yield from _negative(numbers, where)
    yield from required_choice_causes(spec.completion_mode, _MODES, f"{where}.completionMode")
    yield from required_choice_causes(spec.pod_replacement_policy, _REPLACEMENTS, f"{where}.podReplacementPolicy")
    if spec.completion_mode == "Indexed" and spec.completions is None:
        yield Cause(f"{where}.completions", "is missing: an Indexed Job needs the number of its indexes")
    restart = str(part(spec.template, "spec").get("restartPolicy") or "Always")
    yield from required_choice_causes(restart, _RESTARTS, f"{where}.template.spec.restartPolicy")
    yield from _policy_causes(spec, written, restart, where)
    if written.get("successPolicy") is not None and spec.completion_mode == "Indexed":
        yield from _success_causes(spec, f"{where}.successPolicy.rules")
    yield from template_causes(spec.template, f"{where}.template")


def _negative(numbers: Mapping[str, int | None], where: str) -> Iterator[Cause]:
    for name, number in numbers.items():
        if number is not None and number < 0:
            yield Cause(f"{where}.{name}", "must be 0 or more")


def _policy_causes(spec: JobSpec, written: Object, restart: str, where: str) -> Iterator[Cause]:
    if spec.backoff_limit_per_index is not None and restart != "Never":
        yield Cause(f"{where}.backoffLimitPerIndex", f"needs {where}.template.spec.restartPolicy: Never")
    rules = spec.pod_failure_policy.rules
    if rules and restart != "Never":
        yield Cause(f"{where}.podFailurePolicy", f"needs {where}.template.spec.restartPolicy: Never")
    if rules and written.get("podReplacementPolicy") == "TerminatingOrFailed":
        yield Cause(f"{where}.podReplacementPolicy", f"must be Failed with {where}.podFailurePolicy")
    for index, rule in enumerate(rules):
        place = f"{where}.podFailurePolicy.rules[{index}]"
        yield from required_choice_causes(rule.action, _ACTIONS, f"{place}.action")
        if rule.action == "FailIndex" and spec.backoff_limit_per_index is None:
            yield Cause(f"{place}.action", f"FailIndex needs {where}.backoffLimitPerIndex")
        if (rule.on_exit_codes is None) == (not rule.on_pod_conditions):
            yield Cause(place, "must have either onExitCodes or onPodConditions")
        if rule.on_exit_codes:
            yield from required_choice_causes(rule.on_exit_codes.operator, _OPERATORS, f"{place}.onExitCodes.operator")


def _success_causes(spec: JobSpec, where: str) -> Iterator[Cause]:
    if not spec.success_policy.rules:
        yield Cause(where, "must have at least one rule")
    for number, rule in enumerate(spec.success_policy.rules):
        yield from _success_rule_causes(rule, spec.completions or 0, f"{where}[{number}]")


def _success_rule_causes(rule: SuccessRule, completions: int, where: str) -> Iterator[Cause]:
    most = completions
    if rule.succeeded_indexes:
        most = _count_indexes(rule.succeeded_indexes, completions)
        if not most:
            message = f"must be rising indexes below {completions}, such as 0-2,5; not {rule.succeeded_indexes!r}"
            yield Cause(f"{where}.succeededIndexes", message)
            return
    elif rule.succeeded_count is None:
        yield Cause(where, "must have succeededIndexes or succeededCount")
    if rule.succeeded_count is not None and not 1 <= rule.succeeded_count <= most:
        yield Cause(f"{where}.succeededCount", f"must be 1 to {most}, the number of its indexes")


def _count_indexes(text: str, completions: int) -> int:
    """Return the number of indexes in a text; 0 if it is malformed, if they do not rise, or if one is too high."""
    count, last = 0, -1
    for match in map(_INDEXES.fullmatch, text.split(",")):
        if not match or int(match[1]) <= last:
            return 0
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= completions or (match[2] and last <= first):
            return 0
        count += last - first + 1
    return count
