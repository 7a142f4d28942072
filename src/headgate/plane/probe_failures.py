"""Says which probe keeps a pod from being ready, and what it answered: kubelets write that into Events only."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headgate.resources.core.pod_metadata import PROBES
from headgate.resources.meta import Object, annotations_of, epoch_seconds, part

UNHEALTHY = "Unhealthy"
"""The reason of the Events about failed probes."""
PROBE_FIELDS = ("startupProbe", "readinessProbe", "livenessProbe")
_FAILED = re.compile(r"(?P<probe>Startup|Readiness|Liveness) probe (?:failed|errored)[^:]*: *(?P<answer>[^\n]*)")
_CONTAINER = re.compile(r"spec\.(?:containers|initContainers)\{(?P<name>[^}]+)\}")
_LONGEST = 200
"""The highest number of characters of an answer or a command: probes with a command answer with its output."""


class ProbeFailure(NamedTuple):
    """A failed probe of a pod, with the text for users. The failure of one that `restarts` ends the container."""

    text: str
    restarts: bool


def probe_failures(pods: Iterable[Object], events: Iterable[Object]) -> Mapping[str, ProbeFailure]:
    """Return the last failed probe of each pod that is not ready because of its containers, by the pod's uid.

    `events` has Events with the reason `UNHEALTHY`, of the core group or of events.k8s.io. Without one, which expires after an
    hour, the probe of a container that runs is named without its answer.
    """
    last: dict[str, _Failed] = {}
    for event in events:
        failed = _read(event)
        if failed and (failed.uid not in last or failed.time >= last[failed.uid].time):
            last[failed.uid] = failed
    failures: dict[str, ProbeFailure] = {}
    for pod in pods:
        uid = pod["metadata"].get("uid", "")
        if _is_unready(pod) and (failure := _failure(pod, last.get(uid))):
            failures[uid] = failure
    return failures


class _Failed(NamedTuple):
    """What an Event says: the pod's uid, the probe and its answer, the container if it is named, and the time of the last failure."""

    uid: str
    kind: str
    answer: str
    container: str
    time: float


def _read(event: Object) -> _Failed | None:
    about = part(event, "regarding") or part(event, "involvedObject")
    failed = _FAILED.match(str(event.get("note") or event.get("message") or ""))
    if not failed:
        return None
    container = _CONTAINER.fullmatch(str(about.get("fieldPath", "")))
    answer = failed["answer"].strip()[:_LONGEST]
    name = container["name"] if container else ""
    return _Failed(str(about.get("uid", "")), failed["probe"].lower(), answer, name, _time(event))


def _time(event: Object) -> float:
    """Return when a probe failed last, in seconds since the epoch. A repetition updates the Event of the first failure."""
    times = (
        part(event, "series").get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
    )
    return epoch_seconds(next((str(time) for time in times if time), ""))


def _is_unready(pod: Object) -> bool:
    """Return whether containers of a pod are not ready. The pod may also wait for a readiness gate."""
    conditions = part(pod, "status").get("conditions") or ()
    return any(
        condition.get("type") == "ContainersReady" and condition.get("status") != "True" for condition in conditions
    )


def _failure(pod: Object, failed: _Failed | None) -> ProbeFailure | None:
    name = pod["metadata"]["name"]
    if failed is None:
        untried = next(_unanswered(pod), None)
        return ProbeFailure(f"pod {name}: {untried} has not succeeded", restarts=False) if untried else None
    probes = dict(_probes(pod, f"{failed.kind}Probe", failed.container))
    # Without the name of the container, the probe is that of the first one that is not ready.
    described = next((probes[each] for each in probes if not _is_ready(pod, each)), next(iter(probes.values()), ""))
    text = f"pod {name}: {described or f'the {failed.kind} probe'} failed: {failed.answer or 'without a message'}"
    return ProbeFailure(text, restarts=failed.kind != "readiness")


def _unanswered(pod: Object) -> Iterator[str]:
    """Yield the probes whose success the containers that run and are not ready lack."""
    for status in part(pod, "status").get("containerStatuses") or ():
        if part(part(status, "state"), "running") and status.get("ready") is False:
            field = "startupProbe" if status.get("started") is False else "readinessProbe"
            yield from (text for _, text in _probes(pod, field, status["name"]))


def _is_ready(pod: Object, container: str) -> bool:
    statuses = part(pod, "status").get("containerStatuses") or ()
    return any(status["name"] == container and status.get("ready") for status in statuses)


def _probes(pod: Object, field: str, container: str) -> Iterator[tuple[str, str]]:
    """Yield the names of containers with a probe, and its description; only those of one container if `container` is not empty."""
    moved = _moved(pod)
    for each in part(pod, "spec").get("containers") or ():
        name = each.get("name", "")
        if each.get(field) and container in ("", name):
            kind = field.removesuffix("Probe")
            probe = moved.get(f"{name}/{field}") or each[field]
            yield name, f"the {kind} probe of container {name} ({_described(probe)})"


def _moved(pod: Object) -> Mapping[str, Any]:
    """Return the probes that a transparent sidecar makes in place of the kubelet, by their paths."""
    try:
        moved = json.loads(annotations_of(pod).get(PROBES, "{}"))
    except ValueError:
        return {}
    return moved if isinstance(moved, dict) else {}


def _described(probe: Mapping[str, Any]) -> str:
    if get := probe.get("httpGet"):
        scheme = "HTTPS " if get.get("scheme") == "HTTPS" else ""
        return f"{scheme}GET {get.get('host') or ''}:{get.get('port')}{get.get('path') or '/'}"
    if socket := probe.get("tcpSocket"):
        return f"TCP {socket.get('host') or ''}:{socket.get('port')}"
    if check := probe.get("grpc"):
        return f"gRPC :{check.get('port')}" + (f", service {check['service']}" if check.get("service") else "")
    if command := part(probe, "exec").get("command"):
        return f"command {' '.join(map(str, command))}"[:_LONGEST]
    return "without an action"
