"""Watches the health of a running container with its probes, or by its ports if it has no readiness probe."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from headgate.backoff import Backoff, exact
from headgate.resources.core.pod_spec import Probe
from headgate.standalone.pods.probes import HealthTracker, ProbeTarget, listens, run_probe, tcp_ports
from headgate.standalone.pods.runs import Run
from headgate.standalone.processes import Launch

_PATIENCE = (
    10.0  # seconds without a listening port until an Event reports it, and a pod without a readiness probe is ready
)
_ADVICE = (
    "the program must listen on $HOST and $PORT (or 0.0.0.0), "
    "or spec.containers[].ports must name the port that it listens on"
)


def _pauses() -> Backoff:
    """Return the pauses between checks of a container that starts."""
    return Backoff(first_s=0.05, longest_s=1.0, growth=1.5, draw=exact)


async def watch_health(run: Run, launch: Launch) -> None:
    """Probe until canceled: first startup, then liveness and readiness concurrently."""
    container, settings = run.settings.container, run.settings
    target = ProbeTarget(container, settings.address, launch, settings.network)
    if container.startup_probe and not run.state.started and not await _startup(container.startup_probe, target, run):
        return
    run.set_health(started=True, ready=run.state.ready)
    async with asyncio.TaskGroup() as tasks:
        if container.liveness_probe:
            tasks.create_task(_liveness(container.liveness_probe, target, run))
        if container.readiness_probe:
            tasks.create_task(_readiness(container.readiness_probe, target, run))
        if not run.state.ready and (settings.advice or not container.readiness_probe):
            tasks.create_task(_check_declared_ports(run))
        for port, number in settings.undeclared.items() if not run.state.ready else ():
            tasks.create_task(_check_undeclared_port(port, number, run))


async def _startup(probe: Probe, target: ProbeTarget, run: Run) -> bool:
    clock = asyncio.get_running_loop().time
    failures, next_failure = 0, 0.0  # failures within one period count once
    async for fault in _faults("Startup", probe, target=target, run=run):
        if not fault:
            return True
        if clock() < next_failure:
            continue
        failures, next_failure = failures + 1, clock() + max(probe.period_seconds, 1)
        if failures >= probe.failure_threshold:
            break
    await _restart("startup", probe, run)
    return False


async def _liveness(probe: Probe, target: ProbeTarget, run: Run) -> None:
    thresholds = HealthTracker(probe, healthy=True)
    async for fault in _faults("Liveness", probe, target=target, run=run):
        if not thresholds.add(healthy=not fault):
            await _restart("liveness", probe, run)
            return


async def _readiness(probe: Probe, target: ProbeTarget, run: Run) -> None:
    thresholds = HealthTracker(probe, healthy=run.state.ready)
    async for fault in _faults("Readiness", probe, target=target, run=run):
        run.set_health(started=True, ready=thresholds.add(healthy=not fault))


async def _restart(which: str, probe: Probe, run: Run) -> None:
    message = f"Container {run.settings.container.name} failed {which} probe, will be restarted"
    await run.owner.record_event("Normal", "Killing", message)
    await run.restart(grace=probe.termination_grace_period_seconds)


async def _faults(which: str, probe: Probe, *, target: ProbeTarget, run: Run) -> AsyncIterator[str]:
    """Probe forever; yield the fault after each probe, empty if it succeeded."""
    await asyncio.sleep(probe.initial_delay_seconds)
    clock = asyncio.get_running_loop().time
    is_starting = which != "Liveness"
    period: float = max(probe.period_seconds, 1)
    # No Event while a program starts, unless its first failure restarts it.
    is_patient = which == "Readiness" or probe.failure_threshold > 1
    pauses, report_after = _pauses(), clock() + period if is_patient else 0.0
    while True:
        fault = await run_probe(probe, target)
        is_starting = is_starting and bool(fault)
        if fault and clock() >= report_after:
            report_after = clock() + (period if is_starting else 0.0)  # probes are more frequent then
            await run.owner.record_event("Warning", "Unhealthy", f"{which} probe failed: {fault}")
        yield fault
        await asyncio.sleep(min(pauses.next_pause(), period) if is_starting else period)


async def _check_declared_ports(run: Run) -> None:
    """Make a container without a readiness probe ready: when its declared ports accept connections, or after `_PATIENCE`.

    Kubernetes does not wait at all. The bounded wait lets a program start, so that it loses no requests during a rollout;
    a port on which nothing listens later is reported by an Event. If the container has a readiness probe, this check does
    not change its readiness: it only explains why the probe fails.
    """
    is_reported, is_probed = False, bool(run.settings.container.readiness_probe)
    async for port, seconds in _closed_ports(run, tcp_ports(run.settings.container)):
        if not is_reported and seconds > _PATIENCE:
            is_reported = True
            message = f"nothing listens on {run.settings.address}:{port}: {run.settings.advice or _ADVICE}"
            await run.owner.record_event("Warning", "Unhealthy", message)
            if not is_probed:
                run.set_health(started=True, ready=True)
    if not is_probed and not run.state.ready:
        run.set_health(started=True, ready=True)


async def _check_undeclared_port(port: int, number: int, run: Run) -> None:
    """Write an Event if nothing listens on the process port of an undeclared port. The container is ready nevertheless."""
    async for _, seconds in _closed_ports(run, [number]):
        if seconds > _PATIENCE:
            message = (
                f"nothing listens on {run.settings.address}:{number}, to which the sidecar forwards port {port}, the targetPort of "
                f"Services: callers get 503. Correct the targetPort, or {run.settings.advice}"
            )
            await run.owner.record_event("Warning", "Unhealthy", message)
            return


async def _closed_ports(run: Run, ports: Iterable[int]) -> AsyncIterator[tuple[int, float]]:
    """Yield (port, seconds since the start) while a port is closed; end when all ports accept connections."""
    clock = asyncio.get_running_loop().time
    began, pauses = clock(), _pauses()
    for port in ports:
        while not await listens(run.settings.address, port, run.settings.network):
            yield port, clock() - began
            await asyncio.sleep(pauses.next_pause())
