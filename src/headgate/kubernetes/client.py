"""A client of a Kubernetes API: get, list, watch, create, replace, patch, apply, delete and logs."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import msgspec

from headgate.errors import (
    AlreadyExists,
    Cause,
    Conflict,
    Gone,
    HeadgateError,
    Invalid,
    NotFound,
    ProxyError,
    Unavailable,
)
from headgate.kubernetes.connection import ApiRequest, Connection, CredentialSource
from headgate.kubernetes.permissions import Permission, denied_permission
from headgate.kubernetes.rate_limits import RequestLimits
from headgate.resources.kind import Kind, api_version
from headgate.resources.meta import Input, Object

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientWebSocketResponse


_ERRORS: Mapping[int, type[HeadgateError]] = {
    404: NotFound,
    410: Gone,
    429: Unavailable,
    500: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
NO_MESSAGE = "the API answers with"
"""How the message of an error begins if the response has no Status object with a message."""
_JSON = "application/json"
_METADATA = "application/json;as={};g=meta.k8s.io;v=v1"
_DISCOVERY = "application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v={}"
_CREATES = "headgate's ServiceAccount needs a ClusterRoleBinding to system:auth-delegator"
_READS = "headgate's ServiceAccount needs a RoleBinding to extension-apiserver-authentication-reader in kube-system"


class AccessDenied(HeadgateError):
    """The API server rejected the credentials (401) or denied the request (403).

    `permission` is the permission that the user lacks; None if the server denied the request for another reason.
    """

    def __init__(self, status: int, message: str, permission: Permission | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.permission = permission


class Rejected(HeadgateError):
    """The API server rejected the request with a 4xx status that has no error of its own, such as the 400 of a webhook."""


class ErrorHints(NamedTuple):
    """Hints at the end of error messages about an API server that can't be reached, or that denies a request.

    With `names_rule`, the hint of a missing permission is the RBAC rule with this permission.
    """

    unreachable: str = ""
    refused: str = ""
    names_rule: bool = False


class WatchEvent(NamedTuple):
    """An event of a watch: its type, such as ADDED, and the object."""

    type: str
    object: Object


class PageMetadata(Input, frozen=True, kw_only=True):
    """The metadata of a page. `continue_` is the token that requests the next page, empty on the last page."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(Input, frozen=True, kw_only=True):
    """A page of a list, whose objects are not decoded yet."""

    items: tuple[msgspec.Raw, ...] | None = None
    metadata: PageMetadata = PageMetadata()


class Client:
    """A client of an API server.

    Every call raises Unavailable if the server can't be reached or is overloaded, and another HeadgateError if it rejects
    the request. Each request opens a TCP connection, except within `async with client`, which reuses connections.
    `denied` is called with the missing permission of each denied request. Without `limits`, writes are sent at once, and a
    429 raises Unavailable at once.
    """

    def __init__(
        self,
        credentials: CredentialSource,
        hints: ErrorHints = ErrorHints(),  # noqa: B008 - it is immutable
        *,
        denied: Callable[[Permission], None] | None = None,
        limits: RequestLimits | None = None,
    ) -> None:
        from headgate.kubernetes import transport  # noqa: PLC0415 - aiohttp takes 0.2 s, and help needs none

        self.namespace = credentials.namespace
        self._transport = transport
        self.credentials = credentials
        self._hints = hints
        self._denied = denied
        self._limits = limits
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._keeps_connections = False
        self._is_aborted = False

    async def __aenter__(self) -> Self:
        self._keeps_connections = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keeps_connections = False
        await self._disconnect()

    async def abort(self) -> None:
        """Abort all requests in flight, and all later ones: they raise Unavailable."""
        self._is_aborted = True
        if self._connection:
            await self._transport.abort(self._connection)

    async def get(self, path: str, **query: str | Sequence[str]) -> Object:
        """Return an object or a list. Raises NotFound."""
        return await self._object("GET", path, query)

    async def version(self, path: str) -> str:
        """Return the resourceVersion of an object, as the server's cache has it. Raises NotFound."""
        request = ApiRequest("GET", f"{path}?resourceVersion=0", accept=_METADATA.format("PartialObjectMetadata"))
        async with self._answer(request) as response:
            return str(_decoded(await response.read())["metadata"].get("resourceVersion", ""))

    async def groups(self) -> Object:
        """Return an APIGroupDiscoveryList, which has the resources of all groups; from servers before 1.27, an APIGroupList."""
        accept = ",".join((_DISCOVERY.format("v2"), _DISCOVERY.format("v2beta1"), _JSON))
        async with self._answer(ApiRequest("GET", "/apis", accept=accept)) as response:
            return _decoded(await response.read())

    async def page(self, path: str, query: Mapping[str, str], *, metadata_only: bool = False) -> Page:
        """Read a page of the list at an API path, with the objects as JSON. Raises Gone if the list's continue token expired.

        With `metadata_only`, the objects have no other fields than `metadata`.
        """
        accept = _METADATA.format("PartialObjectMetadataList") if metadata_only else _JSON
        async with self._answer(ApiRequest("GET", _target(path, query), accept=accept)) as response:
            try:
                return msgspec.json.decode(await response.read(), type=Page)
            except msgspec.DecodeError as error:
                raise HeadgateError(f"the API's response is not a list: {error}") from error

    async def post(self, path: str, obj: Object, **query: str) -> Object:
        """Create an object and return the server's response. Raises AlreadyExists and Invalid."""
        return await self._object("POST", path, query, obj)

    async def merge(self, path: str, patch: Object) -> Object:
        """Apply a JSON merge patch to an object and return the object. Raises NotFound."""
        return await self._object("PATCH", path, {}, patch, content_type="application/merge-patch+json")

    async def put(self, path: str, obj: Object, **query: str) -> Object:
        """Replace an object and return it. Raises NotFound, Invalid, and Conflict if it changed."""
        return await self._object("PUT", path, query, obj)

    async def apply(self, path: str, obj: Object, *, manager: str) -> Object:
        """Apply an object as a field manager, with force (server-side apply), and return it. Raises Invalid."""
        query = {"fieldManager": manager, "force": "true"}
        return await self._object("PATCH", path, query, obj, content_type="application/apply-patch+yaml")

    async def items(self, kind: Kind, namespace: str = "", **query: str) -> tuple[list[Object], str]:
        """Return the objects of a kind, in one namespace or in all, and the resourceVersion to watch from."""
        response = await self.get(path_of(kind, namespace), **query)
        items: list[Object] = [
            {"apiVersion": kind.hub, "kind": kind.kind, **obj} for obj in response.get("items") or ()
        ]
        return items, str((response.get("metadata") or {}).get("resourceVersion", ""))

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Create an object in its namespace and return it."""
        return await self.post(path_of(kind, obj["metadata"].get("namespace", "")), obj)

    async def delete(self, kind: Kind, obj: Object) -> None:
        """Delete an object if its uid is still the same. Raises NotFound."""
        metadata = obj["metadata"]
        path = path_of(kind, metadata.get("namespace", ""), metadata["name"])
        await self.remove(path, {"preconditions": {"uid": metadata["uid"]}})

    async def remove(self, path: str, options: Object) -> Object:
        """Delete an object with DeleteOptions and return the server's response. Raises NotFound and Conflict."""
        return await self._object("DELETE", path, {}, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    async def watch(self, kind: Kind, namespace: str, **query: str) -> AsyncGenerator[WatchEvent]:
        """Yield events until the server ends the watch; close it with `aclosing`. Raises Gone if the resourceVersion expired."""
        path = path_of(kind, namespace)
        async with contextlib.aclosing(self.watch_at(path, {**query, "watch": "true"})) as events:
            async for event in events:
                yield event

    async def watch_at(
        self, path: str, query: Mapping[str, str], *, metadata_only: bool = False, idle_s: float | None = None
    ) -> AsyncGenerator[WatchEvent]:
        """Watch the collection at an API path and yield events, as `watch` does for a kind, or as `page` only metadata.

        Raises Unavailable if the server sends nothing for `idle_s` seconds.
        """
        rest = b""
        accept = _METADATA.format("PartialObjectMetadata") if metadata_only else _JSON
        async with self._answer(ApiRequest("GET", _target(path, query), accept=accept, idle_s=idle_s)) as response:
            async for part in response.content.iter_any():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _watch_event(line)

    async def stream(self, path: str, **query: str) -> AsyncGenerator[bytes]:
        """Yield the parts of a response body as they arrive; close it with `aclosing`. Raises NotFound."""
        async with self._answer(ApiRequest("GET", _target(path, query), idle_s=None)) as response:
            async for part in response.content.iter_any():
                yield part

    @contextlib.asynccontextmanager
    async def websocket(
        self, path: str, protocols: Sequence[str], query: Mapping[str, str | Sequence[str]]
    ) -> AsyncIterator["ClientWebSocketResponse"]:
        """Open a websocket and yield it. Raises NotFound, and the other errors that a GET raises."""
        connection = await self._connect()
        try:
            async with self._transport.websocket(connection, _target(path, query), protocols) as opened:
                yield opened
        except self._transport.HandshakeRefused:
            await self.get(path, **query)  # aiohttp drops the response to a handshake, which has the reason
            raise

    async def server(self) -> str:
        """Return the URL of the API server, without a slash at the end."""
        return (await self._connect()).host.rstrip("/")

    async def _object(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | Sequence[str]],
        body: Object | None = None,
        *,
        content_type: str = "application/json",
    ) -> Object:
        content = None if body is None else msgspec.json.encode(body)
        async with self._answer(ApiRequest(method, _target(path, query), content, content_type)) as response:
            return _decoded(await response.read())

    @contextlib.asynccontextmanager
    async def _answer(self, request: ApiRequest, waited: float = 0.0) -> AsyncIterator["ClientResponse"]:
        """Send a request and yield the response if its status is 2xx. After a 401, read the credentials again and retry.

        Retry also after a 429, if the limits allow this pause after the `waited` seconds.
        """
        if self._limits and request.method != "GET":
            await self._limits.wait_to_write()
        kept = self._connection is not None
        connection = await self._connect()
        if self._is_aborted:
            raise Unavailable("this client is closed")
        try:
            async with self._transport.exchange(connection, request) as response:
                if response.status < 300:
                    yield response
                    return
                content = await response.read()
        except Unavailable as error:
            if not self._keeps_connections:
                self._connection = None
            raise Unavailable(": ".join(filter(None, (str(error), self._hints.unreachable)))) from error
        if response.status == 401 and kept:
            await self._disconnect()
            async with self._answer(request) as response:
                yield response
            return
        pause = self._transport.retry_after(response) if response.status == 429 else None
        if self._limits and pause and waited + pause <= self._limits.retry_after_s:
            await asyncio.sleep(pause)
            async with self._answer(request, waited + pause) as response:
                yield response
            return
        raise self._refusal(request, response.status, content)

    async def _connect(self) -> Connection:
        async with self._turn:  # concurrent requests run the credentials program only once
            connection = self._connection = self._connection or await self.credentials.connect()
            if self._keeps_connections and connection.session is None:
                connection.session = self._transport.open_session(connection)
            return connection

    async def _disconnect(self) -> None:
        """Drop the credentials and close all TCP connections."""
        connection, self._connection = self._connection, None
        if connection and connection.session:
            await connection.session.close()

    def _refusal(self, request: ApiRequest, status: int, content: bytes) -> HeadgateError:
        """Return the error for a response; its message is that of the Status object in the body."""
        reason, details = "", dict[str, Any]()
        try:
            body = msgspec.json.decode(content)
            message, reason = str(body["message"]), str(body.get("reason", ""))
            details = dict(body.get("details") or {})
        except (msgspec.DecodeError, KeyError, TypeError):
            text = content.decode(errors="replace").strip().partition("\n")[0]
            message = f"{NO_MESSAGE} {status}" + (f" ({text})" if text else "")
        if status in (401, 403):
            permission = denied_permission(message, details, request.target) if status == 403 else None
            if permission and self._denied:
                self._denied(permission)
            hint = permission.grant if permission and self._hints.names_rule else self._hints.refused
            text = "; ".join(filter(None, (f"the API refuses: {message}", hint)))
            return AccessDenied(status, text, permission)
        if status == 422:
            return Invalid(Cause("", message))
        if status == 409:
            return (AlreadyExists if reason == "AlreadyExists" else Conflict)(message)
        return _ERRORS.get(status, Rejected if status < 500 else HeadgateError)(message)


class ApiServer:
    """A client for TokenReviews and SubjectAccessReviews, which uses headgate's ServiceAccount in its own cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, path: str, body: Object) -> Object:
        """Create an object and return the server's response. Raises ProxyError."""
        return await _as_proxy_error(self._client.post(path, body), _CREATES)

    async def read(self, path: str) -> Object:
        """Return an object. Raises ProxyError."""
        return await _as_proxy_error(self._client.get(path), _READS)


async def _as_proxy_error(answer: Awaitable[Object], need: str) -> Object:
    try:
        return await answer
    except HeadgateError as error:
        raise ProxyError(
            f"{error} ({error.status}): {need}" if isinstance(error, AccessDenied) else str(error)
        ) from error


def path_of(kind: Kind, namespace: str = "", name: str = "", sub: str = "", *, version: str = "") -> str:
    """Return the API path of a kind, of an object, or of a subresource (`sub`), by default in the hub version."""
    versioned = api_version(kind.group, version or kind.versions[0])
    group = f"/apis/{versioned}" if kind.group else f"/api/{versioned}"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace and kind.namespaced else ""
    tail = "".join(f"/{quote(part, safe='')}" for part in (name, sub) if part)
    return f"{group}{inside}/{kind.plural}{tail}"


def _target(path: str, query: Mapping[str, str | Sequence[str]]) -> str:
    return path + (f"?{urlencode(query, doseq=True)}" if query else "")


def _decoded(content: bytes) -> Object:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise HeadgateError("the API's response is not a JSON object") from error
    except msgspec.DecodeError as error:
        raise HeadgateError(f"the API's response is not JSON: {error}") from error


def _watch_event(line: bytes) -> WatchEvent:
    event = _decoded(line)
    content = event.get("object") or {}
    if event.get("type") == "ERROR":
        message = str(content.get("message", "the watch failed"))
        raise Gone(message) if content.get("code") == 410 else HeadgateError(message)
    return WatchEvent(str(event.get("type", "")), content)
