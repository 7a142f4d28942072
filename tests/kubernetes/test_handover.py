"""What the end of a replica waits for: that webhook requests go elsewhere, and that proxies reach the next replica."""

import asyncio
from typing import Any

import pytest
from tests.ports import free_port
from tests.stream_server import stream_server

from headgate.errors import Unavailable
from headgate.kubernetes import handover
from headgate.kubernetes.handover import begin_conversions, end_conversions, hand_over, keep_conversions
from headgate.latest import Latest, until

DEADLINE_S = 60
POD = "/api/v1/namespaces/headgate-system/pods/headgate-1"


@pytest.fixture
def next_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """The port of the next replica, on which nothing listens."""
    found = free_port()
    monkeypatch.setattr(handover, "XDS_ADDRESS", f"127.0.0.1:{found}")
    monkeypatch.setattr(handover, "PROPAGATION_S", 0)
    return found


async def test_an_active_replica_waits_until_the_next_one_accepts_connections(next_port: int) -> None:
    """D28."""
    attempted, ended = asyncio.Event(), asyncio.create_task(hand_over(was_active=True))

    async def refuse(*_: object) -> None:
        attempted.set()

    async with stream_server(refuse, ("127.0.0.1", next_port)), asyncio.timeout(DEADLINE_S):
        await attempted.wait()
        await ended


@pytest.mark.usefixtures("next_port")
async def test_a_replica_without_a_successor_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "LONGEST_S", 2 * handover.POLL_S)
    async with asyncio.timeout(DEADLINE_S):
        await hand_over(was_active=True)


@pytest.mark.usefixtures("next_port")
async def test_a_standby_replica_waits_for_no_other_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "LONGEST_S", 10 * DEADLINE_S)
    async with asyncio.timeout(DEADLINE_S):
        await hand_over(was_active=False)


class Patches:
    """An API server that records merge patches by path, or fails."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.applied: dict[str, Any] = {}
        self.count = Latest(0)

    async def merge(self, path: str, patch: Any) -> Any:
        if self.failures:
            raise self.failures.pop()
        self.applied[path] = patch
        self.count.set(self.count.get() + 1)


async def test_a_replica_that_ends_gets_no_conversions(caplog: pytest.LogCaptureFixture) -> None:
    """D28. The Service of conversions also has the addresses of pods that end."""
    server = Patches(Unavailable("restarts"))
    await end_conversions(server, "headgate-1")  # type: ignore[arg-type]
    assert "may still send conversions to pod headgate-1: restarts" in caplog.text
    await end_conversions(server, "headgate-1")  # type: ignore[arg-type]
    assert server.applied == {POD: {"metadata": {"labels": {"headgate.dev/converts": None}}}}


async def test_a_replica_that_starts_again_in_its_pod_gets_conversions_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet restarts a container in the same pod, whose label the process before has removed."""
    monkeypatch.setattr("headgate.backoff.FIRST_S", 0)
    server = Patches(Unavailable("restarts"))
    await begin_conversions(server, "headgate-1")  # type: ignore[arg-type]
    assert server.applied == {POD: {"metadata": {"labels": {"headgate.dev/converts": "true"}}}}


async def test_a_replica_returns_to_the_conversions_once_it_has_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active replica removes the label while the pod is not ready."""
    monkeypatch.setattr(handover, "RESTORE_S", 0)
    server, compiled = Patches(), Latest[object](None)
    keeping = asyncio.create_task(keep_conversions(server, "headgate-1", compiled))  # type: ignore[arg-type]
    async with asyncio.timeout(DEADLINE_S):
        await until(lambda: server.count.get() == 1, server.count)
        for _ in range(50):
            await asyncio.sleep(0)
        assert server.count.get() == 1
        compiled.set("a mesh")
        await until(lambda: server.count.get() >= 3, server.count)
    keeping.cancel()
    assert server.applied == {POD: {"metadata": {"labels": {"headgate.dev/converts": "true"}}}}
