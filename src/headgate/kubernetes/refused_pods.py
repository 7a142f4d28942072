"""Findings about workloads with sidecars whose new pods the cluster refuses, for example because of a quota."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

from headgate.admission.injection import Sidecars, pod_namespace
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.kinds import names_of
from headgate.kubernetes.store import Selectors
from headgate.latest import Latest, wait_for_any
from headgate.objects.ports import Change, Reader, Relist, follow
from headgate.plane.snapshot_view import SnapshotView
from headgate.resources.core.proxy_annotations import CPU, CPU_LIMIT, MEMORY, MEMORY_LIMIT
from headgate.resources.meta import Key, Object, epoch_seconds, part
from headgate.resources.pod_templates import TEMPLATED_KINDS, TemplatedKind, needed_pods, pod_of_template
from headgate.resources.registry import CRON_JOB, EVENT, key_of

T = TypeVar("T")
_FAILED_CREATE = "FailedCreate"
_CONTROLLERS = frozenset(templated.kind for templated in TEMPLATED_KINDS if templated.owns_pods)
FAILED: Selectors = {(EVENT.group, EVENT.kind): {"fieldSelector": f"reason={_FAILED_CREATE}"}}
"""The selectors of the `kubernetes.store.ClusterStore` with the Events about objects that could not be created."""
_RESOURCES = (
    f"set the sidecar's resources by annotations of the namespace ({CPU}, {MEMORY}, {CPU_LIMIT}, {MEMORY_LIMIT})"
)
_REMEDIES = (
    (
        "must specify",
        f"The quota needs requests and limits of all containers; {_RESOURCES}, and those of the application",
    ),
    ("quota", f"Raise the ResourceQuota, or lower what the pods request; {_RESOURCES}"),
    ("per Container", f"Change the LimitRange, or {_RESOURCES}"),
    ("per Pod", f"Change the LimitRange, or {_RESOURCES}"),
    (
        "PodSecurity",
        "The sidecar's init container needs NET_ADMIN and NET_RAW; install headgate with --node-agent, with which it needs none",
    ),
)
"""What to do, by words in the API server's message. The first entry that fits counts."""
_OTHERWISE = "Change the pod template, or the policy that refuses the pods"


class FailedCreate(NamedTuple):
    """What an Event says about a workload with a UID: its last refused pod, at a time (seconds since the epoch)."""

    uid: str
    message: str
    time: float


class RefusedPods:
    """The findings about workloads of the mesh. Kubernetes itself writes Events about the refused pods.

    Deployments and ReplicaSets have a condition with the reason. The controllers of all other kinds write it into Events only, so
    such a workload counts while it lacks pods and has none that is newer than the Event.
    """

    def __init__(self, sidecars: Sidecars) -> None:
        self.findings: Latest[tuple[Finding, ...]] = Latest(())
        self._sidecars = sidecars
        self._lacking: Latest[Mapping[Key, Object]] = Latest({})
        self._failed: Latest[Mapping[Key, tuple[Key, FailedCreate]]] = Latest({})  # by the Event

    async def run(self, reader: Reader, snapshot: Latest[Snapshot | None], events: Reader) -> None:
        """Follow the workloads, and `events` about creations that failed, until canceled. `snapshot` decides which pods get sidecars."""
        async with asyncio.TaskGroup() as tasks:
            for templated in TEMPLATED_KINDS:
                if templated.kind != CRON_JOB.kind:  # its Jobs create the pods
                    tasks.create_task(self._follow(reader, templated), name=f"refused pods of {templated.kind}s")
            tasks.create_task(self._follow_events(events), name="Events about refused pods")
            cells = snapshot, self._lacking, self._failed
            while True:
                changes = [cell.next_change() for cell in cells]
                self.findings.set(tuple(self._current(snapshot.get() or Snapshot())))
                await wait_for_any(*(change.wait() for change in changes))

    async def _follow(self, reader: Reader, kind: TemplatedKind) -> None:
        async for step in follow(reader, kind.group, kind.kind):
            if isinstance(step, Relist):
                kept = {key: obj for key, obj in self._lacking.get().items() if key.kind != kind.kind}
                self._lacking.set(kept | {key_of(obj): obj for obj in step.items if lacks_pods(obj)})
            else:
                self._lacking.set(_with(self._lacking.get(), step, step.object, lacks_pods(step.object)))

    async def _follow_events(self, reader: Reader) -> None:
        async for step in follow(reader, EVENT.group, EVENT.kind):
            if isinstance(step, Relist):
                self._failed.set({key_of(obj): failed_create(obj) for obj in step.items if _has_failed(obj)})
            else:
                self._failed.set(_with(self._failed.get(), step, failed_create(step.object), _has_failed(step.object)))

    def _current(self, snapshot: Snapshot) -> Iterator[Finding]:
        view, lacking = SnapshotView(snapshot), self._lacking.get()
        failed = dict(sorted(self._failed.get().values(), key=lambda entry: entry[1].time))  # the last one of each
        for key in sorted(lacking):
            pod, message = pod_of_template(lacking[key]), refusal(lacking[key])
            if not message and (event := failed.get(key)) and event.uid == lacking[key]["metadata"].get("uid", ""):
                message = event.message if event.time > _newest_pod(snapshot, event.uid) else ""
            message = message.rstrip(".")
            if message and self._sidecars.decide(pod, pod_namespace(view, pod)).injected:
                remedy = next((text for words, text in _REMEDIES if words in message), _OTHERWISE)
                yield Finding(key, Reason.PODS_REFUSED, "", f"the cluster refuses its new pods: {message}. {remedy}")


def _with(entries: Mapping[Key, T], step: Change, entry: T, is_kept: bool) -> Mapping[Key, T]:  # noqa: FBT001 - the last of a fixed order
    """Return entries after a change to the object of one of them; the same ones if nothing is different."""
    if is_kept and step.type != "DELETED":
        return {**entries, step.key: entry}
    return {key: kept for key, kept in entries.items() if key != step.key} if step.key in entries else entries


def lacks_pods(obj: Object) -> bool:
    """Return whether a workload has fewer pods than it needs. The Deployment of a ReplicaSet counts in its place."""
    spec, status = part(obj, "spec"), part(obj, "status")
    match obj["kind"]:
        case "StatefulSet":
            return int(status.get("replicas", 0)) < needed_pods(obj)
        case "DaemonSet":
            return int(status.get("currentNumberScheduled", 0)) < needed_pods(obj)
        case "Job":
            completions = spec.get("completions")
            remaining = int(completions) - int(status.get("succeeded", 0)) if completions is not None else 1
            needed = min(int(spec.get("parallelism", 1)), remaining)
            has_ended = any(
                condition.get("status") == "True" and condition.get("type") in {"Complete", "Failed", "Suspended"}
                for condition in status.get("conditions") or ()
            )
            return not has_ended and int(status.get("active", 0)) < needed
        case "ReplicaSet":
            owners = part(obj, "metadata").get("ownerReferences") or ()
            return bool(refusal(obj)) and not any(owner.get("kind") == "Deployment" for owner in owners)
        case _:
            return bool(refusal(obj))


def refusal(workload: Object) -> str:
    """Return why the API server refuses the new pods of a workload, by its conditions; empty if they do not say so."""
    for condition in part(workload, "status").get("conditions") or ():
        if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True"):
            return str(condition.get("message", ""))
    return ""


def _has_failed(event: Object) -> bool:
    """Return whether an Event is about a workload whose pod could not be created. A CronJob's is about a Job."""
    kind = part(event, "regarding").get("kind")
    return event.get("reason") == _FAILED_CREATE and kind in _CONTROLLERS and bool(event.get("note"))


def failed_create(event: Object) -> tuple[Key, FailedCreate]:
    """Return the workload of an Event, and what it says. The Event of the first failure is updated by all later ones."""
    regarding = part(event, "regarding")
    kind = regarding.get("kind", "")
    key = Key(
        names_of(kind).group if kind in _CONTROLLERS else "",
        kind,
        regarding.get("namespace", ""),
        regarding.get("name", ""),
    )
    moment = (
        part(event, "series").get("lastObservedTime") or event.get("deprecatedLastTimestamp") or event.get("eventTime")
    )
    return key, FailedCreate(regarding.get("uid", ""), str(event.get("note", "")), epoch_seconds(moment or ""))


def _newest_pod(snapshot: Snapshot, uid: str) -> float:
    """Return when the newest pod of a workload was created; 0 without one."""
    return max(
        (
            epoch_seconds(pod.metadata.creation_timestamp)
            for pod in snapshot.pods.values()
            if any(owner.uid == uid for owner in pod.metadata.owner_references)
        ),
        default=0.0,
    )
