"""The ports to objects: how the control plane reads, follows and writes them, whatever host it runs on.

Objects go in and out in the hub version of their kind (`resources.versions`). Resource versions are opaque: two are equal or
not, and neither is newer. Lists and watches are of one kind each; kinds have no order among them.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

from headgate.errors import Gone, Unavailable
from headgate.latest import Latest
from headgate.resources.meta import Key, Object

RETRY_SECONDS = 1.0  # between two attempts to reach the objects

log = logging.getLogger(__name__)


class Listing(NamedTuple):
    """Objects of one kind, ordered by namespace and name, and the resource version from which a watch goes on."""

    items: Sequence[Object]
    version: str


class Change(NamedTuple):
    """One step in an object's life; `object` is the whole object after it, with its resource version.

    A deleted object is as it was, with the resource version of its end.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    key: Key
    object: Object

    @property
    def version(self) -> str:
        """The resource version from which a watch goes on after this change."""
        return version_of(self.object)


def version_of(obj: Object) -> str:
    """Return an object's resource version; empty for one that was never stored."""
    return str(obj["metadata"].get("resourceVersion", ""))


class View(Protocol):
    """What is stored at the moment of a write, for checks of it."""

    def get(self, key: Key) -> Object | None:
        """Return an object, None when there is none."""

    def select(self, group: str, kind: str, namespace: str) -> Sequence[Object]:
        """Return all objects of a kind, of one namespace when it is given."""


AdmissionStep = Callable[[Object, Object | None, View], Object]
"""Checks and completes an object before it is stored: (new, old or None, view) -> what to store. Raises Invalid."""

ChangeListener = Callable[[Change], None]
"""Sees the changes of a kind once they are durable, before any other task runs. A refused or dry run has none."""


class Reader(Protocol):
    """Objects to read. Every call raises `Unavailable` when the objects can't be reached."""

    async def get(self, key: Key) -> Object:
        """Return an object. Raises NotFound."""

    async def list(self, group: str, kind: str, namespace: str = "") -> Listing:
        """Return all objects of a kind, of one namespace when it is given."""

    def watch(self, group: str, kind: str, namespace: str = "", *, since: str) -> AsyncIterator[Change]:
        """Yield every change of a kind after a resource version, in order, for ever.

        Raises Gone when the changes since then are no longer kept, also later, when the reader falls behind that far.
        """


class Relist(NamedTuple):
    """All objects of a kind at one moment. What a reader knew before and is not among them is gone."""

    items: Sequence[Object]


async def follow(reader: Reader, group: str, kind: str, namespace: str = "") -> AsyncGenerator[Relist | Change]:
    """Yield all objects of a kind, then each change, for ever; begin again when the watch expired or failed."""
    while True:
        try:
            listing = await reader.list(group, kind, namespace)
            yield Relist(listing.items)
            async for change in reader.watch(group, kind, namespace, since=listing.version):
                yield change
        except Gone:
            continue
        except Unavailable as error:
            log.warning("objects of kind %s can't be read, the next attempt is in %g s: %s", kind, RETRY_SECONDS, error)
            await asyncio.sleep(RETRY_SECONDS)


async def follow_all(reader: Reader, kinds: Iterable[tuple[str, str]]) -> AsyncGenerator[Relist | Change]:
    """Follow several kinds, given by group and kind, at once. Only the changes of one kind have an order."""
    streams = [follow(reader, group, kind) for group, kind in kinds]
    waiting = {asyncio.ensure_future(anext(stream)): stream for stream in streams}
    try:
        while True:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                stream = waiting.pop(future)
                yield future.result()
                waiting[asyncio.ensure_future(anext(stream))] = stream
    finally:
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()


class Writer(Protocol):
    """Objects to write. Every call raises `Unavailable` when the objects can't be reached."""

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Store a new object and return it with uid, creationTimestamp, generation and resourceVersion filled in.

        With `metadata.generateName` and no name, the store picks one. A dry run checks and fills in, and stores nothing.

        Raises AlreadyExists, Invalid, NotFound (when its namespace does not exist).
        """

    async def update(self, obj: Object, *, subresource: Literal["", "status"] = "", dry_run: bool = False) -> Object:
        """Replace an object (or only its status) and return it; equal content is no change.

        When `metadata.resourceVersion` is given it must be the current one. Raises Conflict, NotFound, Invalid.
        """

    async def apply(self, config: Object, *, manager: str, subresource: Literal["", "status"] = "") -> Object:
        """Make an object (or its status) have what is given, create it when there is none, and return it.

        A manager owns what it applies: what it gave before and leaves out now goes, what others set stays, and what others
        own and it gives becomes its own (a server-side apply with force). Raises Invalid, and NotFound for a namespace
        that does not exist, or the status of an object that does not.
        """

    async def delete(
        self, key: Key, *, uid: str = "", resource_version: str = "", orphan: bool = False, dry_run: bool = False
    ) -> Object:
        """Delete an object and what it owns (unless `orphan`). With finalizers it only gets a deletionTimestamp.

        Raises NotFound, and Conflict when a precondition does not hold.
        """


class Events(Protocol):
    """Where Events about objects are recorded. The implementation counts repetitions of one Event (R39, R41)."""

    async def record(
        self, about: Object | Key, *, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Record an Event about an object; nothing is written when the object's namespace is gone or ending."""


class Store(Reader, Writer, Protocol):
    """Objects to read and to write."""


class Ports(NamedTuple):
    """What a host gives to the control plane.

    `active` says whether this control plane has the lease to write: a standby reads and compiles until it does. A host ends
    a control plane that loses it.
    """

    objects: Store
    events: Events
    active: Latest[bool]
