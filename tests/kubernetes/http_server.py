"""An HTTP server in the place of an API server, for tests of what the client sends and when."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from headgate.kubernetes.connection import Connection


class Credentials:
    """The address of a server, as credentials without a token."""

    namespace = "default"

    def __init__(self, host: str) -> None:
        self._host = host

    async def connect(self) -> Connection:
        connection = Connection()
        connection.host = self._host
        return connection


@contextlib.asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[Credentials]:
    """Serve requests with `answer`; yield the credentials for it."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield Credentials(f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()
