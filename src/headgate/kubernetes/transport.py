"""Send one HTTP request to an API server, or open a session with an OpenID identity provider. Only this uses aiohttp."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector, encode_basic_auth
from yarl import URL

from headgate.errors import Unavailable
from headgate.http_failures import describe
from headgate.kubernetes.connection import Connection
from headgate.resources.meta import Object

CONNECT_S = 5.0
ANSWER_S = 30.0  # until the response headers, which a watch also sends at once
FAILURES = (OSError, ClientError)
_LOOPBACK = ("127.", "::1", "localhost")


@contextlib.asynccontextmanager
async def exchange(
    connection: Connection, method: str, target: str, body: Object | None
) -> AsyncIterator[ClientResponse]:
    """Send a request and yield the response with any status. Raises Unavailable, also while the body is read."""
    url = URL(connection.host + target, encoded=True)
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    session = ClientSession(
        connector=TCPConnector(ssl=connection.tls or True),
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_S),
        trust_env=not str(url.host).startswith(
            _LOOPBACK
        ),  # HTTP proxies from the environment; like Go's clients, none for loopback
    )
    try:
        async with session:
            async with asyncio.timeout(ANSWER_S):
                response = await session.request(
                    method,
                    url,
                    data=None if body is None else msgspec.json.encode(body),
                    headers=[("accept", "application/json"), ("content-type", content), *connection.headers()],
                    allow_redirects=False,
                    proxy=connection.proxy,
                    server_hostname=connection.tls_server_name,
                )
            async with response:
                yield response
    except FAILURES as error:
        raise Unavailable(f"no API answers at {connection.host} ({describe(error)})") from error


def provider_session(requestor: Any) -> ClientSession:
    """Return a session for kubernetes_asyncio's OpenIDRequestor that verifies the identity provider's certificate."""
    authorization = encode_basic_auth(requestor._client_id, requestor._client_secret)  # noqa: SLF001 - there is no public name
    return ClientSession(
        connector=TCPConnector(ssl=ssl.create_default_context(cafile=requestor._ssl_ca_cert)),  # noqa: SLF001 - same
        headers={"accept": "application/json", "authorization": authorization},
        raise_for_status=True,
        trust_env=True,
    )
