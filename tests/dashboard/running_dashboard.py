"""A dashboard on loopback in front of an API server of the test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from aiohttp import ClientResponse, ClientSession, CookieJar, TCPConnector, web
from tests.kubernetes import http_server
from yarl import URL

from headgate.dashboard.local import Address, serving
from headgate.dashboard.server import PageSettings
from headgate.kubernetes.connection import Connection


class StaticToken:
    """The credentials for an API server: its URL, and a token that is read again for each connection."""

    namespace = "shop"

    def __init__(self, server: str, *tokens: str) -> None:
        self._server = server
        self._tokens = list(tokens)

    async def connect(self) -> Connection:
        connection = Connection()
        connection.host = self._server
        connection.api_key = {
            "BearerToken": f"Bearer {self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]}"
        }
        return connection


class RecordingApi:
    """An API server that records its requests. It answers with `status`, `content_type` and `body`, and with events on a watch."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.status, self.content_type, self.body = 200, "application/json", b"{}"
        self.headers: Mapping[str, str] = {}
        self.token = ""
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        self.watch_ended = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.requests.append(request)
        self.bodies.append(await request.read())
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)
        if request.query.get("watch") == "true":
            return await self._watch(request)
        return web.Response(
            status=self.status, body=self.body, headers={"content-type": self.content_type, **self.headers}
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        try:
            while event := await self.events.get():
                await response.write(event)
        finally:
            self.watch_ended.set()
        return response


class RunningDashboard(NamedTuple):
    """The address of a dashboard, its API server, and a browser that is logged in."""

    address: Address
    api: RecordingApi
    browser: ClientSession

    @property
    def origin(self) -> str:
        """The origin of the page."""
        return f"http://{self.address.host_port}"

    async def get(self, path: str, **headers: str) -> ClientResponse:
        """Return the response to a GET, whose body is read, with headers such as `sec_fetch_site`."""
        return await self.send("GET", path, **headers)

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> ClientResponse:
        """Return the response to a request, whose body is read; `body` is sent as JSON."""
        url = URL(self.origin + path, encoded=True)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.browser.request(method, url, headers=given, json=body, allow_redirects=False) as response:
            await response.read()
            return response


@contextlib.asynccontextmanager
async def running_dashboard(*tokens: str) -> AsyncIterator[RunningDashboard]:
    """Run an API server and a dashboard with `tokens` for it, one after the other, and log a browser in."""
    api = RecordingApi()
    async with contextlib.AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(http_server.serving(api.answer))
        credentials = StaticToken((await upstream.connect()).host, *(tokens or ("secret",)))
        settings = PageSettings("kind-<shop>", credentials.namespace)
        address = await stack.enter_async_context(serving(credentials, settings, port=0, last=Address()))
        session = ClientSession(connector=TCPConnector(limit=0), cookie_jar=CookieJar(unsafe=True))
        browser = await stack.enter_async_context(session)
        async with browser.get(address.url()) as response:
            await response.read()
        yield RunningDashboard(address, api, browser)
