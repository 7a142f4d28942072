from typing import Any

import pytest
from tests.make.objects import container, obj, pod_template

from headgate.admission.workloads import check_workload
from headgate.errors import Invalid
from headgate.resources.meta import Object


def job(restart: str = "Never", **spec: Any) -> Object:
    template = pod_template(container(), labels={"app": "sums"}, restartPolicy=restart)
    return obj("Job", "sums", version="batch/v1", spec={"template": template, **spec})


def with_success_rule(**rule: Any) -> Object:
    return job(completionMode="Indexed", completions=4, successPolicy={"rules": [rule]})


INDEXES = "spec.successPolicy.rules[0].succeededIndexes: must be rising indexes below 4, such as 0-2,5; not "
COUNT = "spec.successPolicy.rules[0].succeededCount: must be 1 to "


def cron_job(name: str = "sums", **spec: Any) -> Object:
    written = {"schedule": "@daily", "jobTemplate": {"spec": job()["spec"]}}
    return obj("CronJob", name, version="batch/v1", spec={**written, **spec})


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (job("Always"), "spec.template.spec.restartPolicy: must be Never or OnFailure, not 'Always'"),
        (job(parallelism=-1), "spec.parallelism: must be 0 or more"),
        (job(completionMode="Indexed"), "spec.completions: is missing"),
        (job(completionMode="Sorted", completions=1), "spec.completionMode: must be NonIndexed or Indexed"),
        (job(successPolicy={"rules": []}), "spec.successPolicy: needs spec.completionMode: Indexed"),
        (
            job(completionMode="Indexed", completions=1, maxFailedIndexes=1),
            "spec.maxFailedIndexes: needs spec.backoffLimitPerIndex",
        ),
        (
            job(podFailurePolicy={"rules": [{"action": "FailIndex", "onPodConditions": [{"type": "X"}]}]}),
            "spec.podFailurePolicy.rules[0].action: FailIndex needs spec.backoffLimitPerIndex",
        ),
        (job(template={}), "spec.template.spec.restartPolicy"),
        (
            job("OnFailure", podFailurePolicy={"rules": [{"action": "FailJob", "onPodConditions": [{"type": "X"}]}]}),
            "spec.podFailurePolicy: needs spec.template.spec.restartPolicy: Never",
        ),
        (
            job(
                podFailurePolicy={"rules": [{"action": "FailJob", "onPodConditions": [{"type": "X"}]}]},
                podReplacementPolicy="TerminatingOrFailed",
            ),
            "spec.podReplacementPolicy: must be Failed with spec.podFailurePolicy",
        ),
        (
            job(podFailurePolicy={"rules": [{"action": "FailJob"}]}, podReplacementPolicy="Failed"),
            "spec.podFailurePolicy.rules[0]: must have either onExitCodes or onPodConditions",
        ),
        (
            job("OnFailure", completionMode="Indexed", completions=1, backoffLimitPerIndex=1),
            "spec.backoffLimitPerIndex: needs spec.template.spec.restartPolicy: Never",
        ),
        (
            job(completionMode="Indexed", completions=1, successPolicy={"rules": []}),
            "spec.successPolicy.rules: must have at least one rule",
        ),
        (with_success_rule(), "spec.successPolicy.rules[0]: must have succeededIndexes or succeededCount"),
        (with_success_rule(succeededCount=0), COUNT + "4"),
        (with_success_rule(succeededCount=5), COUNT + "4"),
        (with_success_rule(succeededCount=3, succeededIndexes="0,2"), COUNT + "2"),
        (with_success_rule(succeededIndexes="0 - 2"), INDEXES + "'0 - 2'"),
        (with_success_rule(succeededIndexes="a"), INDEXES + "'a'"),
        (with_success_rule(succeededIndexes="0, 2"), INDEXES + "'0, 2'"),
        (with_success_rule(succeededIndexes="0,02"), INDEXES + "'0,02'"),
        (with_success_rule(succeededIndexes="2,0"), INDEXES + "'2,0'"),
        (with_success_rule(succeededIndexes="0-2,2"), INDEXES + "'0-2,2'"),
        (with_success_rule(succeededIndexes="1-4"), INDEXES + "'1-4'"),
        (with_success_rule(succeededIndexes="0-9999999999"), INDEXES + "'0-9999999999'"),
        (with_success_rule(succeededIndexes="9" * 5000), INDEXES),
        (cron_job(schedule="61 * * * *"), "spec.schedule: '61' in the minute"),
        (cron_job(timeZone="Moon"), "spec.timeZone: 'Moon' is no time zone"),
        (cron_job(concurrencyPolicy="Queue"), "spec.concurrencyPolicy: must be Allow or Forbid or Replace"),
        (cron_job(failedJobsHistoryLimit=-1), "spec.failedJobsHistoryLimit: must be 0 or more"),
        (cron_job("s" * 53), "metadata.name: must have at most 52 characters"),
        (
            cron_job(jobTemplate={"spec": job("Always")["spec"]}),
            "spec.jobTemplate.spec.template.spec.restartPolicy: must be Never or OnFailure",
        ),
        (cron_job(jobTemplate={"spec": {"parallelism": "x"}}), "spec.jobTemplate.spec.parallelism: must be a whole"),
    ],
)
def test_an_invalid_job_is_rejected_with_its_field(wrong, cause):
    with pytest.raises(Invalid) as caught:
        check_workload(wrong, None)
    assert str(caught.value).startswith(cause)


@pytest.mark.parametrize(
    "rule", [{"succeededIndexes": "0-2"}, {"succeededIndexes": "0,2-3", "succeededCount": 3}, {"succeededCount": 4}]
)
def test_a_rule_of_the_success_policy_has_indexes_or_a_count(rule):
    assert check_workload(with_success_rule(**rule), None)


def test_the_template_of_a_job_does_not_change_and_its_parallelism_does():
    assert check_workload(job(parallelism=3), job())
    changed = job()
    changed["spec"]["template"]["spec"]["containers"][0]["command"] = ["false"]
    with pytest.raises(Invalid, match=r"spec\.template: field is immutable: delete the Job and create it again"):
        check_workload(changed, job())
