"""The metrics API and the inspect API behind APIServices: a server of its own, to which a cluster's API server passes requests
on (R81, R99, D29).
"""

import asyncio
import base64
import logging
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headgate.api import discovery, media
from headgate.api.certificate import Certificate
from headgate.api.front import Api, FrontProxy, Permissions, front_proxy, user_of
from headgate.api.inspect import query as inspect_query
from headgate.api.inspect.handlers import InspectApi
from headgate.api.listening import Server
from headgate.api.metrics.groups import METRICS_GROUPS
from headgate.api.metrics.handlers import MetricsApi
from headgate.api.metrics.query import question
from headgate.api.status import ApiError, no_such_path
from headgate.errors import ProxyError
from headgate.latest import Latest
from headgate.resources import inspect as inspection
from headgate.resources.meta import Object

_log = logging.getLogger(__name__)
_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_GROUPS = tuple(name for name, _ in METRICS_GROUPS)
# Below everything that Kubernetes has, and below custom resources (1000): `pods` and `deployments` go on to mean those.
_GROUP_PRIORITY, _VERSION_PRIORITY = 100, 10
_TLS = "tls"
_CLIENT_NAME = "client_cert_name"
_REFRESH_SECONDS = 60.0


def create_metrics_app(
    metrics: MetricsApi, front: Latest[FrontProxy], permissions: Permissions, inspect: InspectApi | None = None
) -> Starlette:
    """Return the APIs for requests that the API server in front passes on."""
    server = _Front(metrics, front, permissions, inspect)
    return Starlette(routes=[Route("/{path:path}", server.answer, methods=list(_METHODS))])


class _Front:
    """Lets nobody in who is not passed on, and nobody do what RBAC does not allow; every error becomes a Status."""

    def __init__(
        self, metrics: MetricsApi, front: Latest[FrontProxy], permissions: Permissions, inspect: InspectApi | None
    ) -> None:
        self._metrics = metrics
        self._inspect = inspect
        self._groups = (inspection.GROUP, *_GROUPS) if inspect else _GROUPS
        self._front = front
        self._permissions = permissions

    async def answer(self, request: Request) -> Response:
        """Answer any request."""
        return await media.guarded(request, self._answer)

    async def _answer(self, request: Request) -> Response:
        path = request.scope["path"]
        if path in _OPEN_PATHS:
            return PlainTextResponse("ok")
        user = user_of(self._front.get(), _certified(request), _headers(request))
        parts = path.strip("/").split("/")
        asked_group = (parts[1], parts[2]) if len(parts) > 3 and parts[0] == "apis" else ("", "")
        if group := METRICS_GROUPS.get(asked_group):
            asked = question(group, parts[3:])
            await self._permissions.check(user, asked.attributes)
            return await self._metrics.answer(request, asked)
        if self._inspect and asked_group == inspect_query.INSPECT:
            inspected = inspect_query.asked_of(parts[3:])
            await self._permissions.check(user, inspected.attributes)
            return await self._inspect.answer(request, inspected)
        await self._permissions.check_path(user, path)
        if request.method not in ("GET", "HEAD"):
            raise ApiError(405, f"{request.method} is not possible on {path}")
        return _described(request, parts, self._groups)


def _described(request: Request, parts: Sequence[str], groups: Sequence[str]) -> Response:
    """Answer what the server says of itself: its groups, and nothing of those that it does not have."""
    match parts:
        case ["apis"]:
            return discovery.answer_groups(request, only=groups)
        case ["apis", group] if group in groups:
            return media.answer(discovery.group(group))
        case ["apis", group, version] if group in groups:
            return media.answer(discovery.resource_list(group, version))
        case _:
            raise no_such_path()


def _certified(request: Request) -> str | None:
    """Return the common name of the client certificate that TLS has verified, None without one."""
    tls = request.scope.get("extensions", {}).get(_TLS, {})
    name = tls.get(_CLIENT_NAME)
    return name if isinstance(name, str) else None


def _headers(request: Request) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), _text(value)) for name, value in request.headers.raw]


def _text(value: bytes) -> str:
    """Return a header as the API server wrote it: names of users are UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ApiError(401, "Unauthorized: a header is no UTF-8") from error


class _Protocol(HttpToolsProtocol):
    """HTTP that tells the application whose client certificate the connection has (ASGI's TLS extension)."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if (name := common_name(self.transport.get_extra_info("peercert"))) is not None:
            self.scope["extensions"] = {_TLS: {_CLIENT_NAME: name}}


def common_name(certificate: Any) -> str | None:
    """Return the common name of a verified certificate as `ssl` describes it; None without a certificate."""
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[-1] if names else ""


async def serve_metrics(
    app: Starlette, listener: socket.socket, certificate: Certificate, front: Latest[FrontProxy]
) -> None:
    """Answer on a bound socket until cancelled. A new request-header CA holds for connections from then on."""
    while True:
        authority = front.get().authority
        context = _context(certificate, authority)
        server = Server(app, http=_Protocol, ssl_context_factory=lambda *_, context=context: context)
        serving = asyncio.ensure_future(server.serve(sockets=[listener.dup()]))
        replaced = asyncio.ensure_future(_replaced(front, authority))
        try:
            await asyncio.wait({serving, replaced}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
                return
        finally:
            replaced.cancel()
            server.should_exit = True
            await serving


async def _replaced(front: Latest[FrontProxy], authority: str) -> None:
    async for value in front.changes():
        if value.authority != authority:
            return


async def keep_front_proxy(api: Api, front: Latest[FrontProxy], *, every: float = _REFRESH_SECONDS) -> None:
    """Look again, `every` so many seconds, by what the API server in front is known.

    What was known last holds while it can't be read.
    """
    while True:
        await asyncio.sleep(every)
        try:
            front.set(await front_proxy(api))
        except ProxyError as error:
            _log.warning("who may pass on requests for metrics is as before: %s", error)


def _context(certificate: Certificate, authority: str) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load_cert_chain(certificate.path, certificate.key_path)
    made.verify_mode = ssl.CERT_OPTIONAL  # probes of health have none; whoever shows one must have a good one
    made.load_verify_locations(cadata=authority)
    return made


def api_services(service: str, authority: bytes, *, port: int = 443) -> tuple[Object, ...]:
    """Return the APIServices that lead a cluster to `service` (`namespace/name`), one for each group (R80 to R82).

    `authority` is the PEM of the authority that signed the service's certificate.
    """
    namespace, name = service.split("/")
    return tuple(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "service": {"namespace": namespace, "name": name, "port": port},
                "caBundle": base64.b64encode(authority).decode(),
                "groupPriorityMinimum": _GROUP_PRIORITY,
                "versionPriority": _VERSION_PRIORITY,
            },
        }
        for group, version in (inspect_query.INSPECT, *METRICS_GROUPS)
    )
