"""Lists of objects that are requested often, from watches instead of requests to the API server."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from headgate.compiler.snapshot import SELECTING_MANAGERS, SLICE_MANAGER_LABEL
from headgate.errors import Unavailable
from headgate.kubernetes.store import STATUS_KINDS
from headgate.latest import Latest, until
from headgate.objects.ports import Listing, Reader, Relist, follow
from headgate.plane.probe_failures import EVENT_TIMES, LONGEST_NOTE, PROBE_FIELDS, event_time
from headgate.plane.workload_readiness import CONTAINER_STATUSES
from headgate.resources.kind import split_api_version
from headgate.resources.meta import Key, Object
from headgate.resources.registry import EVENT, key_of

WAIT_S = 20.0
MOST_EVENTS = 4000
"""The number of Events above which the older ones are dropped. Each user with a namespace may write any number."""
_KEPT_EVENTS = MOST_EVENTS * 3 // 4  # so that a flood causes no selection with each Event


class Informers:
    """Implements `objects.ports.Lister`. The first list of a kind starts a watch of this kind, which runs in `tasks`.

    Pods, their workloads and Events have only the fields that traffic metrics and the status of the mesh need, and EndpointSlices that
    follow from selectors have no endpoints. There are at most `MOST_EVENTS` Events. Later lists contain the same Python object while it is unchanged.
    """

    def __init__(self, reader: Reader, tasks: asyncio.TaskGroup) -> None:
        self._reader = reader
        self._tasks = tasks
        self._kinds: dict[tuple[str, str], Latest[Mapping[Key, Object] | None]] = {}

    async def list(self, group: str, kind: str, namespace: str = "") -> Listing:
        """Return all objects of a kind, or those of one namespace. Raises Unavailable if they can't be read in time."""
        published = self._kinds.get((group, kind))
        if published is None:
            published = self._kinds[group, kind] = Latest(None)
            self._tasks.create_task(self._follow(group, kind, published), name=f"informer of {kind}")
        try:
            async with asyncio.timeout(WAIT_S):
                await until(lambda: published.get() is not None, published)
        except TimeoutError:
            raise Unavailable(f"objects of kind {kind} could not be read within {WAIT_S:g} s") from None
        current = published.get() or {}
        return Listing([current[key] for key in sorted(current) if namespace in ("", key.namespace)], "")

    async def _follow(self, group: str, kind: str, published: Latest[Mapping[Key, Object] | None]) -> None:
        objects: dict[Key, Object] = {}
        async for step in follow(self._reader, group, kind):
            if isinstance(step, Relist):
                objects = {key_of(obj): _reduced(obj) for obj in step.items}
            elif step.type == "DELETED":
                objects.pop(step.key, None)
            else:
                objects[step.key] = _reduced(step.object)
            if kind == EVENT.kind and len(objects) > MOST_EVENTS:
                objects = _newest(objects)
            published.replace(objects)
            del step  # frees the memory now: a step may contain all objects, and the next one may come late


def _newest(events: Mapping[Key, Object]) -> dict[Key, Object]:
    """Return the newest Events of each namespace, as many of each, so that one namespace does not take the place of others."""
    numbers: Counter[str] = Counter()
    ranked = []
    for key in sorted(events, key=lambda key: event_time(events[key]), reverse=True):
        ranked.append((numbers[key.namespace], key))
        numbers[key.namespace] += 1
    return {key: events[key] for _, key in sorted(ranked)[:_KEPT_EVENTS]}


def _reduced(obj: Object) -> Object:
    """Return an object without the fields that no reader of the informers needs."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    if obj["kind"] == "EndpointSlice" and (metadata.get("labels") or {}).get(SLICE_MANAGER_LABEL) in SELECTING_MANAGERS:
        return {**obj, "metadata": metadata, "endpoints": []}
    if obj["kind"] == "Event":  # users may write many, and long ones
        shown = {name: obj[name] for name in ("apiVersion", "kind", "regarding", *EVENT_TIMES) if name in obj}
        identity = {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata}
        return {**shown, "metadata": identity, "note": str(obj.get("note") or "")[:LONGEST_NOTE]}
    spec: Mapping[str, Any] = obj.get("spec") or {}
    status = obj.get("status") or {}
    if (split_api_version(obj["apiVersion"])[0], obj["kind"]) in STATUS_KINDS:
        counts = {name: spec[name] for name in ("replicas",) if name in spec}
        facts = {name: status[name] for name in ("conditions", "desiredNumberScheduled") if name in status}
        return {**obj, "metadata": metadata, "spec": counts, "status": facts}
    if obj["kind"] != "Pod":
        return {**obj, "metadata": metadata}
    kept = {name: spec[name] for name in ("nodeName", "serviceAccountName", "hostNetwork") if name in spec}
    ports = [{"ports": container.get("ports") or []} for container in spec.get("containers") or ()]
    if not _is_ready(status):  # the status of the mesh says which probe fails
        named = ("name", *PROBE_FIELDS)
        for reduced, container in zip(ports, spec.get("containers") or (), strict=True):
            reduced |= {name: container[name] for name in named if name in container}
    shown = {name: status[name] for name in ("phase", "podIP", "conditions") if name in status}
    for field in CONTAINER_STATUSES:
        shown[field] = [
            {name: container.get(name) for name in ("name", "state", "ready", "started")}
            for container in status.get(field) or ()
        ]
    return {**obj, "metadata": metadata, "spec": {**kept, "containers": ports}, "status": shown}


def _is_ready(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
