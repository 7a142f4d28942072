"""Wires `/metrics`: the totals of traffic, headgate's own health, and the listener for Prometheus."""

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

from headgate.api.exposition import create_exposition, serve_exposition
from headgate.latest import Latest
from headgate.plane.census import pods_in
from headgate.plane.control_plane import ControlPlane
from headgate.plane.health import Health
from headgate.standalone.options import By
from headgate.standalone.proxies.envoy import EnvoyState
from headgate.telemetry.prometheus.labels import FlowLabels
from headgate.telemetry.prometheus.text import Family, traffic
from headgate.telemetry.prometheus.totals import Totals
from headgate.telemetry.receiver import NOTES


class Exposed(NamedTuple):
    """The listener of `/metrics`, and whether labels name workloads or pods."""

    listener: socket.socket
    by: By = "workload"


async def expose(exposed: Exposed, plane: ControlPlane, envoy: Latest[EnvoyState]) -> None:
    """Count the traffic between the pods of a machine from now on, and serve the numbers until cancelled."""
    machine, by_pod = plane.machine, exposed.by == "pod"
    health = Health(machine, lambda: envoy.get().restarts)
    describe = FlowLabels(pods_in(machine.feed.snapshot), by_pod=by_pod)
    totals = Totals(describe, clock=time.monotonic, started=time.time(), by_pod=by_pod)
    for what in NOTES:  # as zero from the start: what begins with its first note hides it from increase()
        totals.note(what, 0)
    plane.traffic.windows.count_in(totals)

    def numbers() -> Iterator[Family]:
        yield from health.families()
        yield from traffic(totals)

    app = create_exposition(numbers, exposed.listener.getsockname()[0])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(health.run(), name="health")
        tasks.create_task(serve_exposition(app, exposed.listener), name="exposition")
