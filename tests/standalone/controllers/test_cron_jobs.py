from typing import Any

import pytest
from tests.make.objects import container, obj, pod_template

from headgate.resources.batch.cron_job import CronJob
from headgate.resources.decode import read
from headgate.resources.meta import Key, Object, epoch_seconds, timestamp
from headgate.standalone.controllers.actions import Recheck, TypedObject
from headgate.standalone.controllers.cron_jobs import plan_cron_job

CRON_JOB = Key("batch", "CronJob", "default", "sums")
HOUR = 3600


def cron_job(**spec: Any) -> Object:
    template = pod_template(container(), labels={"app": "sums"}, restartPolicy="Never")
    job = {"metadata": {"labels": {"app": "sums"}}, "spec": {"template": template}}
    written = {"schedule": "@hourly", "timeZone": "UTC", "jobTemplate": job}
    return obj("CronJob", "sums", version="batch/v1", spec={**written, **spec})


class CronRig:
    """A CronJob in a store with controllers. The test sets the time, and ends Jobs."""

    def __init__(self, rig: Any) -> None:
        self.rig = rig
        self.store = rig.store

    async def create(self, **spec: Any) -> None:
        stored = await self.store.create(self.store.checked(cron_job(**spec)).hub)
        self.rig.now = epoch_seconds(stored["metadata"]["creationTimestamp"]) // HOUR * HOUR  # before the first time
        await self.settle()

    async def settle(self) -> None:
        before = -1
        while before != self.store.revision:
            before = self.store.revision
            await self.rig.controllers.reconcile("default")

    async def later(self, seconds: float) -> None:
        self.rig.now += seconds
        await self.settle()

    async def jobs(self) -> list[Object]:
        return await self.rig.all("batch", "Job")

    async def finish(self, condition: str) -> None:
        """End each running Job with a condition."""
        for job in await self.jobs():
            facts = job.get("status", {}).get("conditions", ())
            if not any(fact["type"] in ("Complete", "Failed") for fact in facts):
                conditions = [{"type": condition, "status": "True", "lastTransitionTime": timestamp(self.rig.now)}]
                status = {**job.get("status", {}), "conditions": conditions}
                status["completionTime"] = timestamp(self.rig.now)
                await self.store.update({**job, "status": status}, subresource="status")
        await self.settle()

    async def status(self) -> Any:
        return (await self.store.get(CRON_JOB)).get("status", {})

    async def reasons(self) -> set[str]:
        events = await self.rig.all("", "Event")
        return {event["reason"] for event in events if event["involvedObject"]["kind"] == "CronJob"}


@pytest.fixture
def cron(rig) -> CronRig:
    return CronRig(rig)


async def test_a_job_is_created_at_each_time_of_the_schedule(cron):
    await cron.create()
    assert await cron.jobs() == []
    await cron.later(HOUR)
    (job,) = await cron.jobs()
    assert job["metadata"]["name"] == f"sums-{int(cron.rig.now) // 60}"
    assert job["metadata"]["labels"] == {"app": "sums"}
    assert job["metadata"]["annotations"] == {
        "batch.kubernetes.io/cronjob-scheduled-timestamp": timestamp(cron.rig.now)
    }
    status = await cron.status()
    assert [active["name"] for active in status["active"]] == [job["metadata"]["name"]]
    assert status["lastScheduleTime"] == timestamp(cron.rig.now)
    await cron.later(60)
    assert len(await cron.jobs()) == 1
    await cron.later(HOUR)
    assert len(await cron.jobs()) == 2
    assert len(await cron.rig.pods()) == 2


async def test_of_several_missed_times_only_the_last_one_gets_a_job(cron):
    await cron.create()
    await cron.later(5 * HOUR + 600)
    (job,) = await cron.jobs()
    assert job["metadata"]["name"] == f"sums-{(int(cron.rig.now) - 600) // 60}"


async def test_a_time_that_is_missed_for_longer_than_the_deadline_gets_no_job(cron):
    await cron.create(startingDeadlineSeconds=300)
    await cron.later(HOUR + 301)
    assert await cron.jobs() == []
    await cron.later(HOUR - 2)
    assert len(await cron.jobs()) == 1


async def test_an_interval_is_not_prolonged_by_changes_and_not_lost_with_a_short_deadline(cron):
    await cron.create(schedule="@every 20m", startingDeadlineSeconds=60)
    first = epoch_seconds((await cron.store.get(CRON_JOB))["metadata"]["creationTimestamp"])
    cron.rig.now = first + 19 * 60
    await cron.settle()
    assert await cron.jobs() == []
    stored = await cron.store.get(CRON_JOB)
    actions = plan_cron_job(TypedObject(stored, read(stored, CronJob)), [], now=cron.rig.now)
    assert actions == [Recheck(first + 20 * 60)]
    await cron.later(60)
    assert len(await cron.jobs()) == 1
    await cron.later(20 * 60 + 59)
    assert len(await cron.jobs()) == 2
    assert (await cron.status())["lastScheduleTime"] == timestamp(first + 40 * 60)


async def test_with_forbid_the_next_job_starts_when_the_last_one_has_finished(cron):
    await cron.create(concurrencyPolicy="Forbid")
    await cron.later(HOUR)
    await cron.later(HOUR)
    assert len(await cron.jobs()) == 1
    assert "JobAlreadyActive" in await cron.reasons()
    await cron.finish("Complete")
    assert len(await cron.jobs()) == 2


async def test_with_replace_the_running_job_is_deleted(cron):
    await cron.create(concurrencyPolicy="Replace")
    await cron.later(HOUR)
    (first,) = await cron.jobs()
    await cron.later(HOUR)
    (second,) = await cron.jobs()
    assert second["metadata"]["name"] != first["metadata"]["name"]
    assert [active["name"] for active in (await cron.status())["active"]] == [second["metadata"]["name"]]


async def test_a_suspended_cron_job_creates_no_job(cron):
    await cron.create(suspend=True)
    await cron.later(2 * HOUR)
    assert await cron.jobs() == []


async def test_the_limits_of_the_history_keep_the_newest_finished_jobs(cron):
    await cron.create(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=1)
    for condition in ("Failed", "Complete", "Failed", "Complete"):
        await cron.later(HOUR)
        await cron.finish(condition)
    last = int(cron.rig.now) // 60
    assert [job["metadata"]["name"] for job in await cron.jobs()] == [f"sums-{last - 60}", f"sums-{last}"]
    assert (await cron.status())["lastSuccessfulTime"] == timestamp(cron.rig.now)
    assert {"SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete"} <= await cron.reasons()


async def test_jobs_and_pods_are_deleted_with_their_cron_job(cron):
    await cron.create()
    await cron.later(HOUR)
    await cron.store.delete(CRON_JOB)
    await cron.settle()
    assert await cron.jobs() == []
    assert await cron.rig.pods() == []
