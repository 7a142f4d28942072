"""Watches the health of one running container with its probes, or by its ports when it has no readiness probe."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal, Protocol

from headgate.resources.workloads import Probe
from headgate.standalone.pods.probes import Tally, Target, ask, listens, tcp_ports

Severity = Literal["Normal", "Warning"]
_FIRST_LOOK, _SLOWER = 0.05, 1.5  # seconds before the second look at readiness, and how that grows until the first
_SLOWEST = 1.0  # success: nobody likes to wait for a laptop
_PATIENCE = 10.0  # seconds without a listening port before the user is told
_ADVICE = (
    "the program must listen on $HOST and $PORT (or 0.0.0.0), "
    "or spec.containers[].ports must name the port that it listens on"
)


class Patient(Protocol):
    """The container, as its probes see it. One that was taken over may have been started, or ready, before."""

    @property
    def started(self) -> bool:
        """Whether it has passed its startup probe."""

    @property
    def ready(self) -> bool:
        """Whether it is ready; it stays so until a probe says otherwise."""

    def report(self, *, started: bool, ready: bool) -> None:
        """Take note of a verdict."""

    async def unwell(self) -> None:
        """End the process: it is to be restarted."""

    async def tell(self, type: Severity, reason: str, message: str) -> None:
        """Tell the user."""


async def watch_health(target: Target, patient: Patient) -> None:
    """Probe until cancelled: first startup, then liveness and readiness side by side."""
    container = target.container
    if container.startup_probe and not patient.started and not await _startup(container.startup_probe, target, patient):
        return
    patient.report(started=True, ready=patient.ready)
    async with asyncio.TaskGroup() as tasks:
        if container.liveness_probe:
            tasks.create_task(_liveness(container.liveness_probe, target, patient))
        if container.readiness_probe:
            tasks.create_task(_readiness(container.readiness_probe, target, patient))
        if not patient.ready and (target.advice or not container.readiness_probe):
            tasks.create_task(_listening(target, patient))
        for port, number in target.led.items() if not patient.ready else ():
            tasks.create_task(_led(port, number, target=target, patient=patient))


async def _startup(probe: Probe, target: Target, patient: Patient) -> bool:
    failures = 0
    async for fault in _faults("Startup", probe, target=target, patient=patient):
        if not fault:
            return True
        failures += 1
        if failures >= probe.failure_threshold:
            break
    await _restart("startup", target, patient)
    return False


async def _liveness(probe: Probe, target: Target, patient: Patient) -> None:
    tally = Tally(probe, well=True)
    async for fault in _faults("Liveness", probe, target=target, patient=patient):
        if not tally.add(well=not fault):
            await _restart("liveness", target, patient)
            return


async def _readiness(probe: Probe, target: Target, patient: Patient) -> None:
    tally = Tally(probe, well=patient.ready)
    async for fault in _faults("Readiness", probe, target=target, patient=patient):
        patient.report(started=True, ready=tally.add(well=not fault))


async def _restart(which: str, target: Target, patient: Patient) -> None:
    name = target.container.name
    await patient.tell("Normal", "Killing", f"Container {name} failed {which} probe, will be restarted")
    await patient.unwell()


async def _faults(which: str, probe: Probe, *, target: Target, patient: Patient) -> AsyncIterator[str]:
    """Ask for ever; yield what is wrong each time, empty when nothing is."""
    await asyncio.sleep(probe.initial_delay_seconds)
    clock = asyncio.get_running_loop().time
    hurry = which == "Readiness"
    period: float = max(probe.period_seconds, 1)
    pause, told_from = _FIRST_LOOK, clock() + period if hurry else 0.0  # that a program still starts is no news
    while True:
        fault = await ask(probe, target)
        hurry = hurry and bool(fault)
        if fault and clock() >= told_from:
            await patient.tell("Warning", "Unhealthy", f"{which} probe failed: {fault}")
        yield fault
        await asyncio.sleep(min(pause, period) if hurry else period)
        pause = min(pause * _SLOWER, _SLOWEST)


async def _listening(target: Target, patient: Patient) -> None:
    """Wait until every declared port accepts connections: then a container without readiness probe is ready.

    Without ports that is at once. With a readiness probe it is only to say why the probe can't succeed.
    """
    clock = asyncio.get_running_loop().time
    told, began, pause = False, clock(), _FIRST_LOOK
    for port in tcp_ports(target.container):
        while not await listens(target.address, port):
            if not told and clock() - began > _PATIENCE:
                told = True
                message = f"nothing listens on {target.address}:{port}: {target.advice or _ADVICE}"
                await patient.tell("Warning", "Unhealthy", message)
            await asyncio.sleep(pause)
            pause = min(pause * _SLOWER, _SLOWEST)
    if not target.container.readiness_probe:
        patient.report(started=True, ready=True)


async def _led(port: int, number: int, *, target: Target, patient: Patient) -> None:
    """Report once when nothing listens for an undeclared port that Services lead to. The container is ready all the same."""
    clock = asyncio.get_running_loop().time
    began, pause = clock(), _FIRST_LOOK
    while not await listens(target.address, number):
        if clock() - began > _PATIENCE:
            message = (
                f"nothing listens on {target.address}:{number}, where the sidecar sends what Services lead to port {port} "
                f"of this pod: callers get 503. Correct the Services' targetPort, or {target.advice}"
            )
            await patient.tell("Warning", "Unhealthy", message)
            return
        await asyncio.sleep(pause)
        pause = min(pause * _SLOWER, _SLOWEST)
