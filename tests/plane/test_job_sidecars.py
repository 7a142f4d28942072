"""The answers to sidecars of Jobs: whether the application has ended. Only the pod's own sidecar gets an answer."""

import asyncio
from typing import Any

import grpc
import msgspec
import pytest
from tests.make.objects import container, pod

from headgate.errors import Unavailable
from headgate.plane.job_sidecars import JobSidecars, has_application_ended
from headgate.resources.meta import Key, Object
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.authentication import StatusError
from headgate.xds.proxy_requests import HAS_ENDED, WAIT_FOR_REPORT
from headgate.xds.unary_methods import CheckNode

NODE = "sidecar/shop/job-1"
DEADLINE_S = 60
RUNNING: dict[str, Any] = {"running": {}}


def ended(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code}}


def job_pod(policy: str = "Never", **states: dict[str, Any]) -> Object:
    """Return a pod with the containers `app`, `log` and the sidecar. Containers without a state have not started."""
    statuses = [{"name": name, "state": state} for name, state in {"headgate-sidecar": RUNNING, **states}.items()]
    containers = [container(name, image="x") for name in ("headgate-sidecar", "app", "log")]
    status = {"containerStatuses": statuses}
    return pod("job-1", namespace="shop", containers=containers, status=status, restartPolicy=policy)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (job_pod(app=ended(0), log=ended(0)), True),
        (job_pod(app=ended(1), log=ended(0)), True),
        (job_pod(app=ended(0), log=RUNNING), False),
        (job_pod(app=ended(0)), False),
        (job_pod(app=ended(0), log={"waiting": {"reason": "ErrImagePull"}}), False),
        (job_pod(), False),
        (job_pod("OnFailure", app=ended(0), log=ended(0)), True),
        (job_pod("OnFailure", app=ended(1), log=ended(0)), False),
        (job_pod("OnFailure", app={"waiting": {"reason": "CrashLoopBackOff"}}, log=ended(0)), False),
        (job_pod("Always", app=ended(0), log=ended(0)), False),
        ({**job_pod(), "status": {}}, False),
    ],
)
def test_an_application_has_ended_when_none_of_its_containers_runs_or_will_restart(
    found: Object, expected: bool
) -> None:
    assert has_application_ended(found) is expected


class FakeReader:
    """A reader of objects that always fails."""

    async def get(self, _key: Key) -> Object:
        raise Unavailable("the API server is overloaded")


def allow(_node_id: str) -> None:
    """Accept every node ID."""


def deny(_node_id: str) -> None:
    raise StatusError(grpc.StatusCode.UNAUTHENTICATED, "the token belongs to another pod")


async def never(_node_id: str, _since: float) -> None:
    await asyncio.Event().wait()


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    return store


async def ask(objects: Any, *, node: str = NODE, check_node: CheckNode = allow, body: bytes = b"") -> bool:
    request = body or msgspec.json.encode({"node": node})
    answer = await JobSidecars(objects, never).methods[HAS_ENDED](request, check_node)
    return bool(msgspec.json.decode(answer)["ended"])


async def test_the_answer_follows_the_pods_status(store: MemoryStore) -> None:
    stored = await store.create(job_pod(app=RUNNING, log=RUNNING))
    stored = await store.update({**stored, "status": job_pod(app=RUNNING)["status"]}, subresource="status")
    assert not await ask(store)
    await store.update({**stored, "status": job_pod(app=ended(0), log=ended(0))["status"]}, subresource="status")
    assert await ask(store)


async def test_errors_are_grpc_statuses(store: MemoryStore) -> None:
    """The sidecar retries after each of these errors."""
    codes = grpc.StatusCode
    for code, call in (
        (codes.NOT_FOUND, ask(store)),
        (codes.UNAVAILABLE, ask(FakeReader())),
        (codes.INVALID_ARGUMENT, ask(store, node="gateway/edge-1")),
        (codes.INVALID_ARGUMENT, ask(store, body=b"{}")),
        (codes.UNAUTHENTICATED, ask(store, check_node=deny)),
    ):
        with pytest.raises(StatusError) as raised:
            await call
        assert raised.value.code == code


async def test_a_wait_for_a_report_ends_when_the_report_has_arrived(store: MemoryStore) -> None:
    asked: list[tuple[str, float]] = []

    async def report(node_id: str, since: float) -> None:
        asked.append((node_id, since))

    method = JobSidecars(store, report).methods[WAIT_FOR_REPORT]
    async with asyncio.timeout(DEADLINE_S):
        assert await method(msgspec.json.encode({"node": NODE, "since": 5.5}), allow) == b""
    assert asked == [(NODE, 5.5)]


async def test_a_wait_for_a_report_times_out(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.plane.job_sidecars.MAX_REPORT_WAIT_S", 0)
    method = JobSidecars(store, never).methods[WAIT_FOR_REPORT]
    with pytest.raises(StatusError, match="no metrics report"):
        await method(msgspec.json.encode({"node": NODE, "since": 5.5}), allow)
