"""Metrics for Prometheus as a response, and `/metrics` on loopback, without authentication: metrics contain no secrets."""

import asyncio
import socket
from collections.abc import Callable, Iterable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headgate.api.http_server import Server, serve_on_loopback
from headgate.telemetry.prometheus.text import MEDIA_TYPE, Family, written

PATH = "/metrics"
YIELD_LINES = 500  # number of lines that are formatted before other asyncio tasks run

Families = Callable[[], Iterable[Family]]


def create_exposition(families: Families, host: str) -> Starlette:
    """Return the application for the Host header `host`; `families` returns the current metrics."""

    async def answer(_: Request) -> Response:
        return await exposition(families)

    async def alive(_: Request) -> Response:  # a coroutine, because Starlette runs other functions in threads
        return PlainTextResponse("ok")

    # Reject other Host headers, to prevent DNS rebinding.
    return Starlette(
        routes=[Route(PATH, answer), Route("/healthz", alive)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[host, "localhost"], www_redirect=False)],
    )


async def exposition(families: Families) -> Response:
    """Return the response with the current metrics. Other asyncio tasks run in between."""
    lines: list[str] = []
    for count, line in enumerate(written(families()), 1):
        lines.append(line)
        if not count % YIELD_LINES:
            await asyncio.sleep(0)
    return Response("".join(lines), headers={"content-type": MEDIA_TYPE})


async def serve_exposition(app: Starlette, listener: socket.socket) -> None:
    """Serve on a bound loopback socket until canceled. Raises ValueError for an address that is not loopback."""
    await serve_on_loopback(Server(app), listener)
