"""Measure the cost of sidecars per request: none, one at the caller, two with plaintext, two with mutual TLS.

Three real Envoys on loopback are configured over xDS: the caller's sidecar, one of a pod with plaintext, and one of a
pod with mutual TLS only. Clients use the caller's sidecar as programs with `http_proxy` do: requests for HTTP, CONNECT
for TCP, with the same small request and response. The paths take turns in random order, so that disturbances of the
machine affect all alike. The results are ratios and Envoy's CPU time.
"""

import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.lab import start_envoy
from benchmarks.load import Backend, Client, cpu_seconds
from benchmarks.pods import WorkloadAuthority, meshed
from tests.make import objects
from tests.make.objects import Object
from tests.make.values import compiled

from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.encode import Memo, encode
from headgate.envoy.node_ids import OUTBOUND_PORT
from headgate.envoy.view import project, sidecar
from headgate.latest import until
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import Mesh, Workload
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

CONNECTIONS, CALM_CONNECTIONS = 16, 8
FEWEST = 2  # requests of a kept connection: the first includes connecting, and does not count
PAUSE_S = 0.01
"""Seconds between a response and the next request, for the slices below saturation."""
HTTP, TCP = 8080, 9000
NETWORK = f"127.94.{os.getpid() % 250 + 1}"
"""The network of the pods, different in each run because sidecars have the same ports everywhere."""
CALLER = f"{NETWORK}.1"


class Scale(NamedTuple):
    """The number of slices of load on each path, their seconds, and those of the load before each slice."""

    rounds: int
    seconds: float
    warm: float


USUAL = Scale(rounds=5, seconds=1.2, warm=0.3)
SMALLEST = Scale(rounds=1, seconds=0.1, warm=0.05)


class Place(NamedTuple):
    """A pod, and the ports of its two processes behind the sidecar; other pods call only the sidecar."""

    name: str
    address: str
    http: int
    tcp: int


class Way(NamedTuple):
    """A path to the backend `place`: through the caller's sidecar, or directly."""

    name: str
    place: Place
    through: bool


class Kind(NamedTuple):
    """A kind of load: the `port` of the Service, and whether each request has its own connection."""

    name: str
    port: int
    fresh: bool


class Result(NamedTuple):
    """The result of one slice: requests per second and the 99th percentile at full speed, Envoy's CPU time per request in
    microseconds, and latencies of clients with pauses. Latencies are in milliseconds.
    """

    rate: float
    p99: float
    cpu: float
    calm_p50: float
    calm_p99: float


KINDS = (
    Kind("HTTP/1.1, connections kept", HTTP, fresh=False),
    Kind("TCP, connections kept", TCP, fresh=False),
    Kind("HTTP/1.1, a connection for each request", HTTP, fresh=True),
    Kind("TCP, a connection for each request", TCP, fresh=True),
)
Results = dict[tuple[Kind, Way], list[Result]]


class Asker(Client):
    """A client that, for TCP, first opens a CONNECT tunnel."""

    def __init__(self, way: Way, kind: Kind, *, until: float, pause: float) -> None:
        authority = f"{way.place.name}.default:{kind.port}"
        super().__init__(authority, lambda: not kind.fresh and self._goes_on(until), pause)
        self._tunnel = f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n" if kind.port == TCP else ""
        self._is_open = not (self._tunnel and way.through)

    def _goes_on(self, until: float) -> bool:
        return time.perf_counter() < until or len(self.seen) < FEWEST

    def _begin(self) -> None:
        if self._is_open:
            self._ask()
        else:
            self.waiting = True
            self.transport.write(self._tunnel.encode())

    def data_received(self, data: bytes) -> None:
        if self._is_open:
            super().data_received(data)
        elif data.startswith(b"HTTP/1.1 200") and data.endswith(b"\r\n\r\n"):
            self._is_open = True
            self._ask()
        else:
            self.transport.close()  # the request counts as failed


def written(bare: Place, plain: Place, secured: Place) -> Iterator[Object]:
    """Yield the objects of the mesh: three Services, one of them with mutual TLS only, and a caller."""
    yield meshed("caller", CALLER, {})
    yield from _served(bare, sidecar=False)
    yield from _served(plain)
    yield from _served(secured)
    yield objects.tls_config("secured", {"app": "secured"})


def _served(place: Place, *, sidecar: bool = True) -> Iterator[Object]:
    behind = {HTTP: place.http, TCP: place.tcp}
    if sidecar:
        yield meshed(place.name, place.address, behind)
    ports = {"http": HTTP, "tcp": TCP}
    yield objects.service(place.name, *(objects.port(port, app, app=app) for app, port in ports.items()))
    yield objects.endpoint_slice(
        place.name,
        [objects.endpoint(place.address, place.name if sidecar else "")],
        {app: port if sidecar else behind[port] for app, port in ports.items()},
    )


async def start(stack: AsyncExitStack, directory: Path, mesh: Mesh) -> list[int]:
    """Start a sidecar for each workload, configured by headgate; return their PIDs when all are in sync."""
    fleet, memo, authority = Fleet(), Memo(), WorkloadAuthority()
    server = XdsServer(fleet)
    await server.start(f"unix:{directory}/xds.sock")
    stack.push_async_callback(server.stop)
    pids = []
    for number, workload in enumerate(mesh.workloads):
        node = sidecar(workload)
        view = project(mesh, node, authority.credential(workload))
        fleet.expect(node.id).config.set(encode(view, memo))
        place = directory / str(number)
        content = bootstrap(node_id=node.id, xds_socket=f"{directory}/xds.sock", admin_socket=f"{place}.sock")
        pids.append(await start_envoy(stack, place, content))
    await until(lambda: all(proxy.settled() for proxy in fleet.proxies.values()), fleet.change_count)
    refused = [item for proxy in fleet.proxies.values() for item in proxy.rejections()]
    assert not refused, refused
    return pids


async def _connected(way: Way, kind: Kind, *, until: float, pause: float) -> Asker:
    behind = way.place.http if kind.port == HTTP else way.place.tcp
    host, port = (CALLER, OUTBOUND_PORT) if way.through else (way.place.address, behind)
    make = asyncio.get_running_loop().create_connection
    _, client = await make(lambda: Asker(way, kind, until=until, pause=pause), host, port)
    return client


async def drive(way: Way, kind: Kind, *, connections: int, seconds: float, pause: float = 0) -> list[float]:
    """Send requests for a few seconds; return the sorted durations in milliseconds, including connecting.

    Raises RuntimeError if a request fails.
    """
    end = time.perf_counter() + seconds

    async def ask() -> list[float]:
        found = []
        while time.perf_counter() < end:
            began = time.perf_counter()
            client = await _connected(way, kind, until=end, pause=pause)
            await client.done
            if client.failed or not client.seen:
                raise RuntimeError(f"{kind.name}, {way.name}: a request failed")
            times = [(one.answered - (began if kind.fresh else one.sent)) * 1000 for one in client.seen]
            found += times if kind.fresh else times[1:]  # the first duration includes connecting
            await asyncio.sleep(pause if kind.fresh else 0)
        return found

    several = await asyncio.gather(*(ask() for _ in range(connections)))
    return sorted(one for found in several for one in found)


async def measure_slice(way: Way, kind: Kind, pids: Sequence[int], scale: Scale) -> Result:
    """Run a slice of load at full speed, and one with pauses between requests."""
    await drive(way, kind, connections=CONNECTIONS, seconds=scale.warm)
    before = sum(map(cpu_seconds, pids))
    fast = await drive(way, kind, connections=CONNECTIONS, seconds=scale.seconds)
    used = sum(map(cpu_seconds, pids)) - before
    calm = await drive(way, kind, connections=CALM_CONNECTIONS, seconds=scale.seconds, pause=PAUSE_S)
    return Result(
        len(fast) / scale.seconds,
        _percentile(fast, 99),
        used / len(fast) * 1e6,
        _percentile(calm, 50),
        _percentile(calm, 99),
    )


def _percentile(times: Sequence[float], percent: int) -> float:
    return times[len(times) * percent // 100]


def report(results: Results, scale: Scale) -> None:
    """Print a row for each path, by kind of load, with its ratios to the direct path within each round."""
    print(
        f"{scale.rounds} slices of {scale.seconds:g} s each; {CONNECTIONS} connections at full speed, {CALM_CONNECTIONS} with pauses"
    )
    for kind in KINDS:
        heads = (
            "per s",
            "p99 ms",
            "CPU us",
            "at ease: p50",
            "p99 ms",
            "to direct: rate",
            "p50 at ease",
            "CPU to plain",
        )
        print(f"{kind.name:42}" + "".join(f" {head:>{max(8, len(head))}}" for head in heads))
        ways = [way for found, way in results if found is kind]
        direct, plain = results[kind, ways[0]], results[kind, ways[2]]
        for way in ways:
            found = results[kind, way]
            rate, p99, cpu, calm, calm_p99 = (statistics.median(values) for values in zip(*found, strict=True))
            to_rate = statistics.median(one.rate / two.rate for one, two in zip(found, direct, strict=True))
            to_calm = statistics.median(one.calm_p50 / two.calm_p50 for one, two in zip(found, direct, strict=True))
            to_plain = statistics.median(one.cpu / (two.cpu or 1) for one, two in zip(found, plain, strict=True))
            print(
                f"  {way.name:40} {rate:8.0f} {p99:8.2f} {cpu:8.1f} {calm:12.2f} {calm_p99:8.2f}"
                f" {to_rate:15.2f} {to_calm:11.2f} {to_plain:12.2f}"
            )


async def measure(scale: Scale) -> None:
    """Run the comparison and print the results."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        places = [
            Place(
                name,
                address := f"{NETWORK}.{number}",
                *(stack.enter_context(Backend(host=address)) for _ in (HTTP, TCP)),
            )
            for number, name in enumerate(("bare", "plain", "secured"), 2)
        ]
        bare, plain, secured = places
        mesh = compiled(*written(*places), mtls="off").mesh
        _check(mesh.workloads)
        pids = await start(stack, directory, mesh)
        ways = [
            Way("no sidecar", bare, through=False),
            Way("one sidecar, at the caller", bare, through=True),
            Way("two sidecars, plaintext", plain, through=True),
            Way("two sidecars, mutual TLS", secured, through=True),
        ]
        results: Results = {(kind, way): [] for kind in KINDS for way in ways}
        for _ in range(scale.rounds):
            for kind, way in random.sample(list(results), len(results)):
                results[kind, way].append(await measure_slice(way, kind, pids, scale))
        report(results, scale)


def _check(workloads: Sequence[Workload]) -> None:
    modes = {item.name.partition("/")[2]: item.tls_mode for item in workloads}
    assert modes["plain"] is TlsMode.PLAIN, modes
    assert modes["secured"] is TlsMode.STRICT, modes
