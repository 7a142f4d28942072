"""Records Events about objects, which `kubectl describe` shows (R39, R41)."""

import hashlib
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

from headgate.errors import AlreadyExists, Conflict, Invalid, NotFound
from headgate.objects.ports import Store
from headgate.resources.kind import api_version
from headgate.resources.meta import Key, Object, epoch_seconds, micro_timestamp, timestamp
from headgate.resources.registry import EVENT, find, key_of

TTL_SECONDS = 3600.0  # An Event expires this many seconds after its last occurrence.
_SWEEP = 60.0  # Seconds between two deletions of expired Events.
_LONGEST_MESSAGE = 1024  # The longest message in bytes, as in Kubernetes.
_LONGEST_INSTANCE = 128  # The longest reportingInstance in characters.
_LONGEST_NAME = 230  # The most characters of the object's name that an Event's name contains.
_ATTEMPTS = 5  # to count a repetition; one that always conflicts is not counted
_ACTION = "Reconcile"  # What headgate did with the object when it found the reason for the Event.


class _Occurrence(NamedTuple):
    """What an Event says, and at which time in seconds since the epoch. `about` refers to an object."""

    about: dict[str, str]
    type: str
    reason: str
    message: str
    component: str
    seconds: float

    @property
    def name(self) -> str:
        """The name of the Event, which is the same for each repetition."""
        about = self.about
        identifying = [about["kind"], about.get("uid", ""), self.component, self.type, self.reason, self.message]
        digest = hashlib.sha256("\0".join(identifying).encode()).hexdigest()[:16]
        return f"{about['name'][:_LONGEST_NAME].rstrip('-.')}.{digest}"


class EventVersion(Protocol):
    """A version of the Events API."""

    api_version: str

    def first(self, occurrence: _Occurrence) -> dict[str, Any]:
        """Return the fields of a new Event, besides those that all objects have."""

    def repeated(self, old: Object, seconds: float) -> dict[str, Any]:
        """Return the fields of an Event that a repetition changes."""


class CoreV1:
    """The Events of the core group, with a count of repetitions."""

    api_version = "v1"

    def first(self, occurrence: _Occurrence) -> dict[str, Any]:
        """Return the fields of a new Event, besides those that all objects have."""
        now = timestamp(occurrence.seconds)
        return {
            "involvedObject": occurrence.about,
            "type": occurrence.type,
            "reason": occurrence.reason,
            "message": occurrence.message,
            "source": {"component": occurrence.component},
            "reportingComponent": occurrence.component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def repeated(self, old: Object, seconds: float) -> dict[str, Any]:
        """Return the fields of an Event that a repetition changes."""
        return {"count": old.get("count", 1) + 1, "lastTimestamp": timestamp(seconds)}


class EventsV1:
    """The Events of events.k8s.io/v1, with a series of repetitions. `instance` is the name of the reporting pod.

    The API server converts between both versions, so that clients of either one see each Event.
    """

    api_version = EVENT.hub

    def __init__(self, instance: str) -> None:
        self._instance = instance[:_LONGEST_INSTANCE]

    def first(self, occurrence: _Occurrence) -> dict[str, Any]:
        """Return the fields of a new Event, besides those that all objects have."""
        return {
            "regarding": occurrence.about,
            "type": occurrence.type,
            "reason": occurrence.reason,
            "note": occurrence.message,
            "action": _ACTION,
            "reportingController": occurrence.component,
            "reportingInstance": self._instance,
            "eventTime": micro_timestamp(occurrence.seconds),
        }

    def repeated(self, old: Object, seconds: float) -> dict[str, Any]:
        """Return the fields of an Event that a repetition changes. `old` may be written with the core group."""
        before = (old.get("series") or {}).get("count") or old.get("deprecatedCount") or 1
        return {"series": {"count": before + 1, "lastObservedTime": micro_timestamp(seconds)}}


class EventRecorder:
    """Writes Events with a version of their API. A repetition increases the count of the existing Event.

    Events about objects without a namespace have the version of the core group: with events.k8s.io/v1, the API server of
    Kubernetes 1.20 accepts them only in `kube-system`.

    With `deletes_expired`, it also deletes Events after TTL_SECONDS, as the API server of a cluster does by itself.
    """

    def __init__(
        self,
        store: Store,
        component: str,
        *,
        version: EventVersion | None = None,
        deletes_expired: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._deletes_expired = deletes_expired
        self._component = component
        self._version = version or CoreV1()
        self._clock = clock
        self._swept = clock()

    async def record(
        self, about: Object | Key, *, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Record an Event about an object. Write nothing if the object's namespace is deleted or terminating."""
        text = message.encode()[:_LONGEST_MESSAGE].decode(errors="ignore")
        occurrence = _Occurrence(await self._involved(about), type, reason, text, self._component, self._clock())
        try:
            await self._write(occurrence)
        except (NotFound, Invalid):
            return
        if self._deletes_expired:
            await self._sweep()

    async def _involved(self, about: Object | Key) -> dict[str, str]:
        if isinstance(about, Key):
            return await self._involved_key(about)
        metadata = about["metadata"]
        reference = _reference(key_of(about)) | {
            "uid": metadata.get("uid", ""),
            "resourceVersion": metadata.get("resourceVersion", ""),
        }
        return {name: value for name, value in reference.items() if value}

    async def _involved_key(self, key: Key) -> dict[str, str]:
        try:
            return await self._involved(await self._store.get(key))
        except NotFound:
            return _reference(key)

    async def _write(self, occurrence: _Occurrence) -> None:
        version = self._version if "namespace" in occurrence.about else CoreV1()
        event = {
            "apiVersion": version.api_version,
            "kind": "Event",
            "metadata": {"name": occurrence.name, "namespace": occurrence.about.get("namespace", "default")},
        }
        try:  # most Events are new: this is one request to an API server, and none to read first
            await self._store.create({**event, **version.first(occurrence)})
        except AlreadyExists:
            await self._repeat(key_of(event), version, occurrence.seconds)

    async def _repeat(self, key: Key, version: EventVersion, seconds: float) -> None:
        for _ in range(_ATTEMPTS):
            old = await self._store.get(key)
            try:
                await self._store.update({**old, **version.repeated(old, seconds)})
            except Conflict:  # another task or replica counts the same Event at this moment
                continue
            return

    async def _sweep(self) -> None:
        now = self._clock()
        if now - self._swept < _SWEEP:
            return
        self._swept = now
        for event in (await self._store.list("", "Event")).items:
            if (
                epoch_seconds(str(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]))
                < now - TTL_SECONDS
            ):
                try:
                    await self._store.delete(key_of(event))
                except NotFound:
                    continue


def _reference(key: Key) -> dict[str, str]:
    kind = find(key.group, key.kind)
    version = kind.hub if kind else api_version(key.group, "v1")
    named = {"apiVersion": version, "kind": key.kind, "name": key.name, "namespace": key.namespace}
    return {name: value for name, value in named.items() if value}
