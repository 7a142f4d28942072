"""The objects that `headgate render --watch` follows: a failure ends the command (R32)."""

import asyncio

import msgspec
import pytest
from aiohttp import web
from tests.kubernetes.http_server import serving

from headgate.cli.mesh_source import followed_objects
from headgate.kubernetes.client import Client


async def answer(request: web.Request) -> web.Response:
    """Answer as an API server with Services, one of which has no name."""
    if request.path == "/apis":
        return web.json_response({"groups": []})
    if request.path == "/api/v1":
        return web.json_response({"resources": [{"name": "services"}]})
    return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]})


async def test_a_failure_of_a_followed_kind_ends_the_context_and_is_raised() -> None:
    async with serving(answer) as credentials, asyncio.timeout(30):
        with pytest.raises(msgspec.ValidationError, match="missing required field `name`"):
            async with followed_objects(Client(credentials)):
                await asyncio.Event().wait()
