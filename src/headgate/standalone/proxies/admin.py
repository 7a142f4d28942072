"""A client of Envoy's admin interface on its unix socket."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector
from yarl import URL

from headgate.errors import ProxyError
from headgate.http_failures import describe

TIMEOUT_S = 5.0  # seconds for one request


class Admin:
    """The admin interface of one Envoy. Paths are as in Envoy's documentation: `/ready`, `/config_dump`."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket

    async def listens(self) -> bool:
        """Return whether a process listens on the socket; it may be too busy to answer."""
        try:
            _, writer = await asyncio.open_unix_connection(self.socket)
        except OSError:
            return False
        writer.close()
        return True

    async def get(self, path: str) -> bytes:
        """Return the body of a page. Raises ProxyError for another status than 200, or no response."""
        url = URL(f"http://envoy{path}", encoded=True)  # Envoy does not decode regular expressions in a query
        connector = UnixConnector(str(self.socket))
        try:
            async with (
                ClientSession(connector=connector, timeout=ClientTimeout(TIMEOUT_S)) as session,
                session.get(url) as answer,
            ):
                body = await answer.read()
        except (OSError, ClientError) as error:  # a timeout is an OSError too
            raise ProxyError(f"Envoy's admin interface at {self.socket} does not answer: {describe(error)}") from error
        if answer.status != 200:
            text = body.decode(errors="replace").strip()
            raise ProxyError(f"Envoy's admin interface answers {path} with status {answer.status}: {text}")
        return body

    async def get_json(self, path: str) -> Any:
        """Return a decoded JSON page, such as `/clusters?format=json`. Raises ProxyError."""
        try:
            return msgspec.json.decode(await self.get(path))
        except msgspec.DecodeError as error:
            raise ProxyError(f"Envoy's admin interface answers {path} with invalid JSON: {error}") from error
