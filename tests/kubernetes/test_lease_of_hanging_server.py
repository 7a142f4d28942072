"""The Lease of an API server that accepts requests and never answers, in virtual time with real connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from tests import virtual_time
from tests.kubernetes.http_server import serving

from headgate.errors import Unavailable
from headgate.kubernetes.client import Client
from headgate.kubernetes.lease import LIFETIME_S, STOP_S, Lease, LeaseLost, LeaseName, hold
from headgate.latest import Latest, until

NAME = LeaseName("headgate-system", "control-plane")
STATUS = "/api/v1/namespaces/shop/services/website/status"


class HangingServer:
    """An API server with one Lease. While `hangs`, it answers no request. `renewed` is the time of the last renewal.

    `waiting` is the number of requests without an answer whose connections are open; `received` counts all requests.
    """

    def __init__(self) -> None:
        self.hangs = False
        self.renewed = 0.0
        self.received = 0
        self.waiting: Latest[int] = Latest(0)
        self._lease: Any = None

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.received += 1
        if self.hangs:
            self.waiting.set(self.waiting.get() + 1)
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting.set(self.waiting.get() - 1)
        if body is not None:
            self._lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.received)}}
            self.renewed = asyncio.get_running_loop().time()
        return web.json_response(self._lease, status=200 if self._lease else 404)


@contextlib.asynccontextmanager
async def active_replica(server: HangingServer) -> AsyncIterator[tuple["asyncio.Task[None]", Client]]:
    """Run a replica until it is active; yield its election and the client of its other requests."""
    clock = asyncio.get_running_loop().time
    async with (
        serving(server.answer) as credentials,
        Client(credentials) as client,
        Client(credentials) as lease_client,
    ):
        lease = Lease(lease_client, NAME, "first", clock=clock)
        election = asyncio.create_task(hold(lease, client))
        await until(lease.active.get, lease.active)
        yield election, client
        await lease.release()  # a replica that has lost the Lease sends nothing


def test_a_replica_stops_in_time_if_the_server_hangs() -> None:
    """It tries until STOP_S seconds have passed since the renewal, and never longer."""

    async def scenario() -> None:
        server = HangingServer()
        async with active_replica(server) as (election, _):
            await asyncio.sleep(3 * STOP_S)  # renewals go on
            assert not election.done()
            server.hangs = True
            received = server.received
            with pytest.raises(LeaseLost):
                await election
            assert 0 <= STOP_S - (asyncio.get_running_loop().time() - server.renewed) < 0.01
            assert server.received - received > 1

    virtual_time.run(scenario())


def test_writes_in_flight_end_with_the_lease() -> None:
    """A write that continues after its task is canceled ends, too, before another replica may acquire the Lease."""

    async def scenario() -> None:
        server = HangingServer()
        async with active_replica(server) as (election, client):
            server.hangs = True
            write = asyncio.ensure_future(client.put(STATUS, {}))
            await until(lambda: server.waiting.get() > 0, server.waiting)
            with pytest.raises(LeaseLost):
                await election
            with pytest.raises(Unavailable):
                await write
            await until(lambda: server.waiting.get() == 0, server.waiting)
            assert asyncio.get_running_loop().time() - server.renewed < LIFETIME_S
            received = server.received
            with pytest.raises(Unavailable, match="this client is closed"):
                await client.put(STATUS, {})
            assert server.received == received

    virtual_time.run(scenario())
