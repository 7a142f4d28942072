"""What matches cost a proxy: the same split, reached after 1, 10 and 100 expressions on a header that do not fit.

The header is the host, which every request has. One Envoy has a Service for each number of matches; they take turns in
random order, so that what disturbs the machine disturbs all. The ratios to the plain split are what counts.
"""

import random
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.lab import free_port, start_gateway, website
from benchmarks.load import Backend, cpu_seconds, drive, generator, pin

from headgate.model.requests import Header, Match, Text
from headgate.model.routing import Frontend, Mesh, PortRef, Route, RouteTable

NUMBERS = (0, 1, 10, 100)
"""How many matches stand before the route of a Service; 0 is the plain split."""
WEIGHTS = (90, 10)
ROUNDS = 9
SECONDS = 1.0
CONNECTIONS = 32
PROXY, CLIENTS = 0, 1


def meshes(ports: list[int], backends: list[int]) -> Mesh:
    """Return one mesh with a Service on each port, which has as many matches as NUMBERS says."""
    plain = website(ports[0], backends, WEIGHTS)
    fronts, tables = [], []
    for number, port in zip(NUMBERS, ports, strict=True):
        ref = PortRef(f"default/matches-{number}", port)
        split = plain.tables[0].routes[0].split
        misses = (_route(f".*shop-{index}\\.example.*", split) for index in range(number))
        fronts.append(Frontend(service=ref.service, address="127.0.0.1", ports=(port,)))
        tables.append(RouteTable(ref=ref, routes=(*misses, Route(split=split))))
    return Mesh(domain=plain.domain, frontends=tuple(fronts), tables=tuple(tables), endpoints=plain.endpoints)


def _route(pattern: str, split) -> Route:
    header = Header(name=":authority", text=Text(value=pattern, regex=True))
    return Route(match=Match(headers=(header,)), split=split)


async def measure() -> None:
    """Run the comparison and print it."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        backends = [stack.enter_context(Backend(processor=CLIENTS)) for _ in WEIGHTS]
        ports = [free_port() for _ in NUMBERS]
        gateway = await start_gateway(stack, directory, meshes(ports, backends))
        pin(gateway.pid, PROXY)
        costs: dict[int, list[float]] = {number: [] for number in NUMBERS}
        for port in ports:
            await _cost(gateway.pid, port)  # connections to the backends, warm caches
        for _ in range(ROUNDS):
            for number, port in random.sample(list(zip(NUMBERS, ports, strict=True)), len(ports)):
                costs[number].append(await _cost(gateway.pid, port))
        report(costs)


async def _cost(pid: int, port: int) -> float:
    """Return microseconds of Envoy's processor time for a request. Raises SystemExit when a request fails."""
    before = cpu_seconds(pid)
    load = await drive(port, connections=CONNECTIONS, seconds=SECONDS)
    if load.failed or not load.requests:
        raise SystemExit(f"port {port}: {load.failed} of {load.requests} requests failed")
    return (cpu_seconds(pid) - before) / load.requests * 1e6


def report(costs: dict[int, list[float]]) -> None:
    """Print a row for each number of matches, with the median of the ratios within each round."""
    print(f"{ROUNDS} slices of {SECONDS:g} s each, {CONNECTIONS} connections, load by {generator()}")
    print(f"{'header expressions':20} {'CPU us/req':>11} {'to the plain split':>20}")
    for number, found in costs.items():
        ratio = statistics.median(one / plain for one, plain in zip(found, costs[0], strict=True))
        print(f"{number:<20} {statistics.median(found):11.1f} {ratio:20.2f}")
