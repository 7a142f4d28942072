"""Tests of the health of real processes: what probes restart, and when a pod without a readiness probe is ready."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
from tests.standalone.pods.machine import PORTS, ProcessMachine, process_pod, python, running

from headgate.resources.meta import Object
from headgate.standalone.pods import health

STUBBORN_ONCE = """
import os, signal, time
try:
    os.mkdir(os.environ["MARK"])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
except FileExistsError:
    pass
while True: time.sleep(60)
"""
IDLE = "import time; time.sleep(600)"


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[ProcessMachine]:
    async with running(tmp_path / "state") as started:
        yield started


async def restarted(machine: ProcessMachine) -> Object:
    async def holds() -> Object | None:
        pod = await machine.get()
        statuses = (pod.get("status") or {}).get("containerStatuses", ())
        return pod if any(status["restartCount"] for status in statuses) else None

    return await machine.until(holds)


async def test_a_failed_liveness_probe_kills_after_its_own_grace_period(machine, tmp_path):
    """The first process ignores SIGTERM, and the pod's grace period of an hour would never end."""
    check = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    probe = {**check, "terminationGracePeriodSeconds": 1}
    app = process_pod(
        command=python(STUBBORN_ONCE),
        livenessProbe=probe,
        env=[{"name": "MARK", "value": str(tmp_path / "mark")}],
        spec={"terminationGracePeriodSeconds": 3600},
    )
    await machine.store.create(app)
    await restarted(machine)
    assert "failed liveness probe" in (await machine.event("Killing"))["message"]


async def test_a_startup_probe_runs_often_but_fails_once_a_period(machine, tmp_path):
    """It fails three times in the first period, which is not two periods; no Event says so."""
    check = f"echo >> {tmp_path}/runs; test $(wc -l < {tmp_path}/runs) -gt 3"
    probe = {
        "exec": {"command": ["sh", "-c", check]},
        "periodSeconds": 3600,
        "failureThreshold": 2,
        "timeoutSeconds": 60,
    }
    await machine.store.create(process_pod(command=python(IDLE), startupProbe=probe))
    await machine.ready()
    assert (await machine.get())["status"]["containerStatuses"][0]["restartCount"] == 0
    events = (await machine.store.list("", "Event")).items
    assert "Unhealthy" not in {event["reason"] for event in events}


async def test_a_startup_probe_that_may_fail_once_restarts_its_container_and_says_why(machine):
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 3600, "failureThreshold": 1, "timeoutSeconds": 60}
    await machine.store.create(process_pod(command=python(IDLE), startupProbe=probe))
    await restarted(machine)
    assert "Startup probe failed" in (await machine.event("Unhealthy"))["message"]


async def test_a_pod_is_ready_when_its_grpc_health_service_serves(machine):
    serves = asyncio.Event()
    asked = asyncio.Event()

    async def check(_request: bytes, _context: grpc.aio.ServicerContext) -> bytes:
        asked.set()
        return b"\x08\x01" if serves.is_set() else b"\x08\x02"

    probe = {"grpc": {"port": 18080}, "periodSeconds": 1, "timeoutSeconds": 30}
    await machine.store.create(process_pod(command=python(IDLE), readinessProbe=probe))

    async def placed() -> str | None:
        return ((await machine.get()).get("status") or {}).get("podIP")

    server = grpc.aio.server()
    methods = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods),))
    server.add_insecure_port(f"{await machine.until(placed)}:18080")
    await server.start()
    await asyncio.wait_for(asked.wait(), 60)
    assert not (await machine.get())["status"]["containerStatuses"][0]["ready"]
    serves.set()
    await machine.ready()
    await server.stop(None)


async def test_a_pod_without_a_readiness_probe_becomes_ready_although_nothing_listens_on_its_port(machine, monkeypatch):
    monkeypatch.setattr(health, "_PATIENCE", 0.1)
    await machine.store.create(process_pod(command=python(IDLE), ports=PORTS))
    await machine.ready()
    event = await machine.event("Unhealthy")
    assert "nothing listens on" in event["message"]
