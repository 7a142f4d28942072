"""Serves `/metrics` for Prometheus, on loopback, without a token: it has no secrets."""

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
BREATH = 500  # lines that are written before other tasks get their turn

Families = Callable[[], Iterable[Family]]


def create_exposition(families: Families, host: str) -> Starlette:
    """Return the application on an address; `families` returns the metrics of the moment."""

    async def answer(_: Request) -> Response:
        lines: list[str] = []
        for count, line in enumerate(written(families()), 1):
            lines.append(line)
            if not count % BREATH:
                await asyncio.sleep(0)
        return Response("".join(lines), headers={"content-type": MEDIA_TYPE})

    async def alive(_: Request) -> Response:  # routes are coroutines
        return PlainTextResponse("ok")

    # foreign names are no names of this machine: a web page may have let its own name lead here
    return Starlette(
        routes=[Route(PATH, answer), Route("/healthz", alive)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[host, "localhost"], www_redirect=False)],
    )


async def serve_exposition(app: Starlette, listener: socket.socket) -> None:
    """Answer on a bound loopback socket until cancelled. Raises ValueError for an address of the network."""
    await serve_on_loopback(Server(app), listener)
