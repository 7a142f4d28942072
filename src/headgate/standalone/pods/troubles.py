"""Follows the problems of pods: Warning Events about pods, and failed pods, with the last lines of their logs.

A problem ends when its pod is ready or gone. If several pods of a ReplicaSet have a problem with the same reason and
message, only the problem of the first pod is reported. Pods of a Job may fail, and are retried: only the failure of the
whole Job is a problem, with the last lines of the pod that failed last.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headgate.errors import NotFound
from headgate.latest import Latest
from headgate.objects.ports import Relist, Store, follow_all
from headgate.resources.meta import Key, Object, Value
from headgate.resources.registry import POD, key_of
from headgate.standalone.pods.logs import LogOptions, Logs

SHOWN_LINES = 5
LONGEST_LINE = 400  # longer log lines are cut to this number of characters
_ABOUT_OUTPUT = frozenset({"BackOff", "Failed", "Unhealthy"})
# control characters and escape sequences of terminals
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_JOB = Key("batch", "Job", "", "")
_KINDS = (("", POD.kind), ("", "Event"), (_JOB.group, _JOB.kind))
_RETRIED = frozenset({"BackOff"})  # reasons of Events about a pod of a Job that are no problem


class PodTrouble(Value, frozen=True, kw_only=True):
    """A problem of a pod: reason and message of an Event, exit code of a process that ended, and its last log lines.

    `pod` is a Job if it has failed and no pod of it is left.
    """

    pod: Key
    container: str
    reason: str
    message: str
    exit_code: int | None = None
    output: tuple[str, ...] = ()


class PodTroubles:
    """Follows the pods of a store while `run` runs. `current` has the current problems, oldest first."""

    def __init__(self, store: Store, output: Logs) -> None:
        self.current: Latest[tuple[PodTrouble, ...]] = Latest(())
        self._store = store
        self._output = output
        self._held: dict[tuple[str, str, str], PodTrouble] = {}

    async def run(self) -> None:
        """Follow the store until canceled."""
        async for step in follow_all(self._store, _KINDS):
            if isinstance(step, Relist):  # skip Events and failures from before the start
                continue
            if step.key.kind == POD.kind:
                await self._handle_pod(step.object, gone=step.type == "DELETED")
            elif step.key.kind == _JOB.kind:
                if step.type == "DELETED":
                    self._forget(step.key)
            elif step.type != "DELETED":
                await self._handle_event(step.object)

    async def _handle_event(self, event: Object) -> None:
        about = event.get("involvedObject") or {}
        if event.get("type") != "Warning" or about.get("kind") not in (POD.kind, _JOB.kind):
            return
        group = _JOB.group if about["kind"] == _JOB.kind else POD.group
        try:
            obj = await self._store.get(Key(group, about["kind"], about.get("namespace", ""), about.get("name", "")))
        except NotFound:
            return
        reason, message = str(event["reason"]), str(event["message"])
        if about["kind"] == _JOB.kind:
            pod = await self._last_failed(obj)
            await self._add(pod or obj, reason, f"the Job {about['name']} has failed: {message}")
        elif not (_is_of_job(obj) and reason in _RETRIED):
            await self._add(obj, reason, message)

    async def _last_failed(self, job: Object) -> Object | None:
        """Return the pod of a Job that failed last; None if none is left."""
        failed = [
            pod
            for pod in (await self._store.list(POD.group, POD.kind, job["metadata"]["namespace"])).items
            if _owner(pod) == job["metadata"]["uid"] and (pod.get("status") or {}).get("phase") == "Failed"
        ]
        return max(failed, key=lambda pod: int(pod["metadata"]["resourceVersion"]), default=None)

    def _forget(self, key: Key) -> None:
        """End the problems of an object."""
        self._held = {about: trouble for about, trouble in self._held.items() if trouble.pod != key}
        self._publish()

    async def _handle_pod(self, pod: Object, *, gone: bool) -> None:
        key, status = key_of(pod), pod.get("status") or {}
        if gone or pod["metadata"].get("deletionTimestamp") or _is_ready(status):
            self._forget(key)
        elif status.get("phase") == "Failed" and not _is_of_job(pod):
            name, code = _ended(status)
            await self._add(pod, "Failed", f"container {name} ended with exit code {code} and is not restarted")

    async def _add(self, pod: Object, reason: str, message: str) -> None:
        about = _owner(pod), reason, message
        if about in self._held or _is_ready(pod.get("status") or {}):
            return
        container, code = _ended(pod.get("status") or {})
        self._held[about] = PodTrouble(
            pod=key_of(pod),
            container=container,
            reason=reason,
            message=message,
            exit_code=code,
            output=await self._last_lines(key_of(pod), container) if reason in _ABOUT_OUTPUT or _is_of_job(pod) else (),
        )
        self._publish()

    async def _last_lines(self, pod: Key, container: str) -> tuple[str, ...]:
        try:
            text = b"".join(
                [piece async for piece in self._output.read(pod, LogOptions(container, tail_lines=SHOWN_LINES))]
            )
        except (NotFound, OSError):
            return ()
        return tuple(_CONTROL.sub("", line)[:LONGEST_LINE] for line in text.decode(errors="replace").splitlines())

    def _publish(self) -> None:
        self.current.set(tuple(self._held.values()))


def _owner(pod: Object) -> str:
    owners: Sequence[Mapping[str, Any]] = pod["metadata"].get("ownerReferences") or ()
    return str(next((owner["uid"] for owner in owners if owner.get("controller")), pod["metadata"]["uid"]))


def _is_of_job(pod: Object) -> bool:
    return any(owner.get("kind") == _JOB.kind for owner in pod["metadata"].get("ownerReferences") or ())


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions") or ()
    )


def _ended(status: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return the container that is not ready, and the exit code of its last run if it failed."""
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in (container for container in statuses if not container.get("ready")):
        for state in (container.get("state"), container.get("lastState")):
            if (ended := (state or {}).get("terminated")) and ended["exitCode"]:
                return container["name"], int(ended["exitCode"])
    return next((container["name"] for container in reversed(statuses) if not container.get("ready")), ""), None
