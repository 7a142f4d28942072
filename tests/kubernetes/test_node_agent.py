"""The node agent serves each init container that waits, and tries again after a failure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.admission.test_redirection_container import AGENT, waiting
from tests.admission.web_pod import web_pod
from tests.decoding import admit

from headgate.admission.redirection_container import RequestedRedirection
from headgate.admission.sidecar_containers import with_transparent_sidecar
from headgate.errors import HeadgateError
from headgate.kubernetes.node_agent import NodeAgent
from headgate.latest import Latest, until
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.standalone.store.memory import MemoryStore

TIMEOUT_S = 20
POD = with_transparent_sidecar(web_pod(), AGENT)


class Redirections:
    """Records the requested redirections. The first `failures` of them fail."""

    def __init__(self, failures: int = 0) -> None:
        self.requested: Latest[tuple[RequestedRedirection, ...]] = Latest(())
        self.failures = failures

    async def __call__(self, requested: RequestedRedirection) -> None:
        self.requested.replace((*self.requested.get(), requested))
        if len(self.requested.get()) <= self.failures:
            raise HeadgateError("the process has ended")

    async def wait_for(self, count: int) -> None:
        await until(lambda: len(self.requested.get()) >= count, self.requested)


@asynccontextmanager
async def running(store: MemoryStore, redirections: Redirections) -> AsyncIterator[None]:
    listed = asyncio.Event()
    task = asyncio.create_task(NodeAgent(redirections).run(store, listed.set))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await listed.wait()
            yield
    finally:
        task.cancel()


async def stored(obj: Object) -> MemoryStore:
    store = MemoryStore(admit=admit)
    await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    await store.create({name: value for name, value in obj.items() if name != "status"})
    await set_status(store, obj)
    return store


async def set_status(store: MemoryStore, obj: Object) -> None:
    current = await store.get(key_of(obj))
    await store.update({**current, "status": obj.get("status", {})}, subresource="status")


async def test_a_pod_is_redirected_when_its_init_container_runs_and_again_in_a_new_namespace() -> None:
    store, redirections = await stored(POD), Redirections()
    async with running(store, redirections):
        await set_status(store, waiting(POD, running={}))
        await redirections.wait_for(1)
        await set_status(store, waiting(POD, terminated={}))
        new = waiting(POD, running={})
        new["status"]["initContainerStatuses"][0]["containerID"] = "containerd://2"
        await set_status(store, new)
        await redirections.wait_for(2)
    assert [requested.container for requested in redirections.requested.get()] == ["containerd://1", "containerd://2"]


async def test_pods_that_wait_when_the_agent_starts_are_redirected() -> None:
    redirections = Redirections()
    async with running(await stored(waiting(POD, running={})), redirections):
        await redirections.wait_for(1)


async def test_a_failed_redirection_is_tried_again() -> None:
    redirections = Redirections(failures=2)
    async with running(await stored(waiting(POD, running={})), redirections):
        await redirections.wait_for(3)


async def test_a_deleted_pod_is_not_tried_again() -> None:
    store, redirections = await stored(waiting(POD, running={})), Redirections(failures=1000)
    other = {**POD, "metadata": {**POD["metadata"], "name": "web-2", "uid": "2"}}
    async with running(store, redirections):
        await redirections.wait_for(1)
        await store.delete(key_of(POD))
        await store.create(other)
        await set_status(store, waiting(other, running={}))
        await until(lambda: redirections.requested.get()[-1].pod == "shop/web-2", redirections.requested)
        count = len(redirections.requested.get())
        await redirections.wait_for(count + 2)
    assert {requested.pod for requested in redirections.requested.get()[count:]} == {"shop/web-2"}
