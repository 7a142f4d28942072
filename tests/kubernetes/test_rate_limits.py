"""The limits of writes, and `Retry-After`: which request the server gets when, in virtual time with real connections."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from tests import virtual_time
from tests.kubernetes.http_server import serving

from headgate.errors import Unavailable
from headgate.kubernetes.client import Client
from headgate.kubernetes.lease import RENEW_S, Lease, LeaseName
from headgate.kubernetes.rate_limits import RETRY_AFTER_S, RequestLimits
from headgate.latest import until

SERVICES = "/api/v1/namespaces/shop/services"
LEASES = "/apis/coordination.k8s.io/"


class SlowServer:
    """An API server that stores nothing but the Lease. `times` has when it got each request, by method and path.

    The first requests get the status 429, each with the headers of an item in `rejections`.
    """

    def __init__(self, *rejections: Mapping[str, str]) -> None:
        self.times: dict[tuple[str, str], list[float]] = {}
        self._rejections = list(rejections)
        self._lease: Any = None

    async def answer(self, request: web.Request) -> web.Response:
        self.times.setdefault((request.method, request.path), []).append(asyncio.get_running_loop().time())
        if self._rejections:
            return web.json_response({"message": "overloaded"}, status=429, headers=self._rejections.pop(0))
        if not request.path.startswith(LEASES):
            return web.json_response({})
        if request.can_read_body:
            body = await request.json()
            self._lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(len(self.times))}}
        return web.json_response(self._lease, status=200 if self._lease else 404)


def test_a_burst_of_status_writes_is_limited_and_delays_no_renewal() -> None:
    """Of 500 writes, 100 are sent at once, then 50 each second."""

    async def scenario() -> None:
        server, clock = SlowServer(), asyncio.get_running_loop().time
        limits = RequestLimits(writes_per_s=50, burst=100)
        async with (
            serving(server.answer) as credentials,
            Client(credentials, limits=limits) as client,
            Client(credentials) as lease_client,
        ):
            lease = Lease(lease_client, LeaseName("headgate-system", "control-plane"), "first", clock=clock)
            election = asyncio.create_task(lease.run())
            await until(lease.active.get, lease.active)
            began = clock()
            await asyncio.gather(*(client.put(f"{SERVICES}/web-{number}/status", {}) for number in range(500)))
            election.cancel()
        writes = sorted(
            time - began for (_, path), times in server.times.items() if "/status" in path for time in times
        )
        assert len(writes) == 500
        assert [sum(time <= second + 0.001 for time in writes) for second in range(10)] == [
            min(100 + 50 * second, 500) for second in range(10)
        ]
        renewals = [
            time
            for (method, path), times in server.times.items()
            if LEASES in path and method == "PUT"
            for time in times
        ]
        assert [round(time - began, 3) for time in renewals] == [RENEW_S * number for number in range(1, 5)]

    virtual_time.run(scenario())


def test_reads_are_not_limited() -> None:
    async def scenario() -> None:
        server, limits = SlowServer(), RequestLimits(writes_per_s=1, burst=1)
        async with serving(server.answer) as credentials, Client(credentials, limits=limits) as client:
            await client.post(SERVICES, {})
            await asyncio.gather(*(client.get(SERVICES) for _ in range(100)))
            assert set(server.times["GET", SERVICES]) == set(server.times["POST", SERVICES])

    virtual_time.run(scenario())


def test_a_canceled_write_takes_no_turn() -> None:
    async def scenario() -> None:
        server, limits = SlowServer(), RequestLimits(writes_per_s=1, burst=1)
        async with serving(server.answer) as credentials, Client(credentials, limits=limits) as client:
            await client.post(SERVICES, {})
            waiting = [asyncio.ensure_future(client.post(SERVICES, {})) for _ in range(10)]
            await asyncio.sleep(0)
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await client.post(SERVICES, {})
            first, second = server.times["POST", SERVICES]
            assert round(second - first, 3) == 1

    virtual_time.run(scenario())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_rejected_request_is_retried_after_the_time_that_the_server_says(method: str) -> None:
    async def scenario() -> None:
        server = SlowServer({"Retry-After": "7"}, {"Retry-After": "0"})
        async with serving(server.answer) as credentials, Client(credentials, limits=RequestLimits()) as client:
            await (client.get(SERVICES) if method == "GET" else client.post(SERVICES, {}))
            first, *rest = server.times[method, SERVICES]
            assert [round(time - first, 3) for time in rest] == [7, 8]

    virtual_time.run(scenario())


@pytest.mark.parametrize(
    ("rejections", "count"),
    [
        ([{"Retry-After": "31"}], 1),
        ([{"Retry-After": "20"}] * 2, 2),
        ([{}], 1),
        ([{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}], 1),
    ],
)
def test_a_rejected_request_fails_if_the_wait_is_too_long_or_not_given(
    rejections: list[Mapping[str, str]], count: int
) -> None:
    async def scenario() -> None:
        server = SlowServer(*rejections)
        async with serving(server.answer) as credentials, Client(credentials, limits=RequestLimits()) as client:
            with pytest.raises(Unavailable, match="overloaded"):
                await client.post(SERVICES, {})
            times = server.times["POST", SERVICES]
            assert len(times) == count
            assert times[-1] - times[0] <= RETRY_AFTER_S

    virtual_time.run(scenario())


def test_without_limits_a_rejected_request_fails_at_once() -> None:
    """So a renewal of the Lease is repeated when the replica decides."""

    async def scenario() -> None:
        server = SlowServer({"Retry-After": "7"})
        async with serving(server.answer) as credentials, Client(credentials) as client:
            with pytest.raises(Unavailable):
                await client.post(SERVICES, {})
            assert len(server.times["POST", SERVICES]) == 1

    virtual_time.run(scenario())
