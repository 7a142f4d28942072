"""Measure the traffic graph of a large mesh, and the cost of 50 clients that watch one path of the inspect API.

The graph has as many Services and workloads as pods, and an edge for each flow. Times are processor times in milliseconds, of a graph
from a new Reading, a second after the one before, and of its JSON. The watched path has 100 proxies, of which ten change each second. The clients read from an
embedded API over TLS, in another process; the share is of one processor, for that of the server.
"""

import asyncio
import contextlib
import multiprocessing
import random
import ssl
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from socket import create_server
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
from benchmarks.metrics_api import Mesh, Scale, SimulatedProxies
from tests.api.inspect.inspect_fakes import FakeMesh, proxy
from tests.embedded_api import TOKEN

from headgate.api.certificate import certificate_in
from headgate.plane.object_graphs import ObjectGraphs
from headgate.resources.traffic_graphs import GRAPHS
from headgate.settings import DEFAULTS
from headgate.standalone.apiserver.app import ComputedGroups, create_app, serve
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.answers.divided_traffic import MeshFacts
from headgate.telemetry.answers.traffic_graph import traffic_graph

PROXIES, CHANGED, WINDOW_S = 100, 10, 30.0
WATCHED = "/apis/inspect.headgate.dev/v1beta1/proxies?watch=true"


class GraphScale(NamedTuple):
    """The mesh, the number of clients, and the seconds of watching."""

    mesh: Scale
    clients: int
    seconds: int


USUAL = GraphScale(Scale(pods=5000, deployments=5000, callers=4, rounds=20), clients=50, seconds=20)
SMALLEST = GraphScale(Scale(pods=2, deployments=2, callers=1, rounds=2), clients=2, seconds=2)


async def measure(scale: GraphScale) -> None:
    """Run the benchmark and print the results."""
    await _graphs(scale.mesh)
    alone = await _share(0, scale.seconds)
    watched = await _share(scale.clients, scale.seconds)
    print(f"{scale.clients} clients watch {PROXIES} proxies, of which {CHANGED} change each second:")
    print(f"  {100 * watched:.1f} % of a processor; without clients {100 * alone:.1f} %")


async def _graphs(scale: Scale) -> None:
    mesh = Mesh(scale)
    proxies = SimulatedProxies(mesh, scale)
    world = await ObjectGraphs(mesh, DEFAULTS).graph_of(("Pod", "ReplicaSet", "Service", "Deployment"))
    print(f"{scale.pods} workloads, {scale.pods * scale.callers} flows; milliseconds: median, most")
    for name in GRAPHS:
        made: list[float] = []
        encoded: list[float] = []
        for _ in range(scale.rounds):
            proxies.report()
            reading = await proxies.windows.read(WINDOW_S)
            began = time.process_time()
            graph = traffic_graph(name, reading, world, MeshFacts(None))
            middle = time.process_time()
            content = msgspec.json.encode(graph)
            made.append(middle - began)
            encoded.append(time.process_time() - middle)
        sizes = f"{len(graph.status.nodes)} nodes, {len(graph.status.edges)} edges, {len(content) / 1e6:.1f} MB"
        print(f"  {name:10} {_shown(made)}   JSON {_shown(encoded)}   {sizes}")


def _shown(seconds: Sequence[float]) -> str:
    return f"{1000 * statistics.median(seconds):6.0f} {1000 * max(seconds):6.0f}"


async def _share(clients: int, seconds: int) -> float:
    """Return the share of a processor that an embedded API takes while clients watch its proxies."""
    with TemporaryDirectory() as directory, create_server(("127.0.0.1", 0)) as listener:
        certificate = certificate_in(Path(directory))
        mesh: Any = FakeMesh()
        mesh.rows = [proxy("default", f"p{number}") for number in range(PROXIES)]
        app = create_app(MemoryStore(), token=TOKEN, computed=ComputedGroups(inspector=mesh))
        serving = asyncio.create_task(serve(app, listener, certificate))
        process = multiprocessing.get_context("spawn").Process(
            target=_run_clients, args=(listener.getsockname()[1], str(certificate.path), clients)
        )
        process.start()
        try:
            while clients and mesh.reads < 2:  # the clients are connected, and one second has passed
                await asyncio.sleep(0.1)
            return await _measured(mesh, seconds)
        finally:
            process.terminate()
            process.join()
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


async def _measured(mesh: FakeMesh, seconds: int) -> float:
    began, processor = time.monotonic(), time.process_time()
    for _ in range(seconds):
        for number in random.sample(range(PROXIES), CHANGED):
            mesh.rows[number] = proxy("default", f"p{number}", held=random.randrange(1000))
        await asyncio.sleep(1)
    return (time.process_time() - processor) / (time.monotonic() - began)


def _run_clients(port: int, roots: str, clients: int) -> None:
    asyncio.run(_watch_all(port, roots, clients))


async def _watch_all(port: int, roots: str, clients: int) -> None:
    trust = ssl.create_default_context(cafile=roots)
    request = f"GET {WATCHED} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode()

    async def watch() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.write(request)
        while await reader.read(1 << 16):
            pass

    await asyncio.gather(*(watch() for _ in range(clients)))
