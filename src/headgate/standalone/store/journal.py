"""The persistence of a store, as its objects in memory need it. `sqlite` implements it."""

from collections.abc import Sequence
from typing import Protocol

from headgate.objects.ports import Change
from headgate.resources.meta import Object


class Journal(Protocol):
    """Persists changes to the store."""

    def load(self) -> tuple[int, Sequence[Object]]:
        """Return the newest revision and all objects at that revision. Raises StoreError."""

    def check(self) -> None:
        """Test that a write succeeds, without changing an object. Raises Unavailable."""

    @property
    def failing_since(self) -> float:
        """The time of the first failed write since the last successful write, in seconds since the epoch; else 0."""

    def append(self, changes: Sequence[Change]) -> None:
        """Persist one call's changes, all or none, so that they survive this process. Raises StoreError."""
