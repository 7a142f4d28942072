"""Events about findings: one for each that is new, and one of its own when it no longer holds.

Pods that are starting explain why a Service has no ready endpoint, so that finding is held back meanwhile: a healthy start
has no warnings. The condition of the object says it at once.
"""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from headgate.compiler.reasons import Reason, Severity
from headgate.compiler.report import Finding
from headgate.errors import NotFound
from headgate.objects.ports import Events, Reader
from headgate.plane.status.recoveries import recovered
from headgate.resources.meta import Key, Object, epoch_seconds, service_name
from headgate.resources.registry import POD, SERVICE
from headgate.settings import Settings

SOON_S = 2.0  # by then a Deployment has made its pods
LONGEST_START_S = 60.0
_LEVELS: Mapping[Severity, Literal["Normal", "Warning"]] = {
    Severity.ERROR: "Warning",
    Severity.WARNING: "Warning",
    Severity.NOTE: "Normal",
}
_ON_THE_WAY = frozenset({"", "ContainerCreating", "PodInitializing", "Stopped"})
_DOMAIN = Settings().domain


class _Told(NamedTuple):
    """What was said about an object, and its generation then."""

    findings: frozenset[Finding]
    generation: int


class FindingEvents:
    """Remembers what was said about each object, and writes Events about what differs."""

    def __init__(self, store: Reader, events: Events, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._events = events
        self._clock = clock
        self._told: dict[Key, _Told] = {}
        self._since: dict[tuple[Key, Finding], float] = {}

    def keys(self) -> Collection[Key]:
        """Return the objects that something was said about."""
        return self._told.keys()

    def forget(self, key: Key) -> None:
        """Drop what is known of an object that is gone."""
        self._told.pop(key, None)
        self._since = {known: since for known, since in self._since.items() if known[0] != key}

    async def held(self, key: Key, obj: Object, findings: Collection[Finding]) -> frozenset[Finding]:
        """Return the findings that pods on their way explain; look again in a second when there are any."""
        told = self._told.get(key)
        waiting = [
            finding
            for finding in findings
            if finding.reason is Reason.NO_READY_ENDPOINTS and not (told and finding in told.findings)
        ]
        self._since = {known: since for known, since in self._since.items() if known[0] != key or known[1] in waiting}
        return frozenset([finding for finding in waiting if await self._is_starting(key, obj, finding)])

    async def announce(self, key: Key, obj: Object, findings: Collection[Finding], *, fresh: bool) -> None:
        """Write an Event for each finding that is new, and a Normal one for each that is gone.

        When `fresh` is False, an earlier headgate has said what is not known here.
        """
        now, generation = frozenset(findings), int(obj["metadata"].get("generation", 0))
        told = self._told.get(key)
        self._told[key] = _Told(now, generation)
        if told is None and not fresh:
            return
        known = told.findings if told else frozenset()
        for finding in sorted(now - known, key=str):
            level = _LEVELS[finding.reason.severity]
            await self._events.record(obj, type=level, reason=finding.reason.value, message=finding.message)
        for finding in sorted(known - now, key=str):
            edited = told is not None and told.generation != generation
            if message := recovered(finding, now, edited=edited, obj=obj):
                reason = f"{finding.reason.value}Resolved"
                await self._events.record(obj, type="Normal", reason=reason, message=message)

    async def _is_starting(self, key: Key, obj: Object, finding: Finding) -> bool:
        selector = await self._selector(obj, finding)
        if not selector[1]:
            return False
        age = self._clock() - self._since.setdefault((key, finding), self._clock())
        if age < SOON_S:
            return True
        namespace, labels = selector
        pods = (await self._store.list("", POD.kind, namespace)).items
        return age < LONGEST_START_S and any(_is_on_its_way(pod) for pod in pods if _has(pod, labels))

    async def _selector(self, obj: Object, finding: Finding) -> tuple[str, Mapping[str, str]]:
        """Return namespace and labels of the pods that the finding's Service selects; no labels when it selects none."""
        for name in _services(obj, finding):
            namespace, _, service = name.partition("/")
            try:
                found = await self._store.get(SERVICE.key(namespace, service))
            except NotFound:
                continue
            return namespace, (found.get("spec") or {}).get("selector") or {}
        return "", {}


def _services(obj: Object, finding: Finding) -> Iterator[str]:
    """Yield the Service, as `namespace/name`, that has no ready endpoint."""
    yield from (f"{key.namespace}/{key.name}" for key in finding.related if key.kind == "Service")
    if backend := re.match(r"spec\.backends\[(\d+)\]", finding.field):
        named = slice(int(backend[1]), int(backend[1]) + 1)  # beyond the end when an edit came after the build
        for written in obj["spec"]["backends"][named]:
            yield service_name(written.get("service", ""), obj["metadata"].get("namespace", ""), _DOMAIN)


def _has(pod: Object, labels: Mapping[str, str]) -> bool:
    return labels.items() <= (pod["metadata"].get("labels") or {}).items()


def _is_on_its_way(pod: Object) -> bool:
    """Say whether a pod may become an endpoint by itself: it is about to run, or it is ready since a moment ago."""
    status: Mapping[str, Any] = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp") or status.get("phase") in {"Failed", "Succeeded"}:
        return False
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            return time.time() - epoch_seconds(condition["lastTransitionTime"]) < SOON_S
    states = [item.get("state") or {} for item in status.get("containerStatuses") or ()]
    waiting = [str((state.get("waiting") or {}).get("reason", "")) for state in states]
    return _ON_THE_WAY.issuperset(waiting) and not any("terminated" in state for state in states)
