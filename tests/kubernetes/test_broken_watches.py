"""An API server whose watches and responses stop without an end."""

import asyncio
import contextlib
import json
from itertools import pairwise

import pytest
from aiohttp import web
from tests import virtual_time
from tests.kubernetes.http_server import serving

from headgate.errors import Unavailable
from headgate.kubernetes.client import Client
from headgate.kubernetes.connection import ApiRequest
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import BOOKMARK_S, ClusterStore
from headgate.kubernetes.transport import exchange
from headgate.resources.kind import ServedKind
from headgate.resources.registry import SERVICE

BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}


async def stop_after(request: web.Request, body: bytes) -> web.Response:
    """Send a part of a body, and then nothing."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(body)
    await asyncio.Event().wait()
    raise AssertionError("unreachable: the client closes the connection")


def test_a_watch_without_events_after_a_bookmark_is_repeated() -> None:
    async def scenario() -> None:
        requests: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def answer(request: web.Request) -> web.Response:
            requests.put_nowait((request.query["resourceVersion"], clock()))
            return await stop_after(request, json.dumps(BOOKMARK).encode() + b"\n")

        async with serving(answer) as credentials, Client(credentials) as client:
            versions = ServedVersions(client)
            served = ServedKind(kind=SERVICE, group="", version="v1")
            versions.current.set({("", SERVICE.kind): served})
            watch = ClusterStore(client, versions).watch("", SERVICE.kind, since="3")
            waiting = asyncio.ensure_future(anext(watch))
            found = [await requests.get() for _ in range(3)]
            assert [version for version, _ in found] == ["3", "7", "7"]
            assert all(later - time >= BOOKMARK_S for (_, time), (_, later) in pairwise(found))
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting

    virtual_time.run(scenario())


async def test_a_response_that_stops_is_a_failure() -> None:
    async def answer(request: web.Request) -> web.Response:
        return await stop_after(request, b"{")

    async with serving(answer) as credentials:
        connection = await credentials.connect()
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable):
                async with exchange(connection, ApiRequest("GET", "/api", idle_s=0.05)) as response:
                    await response.read()


async def test_a_response_whose_connection_ends_is_named() -> None:
    async def answer(request: web.Request) -> web.Response:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport
        request.transport.abort()
        return web.Response()

    async with serving(answer) as credentials:
        connection = await credentials.connect()
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable, match=r"\(the connection ended before the whole answer\)"):
                async with exchange(connection, ApiRequest("GET", "/api")) as response:
                    await response.read()
