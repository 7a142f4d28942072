"""A client of a Kubernetes API: get, list, watch, create, patch, delete and logs."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from headgate.errors import Gone, HeadgateError, NotFound, ProxyError, Unavailable
from headgate.kubernetes.connection import Connection, CredentialSource
from headgate.resources.meta import Object
from headgate.resources.registry import Kind

if TYPE_CHECKING:
    from aiohttp import ClientResponse


_CREATES = "headgate's ServiceAccount needs a ClusterRoleBinding to system:auth-delegator"
_READS = "headgate's ServiceAccount needs a RoleBinding to extension-apiserver-authentication-reader in kube-system"


class AccessDenied(HeadgateError):
    """The API server rejected the credentials (401) or denied the request (403)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ErrorHints(NamedTuple):
    """Hints at the end of error messages about an API server that can't be reached, or that denies a request."""

    unreachable: str = ""
    refused: str = ""


class WatchEvent(NamedTuple):
    """An event of a watch: its type, such as ADDED, and the object."""

    type: str
    object: Object


class Client:
    """A client of an API server.

    Every call raises Unavailable if the server can't be reached, and HeadgateError if it rejects the request.
    """

    def __init__(self, credentials: CredentialSource, hints: ErrorHints = ErrorHints()) -> None:  # noqa: B008 - it is immutable
        from headgate.kubernetes.transport import exchange  # noqa: PLC0415 - aiohttp takes 0.2 s, and help needs none

        self.namespace = credentials.namespace
        self._exchange = exchange
        self._credentials = credentials
        self._hints = hints
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    async def get(self, path: str, **query: str | Sequence[str]) -> Object:
        """Return an object or a list. Raises NotFound."""
        return await self._object("GET", path, query)

    async def post(self, path: str, obj: Object) -> Object:
        """Create an object and return the server's response."""
        return await self._object("POST", path, {}, obj)

    async def merge(self, path: str, patch: Object) -> Object:
        """Apply a JSON merge patch to an object and return the object. Raises NotFound."""
        return await self._object("PATCH", path, {}, patch)

    async def items(self, kind: Kind, namespace: str = "", **query: str) -> tuple[list[Object], str]:
        """Return the objects of a kind, in one namespace or in all, and the resourceVersion to watch from."""
        found = await self.get(path_of(kind, namespace), **query)
        items: list[Object] = [{"apiVersion": kind.hub, "kind": kind.kind, **item} for item in found.get("items") or ()]
        return items, str((found.get("metadata") or {}).get("resourceVersion", ""))

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Create an object in its namespace and return it."""
        return await self.post(path_of(kind, obj["metadata"].get("namespace", "")), obj)

    async def delete(self, kind: Kind, obj: Object) -> None:
        """Delete an object if its uid is still the same. Raises NotFound."""
        metadata = obj["metadata"]
        path = path_of(kind, metadata.get("namespace", ""), metadata["name"])
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": metadata["uid"]}}
        await self._object("DELETE", path, {}, options)

    async def watch(self, kind: Kind, namespace: str, **query: str) -> AsyncGenerator[WatchEvent]:
        """Yield events until the server ends the watch; close it with `aclosing`. Raises Gone if the resourceVersion expired."""
        rest = b""
        async with contextlib.aclosing(self.stream(path_of(kind, namespace), **{**query, "watch": "true"})) as parts:
            async for part in parts:
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _watch_event(line)

    async def stream(self, path: str, **query: str) -> AsyncGenerator[bytes]:
        """Yield the parts of a response body as they arrive; close it with `aclosing`. Raises NotFound."""
        async with self._answer("GET", path, query) as response:
            async for part in response.content.iter_any():
                yield part

    async def _object(
        self, method: str, path: str, query: Mapping[str, str | Sequence[str]], body: Object | None = None
    ) -> Object:
        async with self._answer(method, path, query, body) as response:
            return _decoded(await response.read())

    @contextlib.asynccontextmanager
    async def _answer(
        self, method: str, path: str, query: Mapping[str, str | Sequence[str]], body: Object | None = None
    ) -> AsyncIterator["ClientResponse"]:
        """Send a request and yield the response if its status is 2xx. After a 401, read the credentials again and retry."""
        kept = self._connection is not None
        async with self._turn:  # concurrent requests run the credentials program only once
            connection = self._connection = self._connection or await self._credentials.connect()
        target = path + (f"?{urlencode(query, doseq=True)}" if query else "")
        try:
            async with self._exchange(connection, method, target, body) as response:
                if response.status < 300:
                    yield response
                    return
                content = await response.read()
        except Unavailable as error:
            self._connection = None
            raise Unavailable(": ".join(filter(None, (str(error), self._hints.unreachable)))) from error
        if response.status == 401 and kept:
            self._connection = None
            async with self._answer(method, path, query, body) as response:
                yield response
            return
        raise self._refusal(response.status, content)

    def _refusal(self, status: int, content: bytes) -> HeadgateError:
        """Return the error for a response; its message is that of the Status object in the body."""
        try:
            message = str(msgspec.json.decode(content)["message"])
        except (msgspec.DecodeError, KeyError, TypeError):
            message = content.decode(errors="replace").strip().partition("\n")[0] or f"the API answers with {status}"
        if status in (401, 403):
            return AccessDenied(status, ". ".join(filter(None, (f"the API refuses: {message}", self._hints.refused))))
        kinds = {404: NotFound, 410: Gone, 503: Unavailable}
        return kinds.get(status, HeadgateError)(message)


class ApiServer:
    """The API server of headgate's own cluster, called as headgate's ServiceAccount, for TokenReviews and the like."""

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


def path_of(kind: Kind, namespace: str = "", name: str = "", sub: str = "") -> str:
    """Return the API path of a kind, of an object, or of a subresource (`sub`)."""
    group = f"/apis/{kind.hub}" if kind.group else f"/api/{kind.hub}"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace and kind.namespaced else ""
    tail = "".join(f"/{quote(part, safe='')}" for part in (name, sub) if part)
    return f"{group}{inside}/{kind.plural}{tail}"


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
