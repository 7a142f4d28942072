"""The node agent serves each init container that waits, and tries again after a failure."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.admission.test_redirection_container import AGENT, waiting
from tests.admission.web_pod import web_pod
from tests.decoding import admit

from headgate.admission.redirection_container import RequestedRedirection
from headgate.admission.sidecar_containers import with_transparent_sidecar
from headgate.errors import HeadgateError
from headgate.kubernetes import node_agent
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.node_agent import NodeAgent, program_variables, redirect_in_namespace
from headgate.latest import Latest, until
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.standalone.store.memory import MemoryStore

TIMEOUT_S = 20
POD = with_transparent_sidecar(web_pod(), AGENT)


class Redirections:
    """Records the requested redirections. The first `failures` of them fail, with `error`."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.error = error or HeadgateError("the process has ended")
        self.requested: Latest[tuple[RequestedRedirection, ...]] = Latest(())
        self.failures = failures

    async def __call__(self, requested: RequestedRedirection) -> None:
        self.requested.replace((*self.requested.get(), requested))
        if len(self.requested.get()) <= self.failures:
            raise self.error

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


async def test_an_agent_that_starts_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of its readiness outlives a container that ended. Here the API server can't be reached."""
    ready = tmp_path / "ready"
    ready.touch()
    monkeypatch.setattr(node_agent, "NODE_AGENT_READY", str(ready))
    with pytest.raises(HeadgateError):
        await node_agent.run("node-1", InCluster({}))
    assert not ready.exists()


@pytest.mark.parametrize("error", [HeadgateError("ended"), OSError(7, "E2BIG"), ValueError("null"), MemoryError()])
async def test_a_failed_redirection_is_tried_again_and_logged_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever fails for one pod, the agent goes on: other pods of the node would wait without it."""
    redirections = Redirections(failures=2, error=error)
    with caplog.at_level(logging.WARNING):
        async with running(await stored(waiting(POD, running={})), redirections):
            await redirections.wait_for(3)
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "the connections of the pod shop/web-1 can't be redirected"
    ]


@pytest.mark.parametrize(
    ("user", "ports", "message"),
    [
        ("1337", "80," * 60_000, "has 180000 characters, more than 1000: exclude fewer ports"),
        ("1337", "80\0", "is not a port"),
        ("1337", "\ud800", "is not a port"),
        ("1" * 200_000, "", "no user ID in HEADGATE_PROXY_USER"),
        ("1337\0", "", "no user ID"),
        ("-1", "", "no user ID"),
        ("", "", "no user ID"),
    ],
)
async def test_values_with_which_no_program_can_start_are_an_error_of_the_pod(
    tmp_path: Path, user: str, ports: str, message: str
) -> None:
    requested = RequestedRedirection("shop/web-1", "1", "containerd://1", user, ports)
    with pytest.raises(HeadgateError, match=message):
        await redirect_in_namespace(requested, tmp_path)


def test_the_program_gets_the_user_of_the_proxy_and_the_excluded_ports() -> None:
    requested = RequestedRedirection("shop/web-1", "1", "containerd://1", "1338", " 9090, 9102,")
    assert program_variables(requested) == {"HEADGATE_PROXY_USER": "1338", "EXCLUDED_INBOUND_PORTS": "9090,9102"}


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
