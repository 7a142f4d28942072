"""Envoy's admin interface over its unix socket: readiness, statistics, what it holds."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import httptools
import msgspec

from headgate.errors import ProxyError

TIMEOUT_S = 5.0


class Answer(NamedTuple):
    """One answer of the admin interface."""

    status: int
    body: bytes


class Admin:
    """Asks one Envoy. Paths are those of Envoy's documentation: `/ready`, `/clusters?format=json`, `/config_dump`."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def ask(self, path: str, *, method: str = "GET") -> Answer:
        """Send one request and return the answer, whatever its status. Raises ProxyError when there is none."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._exchange(method, path)
        except (OSError, httptools.HttpParserError) as error:  # a timeout is an OSError too
            raise ProxyError(f"Envoy's admin interface at {self._socket} does not answer: {error!r}") from error

    async def get(self, path: str) -> bytes:
        """Return the body of a page. Raises ProxyError when Envoy refuses it or does not answer."""
        answer = await self.ask(path)
        if answer.status != 200:
            text = answer.body.decode(errors="replace").strip()
            raise ProxyError(f"Envoy's admin interface answers {path} with {answer.status}: {text}")
        return answer.body

    async def get_json(self, path: str) -> Any:
        """Return a page that is JSON (`/stats?format=json&filter=...`), decoded. Raises ProxyError."""
        try:
            return msgspec.json.decode(await self.get(path))
        except msgspec.DecodeError as error:
            raise ProxyError(f"Envoy's admin interface answers {path} with what is not JSON: {error}") from error

    async def _exchange(self, method: str, path: str) -> Answer:
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n".encode())
            collected = _Collected()
            parser = httptools.HttpResponseParser(collected)
            while not collected.complete:
                data = await reader.read(1 << 16)
                if not data:
                    raise ConnectionResetError("closed before the answer was complete")
                parser.feed_data(data)
            return Answer(parser.get_status_code(), b"".join(collected.parts))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class _Collected:
    """What the parser calls as it reads."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.complete = False

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        self.complete = True
