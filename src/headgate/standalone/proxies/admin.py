"""Envoy's admin interface over its unix socket: readiness, statistics, what it holds."""

from pathlib import Path
from typing import Any

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector
from yarl import URL

from headgate.errors import ProxyError
from headgate.http_failures import describe

TIMEOUT_S = 5.0


class Admin:
    """Asks one Envoy. Paths are those of Envoy's documentation: `/ready`, `/clusters?format=json`, `/config_dump`."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def get(self, path: str) -> bytes:
        """Return the body of a page. Raises ProxyError when Envoy refuses it or does not answer."""
        url = URL(f"http://envoy{path}", encoded=True)  # Envoy reads regular expressions in queries as they are written
        connector = UnixConnector(str(self._socket))
        try:
            async with (
                ClientSession(connector=connector, timeout=ClientTimeout(TIMEOUT_S)) as session,
                session.get(url) as answer,
            ):
                body = await answer.read()
        except (OSError, ClientError) as error:  # a timeout is an OSError too
            raise ProxyError(f"Envoy's admin interface at {self._socket} does not answer: {describe(error)}") from error
        if answer.status != 200:
            text = body.decode(errors="replace").strip()
            raise ProxyError(f"Envoy's admin interface answers {path} with {answer.status}: {text}")
        return body

    async def get_json(self, path: str) -> Any:
        """Return a page that is JSON (`/stats?format=json&filter=...`), decoded. Raises ProxyError."""
        try:
            return msgspec.json.decode(await self.get(path))
        except msgspec.DecodeError as error:
            raise ProxyError(f"Envoy's admin interface answers {path} with what is not JSON: {error}") from error
