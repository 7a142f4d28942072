"""Watches: a stream of events after a resource version, with selectors, bookmarks and a time limit."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from headgate.api.selectors import Predicate, everything
from headgate.api.status import ApiError
from headgate.errors import Gone
from headgate.objects.ports import Change, Listing
from headgate.resources.meta import Object
from headgate.standalone.apiserver.objects import PathTarget, as_served
from headgate.standalone.store.memory import MemoryStore

BOOKMARK_SECONDS = 60.0
LONGEST_SECONDS = 3600.0  # the longest duration of a watch
_END_OF_INITIAL = "k8s.io/initial-events-end"


class WatchOptions(NamedTuple):
    """The options of a watch. If `since` is None, the watch begins with an ADDED event for each existing object.

    If `initial_end` is set, a bookmark follows these initial events. If `name` is set, only events of that object are sent.
    """

    since: int | None
    selects: Predicate = everything
    name: str = ""
    bookmarks: bool = False
    initial_end: bool = False
    seconds: float = LONGEST_SECONDS


Render = Callable[[Object], Mapping[str, Any]]


class _Matches:
    """Tracks which objects match a selector.

    A change is sent as ADDED when the object starts to match, and as DELETED when it stops matching.
    """

    def __init__(self, selects: Predicate, listing: Listing, since: int) -> None:
        self._selects = selects
        # Objects that did not match at revision `since`, so that the client does not have them. The client may have any
        # other object.
        self._outside = {
            sort_key(obj)
            for obj in listing.items
            if not selects(obj) and int(obj["metadata"]["resourceVersion"]) <= since
        }

    def event(self, change: Change) -> str | None:
        """Return the type of the event to send for a change; None to send no event."""
        if self._selects is everything:
            return change.type
        identity = change.key.namespace, change.key.name
        was_outside = identity in self._outside or change.type == "ADDED"
        self._outside.discard(identity)
        if self._selects(change.object):
            return "ADDED" if was_outside and change.type == "MODIFIED" else change.type
        if change.type != "DELETED":
            self._outside.add(identity)
        return None if was_outside else "DELETED"


def sort_key(obj: Object) -> tuple[str, str]:
    """Return the namespace and name of an object, which determine its position in a list."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


async def watch(store: MemoryStore, target: PathTarget, options: WatchOptions, render: Render) -> AsyncGenerator[bytes]:
    """Yield watch events as lines of JSON until `options.seconds` have passed."""
    kind = target.served.kind
    listing = await store.list(kind.group, kind.kind, target.namespace)
    since = int(listing.version) if options.since is None else options.since
    matches = _Matches(options.selects, listing, since)

    def event(type: str, obj: Object) -> bytes:
        return _line(type, render(as_served(obj, target.served)))

    if options.since is None:
        for obj in filter(options.selects, listing.items):
            yield event("ADDED", obj)
        if options.initial_end:
            yield _bookmark(target, since, annotations={_END_OF_INITIAL: "true"})
    async with contextlib.aclosing(_steps(store, target, since, options)) as steps:
        async for step in steps:
            if isinstance(step, bytes):
                yield step
            elif isinstance(step, int):
                yield _bookmark(target, step)
            elif options.name in ("", step.key.name) and (type := matches.event(step)):
                yield event(type, step.object)


def _bookmark(target: PathTarget, revision: int, **metadata: Any) -> bytes:
    served = target.served
    metadata = {"resourceVersion": str(revision), **metadata}
    return _line("BOOKMARK", {"kind": served.kind.kind, "apiVersion": served.api_version, "metadata": metadata})


def _line(type: str, obj: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"type": type, "object": obj}) + b"\n"


async def _steps(
    store: MemoryStore, target: PathTarget, since: int, options: WatchOptions
) -> AsyncGenerator[Change | int | bytes]:
    """Yield each change, the revision of each bookmark, and an ERROR event if the store has discarded the next change.

    The revision of a bookmark is the store's revision at the start of the last wait. All changes up to this revision
    have been yielded.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + options.seconds
    next_bookmark = loop.time() + BOOKMARK_SECONDS
    kind = target.served.kind
    changes = aiter(store.watch(kind.group, kind.kind, target.namespace, since=str(since)))
    pending: asyncio.Future[Change] = asyncio.ensure_future(anext(changes))
    try:
        while (now := loop.time()) < end:
            until = min(end, next_bookmark) if options.bookmarks else end
            stored = store.revision
            await asyncio.wait((pending,), timeout=until - now)
            if pending.done():
                change = pending.result()
                since = int(change.version)
                pending = asyncio.ensure_future(anext(changes))
                yield change
            elif options.bookmarks:
                next_bookmark = loop.time() + BOOKMARK_SECONDS
                since = max(since, stored)
                yield since
    except Gone as error:
        yield _line("ERROR", ApiError(410, str(error)).status())
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        if isinstance(changes, AsyncGenerator):
            await changes.aclose()
