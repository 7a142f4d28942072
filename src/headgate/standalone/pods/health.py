"""Watches the health of one running container with its probes, or by its ports when it has no readiness probe."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from headgate.resources.workloads import Probe
from headgate.standalone.pods.probes import Tally, Target, ask, listens, tcp_ports
from headgate.standalone.pods.runs import Run
from headgate.standalone.processes import Launch

_FIRST_LOOK, _SLOWER = 0.05, 1.5  # seconds before the second look at readiness, and how that grows until the first
_SLOWEST = 1.0  # success: nobody likes to wait for a laptop
_PATIENCE = 10.0  # seconds without a listening port before the user is told
_ADVICE = (
    "the program must listen on $HOST and $PORT (or 0.0.0.0), "
    "or spec.containers[].ports must name the port that it listens on"
)


async def watch_health(run: Run, launch: Launch) -> None:
    """Probe until cancelled: first startup, then liveness and readiness side by side."""
    container, settings = run.settings.container, run.settings
    target = Target(container, settings.address, launch)
    if container.startup_probe and not run.state.started and not await _startup(container.startup_probe, target, run):
        return
    run.set_health(started=True, ready=run.state.ready)
    async with asyncio.TaskGroup() as tasks:
        if container.liveness_probe:
            tasks.create_task(_liveness(container.liveness_probe, target, run))
        if container.readiness_probe:
            tasks.create_task(_readiness(container.readiness_probe, target, run))
        if not run.state.ready and (settings.advice or not container.readiness_probe):
            tasks.create_task(_listening(run))
        for port, number in settings.undeclared.items() if not run.state.ready else ():
            tasks.create_task(_led(port, number, run))


async def _startup(probe: Probe, target: Target, run: Run) -> bool:
    failures = 0
    async for fault in _faults("Startup", probe, target=target, run=run):
        if not fault:
            return True
        failures += 1
        if failures >= probe.failure_threshold:
            break
    await _restart("startup", run)
    return False


async def _liveness(probe: Probe, target: Target, run: Run) -> None:
    tally = Tally(probe, well=True)
    async for fault in _faults("Liveness", probe, target=target, run=run):
        if not tally.add(well=not fault):
            await _restart("liveness", run)
            return


async def _readiness(probe: Probe, target: Target, run: Run) -> None:
    tally = Tally(probe, well=run.state.ready)
    async for fault in _faults("Readiness", probe, target=target, run=run):
        run.set_health(started=True, ready=tally.add(well=not fault))


async def _restart(which: str, run: Run) -> None:
    message = f"Container {run.settings.container.name} failed {which} probe, will be restarted"
    await run.owner.record_event("Normal", "Killing", message)
    await run.restart()


async def _faults(which: str, probe: Probe, *, target: Target, run: Run) -> AsyncIterator[str]:
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
            await run.owner.record_event("Warning", "Unhealthy", f"{which} probe failed: {fault}")
        yield fault
        await asyncio.sleep(min(pause, period) if hurry else period)
        pause = min(pause * _SLOWER, _SLOWEST)


async def _listening(run: Run) -> None:
    """Wait until every declared port accepts connections: then a container without readiness probe is ready.

    Without ports that is at once. With a readiness probe it is only to say why the probe can't succeed.
    """
    told = False
    async for port, seconds in _silences(run.settings.address, tcp_ports(run.settings.container)):
        if not told and seconds > _PATIENCE:
            told = True
            message = f"nothing listens on {run.settings.address}:{port}: {run.settings.advice or _ADVICE}"
            await run.owner.record_event("Warning", "Unhealthy", message)
    if not run.settings.container.readiness_probe:
        run.set_health(started=True, ready=True)


async def _led(port: int, number: int, run: Run) -> None:
    """Report once when nothing listens for an undeclared port that Services lead to. The container is ready all the same."""
    async for _, seconds in _silences(run.settings.address, [number]):
        if seconds > _PATIENCE:
            message = (
                f"nothing listens on {run.settings.address}:{number}, where the sidecar sends what Services lead to port {port} "
                f"of this pod: callers get 503. Correct the Services' targetPort, or {run.settings.advice}"
            )
            await run.owner.record_event("Warning", "Unhealthy", message)
            return


async def _silences(address: str, ports: Iterable[int]) -> AsyncIterator[tuple[int, float]]:
    """Yield a port while nothing listens on it, with the seconds since the first look, until something does on all."""
    clock = asyncio.get_running_loop().time
    began, pause = clock(), _FIRST_LOOK
    for port in ports:
        while not await listens(address, port):
            yield port, clock() - began
            await asyncio.sleep(pause)
            pause = min(pause * _SLOWER, _SLOWEST)
