"""Counts the ready pods of workloads, and says why the other pods are not ready."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from headgate.kinds import names_of
from headgate.plane.probe_failures import ProbeFailure, probe_failures
from headgate.resources.core.pod import ENDED
from headgate.resources.core.pod_metadata import SIDECAR
from headgate.resources.mesh_status import UnreadyWorkload, WorkloadCounts
from headgate.resources.meta import Key, Object, epoch_seconds
from headgate.resources.pod_owners import TEMPLATE_HASH, Ownership, Ref, controller, owners, ref_of
from headgate.resources.pod_templates import needed_pods

STARTING_S = 10.0  # seconds for which a new pod or Deployment without an error counts as starting, not as a problem
JOB = "Job"
CONTAINER_STATUSES = ("initContainerStatuses", "containerStatuses")
_CRASHED = ("CrashLoopBackOff", "Stopped")
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing", "Restarting"})


class _Pod(NamedTuple):
    """A pod: whether it is ready, the error of a container or of its scheduling, and its failed probe or the reason of its condition Ready.

    `error` and `state` are empty when there is nothing to say. `created` is in seconds since the epoch.
    """

    ready: bool
    error: str
    state: str
    created: float


class PodReports(NamedTuple):
    """What the statuses of pods do not say: why the host could not run a pod, by its uid, and the Events about failed probes."""

    failures: Mapping[str, str] = MappingProxyType({})
    events: Iterable[Object] = ()


def workload_counts(
    pods: Iterable[Object],
    workloads: Iterable[Object],
    *,
    now: float,
    reports: PodReports = PodReports(),  # noqa: B008 - it is immutable
    only_meshed: bool = False,
) -> WorkloadCounts:
    """Return the ready and wanted pods, and each workload with a pod that has an error or with too few ready pods.

    With `only_meshed`, only workloads with a pod that has a sidecar count. Pods that have ended or are being deleted do not count. `now` is in seconds since the epoch.

    `workloads` has Deployments and other objects that keep pods running, and Jobs. The pods of a Job may fail: only a Job
    that has failed itself, or a pod of it that can't start, needs attention.
    """
    pods = list(pods)
    probes = probe_failures(pods, reports.events, now)
    members: defaultdict[Ref, list[_Pod]] = defaultdict(list)
    meshed: set[Ref] = set()
    for pod in pods:
        if _is_ending(pod):
            continue
        metadata = pod["metadata"]
        owner, uid = _workload(pod), metadata.get("uid", "")
        failure = reports.failures.get(uid, "")
        members[owner].append(_read(pod, failure, probes.get(uid), ends=owner.kind == JOB))
        if SIDECAR in (metadata.get("annotations") or {}):
            meshed.add(owner)
    stored = {ref_of(obj): obj for obj in workloads if not controller(obj) or obj["kind"] == JOB}
    counted = meshed if only_meshed else members.keys() | stored.keys()
    rows = [_row(ref, members.get(ref, ()), stored.get(ref), now) for ref in sorted(counted)]
    return WorkloadCounts(
        ready=sum(row.ready for row in rows),
        wanted=sum(row.wanted for row in rows),
        unready=tuple(row for row in rows if row.message),
    )


def ready_pods(pods: Iterable[Object], workloads: Iterable[Object]) -> Counter[Ref]:
    """Return the number of ready pods of each workload and of its owners. Pods that have ended or are being deleted do not count."""
    ready = [pod for pod in pods if not _is_ending(pod) and _read(pod, "", None, ends=True).ready]
    owned = {ref_of(obj): Ownership(controller(obj), "") for obj in workloads}
    owned |= {ref_of(pod): _ownership(pod) for pod in ready}
    return Counter(owner for pod in ready for owner in owners(ref_of(pod), owned.get))


def unstartable(pods: Iterable[Object], failures: Mapping[str, str]) -> frozenset[Ref]:
    """Return the workloads with a pod that can't be started: its program is missing, or its object is invalid.

    A pod that starts and crashes is none of these, because it may run once another program runs. `failures` is as in
    `PodReports`.
    """
    return frozenset(
        _workload(pod)
        for pod in pods
        if failures.get(pod["metadata"].get("uid", "")) or any(_waiting_errors(pod.get("status") or {}, *_CRASHED))
    )


def _is_ending(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) or (pod.get("status") or {}).get("phase") in ENDED


def _workload(pod: Object) -> Ref:
    """Return the topmost owner of a pod that the pod's own metadata names, or the pod itself."""
    itself = ref_of(pod)
    *_, last = (itself, *owners(itself, {itself: _ownership(pod)}.get))
    return last


def _ownership(pod: Object) -> Ownership:
    return Ownership(controller(pod), (pod["metadata"].get("labels") or {}).get(TEMPLATE_HASH, ""))


def _row(ref: Ref, pods: Sequence[_Pod], workload: Object | None, now: float) -> UnreadyWorkload:
    """Return the counts of a workload; their message is empty if nothing is wrong."""
    replicas = needed_pods(workload) if workload and ref.kind != JOB else len(pods)
    ready = min(sum(pod.ready for pod in pods), replicas)
    reasons = _reasons(pods, workload, missing=replicas - ready, now=now)
    return UnreadyWorkload(
        object=Key(_group(ref.kind), ref.kind, ref.namespace, ref.name),
        ready=ready,
        wanted=replicas,
        message=next(_job_reasons(pods, workload) if ref.kind == JOB else reasons, ""),
    )


def _group(kind: str) -> str:
    """Return the group of a kind; empty for a kind that headgate does not know, such as the owner of another controller."""
    try:
        return names_of(kind).group
    except KeyError:
        return ""


def _job_reasons(pods: Sequence[_Pod], job: Object | None) -> Iterator[str]:
    """Yield why a Job has failed, and why its pods can't start."""
    for condition in (job.get("status") or {}).get("conditions") or () if job else ():
        if condition["type"] == "Failed" and condition["status"] == "True":
            yield f"the Job has failed: {_described(condition)}"
    yield from (pod.error for pod in pods if pod.error and not pod.ready)


def _reasons(pods: Sequence[_Pod], workload: Object | None, *, missing: int, now: float) -> Iterator[str]:
    """Yield why pods of a workload are not ready, the most specific reason first."""
    yield from (pod.error for pod in pods if pod.error and not pod.ready)
    if workload and missing:
        yield from _creation_failures(workload)
    created = [pod.created for pod in pods if not pod.ready]
    created += [_created(workload)] if workload else []
    if missing > 0 and now - max(created, default=0.0) > STARTING_S:
        yield next(
            (pod.state for pod in pods if not pod.ready), "a pod is missing; `kubectl describe` it for the reason"
        )


def _read(pod: Object, failure: str, probe: ProbeFailure | None, *, ends: bool) -> _Pod:
    """Read a pod with its failed probe. If it `ends` by itself, the end of a container is no error."""
    status = pod.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    is_ready = ready.get("status") == "True"
    error = failure or next(_errors(status, conditions, ends=ends), "")
    if probe and probe.restarts and error.startswith(_CRASHED):
        error += f"; {probe.text}"
    return _Pod(
        ready=is_ready,
        error=error,
        state="" if is_ready else (probe.text if probe else _described(ready)) or "it has not started",
        created=_created(pod),
    )


def _errors(status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]], *, ends: bool) -> Iterator[str]:
    """Yield the errors that keep a pod from starting: of its containers, and of its scheduling."""
    yield from _waiting_errors(status, *(_CRASHED if ends else ()))
    for container in () if ends else _containers(status):
        if code := ((container.get("state") or {}).get("terminated") or {}).get("exitCode"):
            yield f"container {container['name']} ended with exit code {code}"
    if (scheduled := conditions.get("PodScheduled") or {}).get("status") == "False":
        yield _described(scheduled)


def _waiting_errors(status: Mapping[str, Any], *ignored: str) -> Iterator[str]:
    """Yield why containers wait, except when they are starting or the reason is in `ignored`."""
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "") not in _STARTING | {*ignored}:
            yield _described(waiting)


def _containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (container for field in CONTAINER_STATUSES for container in status.get(field) or ())


def _creation_failures(deployment: Object) -> Iterator[str]:
    """Yield why pods can't be created, such as an exceeded quota."""
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            yield _described(condition)


def _described(fact: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (fact.get("reason", ""), fact.get("message", ""))))


def _created(obj: Object) -> float:
    text = obj["metadata"].get("creationTimestamp")
    return epoch_seconds(text) if text else 0.0
