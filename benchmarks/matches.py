"""Measure the cost of matches in a proxy: the same split, after 1, 10 and 100 header expressions that do not match.

The header is the host, which every request has. One Envoy has a Service for each number of matches. The Services take
turns in random order, so that disturbances of the machine affect all alike. The results are ratios to the split without
matches.
"""

import random
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.lab import start_gateway, website
from benchmarks.load import Backend, cpu_seconds, drive, generator, pin
from tests.ports import free_port

from headgate.model.requests import Header, Match, Text
from headgate.model.routing import Frontend, Mesh, PortRef, Route, RouteTable, Split

NUMBERS = (0, 1, 10, 100)
"""The number of routes with a match before the split of each Service; 0 means only the split."""
WEIGHTS = (90, 10)
CONNECTIONS = 32
PROXY, CLIENTS = 0, 1


class Scale(NamedTuple):
    """The number of slices of load on each Service, and their seconds."""

    rounds: int
    seconds: float


USUAL = Scale(rounds=9, seconds=1)
SMALLEST = Scale(rounds=1, seconds=0.05)


def meshes(ports: list[int], backends: list[int]) -> Mesh:
    """Return a mesh with a Service on each port; NUMBERS has the number of matches of each Service."""
    plain = website(ports[0], backends, WEIGHTS)
    fronts, tables = [], []
    for number, port in zip(NUMBERS, ports, strict=True):
        ref = PortRef(f"default/matches-{number}", port)
        split = plain.tables[0].routes[0].split
        misses = (_route(f".*shop-{index}\\.example.*", split) for index in range(number))
        fronts.append(Frontend(service=ref.service, address="127.0.0.1", ports=(port,)))
        tables.append(RouteTable(ref=ref, routes=(*misses, Route(split=split))))
    return Mesh(domain=plain.domain, frontends=tuple(fronts), tables=tuple(tables), endpoints=plain.endpoints)


def _route(pattern: str, split: Split) -> Route:
    header = Header(name=":authority", text=Text(value=pattern, regex=True))
    return Route(match=Match(headers=(header,)), split=split)


async def measure(scale: Scale) -> None:
    """Run the comparison and print the results."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        backends = [stack.enter_context(Backend(processor=CLIENTS)) for _ in WEIGHTS]
        ports = [free_port() for _ in NUMBERS]
        gateway = await start_gateway(stack, directory, meshes(ports, backends))
        pin(gateway.pid, PROXY)
        costs: dict[int, list[float]] = {number: [] for number in NUMBERS}
        for port in ports:
            await _cost(gateway.pid, port, scale.seconds)  # open connections to the backends and warm the caches
        for _ in range(scale.rounds):
            for number, port in random.sample(list(zip(NUMBERS, ports, strict=True)), len(ports)):
                costs[number].append(await _cost(gateway.pid, port, scale.seconds))
        report(costs, scale)


async def _cost(pid: int, port: int, seconds: float) -> float:
    """Return Envoy's CPU time per request in microseconds. Raises RuntimeError if a request fails."""
    before = cpu_seconds(pid)
    load = await drive(port, connections=CONNECTIONS, seconds=seconds)
    if load.failed or not load.requests:
        raise RuntimeError(f"port {port}: {load.failed} of {load.requests} requests failed")
    return (cpu_seconds(pid) - before) / load.requests * 1e6


def report(costs: dict[int, list[float]], scale: Scale) -> None:
    """Print a row for each number of matches, with the median of the ratios within each round."""
    print(f"{scale.rounds} slices of {scale.seconds:g} s each, {CONNECTIONS} connections, load by {generator()}")
    print(f"{'header expressions':20} {'CPU us/req':>11} {'to the plain split':>20}")
    for number, found in costs.items():
        ratio = statistics.median(one / plain for one, plain in zip(found, costs[0], strict=True))
        print(f"{number:<20} {statistics.median(found):11.1f} {ratio:20.2f}")
