"""The server of the dashboard on loopback: the page, and the API server behind it with the caller's own credentials."""

import asyncio
import hmac
import ipaddress
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.api import responses
from headgate.api.http_server import Server, StreamResponse, serve_on_loopback
from headgate.api.request_body import read_body
from headgate.api.status import ApiError, method_not_allowed
from headgate.dashboard.api_paths import api_target
from headgate.dashboard.assets import Assets
from headgate.dashboard.upstream import Upstream
from headgate.errors import HeadgateError
from headgate.kubernetes.connection import ApiRequest
from headgate.kubernetes.transport import FAILURES

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MAX_REQUESTS = 100
"""The requests to the API server at a time, with the open watches."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; font-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PASSED_HEADERS = ("warning", "retry-after")
_UNAUTHENTICATED = "this browser has not opened the dashboard since headgate started; open the URL that headgate prints"
_LOGIN = (
    "<!doctype html><html lang=en><title>headgate</title><h1>headgate</h1>"
    "<p>This browser has not opened the dashboard since headgate started. Open the URL that <code>headgate dashboard</code> or "
    "<code>headgate up</code> prints.<p>If you just did: <a href=/>open the dashboard</a>."
)


class PageSettings(NamedTuple):
    """What the page shows of the kubeconfig: the name of its context, and its default namespace."""

    context: str
    namespace: str


class Dashboard:
    """A dashboard on a bound loopback socket. `token` is the secret in its URL, with which a browser authenticates."""

    def __init__(self, upstream: Upstream, assets: Assets, settings: PageSettings, *, token: str, port: int) -> None:
        if not token:
            raise ValueError("the token of the dashboard is empty, so every browser would be authenticated")
        self._closing = asyncio.Event()
        page = _Page(assets, assets.index_for(*settings))
        app = Starlette(
            routes=[
                Route("/", page.index),
                Route("/page/{digest}/{path:path}", page.file),
                Route("/{prefix:path}", _Proxy(upstream, self._closing, assets.digest)),
            ]
        )
        self.app: ASGIApp = _Protection(app, token, f"headgate-dashboard-{port}")

    async def serve(self, listener: socket.socket) -> None:
        """Serve until canceled, then end open watches. Raises ValueError if the socket's address is not loopback."""
        await serve_on_loopback(Server(self.app), listener, self._closing.set)


class _Page:
    """index.html, and the files that it loads."""

    def __init__(self, assets: Assets, index: bytes) -> None:
        self._assets = assets
        self._index = index

    async def index(self, _request: Request) -> Response:
        return Response(self._index, media_type="text/html", headers={"cache-control": "no-store"})

    async def file(self, request: Request) -> Response:
        asset = self._assets.files.get(request.path_params["path"])
        if asset is None or request.path_params["digest"] != self._assets.digest:
            return Response(status_code=404, headers={"cache-control": "no-store"})
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(asset.content, media_type=asset.media_type, headers=headers)


class _Proxy:
    """Sends requests of the page to the API server. Of the browser's headers, it passes only the media types on."""

    def __init__(self, upstream: Upstream, closing: asyncio.Event, digest: str) -> None:
        self._upstream = upstream
        self._closing = closing
        self._digest = digest
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._running >= MAX_REQUESTS:
            refusal = _status(429, f"the dashboard has {MAX_REQUESTS} open requests; close some of its pages")
            await refusal(scope, receive, send)
            return
        self._running += 1
        try:
            await self._forward(Request(scope, receive), send)
        except ApiError as error:
            await _status(error.code, str(error))(scope, receive, send)
        finally:
            self._running -= 1

    async def _forward(self, request: Request, send: Send) -> None:
        """Send a request and stream its response. Raises ApiError before the response has begun."""
        api_request = await _api_request(request)
        begun = False

        async def send_begun(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with self._upstream.send(api_request) as answer:
                response = StreamResponse(_parts(answer), self._closing, _media_type(answer))
                response.status_code = answer.status
                response.headers.update(
                    {"cache-control": "no-store", "headgate-page": self._digest} | _passed_headers(answer)
                )
                await response(request.scope, request.receive, send_begun)
        except HeadgateError as error:
            if not begun:
                raise ApiError(503, str(error)) from error


async def _api_request(request: Request) -> ApiRequest:
    """Return the request to the API server. Raises ApiError 403, 405 and 413."""
    if request.method not in METHODS:
        raise method_not_allowed(f"use {', '.join(METHODS)}")
    path = request.scope["raw_path"].decode("latin-1")
    target = api_target(path, request.scope["query_string"].decode("latin-1"))
    if target is None:
        raise ApiError(403, f"the dashboard does not serve {request.url.path}; use kubectl")
    return ApiRequest(
        request.method,
        target,
        await read_body(request) or None,
        request.headers.get("content-type", "application/json"),
        request.headers.get("accept", "application/json"),
        idle_s=None,
    )


async def _parts(answer: "ClientResponse") -> AsyncGenerator[bytes]:
    """Yield the parts of a response as they arrive; end early if the API server ends the connection."""
    try:
        async for part in answer.content.iter_any():
            yield part
    except FAILURES:
        return


def _media_type(answer: "ClientResponse") -> str:
    """Return the media type of a response for the browser: no type that it would run or render."""
    is_json = answer.content_type == "application/json" or answer.content_type.endswith("+json")
    return "application/json" if is_json else "text/plain"


def _passed_headers(answer: "ClientResponse") -> dict[str, str]:
    """Return the headers for the page with the bytes of the API server: aiohttp reads UTF-8, Starlette writes Latin-1."""
    values = {name: ", ".join(answer.headers.getall(name)) for name in _PASSED_HEADERS if name in answer.headers}
    return {name: value.encode("utf-8", "surrogateescape").decode("latin-1") for name, value in values.items()}


class _Protection:
    """Middleware that authenticates browsers by a cookie, which the URL with the token sets, and rejects other sites' requests.

    The cookie is a random secret of this start. When headgate ends, another user's program can bind the port, and open pages
    send their cookie to it: the cookie must be worthless then, and not reveal the token, which can outlast the start.

    It requires a loopback name as the host, against DNS rebinding. A page of another program on this machine belongs to the
    same site, so the cookie alone does not prove where a request comes from: its origin must be this one.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str) -> None:
        self._app = app
        self._token = token.encode()
        self._cookie = cookie
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = self._refusal(Request(scope))
        await (response or self._app)(scope, receive, _with_security_headers(send))

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a request that does not reach the application, else None."""
        if not _is_loopback(request.headers.get("host", "")):
            return _status(403, "the Host header is not a loopback name; use 127.0.0.1 or localhost")
        given = parse_qs(request.url.query).get("token", [""])[0] if request.url.path == "/" else ""
        if hmac.compare_digest(given.encode(), self._token):
            return self._login()
        if not hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self._session.encode()):
            is_page = request.url.path == "/"
            return _login_page() if is_page else _status(401, _UNAUTHENTICATED)
        return None if _is_own(request) else _status(403, "the request comes from another site")

    def _login(self) -> Response:
        response = RedirectResponse("/", 303, headers={"cache-control": "no-store"})
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
        return response


def _login_page() -> Response:
    return HTMLResponse(_LOGIN, 401, headers={"cache-control": "no-store"})


def _status(code: int, message: str) -> Response:
    return responses.json_response(ApiError(code, message).status(), code=code)


def _is_own(request: Request) -> bool:
    """Return whether the page or the address bar sent a request. Only the page may send one that is not a GET."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    own = f"http://{request.headers.get('host', '')}"
    if request.method in ("GET", "HEAD"):
        allowed: Sequence[str | None] = (None, "same-origin", "none")
        is_navigation = request.url.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"
        return is_navigation or (site in allowed and origin in (None, own))
    return origin == own and site in (None, "same-origin")


def _is_loopback(host: str) -> bool:
    name, _, port = host.rpartition(":")
    name = name if port.isdecimal() and name else host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _with_security_headers(send: Send) -> Send:
    async def send_protected(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_SECURITY_HEADERS]}
        await send(message)

    return send_protected
