"""Measure how fast a written weight takes effect, through a real `headgate up`.

The split is flipped between 100/0 and 0/100 under load: with pauses between requests, and at full speed (then clients take CPU
time from headgate and Envoy). Times start before the write is sent. They end with the response to the write, with the first
response of the new backend, and with the last response of the old one. Aim: p99 under 50 ms with pauses.
"""

import asyncio
import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.load import Backend, Client, connect
from tests.chaos.machine import Up
from tests.make import objects
from tests.make.objects import Object

NAMES = ("v0", "v1")
PORT = 8080
CONNECTIONS = 8
EASE_S = 0.004
"""Seconds between requests of a connection; with eight connections about 1500 requests a second."""
SETTLED_S = 0.1
"""Seconds for which the load continues after a change, several times longer than a change takes."""


PATIENCE_S = 60


class Scale(NamedTuple):
    """The number of changes under each kind of load."""

    flips: int


USUAL = Scale(flips=100)
SMALLEST = Scale(flips=2)


class Flip(NamedTuple):
    """The times of one change, in milliseconds after the start of its write."""

    acknowledged: float
    first_new: float
    last_old: float


def manifests(backends: Sequence[int]) -> list[Object]:
    """Return a split over Services with local processes as endpoints."""
    names = [f"website-{name}" for name in NAMES]
    served = [objects.service(name, objects.port(PORT)) for name in ("website", *names)]
    slices = [
        objects.endpoint_slice(name, ["127.0.0.1"], {"": port}) for name, port in zip(names, backends, strict=True)
    ]
    return [*served, *slices, objects.split("website", dict(zip(names, (100, 0), strict=True)))]


async def flip(up: Up, clients: Sequence[Client], new: str) -> Flip:
    """Move all traffic to one backend under load. Raises TimeoutError if the traffic does not move."""
    for client in clients:
        client.seen.clear()
    changed = time.perf_counter()
    await up.weights(**{name: 100 * (name == new) for name in NAMES})
    acknowledged = time.perf_counter()
    mine: Sequence[float] = ()
    async with asyncio.timeout(PATIENCE_S):
        while not mine:
            await asyncio.sleep(SETTLED_S)
            seen = [answer for client in clients for answer in client.seen]
            mine = [answer.answered for answer in seen if answer.name == new and answer.answered > changed]
    last = max((answer.sent for answer in seen if answer.name != new), default=changed)
    return Flip(*(1000 * max(moment - changed, 0) for moment in (acknowledged, min(mine), last)))


def _report(what: str, flips: Sequence[Flip], requests: int, failed: int) -> None:
    print(f"{what}: {len(flips)} changes, {requests} requests, {failed} failed")
    for name, values in zip(
        ("write acknowledged", "first new answer", "last old request"), zip(*flips, strict=True), strict=True
    ):
        p99 = sorted(values)[math.ceil(len(values) * 0.99) - 1]
        print(f"  {name:20} median {statistics.median(values):6.1f} ms   p99 {p99:6.1f} ms")


async def _flips(up: Up, what: str, pause: float, count: int) -> None:
    going, requests = True, 0
    clients = await connect(up.address("website", PORT), CONNECTIONS, lambda: going, pause=pause)
    flips = []
    for number in range(count):
        flips.append(await flip(up, clients, NAMES[(number + 1) % 2]))
        requests += sum(len(client.seen) for client in clients)
    going = False
    await asyncio.gather(*(client.done for client in clients))
    _report(what, flips, requests, sum(client.failed for client in clients))


async def measure(scale: Scale) -> None:
    """Change the weights under both kinds of load, and print the times."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        backends = [stack.enter_context(Backend(name)) for name in NAMES]
        up = Up(directory)
        (up.manifests / "mesh.json").write_text(json.dumps({"kind": "List", "items": manifests(backends)}))
        stack.push_async_callback(up.stop)
        await up.start()
        await _flips(up, "clients at ease", EASE_S, scale.flips)
        await _flips(up, "clients at full speed", 0, scale.flips)
