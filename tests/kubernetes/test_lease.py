"""Leader election: which replica becomes active, and when a replica that can't renew its Lease stops."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headgate import backoff
from headgate.errors import AlreadyExists, Conflict, NotFound, Unavailable
from headgate.kubernetes import lease as module
from headgate.kubernetes.lease import LIFETIME_S, STOP_S, Lease, LeaseLost, LeaseName
from headgate.latest import until

NAME = LeaseName("headgate-system", "control-plane")


class FakeLeases:
    """An API server with one Lease. `down` makes all requests fail.

    `acquired` has the time at which each holder first wrote the Lease.
    """

    def __init__(self, clock: "Clock") -> None:
        self.acquired: dict[str, float] = {}
        self._clock = clock
        self.lease: dict[str, Any] | None = None
        self.down = False
        self.rejects_every_second = False
        self._requests = 0
        self.writes = 0

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    async def get(self, _path: str) -> dict[str, Any]:
        self._check()
        if self.lease is None:
            raise NotFound("no lease")
        return self.lease

    async def post(self, _path: str, obj: dict[str, Any]) -> dict[str, Any]:
        self._check()
        if self.lease:
            raise AlreadyExists("it exists")
        return self._store(obj)

    async def put(self, _path: str, obj: dict[str, Any]) -> dict[str, Any]:
        self._check()
        assert self.lease
        if obj["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("it changed")
        return self._store(obj)

    async def watch_at(self, _path: str, _query: object) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield None

    def _store(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        self.acquired.setdefault(str(obj["spec"]["holderIdentity"]), self._clock())
        self.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.writes)}}
        return self.lease

    def _check(self) -> None:
        self._requests += 1
        if self.down or (self.rejects_every_second and self._requests % 2):
            raise Unavailable("the server is down")


class Clock:
    """Seconds that pass only when a replica sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of the replicas alone: servers of other tests sleep in their threads, and would advance it."""
    found = Clock()
    for slept in (module, backoff):
        monkeypatch.setattr(slept, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": found.sleep}))
    monkeypatch.setattr(Lease, "_wait_changed", lambda _self: found.sleep(module.RENEW_S))
    return found


def replica(server: FakeLeases, name: str, clock: Clock) -> Lease:
    return Lease(server, NAME, name, clock=clock)  # type: ignore[arg-type]


async def reached(condition: Callable[[], bool], *replicas: "asyncio.Task[None]") -> None:
    """Let the replicas run until a condition is true. Fail when one has ended: the clock would stop."""
    while not condition():
        assert not [task for task in replicas if task.done()]
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(lease: Lease) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(lease.run())
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, LeaseLost):
        await task


async def test_the_first_replica_becomes_active_and_renews_its_lease(clock: Clock) -> None:
    server = FakeLeases(clock)
    first = replica(server, "first", clock)
    async with running(first) as task:
        await until(first.active.get, first.active)
        await reached(lambda: server.writes >= 5, task)
        assert server.holder == "first"


async def test_a_second_replica_waits_while_the_first_renews(clock: Clock) -> None:
    server = FakeLeases(clock)
    first, second = replica(server, "first", clock), replica(server, "second", clock)
    async with running(first) as task:
        await until(first.active.get, first.active)
        async with running(second) as other:
            await reached(lambda: server.writes >= 20, task, other)
            assert not second.active.get()


async def test_a_released_lease_is_taken_at_once(clock: Clock) -> None:
    server = FakeLeases(clock)
    first, second = replica(server, "first", clock), replica(server, "second", clock)
    async with running(first):
        await until(first.active.get, first.active)
    await first.release()
    async with running(second):
        await until(second.active.get, second.active)
    assert server.acquired["second"] - server.acquired[""] <= module.RENEW_S
    assert server.lease
    assert server.lease["spec"]["leaseTransitions"] == 1


async def test_the_lease_of_a_killed_replica_is_taken_after_its_lifetime(clock: Clock) -> None:
    server = FakeLeases(clock)
    first, second = replica(server, "first", clock), replica(server, "second", clock)
    async with running(first):
        await until(first.active.get, first.active)
    began = clock.now
    async with running(second):
        await until(second.active.get, second.active)
    assert LIFETIME_S < server.acquired["second"] - began <= LIFETIME_S + 2 * module.RENEW_S


async def test_a_replica_that_can_not_renew_stops_before_another_may_take_the_lease(clock: Clock) -> None:
    """Its last renewal is at most STOP_S seconds ago; another replica waits LIFETIME_S seconds."""
    server = FakeLeases(clock)
    first = replica(server, "first", clock)
    async with running(first) as task:
        await until(first.active.get, first.active)
        server.down = True
        began = clock.now
        with pytest.raises(LeaseLost, match="first has lost the Lease headgate-system/control-plane"):
            await task
        assert clock.now - began <= STOP_S < LIFETIME_S


async def test_a_replica_stops_when_another_has_its_lease(clock: Clock) -> None:
    server = FakeLeases(clock)
    first = replica(server, "first", clock)
    async with running(first) as task:
        await until(first.active.get, first.active)
        assert server.lease
        await server.put("", {**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "intruder"}})
        with pytest.raises(LeaseLost):
            await task
    await first.release()
    assert server.holder == "intruder"


async def test_a_replica_survives_a_short_failure_of_the_server(clock: Clock) -> None:
    server = FakeLeases(clock)
    first = replica(server, "first", clock)
    async with running(first) as task:
        await until(first.active.get, first.active)
        server.down = True
        down_until = clock.now + STOP_S / 2
        await reached(lambda: clock.now >= down_until, task)
        server.down = False
        writes = server.writes
        await reached(lambda: server.writes > writes, task)
        assert not task.done()


async def test_a_replica_stays_active_while_the_server_rejects_every_second_request(clock: Clock) -> None:
    server = FakeLeases(clock)
    first = replica(server, "first", clock)
    async with running(first) as task:
        await until(first.active.get, first.active)
        server.rejects_every_second = True
        end = clock.now + 5 * STOP_S
        await reached(lambda: clock.now >= end, task)
        assert not task.done()


async def test_a_replica_stays_active_when_another_client_annotates_its_lease(clock: Clock) -> None:
    server = FakeLeases(clock)
    first = replica(server, "first", clock)
    async with running(first) as task:
        await until(first.active.get, first.active)
        assert server.lease
        await server.put("", {**server.lease, "metadata": {**server.lease["metadata"], "annotations": {"a": "b"}}})
        writes = server.writes
        await reached(lambda: server.writes >= writes + 3, task)
        assert not task.done()
        assert server.lease["metadata"]["annotations"] == {"a": "b"}
