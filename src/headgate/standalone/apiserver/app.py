"""The embedded, Kubernetes-compatible API of a store: authentication, routing of paths, and the server on loopback."""

import asyncio
import base64
import hmac
import ipaddress
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from headgate.api import discovery, responses, self_subject_reviews
from headgate.api.certificate import CertificateFiles
from headgate.api.computed_groups import COMPUTED_GROUPS, Handlers
from headgate.api.http_server import Server, serve_on_loopback
from headgate.api.inspect.handlers import InspectApi
from headgate.api.metrics.handlers import MetricsApi
from headgate.api.resource_usage import UsageApi, UsageSource
from headgate.api.status import ApiError, method_not_allowed, no_such_path
from headgate.atomic_file import write_private
from headgate.errors import Unavailable
from headgate.plane.inspector import Inspector
from headgate.resources.kind_set import KindSet
from headgate.settings import DEFAULTS, Settings
from headgate.standalone.apiserver import openapi, request_parsing
from headgate.standalone.apiserver.local_pods import LocalPods
from headgate.standalone.apiserver.objects import Objects, PrepareWarnings
from headgate.standalone.apiserver.resource_api import ResourceApi
from headgate.standalone.apiserver.sessions import Sessions
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.counters.flows import Source

_log = logging.getLogger(__name__)
_HEALTH = ("healthz", "livez", "readyz")
_OPEN_PATHS = frozenset(f"/{endpoint}" for endpoint in _HEALTH)
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# The number of parts of the longest discovery path, by its first part. Longer paths name resources.
_DISCOVERY_PARTS = {"api": 2, "apis": 3}
_OPENAPI_PROTOBUF = "application/com.github.proto-openapi.spec.v2"


class ComputedGroups(NamedTuple):
    """The sources of API groups with computed objects: `traffic` for the metrics API, `inspector` for the inspect API.

    `usage` is that for `metrics.k8s.io`. `settings` has the settings of the mesh.
    """

    traffic: Source | None = None
    inspector: Inspector | None = None
    settings: Settings = DEFAULTS
    usage: UsageSource | None = None


NO_COMPUTED_GROUPS = ComputedGroups()


def create_app(
    store: MemoryStore,
    *,
    token: str,
    prepare_warnings: PrepareWarnings | None = None,
    pods: LocalPods | None = None,
    computed: ComputedGroups = NO_COMPUTED_GROUPS,
) -> Starlette:
    """Return the API of `store`, with `token` as its bearer token.

    `prepare_warnings` returns, before a write, the function for its warnings; `pods` has the pods that this machine runs; `computed`
    has the sources of the groups whose objects are not stored.
    """
    closing = asyncio.Event()
    objects = Objects(store, prepare_warnings)
    sessions = Sessions(objects, pods, closing)
    api = _Api(
        ResourceApi(objects, pods, closing, sessions),
        sessions,
        Handlers(
            MetricsApi(store, computed.traffic, settings=computed.settings),
            InspectApi(computed.inspector, closing),
            UsageApi(store, computed.usage),
        ),
    )
    app = Starlette(
        routes=[Route("/{path:path}", api.answer, methods=list(_METHODS)), WebSocketRoute("/{path:path}", api.connect)]
    )
    app.state.closing = closing
    app.add_middleware(_Authentication, token=token)
    return app


async def serve(app: Starlette, listener: socket.socket, certificate: CertificateFiles) -> None:
    """Serve on a bound loopback socket until canceled, then end open watches.

    The server uses TLS because kubectl sends its token over TLS only. Raises ValueError if the address is not loopback.
    """
    server = Server(app, websockets=True, ssl_certfile=certificate.path, ssl_keyfile=certificate.key_path)
    await serve_on_loopback(server, listener, app.state.closing.set)


def write_kubeconfig(path: Path, server: str, token: str, certificate: CertificateFiles) -> None:
    """Write a kubeconfig for the API atomically, readable by its owner only."""
    authority = base64.b64encode(certificate.pem).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "headgate", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "headgate", "user": {"token": token}}],
        "contexts": [{"name": "headgate", "context": {"cluster": "headgate", "user": "headgate"}}],
        "current-context": "headgate",
    }
    write_private(path, (json.dumps(config, indent=2) + "\n").encode())  # JSON is valid YAML


class _Authentication:
    """Middleware that authenticates requests by their token. Against DNS rebinding, it requires a loopback Host header."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        if not token:
            raise ValueError("the token of the API is empty, so every client would be authenticated")
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._error(scope) if scope["type"] in ("http", "websocket") else None
        if error is None:
            await self._app(scope, receive, send)
            return
        response = responses.json_response(error.status(), code=error.code)
        if error.code == 401:
            response.headers["www-authenticate"] = "Bearer"
        await response(scope, receive, send)

    def _error(self, scope: Scope) -> ApiError | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not _is_loopback(host):
            return ApiError(403, f"the Host header {host!r} is not a loopback name; use 127.0.0.1 or localhost")
        if scope["path"] in _OPEN_PATHS or hmac.compare_digest(headers.get(b"authorization", b""), self._expected):
            return None
        return ApiError(401, "Unauthorized: use the kubeconfig that headgate wrote")


def _is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


class _Api:
    """Routes each request to the API of its group, and converts errors to a Status."""

    def __init__(self, resources: ResourceApi, sessions: Sessions, handlers: Handlers) -> None:
        self._resources = resources
        self._sessions = sessions
        self._handlers = handlers

    async def answer(self, request: Request) -> Response:
        return await responses.with_status_errors(request, self._answer)

    async def _answer(self, request: Request) -> Response:
        parts = request.url.path.strip("/").split("/")
        if len(parts) > _DISCOVERY_PARTS.get(parts[0], len(parts)):
            return await self._answer_resource(request, parts)
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed("use GET")
        if parts[0] in _HEALTH:
            return await _health(parts, request.query_params, self._resources.check)
        return _discovery(request, parts, self._resources.kinds)

    async def connect(self, websocket: WebSocket) -> None:
        """Run a session with a container on a WebSocket."""
        try:
            target, subresource = self._session_path(websocket)
            await self._sessions.connect(websocket, target, subresource)
        except ApiError as error:
            await websocket.send_denial_response(responses.json_response(error.status(), code=error.code))

    def _session_path(self, websocket: WebSocket) -> request_parsing.ResourcePath:
        """Parse the path of a WebSocket. Raises ApiError 403 and 404."""
        _check_user(websocket)
        parts = websocket.url.path.strip("/").split("/")
        if parts[:2] != ["api", "v1"] or len(parts) < 3:
            raise no_such_path()
        return request_parsing.parse_path(self._resources.kinds, "", "v1", parts[2:])

    async def _answer_resource(self, request: Request, parts: list[str]) -> Response:
        _check_user(request)
        group, version, *rest = parts[1:] if parts[0] == "apis" else ["", *parts[1:]]
        kinds = self._resources.kinds
        if group in kinds.groups and (group, version) not in COMPUTED_GROUPS:
            return await self._resources.answer(request, request_parsing.parse_path(kinds, group, version, rest))
        if tuple(parts[1:]) in self_subject_reviews.REVIEWS:
            return await _review(request, rest[0])
        if computed := COMPUTED_GROUPS.get((group, version)):
            return await computed.answer(self._handlers, request, computed.parse(rest, request.query_params))
        raise no_such_path()


def _check_user(request: HTTPConnection) -> None:
    """Check that a request acts for the only user. Raises ApiError 403."""
    if any(name.startswith("impersonate-") for name in request.headers):
        raise ApiError(
            403, "the embedded API has a single user and does not support impersonation; omit --as and --as-group"
        )


async def _health(parts: Sequence[str], query: QueryParams, store: Callable[[], Awaitable[None]]) -> Response:
    """Answer `/ENDPOINT[/CHECK][?verbose][&exclude=CHECK]` as a Kubernetes API server does. Raises ApiError 404.

    Only `/readyz` checks that the store can persist a write. A failed liveness check would restart the server, which does
    not free a full disk.
    """
    endpoint, *chosen = parts
    checks = ["ping", "store"] if endpoint == "readyz" else ["ping"]
    if chosen and (len(chosen) > 1 or chosen[0] not in checks):
        raise no_such_path()
    reasons = dict.fromkeys((check for check in chosen or checks if check not in query.getlist("exclude")), "")
    if "store" in reasons:
        try:
            await store()
        except Unavailable as error:
            reasons["store"] = str(error)
    failed = any(reasons.values())
    lines = [f"[-]{check} failed: {reason}" if reason else f"[+]{check} ok" for check, reason in reasons.items()]
    verbose = "verbose" in query and (query["verbose"] == "" or responses.query_flag(query, "verbose"))
    text = "\n".join([*lines, f"{'/'.join(parts)} check {'failed' if failed else 'passed'}", ""])
    return PlainTextResponse(text if failed or verbose else "ok", status_code=500 if failed else 200)


async def _review(request: Request, resource: str) -> Response:
    if request.method != "POST":
        raise method_not_allowed("use POST")
    return responses.json_response(
        self_subject_reviews.review_response(resource, await request_parsing.read_object(request)), code=201
    )


def _discovery(request: Request, parts: list[str], kinds: KindSet) -> Response:
    """Answer a request for the version, for discovery or for a schema."""
    match parts:
        case ["openapi", *document]:
            return _openapi(request, document, kinds)
        case ["api" | "apis"]:
            return discovery.answer_groups(request, core=parts == ["api"], kinds=kinds)
        case _:
            return responses.json_response(_discovery_document(parts, kinds))


def _discovery_document(parts: list[str], kinds: KindSet) -> dict[str, Any]:
    match parts:
        case [""]:
            return discovery.root(kinds)
        case ["version"]:
            return discovery.version()
        case ["api", version]:
            return discovery.resource_list("", version, kinds)
        case ["apis", version] if (
            version in kinds.groups[""]
        ):  # clients before 1.27 request v1beta1 without a group here
            return discovery.resource_list("", version, kinds)
        case ["apis", group]:
            return discovery.group(group, kinds)
        case ["apis", group, version]:
            return discovery.resource_list(group, version, kinds)
        case _:
            raise no_such_path()


def _openapi(request: Request, document: list[str], kinds: KindSet) -> Response:
    match document:
        case ["v2"] if _OPENAPI_PROTOBUF in request.headers.get("accept", ""):
            return Response(openapi.v2_protobuf(kinds), media_type=f"{_OPENAPI_PROTOBUF}.v1+protobuf")
        case ["v2"]:
            return Response(openapi.v2_json(kinds), media_type=responses.JSON)
        case ["v3"]:
            return responses.json_response(openapi.v3_index(kinds))
        case ["v3", *rest]:
            return Response(openapi.v3_json("/".join(rest), kinds), media_type=responses.JSON)
        case _:
            raise no_such_path()
