"""Objects in a cluster's API server, through the ports of `objects.ports`.

Objects are converted between the version that the server serves and the hub version. A kind that the server does not
serve has no objects until it is served (`served_versions`).
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import msgspec

from headgate.backoff import Backoff, restarted
from headgate.errors import DecodeError, Denied, Gone, HeadgateError, NotFound, OutsideMesh, StoreError, Unavailable
from headgate.kinds import METRICS_KINDS, TAPPABLE_KINDS
from headgate.kubernetes.client import AccessDenied, Client, Rejected, WatchEvent, path_of
from headgate.kubernetes.config_maps import reduced, reduced_json
from headgate.kubernetes.names import EVENTS_NAMESPACE, NAMESPACE
from headgate.kubernetes.served_versions import ServedVersions
from headgate.latest import until
from headgate.objects.ports import Change, Listing, merged
from headgate.resources.kind import ServedKind, split_api_version
from headgate.resources.meta import Input, Key, Object
from headgate.resources.pod_templates import REPLACING_KINDS
from headgate.resources.registry import CONFIG_MAP, KINDS, find, key_of
from headgate.resources.versions import from_hub, to_hub

T = TypeVar("T")
CHUNK = 500
"""The number of objects that one request of a paginated list returns."""
WATCH_S = 290
"""The duration of a watch in seconds, plus a random part of up to a third, so that watches end at different times."""
LATE_S = 30
"""Seconds after the end of a watch: if the server has sent nothing by then, the connection is broken."""
BOOKMARK_S = 150.0
"""Seconds without an event or a bookmark, after which a watch is broken. Servers that send bookmarks send one a minute."""
STATUS_KINDS = REPLACING_KINDS
"""The workloads whose missing pods the status of the mesh counts. Those of a ReplicaSet are its Deployment's."""
_METADATA_ONLY = {(names.group, names.kind) for names in (*METRICS_KINDS, *TAPPABLE_KINDS)} - {
    *STATUS_KINDS,
    *((kind.group, kind.kind) for kind in KINDS if kind.shape is not None),
}
"""Kinds whose lists and watches have no other fields than `metadata`: metrics and taps read their labels and owners only."""
Selectors = Mapping[tuple[str, str], Mapping[str, str]]
_SELECTED: Selectors = {("", "Secret"): {"fieldSelector": "type=kubernetes.io/tls"}}
"""Selectors of lists and watches by group and kind. The Secrets that Gateways can use have this type."""
_EVERY: Selectors = MappingProxyType({})

log = logging.getLogger(__name__)


class ClusterStore:
    """Implements `objects.ports.Store` with a cluster's API server.

    If `namespaces` are given, objects of other namespaces do not exist for lists and watches, nor for `get`. A list
    without a namespace then reads these namespaces one by one, and its version contains the version of each. `selectors`
    restrict the lists and watches without a namespace, by group and kind. In these, ConfigMaps are `reduced`.
    """

    def __init__(
        self,
        client: Client,
        versions: ServedVersions,
        namespaces: Sequence[str] = (),
        selectors: Selectors = _EVERY,
    ) -> None:
        self._client = client
        self._versions = versions
        self._namespaces = tuple(dict.fromkeys((*namespaces, NAMESPACE))) if namespaces else ()
        self._selectors_in_all = selectors

    async def get(self, key: Key) -> Object:
        """Return an object. Raises NotFound."""
        served = self._served(key.group, key.kind)
        if self._namespaces and key.namespace not in ("", EVENTS_NAMESPACE, *self._namespaces):
            raise OutsideMesh(
                f"the namespace {key.namespace} does not belong to the mesh, so {key} is not known; an operator can add"
                " the namespace with `headgate install --namespaces`"
            )
        return _hub(served, await _stored(self._client.get(_path(served, key.namespace, key.name))))

    async def list(self, group: str, kind: str, namespace: str = "") -> Listing:
        """Return all objects of a kind, or those of one namespace. A kind that is not served has none."""
        served = self._versions.current.get().get((group, kind))
        if served is None:
            return Listing((), "")
        try:
            return await self._list(served, namespace, {"limit": str(CHUNK)})
        except Gone:  # the continue token has expired: list without pagination
            return await self._list(served, namespace, {})
        except NotFound:  # the kind is not served anymore
            await self._refresh()
            return Listing((), "")

    async def _list(self, served: ServedKind, namespace: str, query: Mapping[str, str]) -> Listing:
        items, versions = list[msgspec.Raw](), list[str]()
        query = {**query, **self._selectors(served, namespace)}
        for place in self._places(served, namespace):
            listed, version = await self._pages(served, place, query, is_reduced=_is_reduced(served, namespace))
            items += listed
            versions.append(version)
        return Listing(_Listed(served, items), ",".join(versions))

    def _places(self, served: ServedKind, namespace: str) -> Sequence[str]:
        """Return the namespaces of the requests for a list or watch; an empty one means all, or a kind without namespaces."""
        return (served.kind.namespaced and not namespace and self._namespaces) or (namespace,)

    def _selectors(self, served: ServedKind, namespace: str) -> Mapping[str, str]:
        kind = served.kind.group, served.kind.kind
        return {**_SELECTED.get(kind, {}), **({} if namespace else self._selectors_in_all.get(kind, {}))}

    async def _pages(
        self, served: ServedKind, namespace: str, query: Mapping[str, str], *, is_reduced: bool
    ) -> tuple[Sequence[msgspec.Raw], str]:
        """Return all objects of a kind, or those of one namespace, and the version of the list."""
        path, items = _path(served, namespace), list[msgspec.Raw]()
        while True:
            page = await _stored(self._client.page(path, query, metadata_only=_is_metadata_only(served)))
            items += map(reduced_json, page.items or ()) if is_reduced else page.items or ()
            if not page.metadata.continue_:
                return items, page.metadata.resource_version
            query = {**query, "continue": page.metadata.continue_}

    async def watch(self, group: str, kind: str, namespace: str = "", *, since: str) -> AsyncGenerator[Change]:
        """Yield every change of a kind after a resource version, in order, without end. Raises Gone.

        After a lost connection, the watch continues after the last change.
        """
        if not since:
            await until(lambda: (group, kind) in self._versions.current.get(), self._versions.current)
            raise Gone(f"{kind} is served now")
        served = self._served(group, kind)
        selectors = self._selectors(served, namespace)
        pairs = zip(self._places(served, namespace), since.split(","), strict=True)
        streams = [self._watch(served, place, {**selectors, "resourceVersion": version}) for place, version in pairs]
        async with contextlib.aclosing(merged(streams) if len(streams) > 1 else streams[0]) as changes:
            async for change in changes:
                is_reduced = _is_reduced(served, namespace)
                yield change._replace(object=reduced(change.object)) if is_reduced else change

    def _watch(self, served: ServedKind, namespace: str, query: Mapping[str, str]) -> AsyncGenerator[Change]:
        """Yield every change of a kind in one namespace, or with an empty namespace in all."""
        kind, backoff = served.kind.kind, Backoff()

        async def changes() -> AsyncGenerator[Change]:
            nonlocal query
            try:
                async with contextlib.aclosing(self._events(served, namespace, query)) as events:
                    async for event in events:
                        backoff.reset()
                        query = {**query, "resourceVersion": str(event.object["metadata"]["resourceVersion"])}
                        if event.type != "BOOKMARK":
                            yield _change(served, event)
            except NotFound as error:
                await self._refresh()
                raise Gone(f"{kind} is not served anymore") from error

        return restarted(changes, f"the watch of kind {kind} was interrupted", on=Unavailable, backoff=backoff)

    async def _events(self, served: ServedKind, namespace: str, query: Mapping[str, str]) -> AsyncGenerator[WatchEvent]:
        """Yield the events of one watch. Raises StoreError."""
        seconds = WATCH_S + random.randrange(WATCH_S // 3)  # noqa: S311 - not for secrets
        query = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        events = self._client.watch_at(
            _path(served, namespace),
            query,
            metadata_only=_is_metadata_only(served),
            idle_s=float(seconds + LATE_S),
        )
        async with contextlib.aclosing(events):
            limit = None
            try:
                while True:
                    async with asyncio.timeout(limit):
                        event = await anext(events, None)
                    if event is None:
                        return
                    limit = BOOKMARK_S if event.type == "BOOKMARK" else limit
                    yield event
            except TimeoutError:
                raise Unavailable(f"the server has sent nothing for {BOOKMARK_S:g} s") from None
            except StoreError:
                raise
            except HeadgateError as error:
                raise Unavailable(str(error)) from error

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create an object and return it. Raises AlreadyExists, Invalid, and NotFound if its namespace does not exist."""
        served, body = self._written(obj)
        path = _path(served, obj["metadata"].get("namespace", ""))
        return _hub(served, await _stored(self._client.post(path, body, **_dry(dry_run=dry_run))))

    async def update(self, obj: Object, *, subresource: Literal["", "status"] = "", dry_run: bool = False) -> Object:
        """Replace an object, or only its status, and return it. Raises NotFound, Invalid and Conflict."""
        served, body = self._written(obj)
        key = key_of(obj)
        path = _path(served, key.namespace, key.name, subresource)
        return _hub(served, await _stored(self._client.put(path, body, **_dry(dry_run=dry_run))))

    async def apply(self, config: Object, *, manager: str, subresource: Literal["", "status"] = "") -> Object:
        """Apply an object, or only its status, as `manager`, and return it. Raises Invalid and NotFound."""
        served, body = self._written(config)
        key = key_of(config)
        path = _path(served, key.namespace, key.name, subresource)
        return _hub(served, await _stored(self._client.apply(path, body, manager=manager)))

    async def delete(
        self, key: Key, *, uid: str = "", resource_version: str = "", orphan: bool = False, dry_run: bool = False
    ) -> Object:
        """Delete an object and return the server's response: the object or a Status. Raises NotFound and Conflict."""
        served = self._served(key.group, key.kind)
        conditions = {name: text for name, text in (("uid", uid), ("resourceVersion", resource_version)) if text}
        options: dict[str, Any] = {"propagationPolicy": "Orphan" if orphan else "Background"}
        options |= {"preconditions": conditions} if conditions else {}
        options |= {"dryRun": ["All"]} if dry_run else {}
        return await _stored(self._client.remove(_path(served, key.namespace, key.name), options))

    def _served(self, group: str, kind: str) -> ServedKind:
        """Return the version in which a kind is served. Raises NotFound."""
        served = self._versions.current.get().get((group, kind))
        if served is None:
            registered = find(group, kind)
            raise NotFound(
                f"the cluster's API server does not serve {registered.plural if registered else kind}.{group}"
            )
        return served

    def _written(self, obj: Object) -> tuple[ServedKind, Object]:
        """Return the served version of an object's kind, and the object in this version. Raises NotFound."""
        group, _ = split_api_version(obj["apiVersion"])
        served = self._served(group, obj["kind"])
        return served, obj if served.is_hub else from_hub(obj, served.group, served.version)

    async def _refresh(self) -> None:
        await _stored(self._versions.refresh())


class _Name(Input, frozen=True, kw_only=True):
    name: str
    namespace: str = ""


class _Named(Input, frozen=True, kw_only=True):
    metadata: _Name


class _Listed(Collection[Object]):
    """Listed objects, ordered by namespace and name, which each iteration decodes one by one.

    10,000 pods are about 100 MB of JSON, and several times as much as Python objects.
    """

    def __init__(self, served: ServedKind, items: Iterable[msgspec.Raw]) -> None:
        self._served = served
        self._items = sorted(items, key=_place)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Object]:
        return (_hub(self._served, msgspec.json.decode(raw)) for raw in self._items)

    def __contains__(self, obj: object) -> bool:
        return any(obj == listed for listed in self)


def _place(raw: msgspec.Raw) -> tuple[str, str]:
    metadata = msgspec.json.decode(raw, type=_Named).metadata
    return metadata.namespace, metadata.name


async def _stored(answer: Awaitable[T]) -> T:
    """Await a response and raise each failure as a StoreError. Callers retry: a missing permission may be granted later."""
    try:
        return await answer
    except StoreError:
        raise
    except (AccessDenied, Rejected) as error:
        raise Denied(str(error)) from error
    except HeadgateError as error:
        raise Unavailable(str(error)) from error


def _path(served: ServedKind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    return path_of(served.kind, namespace, name, subresource, version=served.version)


def _is_metadata_only(served: ServedKind) -> bool:
    return (served.kind.group, served.kind.kind) in _METADATA_ONLY


def _is_reduced(served: ServedKind, namespace: str) -> bool:
    return served.kind is CONFIG_MAP and not namespace


def _dry(*, dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _hub(served: ServedKind, obj: Object) -> Object:
    """Return an object from the server in hub version, with `apiVersion` and `kind`, which items of lists do not have.

    An object that can't be converted keeps its version; the feed reports its mistakes.
    """
    obj = {**obj, "apiVersion": served.api_version, "kind": served.kind.kind}
    if served.is_hub:
        return obj
    try:
        return to_hub(obj)
    except DecodeError:
        return obj


def _change(served: ServedKind, event: WatchEvent) -> Change:
    obj = _hub(served, event.object)
    kind = served.kind
    metadata = obj["metadata"]
    key = kind.key(metadata.get("namespace", ""), metadata["name"])
    return Change(event.type, key, obj)  # type: ignore[arg-type]  # ADDED, MODIFIED or DELETED
