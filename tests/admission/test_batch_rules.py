from typing import Any

import pytest
from tests.make.objects import container, obj, pod_template

from headgate.admission.workloads import check_workload
from headgate.errors import Invalid
from headgate.resources.meta import Object


def job(restart: str = "Never", **spec: Any) -> Object:
    template = pod_template(container(), labels={"app": "sums"}, restartPolicy=restart)
    return obj("Job", "sums", version="batch/v1", spec={"template": template, **spec})


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
            job(podFailurePolicy={"rules": [{"action": "FailJob"}]}),
            "spec.podFailurePolicy.rules[0]: must have either onExitCodes or onPodConditions",
        ),
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


def test_the_template_of_a_job_does_not_change_and_its_parallelism_does():
    assert check_workload(job(parallelism=3), job())
    changed = job()
    changed["spec"]["template"]["spec"]["containers"][0]["command"] = ["false"]
    with pytest.raises(Invalid, match=r"spec\.template: field is immutable: delete the Job and create it again"):
        check_workload(changed, job())
