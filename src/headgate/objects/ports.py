"""The interfaces through which the control plane reads, watches and writes objects.

The embedded API server implements these interfaces, and so does the client of a Kubernetes cluster.

Objects are in the hub version of their kind (`resources.versions`). Resource versions are opaque: they can be compared
for equality only. A list or a watch covers one kind, and changes of different kinds have no order.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

from headgate.backoff import LONGEST_S, Backoff, restarted
from headgate.compiler.report import Finding
from headgate.errors import Gone, Unavailable
from headgate.latest import Latest
from headgate.resources.meta import Key, Object

T = TypeVar("T")

log = logging.getLogger(__name__)


class Listing(NamedTuple):
    """The objects of one kind, ordered by namespace and name, and the resource version at which a watch continues.

    A store may decode the objects while a caller iterates, so that they need not be in memory all at once.
    """

    items: Collection[Object]
    version: str


class Change(NamedTuple):
    """A change to an object. `object` is the whole object after the change, with its new resource version.

    For a deletion, `object` has the last content and the resource version of the deletion.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    key: Key
    object: Object

    @property
    def version(self) -> str:
        """The resource version from which a watch continues after this change."""
        return version_of(self.object)


def version_of(obj: Object) -> str:
    """Return an object's resource version; empty if it was never stored."""
    return str(obj["metadata"].get("resourceVersion", ""))


class View(Protocol):
    """The stored objects at the moment of a write, for admission."""

    def get(self, key: Key) -> Object | None:
        """Return an object; None if it does not exist."""

    def select(self, group: str, kind: str, namespace: str) -> Sequence[Object]:
        """Return all objects of a kind, or those of one namespace."""


AdmissionStep = Callable[[Object, Object | None, View], Object]
"""Checks and completes an object before the store writes it.

Takes the new object, the old one (None on create) and a view of all objects. Returns the object to store. Raises
Invalid.
"""

ChangeListener = Callable[[Change], None]
"""A function that the store calls with each change to a kind, once the change is durable and before other tasks run.

The store does not call it for rejected writes and dry runs.
"""


class Lister(Protocol):
    """Lists objects. Every call raises `Unavailable` if the objects can't be reached."""

    async def list(self, group: str, kind: str, namespace: str = "") -> Listing:
        """Return all objects of a kind, or those of one namespace."""


class Reader(Lister, Protocol):
    """Read access to objects. Every call raises `Unavailable` if the objects can't be reached."""

    async def get(self, key: Key) -> Object:
        """Return an object. Raises NotFound."""

    def watch(self, group: str, kind: str, namespace: str = "", *, since: str) -> AsyncGenerator[Change]:
        """Yield every change of a kind after a resource version, in order, without end.

        Raises Gone if the changes since `since` are no longer available, or later if the reader falls too far behind.
        """


class Relist(NamedTuple):
    """All objects of a kind, from a new list. Known objects that are missing in `items` were deleted."""

    items: Collection[Object]


def follow(reader: Reader, group: str, kind: str, namespace: str = "") -> AsyncGenerator[Relist | Change]:
    """Yield all objects of a kind, then each change, without end. List again when the watch expires or fails.

    The pauses before new lists grow until the watch has reported a change, or has lasted for the longest pause.
    """
    backoff = Backoff(steady_s=LONGEST_S)

    async def listed_and_watched() -> AsyncGenerator[Relist | Change]:
        items, version = await reader.list(group, kind, namespace)
        yield Relist(items)
        del items  # so that a long watch does not keep all listed objects in memory
        backoff.begin()
        async with contextlib.aclosing(reader.watch(group, kind, namespace, since=version)) as changes:
            async for change in changes:
                backoff.reset()
                yield change

    async def wait_after(error: Exception, seconds: float) -> None:
        level = logging.INFO if isinstance(error, Gone) else logging.WARNING
        log.log(level, "objects of kind %s can't be read, next attempt in %.1f s: %s", kind, seconds, error)
        await asyncio.sleep(seconds)

    return restarted(listed_and_watched, wait_after, on=(Gone, Unavailable), backoff=backoff)


async def follow_all(
    reader: Reader, kinds: Iterable[tuple[str, str] | tuple[str, str, str]]
) -> AsyncGenerator[Relist | Change]:
    """Follow several kinds, given by group, kind and optionally a namespace. Changes are ordered within a kind only."""
    async with contextlib.aclosing(merged([follow(reader, *kind) for kind in kinds])) as steps:
        async for step in steps:
            yield step


async def merged(streams: Sequence[AsyncGenerator[T]]) -> AsyncGenerator[T]:
    """Yield the items of endless streams as they come, and close the streams at the end."""
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
    """Write access to objects. Every call raises `Unavailable` if the objects can't be reached."""

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Store a new object and return it with uid, creationTimestamp, generation and resourceVersion.

        With `metadata.generateName` and no name, the store generates a name. A dry run stores nothing.

        Raises AlreadyExists, Invalid, and NotFound if the object's namespace does not exist.
        """

    async def update(self, obj: Object, *, subresource: Literal["", "status"] = "", dry_run: bool = False) -> Object:
        """Replace an object, or only its status, and return the stored object.

        An update with equal content changes nothing.

        Raises NotFound, Invalid, and Conflict if `metadata.resourceVersion` is given but is not the current version.
        """

    async def apply(self, config: Object, *, manager: str, subresource: Literal["", "status"] = "") -> Object:
        """Apply an object, or only its status, as `manager`, and return it: a server-side apply with force.

        Creates the object if it does not exist. The manager becomes the owner of all fields of `config`, also of those
        that another manager owned. Fields that the manager applied earlier and that are missing in `config` are
        removed.

        Raises Invalid, and NotFound if the namespace does not exist, or if the object does not exist and `config` is
        its status.
        """

    async def delete(
        self, key: Key, *, uid: str = "", resource_version: str = "", orphan: bool = False, dry_run: bool = False
    ) -> Object:
        """Delete an object, and unless `orphan` the objects that it owns; return the deleted object.

        An object with finalizers is not deleted yet, but gets a deletionTimestamp.

        Raises NotFound, and Conflict if the object has another uid or resource version than given.
        """


class Events(Protocol):
    """A recorder of Events about objects, which counts repetitions of an Event (R39, R41)."""

    async def record(
        self, about: Object | Key, *, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Record an Event about an object. Write nothing if the object's namespace is deleted or terminating."""


class Store(Reader, Writer, Protocol):
    """Read and write access to objects."""


class StateStorage(Protocol):
    """Storage of state that the next process of the control plane continues with. Each state has a name.

    `interval_s` is the shortest time between two writes of a state that changes all the time, in seconds.
    """

    interval_s: float

    async def load(self, name: str) -> bytes | None:
        """Return the saved state; None if there is none. Raises Unavailable."""

    async def save(self, name: str, state: bytes) -> None:
        """Replace the saved state atomically. Raises Unavailable; then the old state may remain."""


class Ports(NamedTuple):
    """The interfaces that the control plane uses to read and write objects, to record Events and to save its state.

    Without `state`, nothing is saved. `blocks` is the storage of the stored windows of traffic counts: 206 states of at most
    100 MB in total. Without it, they are in memory only. `active` is True while this control plane holds the lease to write. A standby
    only reads and compiles until it gets the lease. A control plane that loses the lease is stopped. `findings` has those
    of parts of the host about users' objects, for the statuses and Events of these objects. `unwritten` has further ones,
    about objects whose status belongs to another controller.
    """

    objects: Store
    events: Events
    active: Latest[bool]
    state: StateStorage | None = None
    findings: Sequence[Latest[tuple[Finding, ...]]] = ()
    unwritten: Sequence[Latest[tuple[Finding, ...]]] = ()
    blocks: StateStorage | None = None
