"""Measure what open pages of the dashboard cost the control plane: examples/bookstore in `headgate up`, and clients that do what pages do.

An overview follows three streams: the health of the mesh, the traffic graph, and the findings. `users` open a page each, in a browser
each, as on a cluster: they have a stream for each value. Windows of `one browser` share four streams, through the dashboard, and
read the other values every three seconds. Numbers are shares of one processor for the process of headgate; its Envoys and pods are not in them.
"""

import asyncio
import contextlib
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from http.client import OK
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from aiohttp import ClientSession, ClientTimeout, CookieJar, TCPConnector
from tests.api_client import access
from tests.e2e.bookstore import BOOKSTORE
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory

INSPECT = "/apis/inspect.headgate.dev/v1beta1"
VALUES = (f"{INSPECT}/meshstatuses", f"{INSPECT}/trafficgraphs/services?window=30s", f"{INSPECT}/findings")
STREAMS, POLL_S = 4, 3.0  # readings.js, streams.js
CONNECTIONS = 6  # of a browser to an origin
_SETTLE_S = 5
_TICKS = os.sysconf("SC_CLK_TCK")


Clients: TypeAlias = Callable[[str, int], Coroutine[Any, Any, None]]
"""Clients that run until they are canceled: of an address, for a number of pages."""


class Scale(NamedTuple):
    """The number of pages, and the seconds of each measurement."""

    pages: int
    seconds: int


USUAL, SMALLEST = Scale(50, 60), Scale(2, 2)


async def measure(scale: Scale) -> None:
    """Print the share of a processor that headgate takes without pages, and with them."""
    await asyncio.to_thread(_measure, scale)


def _measure(scale: Scale) -> None:
    with mesh_in_a_new_directory(manifests=BOOKSTORE) as mesh:
        dashboard, kubeconfig = mesh.ready["dashboard"], mesh.ready["kubeconfig"]
        pages = scale.pages
        print(f"without pages              {_share(mesh, scale.seconds):5.1f} % of a processor")
        with _running(_users, kubeconfig, pages):
            print(f"{pages:3} users with a page each  {_share(mesh, scale.seconds):5.1f} %")
        with _running(_windows, dashboard, pages):
            print(f"{pages:3} windows of one browser  {_share(mesh, scale.seconds):5.1f} %")


def _share(mesh: RunningMesh, seconds: int) -> float:
    """Return the percentage of a processor that headgate takes, once the clients are connected."""
    assert mesh.process
    stat = Path(f"/proc/{mesh.process.pid}/stat")
    time.sleep(_SETTLE_S)
    began, before = time.monotonic(), _processor_s(stat)
    time.sleep(seconds)
    return 100 * (_processor_s(stat) - before) / (time.monotonic() - began)


def _processor_s(stat: Path) -> float:
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS


@contextlib.contextmanager
def _running(clients: Clients, address: str, pages: int) -> Iterator[None]:
    """Run clients in a process of their own."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(clients, address, pages))
    process.start()
    try:
        yield
        assert process.is_alive(), "the clients have ended"
    finally:
        process.terminate()
        process.join()


def _run(clients: Clients, address: str, pages: int) -> None:
    asyncio.run(clients(address, pages))


async def _users(kubeconfig: str, pages: int) -> None:
    """Follow each value of each page with a stream to the API, as the API server of a cluster does for users."""
    server = access(Path(kubeconfig))
    origin = f"https://{server.host}:{server.port}"
    async with _session(origin, server.headers, TCPConnector(limit=0, ssl=server.tls)) as session:
        await asyncio.gather(*(_follow(session, value) for value in VALUES * pages))


async def _windows(url: str, pages: int) -> None:
    """Follow as many values as a browser has streams for, through the dashboard, and read those of the other pages every few seconds."""
    origin = url.partition("/?")[0]
    async with _session(origin, {}, TCPConnector(limit=CONNECTIONS)) as session:
        async with session.get(url) as response:
            await response.read()
        values = VALUES * pages
        followed = (_follow(session, value) for value in values[:STREAMS])
        await asyncio.gather(*followed, *(_poll(session, value) for value in values[STREAMS:]))


def _session(origin: str, headers: Mapping[str, str], connector: TCPConnector) -> ClientSession:
    jar = CookieJar(unsafe=True)
    return ClientSession(origin, headers=headers, connector=connector, cookie_jar=jar, timeout=ClientTimeout())


async def _follow(session: ClientSession, value: str) -> None:
    """Open a stream, read the value, then the events of the stream."""
    async with session.get(f"{value}{'&' if '?' in value else '?'}watch=true") as stream:
        await _read(session, value)
        assert stream.status == OK, await stream.text()
        async for _ in stream.content.iter_any():
            pass


async def _poll(session: ClientSession, value: str) -> None:
    while True:
        await _read(session, value)
        await asyncio.sleep(POLL_S * random.uniform(0.75, 1.25))


async def _read(session: ClientSession, value: str) -> None:
    async with session.get(value) as response:
        assert response.status == OK, await response.text()
        await response.read()
