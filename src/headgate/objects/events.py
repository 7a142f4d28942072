"""Records Events about objects, which `kubectl describe` shows (R39, R41)."""

import hashlib
import time
from collections.abc import Callable
from typing import Literal

from headgate.errors import Invalid, NotFound
from headgate.objects.ports import Store
from headgate.resources.meta import Key, Object, epoch_seconds, timestamp
from headgate.resources.registry import api_version, find, key_of

TTL_SECONDS = 3600.0  # An Event expires this many seconds after its last occurrence.
_SWEEP = 60.0  # Seconds between two deletions of expired Events.
_LONGEST_MESSAGE = 1024  # The longest message in characters, as in Kubernetes.
_LONGEST_NAME = 230  # The most characters of the object's name that an Event's name contains.


class EventRecorder:
    """Writes core/v1 Events. A repetition increases the count of the existing Event.

    With `deletes_expired`, it also deletes Events after TTL_SECONDS, as the API server of a cluster does by itself.
    """

    def __init__(
        self,
        store: Store,
        component: str,
        *,
        deletes_expired: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._deletes_expired = deletes_expired
        self._component = component
        self._clock = clock
        self._swept = clock()

    async def record(
        self, about: Object | Key, *, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Record an Event about an object. Write nothing if the object's namespace is deleted or terminating."""
        involved = await self._involved(about)
        event = self._event(involved, type=type, reason=reason, message=message[:_LONGEST_MESSAGE])
        try:
            await self._write(event)
        except (NotFound, Invalid):
            return
        if self._deletes_expired:
            await self._sweep()

    async def _involved(self, about: Object | Key) -> dict[str, str]:
        if isinstance(about, Key):
            return await self._involved_key(about)
        metadata = about["metadata"]
        found = _reference(key_of(about)) | {
            "uid": metadata.get("uid", ""),
            "resourceVersion": metadata.get("resourceVersion", ""),
        }
        return {name: value for name, value in found.items() if value}

    async def _involved_key(self, key: Key) -> dict[str, str]:
        try:
            return await self._involved(await self._store.get(key))
        except NotFound:
            return _reference(key)

    def _event(self, involved: dict[str, str], *, type: str, reason: str, message: str) -> Object:
        identifying = [involved["kind"], involved.get("uid", ""), self._component, type, reason, message]
        digest = hashlib.sha256("\0".join(identifying).encode()).hexdigest()[:16]
        now = timestamp(self._clock())
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{involved['name'][:_LONGEST_NAME]}.{digest}",
                "namespace": involved.get("namespace", "default"),
            },
            "involvedObject": involved,
            "type": type,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    async def _write(self, event: Object) -> None:
        try:
            old = await self._store.get(key_of(event))
        except NotFound:
            await self._store.create(event)
            return
        again = {"count": old["count"] + 1, "lastTimestamp": event["lastTimestamp"]}
        await self._store.update({**old, **again})

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
