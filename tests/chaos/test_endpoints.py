"""Backends and endpoints are added and removed under load, in every order: no request is lost (R5, R37, D9)."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from tests.chaos.load import TimedLoad
from tests.chaos.machine import DEPLOYMENTS, PODS, SERVICES, SLICES, SPLITS, Up, pod_names, replace_pods, until
from tests.make.objects import endpoint_slice, service
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
Received = Callable[[], Counter[str]]
BACKEND = Path(__file__).with_name("backend.py")
PORT = 8080
BACKENDS = 6  # each order of the writes occurs: they depend on the remainders of a number by 2 and 3


class Outside:
    """A process outside of pods that listens on many ports; `names[n]` answers on `ports[n]`."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.ports = [free_port() for _ in names]

    async def start(self, counts: Path) -> None:
        places = [f"{name}=127.0.0.1:{port}" for name, port in zip(self.names, self.ports, strict=True)]
        self._process = await asyncio.create_subprocess_exec(sys.executable, "-S", BACKEND, counts, *places)
        for port in self.ports:
            await until(lambda port=port: self._listens(port), f"port {port} listens")

    async def stop(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def _listens(self, port: int) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


@pytest_asyncio.fixture(loop_scope="module")
async def outside(counts: Path) -> AsyncIterator[Outside]:
    found = Outside([f"website-x{number}" for number in range(BACKENDS)])
    await found.start(counts)
    yield found
    await found.stop()


async def add(up: Up, name: str, target: int) -> None:
    """Create a Service without a selector, and its EndpointSlice with the port of a process outside of pods."""
    await up.api.create(SERVICES, service(name, {"port": PORT}))
    await up.api.create(SLICES, endpoint_slice(name, ["127.0.0.1"], {"": target}))


async def split_over(up: Up, names: list[str]) -> None:
    backends = [{"service": name, "weight": 10} for name in ("website-v1", *names)]
    await up.api.patch(f"{SPLITS}/website", {"spec": {"backends": backends}})


async def wait_for_answer(load: TimedLoad, backend: str) -> None:
    """Wait for the next answer of a backend."""
    mark = len(load.answers)

    async def once() -> bool:
        return any(answer.backend == backend for answer in load.answers[mark:])

    await until(once, f"an answer of {backend}")


async def test_no_request_is_lost_while_backends_are_added_and_removed(
    up: Up, load: TimedLoad, outside: Outside, received: Received
) -> None:
    for number, (name, port) in enumerate(zip(outside.names, outside.ports, strict=True), start=1):
        if number % 2:  # a split may name a backend before it exists
            await split_over(up, outside.names[:number])
            await add(up, name, port)
        else:
            await add(up, name, port)
            await split_over(up, outside.names[:number])
    await up.wait_until_active()
    await load.reached(len(load.answers) + 200)
    assert set(load.backends) == {"website-v1", *outside.names}
    for number, name in reversed(list(enumerate(outside.names))):
        if number % 2:
            await split_over(up, outside.names[:number])
        await up.api.delete(f"{SERVICES}/{name}" if number % 3 else f"{SLICES}/{name}")
        if not number % 2:
            await split_over(up, outside.names[:number])
        if not number % 3:
            await up.api.delete(f"{SERVICES}/{name}")
    await up.wait_until_active()
    await load.reached(len(load.answers) + 60)
    await load.stop()
    assert load.failed == []
    assert received() == load.backends
    assert {answer.backend for answer in load.answers[-40:]} == {"website-v1"}


async def test_no_request_is_lost_while_pods_are_deleted_and_recreated(
    up: Up, load: TimedLoad, received: Received
) -> None:
    await up.wait_until_active(await up.weights(v1=50, v2=50, v3=0))
    for version in ("v1", "v2"):
        before = await pod_names(up, version)
        for name in before:
            await up.api.delete(f"{PODS}/{name}")

        async def replaced(version: str = version, before: set[str] = before) -> bool:
            now = await pod_names(up, version)
            return len(now) == len(before) and not now & before

        await until(replaced, f"new pods of {version}")
        await load.reached(len(load.answers) + 60)
    await load.stop()
    assert load.failed == []
    assert received() == load.backends
    assert "website-v3" not in load.backends


async def test_no_request_is_lost_while_a_deployment_is_rolled_out_and_scaled(
    up: Up, load: TimedLoad, received: Received
) -> None:
    deployment = f"{DEPLOYMENTS}/website-v1"
    await replace_pods(up, {"template": {"metadata": {"annotations": {"version": "next"}}}}, 2)
    for replicas in (3, 2):
        await up.api.patch(deployment, {"spec": {"replicas": replicas}})

        async def scaled(replicas: int = replicas) -> bool:
            return len(await pod_names(up, "v1")) == replicas

        await until(scaled, f"{replicas} pods")
    await load.stop()
    assert load.failed == []
    assert received() == load.backends
    assert set(load.backends) == {"website-v1"}


async def test_no_request_is_lost_while_a_manual_endpoint_slice_is_edited(
    up: Up, load: TimedLoad, outside: Outside, received: Received
) -> None:
    await add(up, "website-x", outside.ports[0])
    await split_over(up, ["website-x"])
    await up.wait_until_active()
    for name, port in zip(outside.names, outside.ports, strict=True):
        await up.api.patch(f"{SLICES}/website-x", {"ports": [{"port": port}]})
        await wait_for_answer(load, name)
    await load.stop()
    assert load.failed == []
    assert received() == load.backends
    assert set(load.backends) == {"website-v1", *outside.names}
