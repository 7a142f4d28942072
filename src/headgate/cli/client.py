"""Calls the Kubernetes API that headgate embeds, or any other: get, list, watch, create, delete, logs."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from headgate.cli.instance import START_HINT
from headgate.cli.kubeconfig import Access
from headgate.cli.wire import Connection, Header, Response
from headgate.errors import Gone, HeadgateError, NotFound, Unavailable
from headgate.resources.meta import Object
from headgate.resources.registry import Kind

CONNECT_S = 5.0
ANSWER_S = 30.0  # until an answer begins; a watch begins at once, too

T = TypeVar("T")


class Step(NamedTuple):
    """One event of a watch."""

    type: str
    object: Object


class Client:
    """An API server. Every call raises Unavailable when it can't be reached, HeadgateError when it refuses."""

    def __init__(self, access: Access) -> None:
        self.namespace = access.namespace
        self._access = access
        self._url = urlsplit(access.server)

    async def get(self, path: str, **query: str | Sequence[str]) -> Object:
        """Return an object or a list. Raises NotFound."""
        async with self._answer(path, query) as response:
            return _object(await self._call(response.read()))

    async def merge(self, path: str, patch: Object) -> Object:
        """Change fields of an object (a JSON merge patch) and return it. Raises NotFound."""
        async with self._answer(path, {}, method="PATCH", body=msgspec.json.encode(patch)) as response:
            return _object(await self._call(response.read()))

    async def items(self, kind: Kind, namespace: str = "", **query: str) -> tuple[list[Object], str]:
        """Return the objects of a kind, in one namespace or in all, and the resourceVersion to watch from."""
        found = await self.get(path_of(kind, namespace), **query)
        items: list[Object] = [{"apiVersion": kind.hub, "kind": kind.kind, **item} for item in found.get("items") or ()]
        return items, str((found.get("metadata") or {}).get("resourceVersion", ""))

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Store a new object in its namespace and return it."""
        path = path_of(kind, obj["metadata"].get("namespace", ""))
        async with self._answer(path, {}, method="POST", body=msgspec.json.encode(obj)) as response:
            return _object(await self._call(response.read()))

    async def delete(self, kind: Kind, obj: Object) -> None:
        """Delete an object, if it is still the same one. Raises NotFound."""
        metadata = obj["metadata"]
        path = path_of(kind, metadata.get("namespace", ""), metadata["name"])
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": metadata["uid"]}}
        async with self._answer(path, {}, method="DELETE", body=msgspec.json.encode(options)) as response:
            await self._call(response.read())

    async def watch(self, kind: Kind, namespace: str, **query: str) -> AsyncGenerator[Step]:
        """Yield changes until the server ends the watch; close it with `aclosing`. Raises Gone when the resourceVersion is too old."""
        rest = b""
        async with self._answer(path_of(kind, namespace), {**query, "watch": "true"}) as response:
            while part := await self._call(response.part()):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _step(line)

    async def stream(self, path: str, **query: str) -> AsyncGenerator[bytes]:
        """Yield a body as it comes, without end when the server goes on; close it with `aclosing`. Raises NotFound."""
        async with self._answer(path, query) as response:
            while part := await self._call(response.part()):
                yield part

    @contextlib.asynccontextmanager
    async def _answer(
        self, path: str, query: Mapping[str, str | Sequence[str]], *, method: str = "GET", body: bytes = b""
    ) -> AsyncIterator[Response]:
        """Ask, and give the answer when it is a good one."""
        target = self._url.path + path + (f"?{urlencode(query, doseq=True)}" if query else "")
        connection = await self._call(self._connect())
        try:
            response = await self._call(_in_time(connection.ask(method, target, self._headers(method), body)))
            if response.status >= 300:
                raise _refusal(response.status, await self._call(response.read()))
            yield response
        finally:
            await connection.close()

    async def _connect(self) -> Connection:
        secure = self._url.scheme == "https"
        port = self._url.port or (443 if secure else 80)
        context = _tls(self._access) if secure else None
        async with asyncio.timeout(CONNECT_S):
            return Connection(await asyncio.open_connection(self._url.hostname, port, ssl=context))

    async def _call(self, step: Awaitable[T]) -> T:
        """Await a step of an exchange; that the server does not answer is an error for the user."""
        try:
            return await step
        except OSError as error:  # a timeout is an OSError too
            raise self._unreachable(error) from error

    def _headers(self, method: str) -> list[Header]:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = [("host", self._url.netloc), ("accept", "application/json"), ("connection", "close")]
        headers.append(("content-type", content))
        return [*headers, ("authorization", f"Bearer {self._access.token}")] if self._access.token else headers

    def _unreachable(self, error: OSError) -> Unavailable:
        reason = error.strerror or str(error) or "no answer in time"
        return Unavailable(f"no API answers at {self._access.server} ({reason}): {START_HINT}")


async def _in_time(step: Awaitable[T]) -> T:
    async with asyncio.timeout(ANSWER_S):
        return await step


def path_of(kind: Kind, namespace: str = "", name: str = "", sub: str = "") -> str:
    """Return the API's path of a kind, an object, or a part of it."""
    group = f"/apis/{kind.hub}" if kind.group else f"/api/{kind.hub}"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace and kind.namespaced else ""
    tail = "".join(f"/{quote(part, safe='')}" for part in (name, sub) if part)
    return f"{group}{inside}/{kind.plural}{tail}"


def _tls(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=access.ca or None)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _object(body: bytes) -> Object:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise HeadgateError(f"the API's answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise HeadgateError("the API's answer is no object")
    return found


def _step(line: bytes) -> Step:
    event = _object(line)
    content = event.get("object") or {}
    if event.get("type") == "ERROR":
        message = str(content.get("message", "the watch failed"))
        raise Gone(message) if content.get("code") == 410 else HeadgateError(message)
    return Step(str(event.get("type", "")), content)


def _refusal(status: int, body: bytes) -> HeadgateError:
    """Return the error that an answer means; its words are those of the API's Status."""
    try:
        message = str(msgspec.json.decode(body)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        message = body.decode(errors="replace").strip().partition("\n")[0] or f"the API answers with {status}"
    if status in (401, 403):
        return HeadgateError(f"the API refuses: {message}. The kubeconfig may be of an earlier `headgate up`")
    kinds = {404: NotFound, 410: Gone, 503: Unavailable}
    return kinds.get(status, HeadgateError)(message)
