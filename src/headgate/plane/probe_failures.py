"""Says which probe keeps a pod from being ready, and what it answered: kubelets write that into Events only."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headgate.resources.core.pod_metadata import PROBES, sidecar_mode
from headgate.resources.meta import Object, annotations_of, epoch_seconds, namespace_of, part

UNHEALTHY = "Unhealthy"
"""The reason of the Events about failed probes."""
PROBE_FIELDS = ("startupProbe", "readinessProbe", "livenessProbe")
_FAILED = re.compile(r"(?P<probe>Startup|Readiness|Liveness) probe (?:failed|errored)[^:]*:\s*(?P<answer>[^\n]*)")
_CONTAINER = re.compile(r"spec\.(?:containers|initContainers)\{(?P<name>[^}]+)\}")
_LONGEST = 200
"""The highest number of characters of an answer or a target: probes with a command answer with its output."""
LONGEST_NOTE = 500
"""The number of characters of an Event's note that is enough for the probe and the answer."""
EVENT_TIMES = ("series", "deprecatedLastTimestamp", "lastTimestamp", "eventTime")
"""The fields of an Event that say when it happened last."""
_SKEW_S = 60.0
"""The highest difference between the clocks of two nodes. An Event from a later time is not from a kubelet."""
_PRIVATE = re.compile(r"\?[^\s\"']*|(?<=malformed HTTP response) .*")
"""The parts of an answer to an HTTP probe that may have secret values: the queries of URLs, and the content of a response."""
_COMMAND = "a command"


class ProbeFailure(NamedTuple):
    """A failed probe of a pod, with two texts for users. The failure of one that `restarts` ends the container.

    `text` has no secret values: no command, no output of a command, no query of a URL. `details` has them, so it is only for
    users with a permission for this pod.
    """

    text: str
    details: str
    restarts: bool


def probe_failures(pods: Iterable[Object], events: Iterable[Object], now: float) -> Mapping[str, ProbeFailure]:
    """Return the last failed probe of each pod that is not ready because of its containers, by the pod's uid.

    `events` has Events with the reason `UNHEALTHY`, of the core group or of events.k8s.io. Only those about a container that
    is not ready count. Without one, which expires after an hour, the probe of a container that runs is named without its
    answer. `now` is in seconds since the epoch.
    """
    unready = {(namespace_of(pod), pod["metadata"].get("uid", "")): pod for pod in pods if _is_unready(pod)}
    last: dict[tuple[str, str], _Failed] = {}
    for event in events if unready else ():
        failed = _read(event)
        pod = unready.get(failed.pod) if failed else None
        if failed and pod and failed.time <= now + _SKEW_S and _explains(pod, failed):
            last[failed.pod] = max(failed, last.get(failed.pod, failed), key=lambda each: each.time)
    failures = ((uid, _failure(pod, last.get((namespace, uid)))) for (namespace, uid), pod in unready.items())
    return {uid: failure for uid, failure in failures if failure}


class _Failed(NamedTuple):
    """What an Event says: the pod's namespace and uid, the probe and its answer, the container if it is named, and the time of the last failure."""

    pod: tuple[str, str]
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
    name = container["name"] if container else ""
    # A user may write Events of one namespace with the uid of a pod in another.
    pod = namespace_of(event), str(about.get("uid", ""))
    return _Failed(pod, failed["probe"].lower(), _printable(failed["answer"].strip()), name, event_time(event))


def _printable(text: str) -> str:
    """Return a text of a program in one short line, without control characters, which could change a terminal."""
    return "".join(each if each.isprintable() else " " for each in text[:_LONGEST])


def event_time(event: Object) -> float:
    """Return when an Event happened last, in seconds since the epoch. A repetition updates the Event of the first time."""
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


def _explains(pod: Object, failed: _Failed) -> bool:
    """Return whether a failed probe can be why the pod is not ready now, and not an earlier state of its container."""
    if not failed.container:
        names = [probe.container for probe in _probes(pod, f"{failed.kind}Probe")]
        return not names or any(_explains(pod, failed._replace(container=name)) for name in names)
    status = _status(pod, failed.container)
    started_at = str(part(part(status, "state"), "running").get("startedAt") or "")
    is_earlier_run = 0 < failed.time < epoch_seconds(started_at)
    has_started = failed.kind == "startup" and status.get("started") is True
    return not (status.get("ready") is True or has_started or is_earlier_run)


def _status(pod: Object, container: str) -> Mapping[str, Any]:
    status = part(pod, "status")
    statuses = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    return next((each for each in statuses if each.get("name") == container), {})


def _failure(pod: Object, failed: _Failed | None) -> ProbeFailure | None:
    name = pod["metadata"]["name"]
    if failed is None:
        if untried := next(_unanswered(pod), None):
            return _texts(name, untried, "has not succeeded", restarts=False)
        return None
    probes = [probe for probe in _probes(pod, f"{failed.kind}Probe") if failed.container in ("", probe.container)]
    # Without the name of the container, the probe is that of the first one that it explains.
    probe = next((each for each in probes if _explains(pod, failed._replace(container=each.container))), None)
    probe = probe or _Probe(failed.container, failed.kind, "", is_command=True)  # nothing says that it is none
    return _texts(name, probe, f"failed: {failed.answer or 'without a message'}", restarts=failed.kind != "readiness")


def _texts(pod: str, probe: "_Probe", outcome: str, *, restarts: bool) -> ProbeFailure:
    action = _COMMAND if probe.is_command and probe.action else _PRIVATE.sub("", probe.action)
    shown = "failed" if probe.is_command and outcome.startswith("failed") else _PRIVATE.sub("", outcome)
    return ProbeFailure(
        f"pod {pod}: {probe.named(action)} {shown}",
        f"pod {pod}: {probe.named(probe.action)} {outcome}",
        restarts,
    )


def _unanswered(pod: Object) -> Iterator["_Probe"]:
    """Yield the probes whose success the containers that run and are not ready lack."""
    for status in part(pod, "status").get("containerStatuses") or ():
        if part(part(status, "state"), "running") and status.get("ready") is False:
            field = "startupProbe" if status.get("started") is False else "readinessProbe"
            yield from (probe for probe in _probes(pod, field) if probe.container == status["name"])


class _Probe(NamedTuple):
    """A probe of a container: its kind and its action."""

    container: str
    kind: str
    action: str
    is_command: bool

    def named(self, action: str) -> str:
        """Return the name of the probe for users."""
        return f"the {self.kind} probe of container {self.container} ({action})" if action else f"the {self.kind} probe"


def _probes(pod: Object, field: str) -> Iterator[_Probe]:
    """Yield the probes of the containers in a field."""
    moved = _moved(pod)
    for each in part(pod, "spec").get("containers") or ():
        name = each.get("name", "")
        if own := part(each, field):
            probe = own if "exec" in own else part(moved, f"{name}/{field}") or own
            yield _Probe(name, field.removesuffix("Probe"), _printable(_described(probe)), "exec" in probe)


def _moved(pod: Object) -> Mapping[str, Any]:
    """Return the probes that a transparent sidecar makes in place of the kubelet, by their paths.

    A user may write anything into the annotation, so what is no probe is ignored.
    """
    if sidecar_mode(pod) != "transparent":
        return {}
    try:
        moved = json.loads(annotations_of(pod).get(PROBES, "{}"))
    except (ValueError, RecursionError):
        return {}
    return moved if isinstance(moved, dict) else {}


def _described(probe: Mapping[str, Any]) -> str:
    if get := part(probe, "httpGet"):
        scheme = "HTTPS " if get.get("scheme") == "HTTPS" else ""
        return f"{scheme}GET {get.get('host') or ''}:{get.get('port')}{get.get('path') or '/'}"
    if socket := part(probe, "tcpSocket"):
        return f"TCP {socket.get('host') or ''}:{socket.get('port')}"
    if check := part(probe, "grpc"):
        return f"gRPC :{check.get('port')}" + (f", service {check['service']}" if check.get("service") else "")
    command = part(probe, "exec").get("command")
    if command and isinstance(command, list):
        return f"command {' '.join(map(str, command))}"
    return "without an action"
