from functools import partial
from typing import Any

import pytest
from tests.make.objects import container, obj, pod_template

from headgate.errors import NotFound
from headgate.resources.meta import Key, Object, timestamp

JOB = Key("batch", "Job", "default", "sums")


def job(*, restart: str = "Never", **spec: Any) -> Object:
    template = pod_template(container(), labels={"app": "sums"}, restartPolicy=restart)
    return obj("Job", "sums", version="batch/v1", spec={"template": template, **spec})


class JobRig:
    """A Job in a store with controllers. The test ends its pods."""

    def __init__(self, rig: Any) -> None:
        self.rig = rig
        self.store = rig.store

    async def create(self, **spec: Any) -> None:
        await self.store.create(self.store.checked(job(**spec)).hub)
        await self.settle()

    async def settle(self) -> None:
        """Run the controllers until the store is stable."""
        before = -1
        while before != self.store.revision:
            before = self.store.revision
            await self.rig.controllers.reconcile("default")

    async def active(self) -> list[Object]:
        return [
            pod
            for pod in await self.rig.pods()
            if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            and not pod["metadata"].get("deletionTimestamp")
        ]

    async def end(self, phase: str, *, code: int = 0, count: int = 1, index: str = "") -> None:
        """End active pods, or those of an index."""
        pods = [pod for pod in await self.active() if pod["metadata"]["generateName"].endswith(f"{index}-")]
        for pod in pods[:count]:
            ended = {"terminated": {"exitCode": code, "finishedAt": timestamp(self.rig.now)}}
            status = {"phase": phase, "containerStatuses": [{"name": "app", "state": ended}]}
            await self.store.update({**pod, "status": status}, subresource="status")
        await self.settle()

    async def later(self, seconds: float) -> None:
        self.rig.now += seconds
        await self.settle()

    async def status(self) -> Any:
        return (await self.store.get(JOB)).get("status", {})

    async def conditions(self) -> dict[str, str]:
        """Return the reasons of the conditions that are True, by type."""
        return {
            fact["type"]: fact["reason"] for fact in (await self.status())["conditions"] if fact["status"] == "True"
        }

    async def events(self) -> list[str]:
        return [event["reason"] for event in await self.rig.all("", "Event")]


@pytest.fixture
def jobs(rig) -> JobRig:
    return JobRig(rig)


async def test_a_job_completes_after_one_success_by_default(jobs):
    await jobs.create()
    (pod,) = await jobs.active()
    assert pod["metadata"]["name"].startswith("sums-")
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "sums"
    await jobs.end("Succeeded")
    status = await jobs.status()
    assert (status["succeeded"], "active" in status) == (1, False)
    assert await jobs.conditions() == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert status["completionTime"]
    assert {"SuccessfulCreate", "Completed"} <= set(await jobs.events())
    assert len(await jobs.rig.pods()) == 1  # the pod stays, for its logs


async def test_a_job_runs_at_most_parallelism_pods_until_completions_have_succeeded(jobs):
    await jobs.create(completions=3, parallelism=2)
    assert len(await jobs.active()) == 2
    await jobs.end("Succeeded")
    assert len(await jobs.active()) == 2
    await jobs.end("Succeeded")
    assert len(await jobs.active()) == 1
    await jobs.end("Succeeded")
    assert (await jobs.status())["succeeded"] == 3
    assert "Complete" in await jobs.conditions()


async def test_without_completions_no_pod_starts_after_the_first_success(jobs):
    await jobs.create(parallelism=3)
    assert len(await jobs.active()) == 3
    await jobs.end("Succeeded")
    assert len(await jobs.active()) == 2
    assert "Complete" not in await jobs.conditions()
    await jobs.end("Succeeded", count=2)
    assert "Complete" in await jobs.conditions()


async def test_failed_pods_are_replaced_with_a_pause_that_doubles(jobs):
    await jobs.create()
    for pause in (10, 20, 40):
        await jobs.end("Failed", code=1)
        await jobs.later(pause - 1)
        assert await jobs.active() == []
        await jobs.later(1)
        assert len(await jobs.active()) == 1
    assert (await jobs.status())["failed"] == 3


async def test_a_job_fails_after_its_back_off_limit_and_ends_its_other_pods(jobs):
    await jobs.create(backoffLimit=1, parallelism=2, completions=2)
    await jobs.end("Failed", code=1)
    await jobs.later(10)
    assert len(await jobs.active()) == 2
    await jobs.end("Failed", code=1)
    assert await jobs.active() == []
    assert await jobs.conditions() == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert "BackoffLimitExceeded" in await jobs.events()
    assert (await jobs.status())["failed"] == 3  # the pod that the end of the Job ended counts too


@pytest.mark.parametrize("field", ["containerStatuses", "initContainerStatuses"])
async def test_restarts_of_containers_count_for_the_back_off_limit(jobs, field):
    await jobs.create(restart="OnFailure", backoffLimit=2)
    (pod,) = await jobs.active()
    for restarts in (1, 2):
        assert "FailureTarget" not in await jobs.conditions()
        status = {"phase": "Running", field: [{"name": "app", "restartCount": restarts}]}
        await jobs.store.update({**await jobs.rig.latest(pod), "status": status}, subresource="status")
        await jobs.settle()
    assert (await jobs.conditions())["Failed"] == "BackoffLimitExceeded"


async def test_a_job_that_is_active_for_too_long_fails(jobs):
    await jobs.create(activeDeadlineSeconds=60)
    await jobs.later(59)
    assert len(await jobs.active()) == 1
    await jobs.later(1)
    assert await jobs.active() == []
    assert (await jobs.conditions())["Failed"] == "DeadlineExceeded"


async def test_a_finished_job_is_deleted_with_its_pods_after_its_time_to_live(jobs):
    await jobs.create(ttlSecondsAfterFinished=30)
    await jobs.end("Succeeded")
    await jobs.later(29)
    assert await jobs.status()
    await jobs.later(1)
    with pytest.raises(NotFound):
        await jobs.store.get(JOB)
    assert await jobs.rig.pods() == []


async def test_a_suspended_job_has_no_pods_and_no_deadline_until_it_is_resumed(jobs):
    await jobs.create(suspend=True, activeDeadlineSeconds=60)
    assert await jobs.rig.pods() == []
    assert (await jobs.conditions()) == {"Suspended": "JobSuspended"}
    await jobs.later(100)
    stored = await jobs.store.get(JOB)
    await jobs.store.update({**stored, "spec": {**stored["spec"], "suspend": False}})
    await jobs.settle()
    assert len(await jobs.active()) == 1
    assert await jobs.conditions() == {}
    stored = await jobs.store.get(JOB)
    await jobs.store.update({**stored, "spec": {**stored["spec"], "suspend": True}})
    await jobs.settle()
    assert await jobs.rig.pods() == []
    assert "failed" not in await jobs.status()
    assert {"Suspended", "Resumed"} <= set(await jobs.events())


async def test_each_index_of_an_indexed_job_succeeds_once(jobs):
    await jobs.create(completionMode="Indexed", completions=3, parallelism=2)
    first, second = await jobs.active()
    assert [pod["metadata"]["generateName"] for pod in (first, second)] == ["sums-0-", "sums-1-"]
    assert second["spec"]["hostname"] == "sums-1"
    assert {"name": "JOB_COMPLETION_INDEX", "value": "1"} in second["spec"]["containers"][0]["env"]
    await jobs.end("Failed", code=1)
    await jobs.end("Succeeded")
    await jobs.later(10)
    running = [pod["metadata"]["generateName"] for pod in await jobs.active()]
    assert sorted(running) == ["sums-0-", "sums-2-"]
    await jobs.end("Succeeded", count=2)
    status = await jobs.status()
    assert (status["completedIndexes"], status["succeeded"], status["failed"]) == ("0-2", 3, 1)


async def test_a_pod_that_was_counted_can_be_deleted(jobs):
    await jobs.create(completions=2)
    await jobs.end("Succeeded")
    ended = next(pod for pod in await jobs.rig.pods() if pod.get("status", {}).get("phase") == "Succeeded")
    assert not ended["metadata"].get("finalizers")
    await jobs.store.delete(Key("", "Pod", "default", ended["metadata"]["name"]))
    await jobs.end("Succeeded")
    assert (await jobs.status())["succeeded"] == 2


async def test_a_deleted_pod_counts_as_failed_and_is_replaced(jobs):
    await jobs.create()
    (pod,) = await jobs.active()
    await jobs.store.delete(Key("", "Pod", "default", pod["metadata"]["name"]))
    await jobs.settle()
    (replacement,) = await jobs.rig.pods()
    assert replacement["metadata"]["uid"] != pod["metadata"]["uid"]
    assert (await jobs.status())["failed"] == 1


@pytest.mark.parametrize("orphan", [False, True])
async def test_pods_of_a_deleted_job_are_deleted_unless_they_are_orphaned(jobs, orphan):
    await jobs.create()
    await jobs.store.delete(JOB, orphan=orphan)
    await jobs.settle()
    left = await jobs.rig.pods()
    assert len(left) == orphan
    assert not any(pod["metadata"].get("finalizers") for pod in left)


@pytest.mark.parametrize(("code", "reason"), [(42, "PodFailurePolicy"), (7, None)])
async def test_the_failure_policy_fails_a_job_or_ignores_a_failure(jobs, code, reason):
    codes = partial(dict, operator="In")
    rules = [
        {"action": "FailJob", "onExitCodes": codes(values=[42])},
        {"action": "Ignore", "onExitCodes": codes(values=[7])},
    ]
    await jobs.create(podFailurePolicy={"rules": rules}, backoffLimit=0)
    await jobs.end("Failed", code=code)
    await jobs.later(10)
    assert (await jobs.conditions()).get("Failed") == reason
    assert len(await jobs.active()) == (0 if reason else 1)


@pytest.mark.parametrize("limits", [{}, {"backoffLimitPerIndex": 0}])
async def test_pods_whose_failures_are_ignored_are_replaced_with_a_pause_that_doubles(jobs, limits):
    rules = [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}]
    policy = {"podFailurePolicy": {"rules": rules}, "completionMode": "Indexed", "completions": 1}
    await jobs.create(**policy, **limits)
    for pause in (10, 20, 40):
        await jobs.end("Failed", code=42)
        await jobs.later(pause - 1)
        assert await jobs.active() == []
        await jobs.later(1)
        assert len(await jobs.active()) == 1
    assert "failed" not in await jobs.status()


@pytest.mark.parametrize("change", [{"suspend": True}, {"parallelism": 0}])
async def test_pods_that_end_because_a_job_is_suspended_do_not_fail_their_indexes(jobs, change):
    codes = {"operator": "NotIn", "values": [1]}
    rules = [{"action": "FailJob", "onExitCodes": codes}]
    limits = {"backoffLimitPerIndex": 0, "podFailurePolicy": {"rules": rules}}
    await jobs.create(completionMode="Indexed", completions=2, parallelism=2, **limits)
    for pod in await jobs.active():
        held = [*pod["metadata"]["finalizers"], "example.com/runs"]  # as a pod whose processes still run
        status = {
            "phase": "Running",
            "containerStatuses": [{"name": "app", "state": {"terminated": {"exitCode": 143}}}],
        }
        updated = await jobs.store.update({**pod, "metadata": {**pod["metadata"], "finalizers": held}})
        await jobs.store.update({**updated, "status": status}, subresource="status")
    stored = await jobs.store.get(JOB)
    await jobs.store.update({**stored, "spec": {**stored["spec"], **change}})
    await jobs.settle()
    assert await jobs.active() == []
    ending = await jobs.rig.pods()
    await jobs.store.update({**ending[0], "status": {**ending[0]["status"], "phase": "Failed"}}, subresource="status")
    latest = await jobs.store.get(JOB)
    await jobs.store.update({**latest, "spec": stored["spec"]})
    await jobs.settle()
    status = await jobs.status()
    assert ("failed" in status, "failedIndexes" in status, len(await jobs.active())) == (
        False,
        False,
        1,
    )  # the other still ends


async def test_an_index_waits_for_its_pause_while_later_indexes_start(jobs):
    limits = {"backoffLimitPerIndex": 1, "parallelism": 2}
    await jobs.create(completionMode="Indexed", completions=10**9, **limits)
    await jobs.end("Failed", code=1, index="-0")
    assert [pod["metadata"]["generateName"] for pod in await jobs.active()] == ["sums-1-", "sums-2-"]
    await jobs.end("Succeeded", index="-1")
    await jobs.later(10)
    await jobs.end("Succeeded", index="-2")
    assert "sums-0-" in [pod["metadata"]["generateName"] for pod in await jobs.active()]


async def test_each_index_has_its_own_limit_of_failures_and_its_own_pause(jobs):
    await jobs.create(completionMode="Indexed", completions=2, parallelism=2, backoffLimitPerIndex=1)
    await jobs.end("Failed", code=1, index="-0")
    assert len(await jobs.active()) == 1
    await jobs.later(10)
    (second,) = [pod for pod in await jobs.active() if pod["metadata"]["generateName"] == "sums-0-"]
    assert second["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "1"
    await jobs.end("Failed", code=1, index="-0")
    await jobs.later(3600)
    assert [pod["metadata"]["generateName"] for pod in await jobs.active()] == ["sums-1-"]
    assert (await jobs.status())["failedIndexes"] == "0"
    await jobs.end("Succeeded")
    assert (await jobs.conditions())["Failed"] == "FailedIndexes"
    assert (await jobs.status())["completedIndexes"] == "1"


async def test_a_job_with_too_many_failed_indexes_fails_at_once(jobs):
    limits = {"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}
    await jobs.create(completionMode="Indexed", completions=4, parallelism=4, **limits)
    await jobs.end("Failed", code=1, count=2)
    assert await jobs.active() == []
    assert (await jobs.conditions())["Failed"] == "MaxFailedIndexesExceeded"


async def test_a_rule_can_fail_an_index_before_its_limit(jobs):
    rules = [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]
    limits = {"backoffLimitPerIndex": 5, "podFailurePolicy": {"rules": rules}}
    await jobs.create(completionMode="Indexed", completions=2, parallelism=2, **limits)
    await jobs.end("Failed", code=42, index="-1")
    assert (await jobs.status())["failedIndexes"] == "1"


async def test_a_job_completes_early_by_its_success_policy(jobs):
    policy = {"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 2}]}
    await jobs.create(completionMode="Indexed", completions=4, parallelism=4, successPolicy=policy)
    await jobs.end("Succeeded", index="-1")
    await jobs.end("Succeeded", index="-2")
    assert len(await jobs.active()) == 2
    await jobs.end("Succeeded", index="-3")
    assert await jobs.active() == []
    assert (await jobs.conditions())["Complete"] == "SuccessPolicy"


@pytest.mark.parametrize(
    "rule", [{"succeededCount": 0}, {"succeededIndexes": "a"}, {"succeededIndexes": "9" * 5000}, {}]
)
async def test_a_stored_rule_without_indexes_does_not_complete_a_job_before_a_pod_has_run(jobs, rule):
    await jobs.create(completionMode="Indexed", completions=2, successPolicy={"rules": [rule]})
    assert (len(await jobs.active()), await jobs.conditions()) == (1, {})


async def test_a_stored_rule_with_more_indexes_than_completions_holds_when_all_have_succeeded(jobs):
    policy = {"rules": [{"succeededIndexes": "1-9999999999"}]}
    await jobs.create(completionMode="Indexed", completions=2, parallelism=2, successPolicy=policy)
    await jobs.end("Succeeded", index="-1")
    assert (await jobs.conditions())["Complete"] == "SuccessPolicy"


async def test_a_job_of_another_controller_is_left_alone(jobs):
    await jobs.create(managedBy="example.com/queue")
    assert await jobs.rig.pods() == []
