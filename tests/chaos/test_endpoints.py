"""Backends and endpoints are added and removed under load, in every order: no request is lost (R5, R37, D9)."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.chaos.backend import counts as counted
from tests.chaos.load import TimedLoad
from tests.chaos.machine import DEPLOYMENTS, PODS, SERVICES, SLICES, SPLITS, Up, until
from tests.make.objects import Object, endpoint_slice, service
from tests.ports import free_port

BACKEND = Path(__file__).with_name("backend.py")
PORT = 8080
BACKENDS = 12  # each order of the writes occurs twice: they depend on the remainders of a number by 2 and 3
ROUNDS = 2
GRACE_S = 30


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


@pytest.fixture
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


@pytest.mark.e2e
async def test_no_request_is_lost_while_12_backends_are_added_and_removed(
    up: Up, load: TimedLoad, outside: Outside, counts: Path
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
    assert Counter(counted(counts)) == load.backends
    assert {answer.backend for answer in load.answers[-40:]} == {"website-v1"}


async def pod_names(up: Up, version: str) -> set[str]:
    """Return the ready pods of a version that are not terminating."""
    pods = (await up.api.get(f"{PODS}?labelSelector=version%3D{version}"))["items"]
    return {
        pod["metadata"]["name"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and {"Ready": "True"}
        in [{item["type"]: item["status"]} for item in pod.get("status", {}).get("conditions", ())]
    }


@pytest.mark.e2e
async def test_no_request_is_lost_while_pods_are_deleted_and_recreated(up: Up, load: TimedLoad, counts: Path) -> None:
    await up.wait_until_active(await up.weights(v1=50, v2=50, v3=0))
    for version in ("v1", "v2") * ROUNDS:
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
    assert Counter(counted(counts)) == load.backends
    assert "website-v3" not in load.backends


@pytest.mark.e2e
async def test_no_request_is_lost_while_a_deployment_is_rolled_out_and_scaled(
    up: Up, load: TimedLoad, counts: Path
) -> None:
    deployment = f"{DEPLOYMENTS}/website-v1"
    for number in range(ROUNDS):
        await replace_pods(up, {"template": {"metadata": {"annotations": {"round": str(number)}}}}, 2)
        for replicas in (3, 2):
            await up.api.patch(deployment, {"spec": {"replicas": replicas}})

            async def scaled(replicas: int = replicas) -> bool:
                return len(await pod_names(up, "v1")) == replicas

            await until(scaled, f"{replicas} pods")
    await load.stop()
    assert load.failed == []
    assert Counter(counted(counts)) == load.backends
    assert set(load.backends) == {"website-v1"}


async def replace_pods(up: Up, spec: Object, replicas: int) -> None:
    """Change the Deployment of v1, and wait until all its pods are new ones."""
    before = await pod_names(up, "v1")
    await up.api.patch(f"{DEPLOYMENTS}/website-v1", {"spec": spec})

    async def replaced() -> bool:
        now = await pod_names(up, "v1")
        return len(now) == replicas and not now & before

    await until(replaced, "new pods of v1")


@pytest.mark.e2e
async def test_no_request_is_lost_while_the_only_pod_is_replaced(up: Up, load: TimedLoad, counts: Path) -> None:
    """D31: the old pod serves until its grace period ends, and until then it gets the requests if no other pod is ready."""
    container = (await up.api.get(f"{DEPLOYMENTS}/website-v1"))["spec"]["template"]["spec"]["containers"][0]
    shell = {**container, "command": ["sh", "-c", "trap '' TERM; exec \"$@\"", "sh", *container["command"]]}
    template = {"spec": {"terminationGracePeriodSeconds": GRACE_S, "containers": [shell]}}
    await replace_pods(up, {"template": template}, 2)

    async def gone() -> bool:
        return len((await up.api.get(f"{PODS}?labelSelector=version%3Dv1"))["items"]) == 2

    await until(gone, "the end of the first pods, which do not outlive SIGTERM")
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    template = {"metadata": {"annotations": {"version": "next"}}}
    await replace_pods(up, {"replicas": 1, "strategy": strategy, "template": template}, 1)
    await load.stop()
    await up.kill()  # a stop would wait for the grace period, because the pod ignores SIGTERM
    assert load.failed == []
    assert Counter(counted(counts)) == load.backends


@pytest.mark.e2e
async def test_no_request_is_lost_while_a_manual_endpoint_slice_is_edited(
    up: Up, load: TimedLoad, outside: Outside, counts: Path
) -> None:
    await add(up, "website-x", outside.ports[0])
    await split_over(up, ["website-x"])
    await up.wait_until_active()
    for name, port in zip(outside.names, outside.ports, strict=True):
        await up.api.patch(f"{SLICES}/website-x", {"ports": [{"port": port}]})
        await wait_for_answer(load, name)
    await load.stop()
    assert load.failed == []
    assert Counter(counted(counts)) == load.backends
    assert set(load.backends) == {"website-v1", *outside.names}
