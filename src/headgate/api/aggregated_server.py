"""An aggregated API server with the metrics API and the inspect API.

A cluster's API server proxies requests to it, because APIServices name it (R81, R99, D29).
"""

import asyncio
import base64
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from headgate.api import discovery, responses
from headgate.api.bounded_protocol import BoundedProtocol
from headgate.api.computed_groups import AGGREGATED_GROUPS, Handlers
from headgate.api.delegated_auth import (
    DelegatedAuthorizer,
    KubernetesApi,
    RequestHeaderConfig,
    authenticate,
    read_request_header_config,
)
from headgate.api.http_server import Server
from headgate.api.resource_attributes import AUTHORIZE, USER
from headgate.api.serving_tls import follow_renewals, tls_context
from headgate.api.status import ApiError, method_not_allowed, no_such_path
from headgate.errors import ProxyError
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.options import MeshOptions
from headgate.resources.meta import Object

_log = logging.getLogger(__name__)
_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_GROUPS = tuple(dict.fromkeys(name for name, _ in AGGREGATED_GROUPS))
# The priority is below Kubernetes' own groups and below custom resources (1000), so that `kubectl get pods` still means the core Pods.
_GROUP_PRIORITY, _VERSION_PRIORITY = 100, 10
_TLS = "tls"
_CLIENT_NAME = "client_cert_name"
_REFRESH_SECONDS = 60.0


def create_aggregated_app(
    handlers: Handlers, config: Latest[RequestHeaderConfig], authorizer: DelegatedAuthorizer
) -> Starlette:
    """Return the application that serves the APIs to a cluster's API server."""
    server = _AggregatedApi(handlers, config, authorizer)
    return Starlette(routes=[Route("/{path:path}", server.answer, methods=list(_METHODS))])


class _AggregatedApi:
    """The handler that authenticates and authorizes requests for the computed groups."""

    def __init__(
        self,
        handlers: Handlers,
        config: Latest[RequestHeaderConfig],
        authorizer: DelegatedAuthorizer,
    ) -> None:
        self._handlers = handlers
        self._config = config
        self._authorizer = authorizer

    async def answer(self, request: Request) -> Response:
        """Answer a request; an error becomes a Status."""
        return await responses.with_status_errors(request, self._answer)

    async def _answer(self, request: Request) -> Response:
        path = request.scope["path"]
        if path in _OPEN_PATHS:
            return PlainTextResponse("ok")
        user = authenticate(self._config.get(), _client_name(request), _headers(request))
        parts = path.strip("/").split("/")
        group_version = (parts[1], parts[2]) if len(parts) > 3 and parts[0] == "apis" else ("", "")
        if group := AGGREGATED_GROUPS.get(group_version):
            parsed = group.parse(parts[3:], request.query_params)
            authorize = partial(self._authorizer.authorize, user, parsed.attributes)
            await authorize()
            setattr(request.state, AUTHORIZE, authorize)
            setattr(request.state, USER, user.name)
            return await group.answer(self._handlers, request, parsed)
        await self._authorizer.authorize_path(user, path)
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed("use GET")
        return _discovery(request, parts, _GROUPS)


def _discovery(request: Request, parts: Sequence[str], groups: Sequence[str]) -> Response:
    """Answer a discovery request about the groups of this server. Raises ApiError 404."""
    match parts:
        case ["apis"]:
            return discovery.answer_groups(request, only=groups)
        case ["apis", group] if group in groups:
            return responses.json_response(discovery.group(group))
        case ["apis", group, version] if group in groups:
            return responses.json_response(discovery.resource_list(group, version))
        case _:
            raise no_such_path()


def _client_name(request: Request) -> str | None:
    """Return the common name of the verified client certificate, None without a certificate."""
    tls = request.scope.get("extensions", {}).get(_TLS, {})
    name = tls.get(_CLIENT_NAME)
    return name if isinstance(name, str) else None


def _headers(request: Request) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), _text(value)) for name, value in request.headers.raw]


def _text(value: bytes) -> str:
    """Decode a header as UTF-8, in which the API server writes the names of users. Raises ApiError 401."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ApiError(401, "Unauthorized: a request header is not UTF-8") from error


class _Protocol(BoundedProtocol):
    """The HTTP protocol, which also passes the client certificate's common name to the application."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if (name := common_name(transport.get_extra_info("peercert"))) is not None:
            app, extensions = self.app, {_TLS: {_CLIENT_NAME: name}}

            async def answer(scope: Scope, receive: Receive, send: Send) -> None:
                await app({**scope, "extensions": extensions}, receive, send)

            self.app = answer


def common_name(certificate: Any) -> str | None:
    """Return the last common name of a client certificate in the format of `ssl.SSLSocket.getpeercert`.

    The result is empty for a certificate without a common name, and None without a certificate.
    """
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[-1] if names else ""


async def serve_aggregated(
    app: Starlette,
    listener: socket.socket,
    certificate: Latest[Credential],
    config: Latest[RequestHeaderConfig],
    closing: Callable[[], object] = lambda: None,
) -> None:
    """Serve on a bound socket until canceled. `closing` is then called to end streamed responses.

    A renewed certificate and a changed request-header CA apply to new connections.
    """
    while True:
        authority = config.get().authority
        context = tls_context(certificate.get())
        context.verify_mode = ssl.CERT_OPTIONAL  # the kubelet's probes send no certificate
        context.load_verify_locations(cadata=authority)
        server = Server(app, http=_Protocol, ssl_context_factory=lambda *_, context=context: context)
        serving = asyncio.ensure_future(server.serve(sockets=[listener.dup()]))
        changed = asyncio.ensure_future(_authority_changed(config, authority))
        renewing = asyncio.ensure_future(follow_renewals(context, certificate))
        try:
            await asyncio.wait({serving, changed}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
                return
        except asyncio.CancelledError:
            closing()
            raise
        finally:
            changed.cancel()
            renewing.cancel()
            server.end()
            await serving


async def _authority_changed(config: Latest[RequestHeaderConfig], authority: str) -> None:
    async for value in config.changes():
        if value.authority != authority:
            return


async def refresh_request_header_config(
    api: KubernetesApi, config: Latest[RequestHeaderConfig], *, every: float = _REFRESH_SECONDS
) -> None:
    """Read the request-header configuration every `every` seconds. While that fails, the last configuration stays in use."""
    while True:
        await asyncio.sleep(every)
        try:
            config.set(await read_request_header_config(api))
        except ProxyError as error:
            _log.warning("can't refresh the request-header configuration; the last one stays in use: %s", error)


def api_services(service: str, authority: bytes, mesh: MeshOptions, *, port: int = 443) -> tuple[Object, ...]:
    """Return the APIServices that register `service` (`namespace/name`), one for each group (R80 to R82).

    `authority` is the PEM of the CA that signed the Service's certificate; empty if it is written later. The options of the mesh
    decide which groups are registered.
    """
    namespace, name = service.split("/")
    trusted = {"caBundle": base64.b64encode(authority).decode()} if authority else {}
    return tuple(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "service": {"namespace": namespace, "name": name, "port": port},
                **trusted,
                "groupPriorityMinimum": _GROUP_PRIORITY,
                "versionPriority": _VERSION_PRIORITY,
            },
        }
        for (group, version), served in AGGREGATED_GROUPS.items()
        if getattr(mesh, served.option)
    )
