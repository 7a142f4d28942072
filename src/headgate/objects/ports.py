"""What a store does. Two sides use it alike: the API server in front, the control loop and the local runtime behind.

Objects go in and out in the hub version of their kind (`resources.versions`); the HTTP layer converts.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from headgate.resources.meta import Key, Object


class Listing(NamedTuple):
    """Objects of one kind, ordered by namespace and name, and the revision at which that was so."""

    items: Sequence[Object]
    revision: int


class Change(NamedTuple):
    """One step in an object's life; `object` is the whole object after it (before it, when deleted)."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    key: Key
    object: Object
    revision: int


Admit = Callable[[Object, Object | None], Object]
"""Checks and completes an object before it is stored: (new, old or None) -> what to store. Raises Invalid."""


Kept = Callable[[Sequence[Change]], None]
"""Sees the changes of each call once they are durable, before any other task runs. A refused or dry run has none."""


class Store(Protocol):
    """Versioned objects. Every call raises `Unavailable` when the store can't be reached."""

    @property
    def revision(self) -> int:
        """The number of the newest change; it only grows, across restarts too."""

    async def check(self) -> None:
        """Return when a write would be kept. Raises Unavailable with the reason when none would."""

    async def get(self, key: Key) -> Object:
        """Return an object. Raises NotFound."""

    async def list(self, group: str, kind: str, namespace: str = "") -> Listing:
        """Return all objects of a kind, of one namespace when it is given."""

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Store a new object and return it with uid, creationTimestamp, generation and resourceVersion filled in.

        With `metadata.generateName` and no name, the store picks one. A dry run checks and fills in, and stores nothing.

        Raises AlreadyExists, Invalid, NotFound (when its namespace does not exist).
        """

    async def update(self, obj: Object, *, subresource: Literal["", "status"] = "", dry_run: bool = False) -> Object:
        """Replace an object (or only its status) and return it; equal content is no change.

        When `metadata.resourceVersion` is given it must be the current one. Raises Conflict, NotFound, Invalid.
        """

    async def delete(
        self, key: Key, *, uid: str = "", resource_version: str = "", orphan: bool = False, dry_run: bool = False
    ) -> Object:
        """Delete an object and what it owns (unless `orphan`). With finalizers it only gets a deletionTimestamp.

        Raises NotFound, and Conflict when a precondition does not hold.
        """

    def watch(self, since: int, *, group: str = "", kind: str = "", namespace: str = "") -> AsyncIterator[Change]:
        """Yield every change after revision `since`, in order, for ever; without `kind`, of all kinds.

        Raises Gone when `since` is older than what is kept, also later, when the reader falls behind that far.
        """
