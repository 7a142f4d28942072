"""Send HTTP requests to an API server with aiohttp, or open an aiohttp session with an OpenID identity provider."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

from aiohttp import (
    AddrInfoType,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    TCPConnector,
    WSServerHandshakeError,
    encode_basic_auth,
)
from aiohttp.connector import Connection as ServerConnection
from yarl import URL

from headgate import event_loop
from headgate.errors import HeadgateError, Unavailable
from headgate.http_failures import describe
from headgate.kubernetes.connection import ANSWER_S, ApiRequest, Connection

CONNECT_S = 5.0
FAILURES = (OSError, ClientError)
_KEEPALIVE = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
}  # seconds until the first probe, seconds between probes, number of probes
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 seconds
_LOOPBACK = ("127.", "::1", "localhost")
_of_request: ContextVar[asyncio.Transport | None] = ContextVar("transport of the request", default=None)


class HandshakeRefused(HeadgateError):
    """The server has answered the request for a websocket with an error status."""


class RequestConnector(TCPConnector):
    """A connector for `aborting`, which gets the connection of a request from it."""

    async def connect(self, *arguments: Any, **options: Any) -> ServerConnection:
        connection = await super().connect(*arguments, **options)
        _of_request.set(connection.transport)
        return connection


@contextlib.contextmanager
def aborting() -> Iterator[None]:
    """Abort the connection of a request, by a `RequestConnector`, that fails or is canceled in the `with` block.

    aiohttp starts a TLS shutdown, which waits up to 30 s for the server, and nothing waits for the shutdown.
    """
    try:
        yield
    except BaseException:
        if transport := _of_request.get():
            event_loop.abort(transport)
        raise
    finally:
        _of_request.set(None)


@contextlib.asynccontextmanager
async def exchange(connection: Connection, request: ApiRequest) -> AsyncIterator[ClientResponse]:
    """Send a request and yield the response with any status. Raises Unavailable, also later while the caller reads the body."""
    try:
        async with _session(connection) as session:
            with aborting():
                async with asyncio.timeout(ANSWER_S):
                    response = await session.request(
                        request.method,
                        URL(connection.host + request.target, encoded=True),
                        data=request.body,
                        headers=[
                            ("accept", request.accept),
                            ("content-type", request.content_type),
                            *connection.headers(),
                        ],
                        allow_redirects=False,
                        proxy=connection.proxy,
                        server_hostname=connection.tls_server_name,
                        timeout=ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=request.idle_s),
                    )
            async with response:
                try:
                    yield response
                finally:
                    _abort_unread(response)
    except FAILURES as error:
        raise Unavailable(f"no API answers at {connection.host} ({describe(error)})") from error


@contextlib.asynccontextmanager
async def websocket(
    connection: Connection, target: str, protocols: Sequence[str]
) -> AsyncIterator[ClientWebSocketResponse]:
    """Open a websocket and yield it. Raises HandshakeRefused for a response without an upgrade, Unavailable without one."""
    try:
        async with _session(connection) as session:
            with aborting():
                async with asyncio.timeout(ANSWER_S):
                    opened = await session.ws_connect(
                        URL(connection.host + target, encoded=True),
                        protocols=protocols,
                        headers=connection.headers(),
                        proxy=connection.proxy,
                        server_hostname=connection.tls_server_name,
                        max_msg_size=0,
                    )
            async with opened:
                yield opened
    except WSServerHandshakeError as error:
        raise HandshakeRefused(f"the API server opens no stream: {error.status}") from error
    except FAILURES as error:
        raise Unavailable(f"no API answers at {connection.host} ({describe(error)})") from error


def _abort_unread(response: ClientResponse) -> None:
    """Close the connection of a response that was not read to its end, such as a watch.

    A TLS shutdown would wait for the server, and nothing would wait for the shutdown.
    """
    connection = response.connection
    if connection and connection.transport and not response.content.at_eof():
        connection.transport.abort()


def retry_after(response: ClientResponse) -> float | None:
    """Return the seconds after which a server accepts a request again, at least 1; None if it gives no number."""
    seconds = response.headers.get("retry-after", "")
    return max(1.0, float(seconds)) if seconds.isdecimal() else None


@contextlib.asynccontextmanager
async def _session(connection: Connection) -> AsyncIterator[ClientSession]:
    """Yield the shared session of a connection, or a session for one request if the connection has none."""
    if connection.session:
        yield connection.session
        return
    async with open_session(connection) as session:
        yield session


def open_session(connection: Connection, program: str = "headgate") -> ClientSession:
    """Return a session for requests to the API server of `connection`.

    HTTP proxies come from the environment. The API server names `program` as the writer of objects, unless a write names its own manager.
    """
    return ClientSession(
        connector=RequestConnector(
            ssl=connection.tls or True, limit=0, socket_factory=partial(_socket, connection.sockets)
        ),
        trust_env=_has_proxy(URL(connection.host)),
        headers={"User-Agent": program},
    )


def _has_proxy(server: URL) -> bool:
    """Return whether the environment has an HTTP proxy for a server. Like Go's clients, requests to loopback use none.

    The environment is read once: with `trust_env`, aiohttp reads it and .netrc for each request, which takes 2 ms.
    """
    host = str(server.host)
    return not host.startswith(_LOOPBACK) and server.scheme in getproxies() and not proxy_bypass(host)


async def abort(connection: Connection) -> None:
    """Close all TCP connections at once with a reset: the server gets nothing that it has not received yet."""
    for open_socket in connection.sockets:
        with contextlib.suppress(OSError):  # it is closed
            open_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    if connection.session and isinstance(connection.session.connector, TCPConnector):
        await connection.session.connector.close(abort_ssl=True)


def _socket(opened: WeakSet[socket.socket], address: AddrInfoType) -> socket.socket:
    """Return a socket with TCP keepalive, and add it to `opened`.

    Keepalive detects a lost server within a minute, also while a watch has no events.
    """
    family, kind, protocol, _, _ = address
    new_socket = socket.socket(family, kind, protocol)
    opened.add(new_socket)
    new_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            new_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return new_socket


def provider_session(requestor: Any) -> ClientSession:
    """Return a session for kubernetes_asyncio's OpenIDRequestor that verifies the identity provider's certificate."""
    authorization = encode_basic_auth(requestor._client_id, requestor._client_secret)  # noqa: SLF001 - no public name
    return ClientSession(
        connector=TCPConnector(ssl=ssl.create_default_context(cafile=requestor._ssl_ca_cert)),  # noqa: SLF001 - no public name
        headers={"accept": "application/json", "authorization": authorization},
        raise_for_status=True,
        trust_env=True,
    )
