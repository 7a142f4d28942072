"""Requests of the page to an API server, with the credentials of a kubeconfig and any status as the answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from headgate.kubernetes import transport
from headgate.kubernetes.connection import ApiRequest, Connection, CredentialSource

if TYPE_CHECKING:
    from aiohttp import ClientResponse


PROGRAM = "headgate-dashboard"
"""The name under which the API server records the page's writes."""


class Upstream:
    """An API server and the credentials for it. Use it as a context: it reuses TCP connections until the end."""

    def __init__(self, credentials: CredentialSource) -> None:
        self._credentials = credentials
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    async def aclose(self) -> None:
        """Close all TCP connections."""
        await self._drop(self._connection)

    @contextlib.asynccontextmanager
    async def send(self, request: ApiRequest) -> AsyncIterator["ClientResponse"]:
        """Send a request and yield the response with any status. After a 401, read the credentials again and send once more.

        Raises Unavailable if the server can't be reached, and HeadgateError if the credentials can't be read.
        """
        kept = self._connection is not None
        connection = await self._connect()
        async with transport.exchange(connection, request) as response:
            if response.status != 401 or not kept:
                yield response
                return
        await self._drop(connection)
        async with transport.exchange(await self._connect(), request) as response:
            yield response

    async def _connect(self) -> Connection:
        async with self._turn:  # concurrent requests run the credentials program only once
            if self._connection is None:
                self._connection = await self._credentials.connect()
                self._connection.session = transport.open_session(self._connection, PROGRAM)
            return self._connection

    async def _drop(self, connection: Connection | None) -> None:
        """Drop the credentials and the idle TCP connections, unless another request has already replaced them."""
        if connection is None or connection is not self._connection:
            return
        self._connection = None
        if connection.session:
            await connection.session.close()
