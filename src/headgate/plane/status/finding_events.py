"""Writes Events about findings: one Event when a finding is new, and another Event when the finding is resolved.

While pods start, a Service has no ready endpoint, and a new Gateway gets its address within seconds. Events about missing
endpoints and addresses are delayed, so that a healthy start has no warnings. The condition in the object's status reports
them without delay.
"""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.errors import NotFound, StoreError
from headgate.objects.ports import Events, Reader
from headgate.plane.status.recoveries import missing_object, recovered
from headgate.resources.inspect import Severity
from headgate.resources.meta import Key, Object, epoch_seconds, generation_of, labels_of, service_name
from headgate.resources.registry import POD, SERVICE
from headgate.settings import Settings

SOON_S = 2.0  # seconds in which a Deployment should create its pods, and a ready pod should become an endpoint
ADDRESS_S = 10.0  # seconds in which a new Gateway should get its address
MAX_START_S = 60.0  # seconds after which an Event is written although pods are still starting
_LEVELS: Mapping[Severity, Literal["Normal", "Warning"]] = {
    Severity.ERROR: "Warning",
    Severity.WARNING: "Warning",
    Severity.NOTE: "Normal",
}
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing", "Stopped"})
_DELAYED = frozenset({Reason.NO_READY_ENDPOINTS, Reason.ADDRESS_NOT_ASSIGNED})
_DOMAIN = Settings().domain


class _Announced(NamedTuple):
    """The findings about an object when its last Events were written, and the object's generation at that time."""

    findings: frozenset[Finding]
    generation: int


class FindingEvents:
    """Stores the last findings about each object, and writes Events about new and resolved findings.

    `is_current` tells a finding of the newest objects from one that the next observation may not have any more.
    """

    def __init__(
        self,
        store: Reader,
        events: Events,
        is_current: Callable[[Finding], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._events = events
        self._is_current = is_current
        self._clock = clock
        self._announced: dict[Key, _Announced] = {}
        self._since: dict[tuple[Key, Finding], float] = {}

    def keys(self) -> Collection[Key]:
        """Return the objects about which findings are stored."""
        return self._announced.keys()

    def forget(self, key: Key) -> None:
        """Drop the findings of a deleted object."""
        self._announced.pop(key, None)
        self._since = {delayed_key: since for delayed_key, since in self._since.items() if delayed_key[0] != key}

    async def delayed(self, key: Key, obj: Object, findings: Collection[Finding]) -> frozenset[Finding]:
        """Return the findings whose Events are delayed because pods are starting, or because a Gateway is new.

        If the result is not empty, call this method again in a second.
        """
        last = self._announced.get(key)
        candidates = [
            finding for finding in findings if finding.reason in _DELAYED and not (last and finding in last.findings)
        ]
        self._since = {
            delayed_key: since
            for delayed_key, since in self._since.items()
            if delayed_key[0] != key or delayed_key[1] in candidates
        }
        return frozenset([finding for finding in candidates if await self._is_starting(key, obj, finding)])

    async def announce(self, key: Key, obj: Object, findings: Collection[Finding], *, fresh: bool) -> None:
        """Write an Event for each new finding, and a Normal Event for each resolved one.

        `fresh` is False if the object already had its current status. Then an earlier headgate process may have written
        the Events, so the first call for an object writes none.
        """
        now, generation = frozenset(findings), generation_of(obj)
        last = self._announced.get(key)
        self._announced[key] = _Announced(now, generation)
        if last is None and not fresh:
            return
        announced = last.findings if last else frozenset()
        for finding in sorted(now - announced, key=str):
            level = _LEVELS[finding.reason.severity]
            await self._events.record(obj, type=level, reason=finding.reason.value, message=_message(finding))
        for finding in sorted(announced - now, key=str):
            edited = last is not None and last.generation != generation
            missing = not edited and await self._is_missing(missing_object(finding))
            if message := recovered(finding, now, edited=edited, still_missing=missing, obj=obj):
                reason = f"{finding.reason.value}Resolved"
                await self._events.record(obj, type="Normal", reason=reason, message=message)

    async def _is_missing(self, key: Key | None) -> bool:
        if key is None:
            return False
        try:
            await self._store.get(key)
        except StoreError:  # not found, or the API refuses to answer: no Event may claim that the object exists
            return True
        return False

    async def _is_starting(self, key: Key, obj: Object, finding: Finding) -> bool:
        age = self._clock() - self._since.setdefault((key, finding), self._clock())
        if finding.reason is Reason.ADDRESS_NOT_ASSIGNED:
            return age < ADDRESS_S
        if age >= MAX_START_S:
            return False
        try:
            namespace, labels = await self._selector(obj, finding)
            if not labels:
                return False
            pods = [] if age < SOON_S else (await self._store.list("", POD.kind, namespace)).items
        except StoreError:  # refused, for example: the Event waits; the status, which is not about pods, must not
            return True
        selected = (pod for pod in pods if labels.items() <= labels_of(pod).items())
        # On a busy machine, a pod may have been ready for seconds before the endpoints are compiled and observed.
        return age < SOON_S or any(_is_pod_starting(pod) for pod in selected) or not self._is_current(finding)

    async def _selector(self, obj: Object, finding: Finding) -> tuple[str, Mapping[str, str]]:
        """Return the namespace and the selector of the Service that a finding is about; empty if it has no selector."""
        for name in _services(obj, finding):
            namespace, _, service = name.partition("/")
            try:
                stored = await self._store.get(SERVICE.key(namespace, service))
            except NotFound:
                continue
            return namespace, (stored.get("spec") or {}).get("selector") or {}
        return "", {}


def _message(finding: Finding) -> str:
    """Return the message of an Event. Only that of FieldIgnored needs the field: `must be envoy or nginx, not 'envoi'`."""
    named = finding.reason is Reason.FIELD_IGNORED and finding.field
    return f"{finding.field}: {finding.message}" if named else finding.message


def _services(obj: Object, finding: Finding) -> Iterator[str]:
    """Yield the Services (`namespace/name`) whose missing endpoints a finding may report."""
    yield from (f"{key.namespace}/{key.name}" for key in finding.related if key.kind == "Service")
    if backend := re.match(r"spec\.backends\[(\d+)\]", finding.field):
        # a slice, because an edit after the build may have removed the backend
        named = slice(int(backend[1]), int(backend[1]) + 1)
        for written in obj["spec"]["backends"][named]:
            yield service_name(written.get("service", ""), obj["metadata"].get("namespace", ""), _DOMAIN)


def _is_pod_starting(pod: Object) -> bool:
    """Return whether a pod is starting, or became ready less than `SOON_S` seconds ago."""
    status: Mapping[str, Any] = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp") or status.get("phase") in {"Failed", "Succeeded"}:
        return False
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            since = condition.get("lastTransitionTime")  # null in a cluster if no time was written
            return bool(since) and time.time() - epoch_seconds(since) < SOON_S
    states = [container.get("state") or {} for container in status.get("containerStatuses") or ()]
    waiting = [str((state.get("waiting") or {}).get("reason", "")) for state in states]
    return _STARTING.issuperset(waiting) and not any("terminated" in state for state in states)
