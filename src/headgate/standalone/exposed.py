"""Wires `/metrics`: the totals of traffic, headgate's own health, and the listener for Prometheus."""

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

from headgate.api.exposition import PATH, create_exposition, serve_exposition
from headgate.latest import Latest
from headgate.plane.census import pods_in
from headgate.plane.health import Health
from headgate.plane.machine import Machine
from headgate.standalone.instance import written
from headgate.standalone.options import By
from headgate.standalone.proxies.envoy import EnvoyState
from headgate.telemetry.prometheus.labels import FlowLabels
from headgate.telemetry.prometheus.text import Family, traffic
from headgate.telemetry.prometheus.totals import Totals
from headgate.telemetry.receiver import NOTES
from headgate.telemetry.windows import Windows


class Exposed(NamedTuple):
    """The listener of `/metrics`, and whether labels name workloads or pods."""

    listener: socket.socket
    by: By = "workload"

    @property
    def url(self) -> str:
        """The URL for Prometheus."""
        return f"http://{written(self.listener)}{PATH}"


def count(exposed: Exposed, windows: Windows, machine: Machine) -> Totals:
    """Begin to count traffic by labels, in addition to the windows."""
    by_pod = exposed.by == "pod"
    describe = FlowLabels(pods_in(machine.feed.snapshot), by_pod=by_pod)
    totals = Totals(describe, clock=time.monotonic, started=time.time(), by_pod=by_pod)
    for what in NOTES:  # as zero from the start: what begins with its first note hides it from increase()
        totals.note(what, 0)
    windows.count_in(totals)
    return totals


async def expose(exposed: Exposed, totals: Totals, machine: Machine, envoy: Latest[EnvoyState]) -> None:
    """Serve `/metrics` until cancelled."""
    health = Health(machine, lambda: envoy.get().restarts)

    def families() -> Iterator[Family]:
        yield from health.families()
        yield from traffic(totals)

    app = create_exposition(families, exposed.listener.getsockname()[0])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(health.run(), name="health")
        tasks.create_task(serve_exposition(app, exposed.listener), name="exposition")
