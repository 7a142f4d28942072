"""Measure the cost of mirrored requests, and show that a hanging or dead mirror does not affect callers (R44).

One Envoy, configured by headgate, sends requests to one backend and mirrors a part of them to another. The cases take
turns in random order. Clients pause after each response, so that the comparison shows latency instead of saturation.
The CPU time per request shows the cost of mirroring.
"""

import asyncio
import random
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.lab import Gateway, start_gateway, website
from benchmarks.load import Backend, connect, cpu_seconds
from msgspec import structs
from tests.ports import free_port

from headgate.latest import until
from headgate.model.routing import Endpoint, Endpoints, Mesh, Mirror, PortRef, Target

CONNECTIONS = 8
PAUSE_S = 0.01
"""Seconds between a response and the next request: about 700 requests/s in total."""
COPIES = PortRef("default/copies", 80)


class Scale(NamedTuple):
    """The number of slices of load on each case, their seconds, and those of the load before each slice."""

    rounds: int
    seconds: float
    warm: float


USUAL = Scale(rounds=7, seconds=1.5, warm=0.3)
SMALLEST = Scale(rounds=1, seconds=0.05, warm=0.05)


class Case(NamedTuple):
    """The percentage of mirrored requests, and the port of the mirror."""

    name: str
    percent: int
    port: int


class Result(NamedTuple):
    """The result of one slice: latencies in milliseconds, `cpu` is Envoy's CPU time per request in microseconds."""

    p50: float
    p99: float
    cpu: float


def mirrored(plain: Mesh, case: Case) -> Mesh:
    """Return the mesh with the mirror of a case."""
    if not case.percent:
        return plain
    (table,) = plain.tables
    mirror = Mirror(ref=COPIES, targets=(Target(ref=COPIES, weight=1),), numerator=case.percent, denominator=100)
    routes = tuple(structs.replace(route, mirrors=(mirror,)) for route in table.routes)
    place = Endpoints(ref=COPIES, ready=(Endpoint(address="127.0.0.1", port=case.port),))
    return structs.replace(plain, tables=(structs.replace(table, routes=routes),), endpoints=(*plain.endpoints, place))


async def paced(port: int, seconds: float) -> tuple[list[float], int]:
    """Send requests for a few seconds; return the sorted latencies in milliseconds, and the number of failures."""
    end = time.perf_counter() + seconds
    clients = await connect(f"127.0.0.1:{port}", CONNECTIONS, lambda: time.perf_counter() < end, pause=PAUSE_S)
    await asyncio.gather(*(client.done for client in clients))
    times = sorted((one.answered - one.sent) * 1000 for client in clients for one in client.seen)
    return times, sum(client.failed for client in clients)


async def measure_case(gateway: Gateway, mesh: Mesh, name: str, scale: Scale) -> Result:
    """Run one slice of load with the mirror of a case. Raises RuntimeError if a request fails."""
    gateway.apply(mesh)
    await until(gateway.proxy.settled, gateway.fleet.change_count)
    await paced(gateway.port, scale.warm)
    before = cpu_seconds(gateway.pid)
    times, failed = await paced(gateway.port, scale.seconds)
    if failed or not times:
        raise RuntimeError(f"{name}: {failed} requests failed")
    used = cpu_seconds(gateway.pid) - before
    return Result(times[len(times) // 2], times[len(times) * 99 // 100], used / len(times) * 1e6)


def report(results: dict[str, list[Result]], scale: Scale) -> None:
    """Print a row for each case, with its ratios to the case without a mirror within each round."""
    print(
        f"{scale.rounds} slices of {scale.seconds:g} s each, {CONNECTIONS} connections that pause {PAUSE_S * 1000:g} ms after a response"
    )
    print(f"{'medians':22} {'p50 ms':>8} {'p99 ms':>8} {'CPU us/req':>11}   ratios to none: p50, p99, CPU")
    plain = next(iter(results.values()))
    for name, found in results.items():
        middle = [statistics.median(values) for values in zip(*found, strict=True)]
        ratios = [
            statistics.median(one[field] / other[field] for one, other in zip(found, plain, strict=True))
            for field in range(len(middle))
        ]
        print(
            f"{name:22} {middle[0]:8.2f} {middle[1]:8.2f} {middle[2]:11.1f}   " + "  ".join(f"{x:.2f}" for x in ratios)
        )


async def measure(scale: Scale) -> None:
    """Run the comparison and print the results."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        primary, copies = (stack.enter_context(Backend(name)) for name in ("ok", "cp"))
        hanging = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        stack.callback(hanging.close)
        plain = website(free_port(), [primary], [1])
        gateway = await start_gateway(stack, directory, plain)
        cases = [Case("none", 0, 0), *(Case(f"{percent} %", percent, copies) for percent in (1, 42, 100))]
        cases.append(Case("100 %, mirror hangs", 100, hanging.sockets[0].getsockname()[1]))
        cases.append(Case("100 %, mirror is dead", 100, free_port()))
        results: dict[str, list[Result]] = {case.name: [] for case in cases}
        for _ in range(scale.rounds):
            for case in random.sample(cases, len(cases)):
                results[case.name].append(await measure_case(gateway, mirrored(plain, case), case.name, scale))
        report(results, scale)
