"""What `headgate up` waits for at its start, and when it applies files again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.make import objects
from tests.make.objects import Object

from headgate.cli import up_tasks as module
from headgate.cli.up_tasks import UpTasks
from headgate.latest import Latest
from headgate.manifests.apply import ApplyResult
from headgate.manifests.files import FileProblem
from headgate.plane.feed import Feed
from headgate.resources.meta import Key
from headgate.standalone.store.memory import MemoryStore

NO_COMMAND = {"name": "main", "state": {"waiting": {"reason": "NoCommand", "message": "no command"}}}
SHOP = Key("", "Namespace", "", "shop")
CRASHED = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}


class Report:
    """Keeps what `headgate up` reports."""

    def __init__(self) -> None:
        self.applies: Latest[tuple[ApplyResult, ...]] = Latest(())
        self.problem_lists: list[Sequence[FileProblem]] = []
        self.ready_with: Latest[Sequence[str] | None] = Latest(None)

    def applied(self, applied: ApplyResult) -> None:
        self.applies.set((*self.applies.get(), applied))

    def problems(self, problems: Sequence[FileProblem]) -> None:
        self.problem_lists.append(problems)

    def ready(self, _current: Any, missing: Sequence[str], _dashboard_url: str) -> None:
        self.ready_with.replace(missing)


class StartRig:
    """A store with its feed, and the tasks of `headgate up` on a directory; no runtime runs the pods."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = MemoryStore()
        self.feed = Feed(self.store)
        self.failures: Latest[dict[str, str]] = Latest({})
        self.corrected = Latest(value=True)
        self.report = Report()
        self._tasks: list[asyncio.Task[None]] = []
        live_state: Any = SimpleNamespace(feed=self.feed, wait_until_active=self._active)
        runtime = SimpleNamespace(failures=self.failures, corrected=self.corrected, logs=None)
        current: Any = SimpleNamespace(store=self.store, live_state=live_state, runtime=runtime, own_networks=False)
        reporter: Any = self.report
        self.up = UpTasks([directory], current, reporter)

    async def _active(self) -> None:
        return

    def start(self, *works: Any) -> None:
        self._tasks += [asyncio.create_task(work) for work in works]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def add_pod(self, name: str, container: Object) -> None:
        deployment = await self.store.get(Key("apps", "Deployment", "default", "web"))
        references = {"ownerReferences": [objects.owner_reference(deployment, controller=True)]}
        owner = await self.store.create(objects.obj("ReplicaSet", "web-1", metadata=references, spec={"replicas": 1}))
        metadata = {"ownerReferences": [objects.owner_reference(owner, controller=True)]}
        pod = objects.pod(name, labels={"pod-template-hash": "1"}, metadata=metadata)
        stored = await self.store.create(pod)
        await self.store.update({**stored, "status": {"containerStatuses": [container]}}, subresource="status")

    async def make_ready(self, name: str, *, ready: bool = True) -> None:
        """Write the condition of a pod."""
        pod = await self.store.get(Key("", "Pod", "default", name))
        condition = {"type": "Ready", "status": str(ready)}
        await self.store.update({**pod, "status": {**pod["status"], "conditions": [condition]}}, subresource="status")

    async def make_available(self) -> None:
        """Write the status of the Deployment, as its controller does or did in an earlier run."""
        web = await self.store.get(Key("apps", "Deployment", "default", "web"))
        status = {"observedGeneration": 1, "availableReplicas": 1}
        await self.store.update({**web, "status": status}, subresource="status")

    async def until_noticed(self) -> None:
        """Write an unrelated object, and wait until the feed has it, and so all writes before it."""
        seen = self.feed.seen.get()
        await self.store.create(objects.namespace("other"))
        async with deadline():
            while self.feed.seen.get() == seen:
                await self.feed.seen.next_change().wait()


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StartRig]:
    """Return a rig whose start waits for an hour, so that a test hangs that waits for the time limit."""
    monkeypatch.setattr(module, "QUIET_S", 3600.0)
    monkeypatch.setattr(module, "READY_S", 7200.0)
    rig = StartRig(tmp_path)
    rig.start(rig.feed.run())
    yield rig
    await rig.stop()


@asynccontextmanager
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield


async def next_value(value: Latest[Any]) -> Any:
    async with asyncio.timeout(60):
        await value.next_change().wait()
    return value.get()


def write(path: Path, *items: Object) -> None:
    path.write_text(yaml.safe_dump_all(items))


async def test_the_start_does_not_wait_for_pods_that_can_never_run(rig: StartRig) -> None:
    write(rig.directory / "a.yaml", objects.deployment("web"))
    await rig.up.apply_at_start()
    await rig.add_pod("web-1-x", NO_COMMAND)
    async with deadline():
        await rig.up.report_ready("")
    assert rig.report.ready_with.get() == ["Deployment default/web (0 of 1 replicas available)"]


async def test_the_start_does_not_wait_for_a_pod_that_the_runtime_rejects(rig: StartRig) -> None:
    write(rig.directory / "a.yaml", objects.deployment("web"))
    await rig.up.apply_at_start()
    await rig.add_pod("web-1-x", {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}})
    rig.start(rig.up.report_ready(""))
    (pod,) = (await rig.store.list("", "Pod")).items
    rig.failures.set({pod["metadata"]["uid"]: "Invalid: no address"})
    assert await next_value(rig.report.ready_with)


async def test_the_start_waits_for_a_pod_that_crashes_because_it_may_run_later(rig: StartRig) -> None:
    write(rig.directory / "a.yaml", objects.deployment("web"))
    await rig.up.apply_at_start()
    await rig.add_pod("web-1-x", CRASHED)
    rig.start(rig.up.report_ready(""))
    await rig.until_noticed()
    assert rig.report.ready_with.get() is None
    await rig.make_ready("web-1-x")
    await rig.make_available()
    assert await next_value(rig.report.ready_with) == []


async def test_the_start_waits_for_pods_although_the_status_of_an_earlier_run_has_them(rig: StartRig) -> None:
    """The controllers count the pods again a little after the start."""
    write(rig.directory / "a.yaml", objects.deployment("web"))
    await rig.up.apply_at_start()
    await rig.make_available()
    await rig.add_pod("web-1-x", {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}})
    rig.start(rig.up.report_ready(""))
    await rig.until_noticed()
    assert rig.report.ready_with.get() is None
    await rig.make_ready("web-1-x")
    assert await next_value(rig.report.ready_with) == []


async def test_the_start_waits_until_the_pods_of_an_earlier_run_have_new_statuses(rig: StartRig) -> None:
    rig.corrected.set(value=False)
    write(rig.directory / "a.yaml", objects.deployment("web"))
    await rig.up.apply_at_start()
    await rig.make_available()
    await rig.add_pod("web-1-x", {"name": "main", "state": {"running": {}}})
    await rig.make_ready("web-1-x")
    rig.start(rig.up.report_ready(""))
    await rig.until_noticed()
    assert rig.report.ready_with.get() is None
    await rig.make_ready("web-1-x", ready=False)
    rig.corrected.set(value=True)
    await rig.store.create(objects.namespace("third"))
    assert rig.report.ready_with.get() is None
    await rig.make_ready("web-1-x")
    assert await next_value(rig.report.ready_with) == []


async def end_namespace(rig: StartRig) -> Object:
    """Delete the namespace `shop`; return the object in it that holds up the deletion."""
    await rig.store.create(objects.namespace("shop"))
    held = await rig.store.create(
        objects.config_map("held", namespace="shop", metadata={"finalizers": ["example.com/a"]})
    )
    await rig.store.delete(SHOP)
    return {**held, "metadata": {**held["metadata"], "finalizers": [], "resourceVersion": ""}}


async def test_a_file_in_a_namespace_that_ends_is_applied_to_a_new_one(rig: StartRig) -> None:
    released = await end_namespace(rig)
    write(rig.directory / "a.yaml", objects.config_map("a", namespace="shop"))
    await rig.up.apply_at_start()
    assert "is being terminated" in rig.report.problem_lists[-1][0].message
    rig.start(rig.up.retry_rejected())
    await rig.store.create(objects.namespace("unrelated"))  # the file stays rejected, and is not reported again
    await rig.store.update(released)
    (applied,) = await next_value(rig.report.applies)
    assert applied.created == (SHOP, Key("", "ConfigMap", "shop", "a"))
    assert rig.report.problem_lists[-1] == ()
    assert len(rig.report.problem_lists) == 2


async def test_a_retry_creates_no_object_that_a_user_deleted(rig: StartRig) -> None:
    released = await end_namespace(rig)
    write(rig.directory / "a.yaml", objects.config_map("a", namespace="shop"))
    write(rig.directory / "b.yaml", objects.config_map("b"))
    await rig.up.apply_at_start()
    rig.start(rig.up.retry_rejected())
    await rig.store.delete(Key("", "ConfigMap", "default", "b"))
    await rig.store.update(released)
    (applied,) = await next_value(rig.report.applies)
    assert applied.created == (SHOP, Key("", "ConfigMap", "shop", "a"))
