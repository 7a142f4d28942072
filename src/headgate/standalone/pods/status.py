"""Pure functions that compute a pod's status from its containers: phase, conditions and containerStatuses."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headgate.resources.core.pod_spec import Container, Pod, is_native_sidecar
from headgate.resources.meta import Object, epoch_seconds, part, rows, timestamp
from headgate.standalone.address_pool import machine_address
from headgate.standalone.pods.runs import ContainerState, Ended

States = Mapping[str, ContainerState]
Fact = tuple[str, bool, tuple[str, str]]
"""A condition: its type, whether it is True, and its reason and message if it is not."""
DEADLINE_EXCEEDED = "DeadlineExceeded"
_EXPIRED = "Pod was active on the node longer than the specified deadline"
SIDECAR_READY = "headgate.dev/SidecarReady"
"""The condition of pods with a sidecar: True while the sidecar serves."""


class ObservedPod(NamedTuple):
    """The state of a pod besides its containers.

    `now` is in seconds since the epoch. `sidecar` says why the sidecar does not serve: empty while it serves, None without a
    sidecar. `expired` says that the pod ran longer than its activeDeadlineSeconds.
    """

    address: str
    now: float
    sidecar: str | None = None
    expired: bool = False


def pod_status(pod: Object, typed: Pod, states: States, seen: ObservedPod) -> dict[str, Any]:
    """Return the `status` of a pod. `states` has the states of its containers and init containers by name."""
    before = pod.get("status") or {}
    expired = seen.expired or before.get("reason") == DEADLINE_EXCEEDED
    phase = "Failed" if expired else pod_phase(typed, states)
    return {
        "phase": phase,
        **({"reason": DEADLINE_EXCEEDED, "message": _EXPIRED} if expired else {}),
        "conditions": _conditions(typed, states, phase=phase, seen=seen),
        "hostIP": machine_address(seen.address),
        "podIP": seen.address,
        "podIPs": [{"ip": seen.address}],
        "startTime": before.get("startTime") or timestamp(seen.now),
        **_containers("initContainerStatuses", typed.spec.init_containers, states),
        **_containers("containerStatuses", typed.spec.containers, states),
        "qosClass": "BestEffort",
    }


def terminations(pod: Object) -> Iterator[tuple[str, Ended]]:
    """Yield the containers that have ended and are not restarted, by a pod's status: their names and ends."""
    for _, container in rows(part(pod, "status").get("containerStatuses")):
        if ended := part(part(container, "state"), "terminated"):
            yield (
                str(container["name"]),
                Ended(
                    exit_code=int(ended["exitCode"]),
                    started_at=epoch_seconds(ended.get("startedAt", "")),
                    finished_at=epoch_seconds(ended.get("finishedAt", "")),
                    reason=ended.get("reason", ""),
                    message=ended.get("message", ""),
                ),
            )


def pod_phase(pod: Pod, states: States) -> str:
    """Return the phase of a pod: Pending until every container has started once, as in Kubernetes."""
    mine = [states.get(container.name, ContainerState()) for container in pod.spec.containers]
    inits = [
        states.get(container.name, ContainerState())
        for container in pod.spec.init_containers
        if not is_native_sidecar(container)
    ]
    if any(_failed(state, pod) for state in inits):
        return "Failed"
    if any(state.phase == "waiting" and state.ended is None for state in mine) or not mine:
        return "Pending"
    if any(state.phase != "terminated" for state in mine) or pod.spec.restart_policy == "Always":
        return "Running"
    if all(state.ended and state.ended.exit_code == 0 for state in mine):
        return "Succeeded"
    return "Failed" if pod.spec.restart_policy == "Never" else "Running"


def _failed(state: ContainerState, pod: Pod) -> bool:
    """Return whether an init container has failed and is not restarted."""
    ended = state.phase == "terminated" and state.ended is not None and state.ended.exit_code != 0
    return ended and pod.spec.restart_policy == "Never"


def _conditions(pod: Pod, states: States, *, phase: str, seen: ObservedPod) -> list[dict[str, str]]:
    since = {condition.type: condition for condition in pod.status.conditions}
    result = []
    for type, holds, (reason, message) in _facts(pod, states, phase=phase, sidecar=seen.sidecar):
        status, old = str(holds), since.get(type)
        changed = old.last_transition_time if old and old.status == status else timestamp(seen.now)
        why = {} if holds else {"reason": reason, "message": message}
        fact = {"type": type, "status": status, **why, "lastTransitionTime": changed}
        result.append({name: text for name, text in fact.items() if text})
    return result


def _facts(pod: Pod, states: States, *, phase: str, sidecar: str | None) -> Iterator[Fact]:
    sidecars = [container for container in pod.spec.init_containers if is_native_sidecar(container)]
    inits = [container for container in pod.spec.init_containers if container not in sidecars]
    unready = _names((*pod.spec.containers, *sidecars), states, lambda state: not state.ready)
    uninitialized = _names(inits, states, lambda state: not _completed(state))
    uninitialized += _names(sidecars, states, lambda state: not state.started)
    finished = phase in {"Succeeded", "Failed"}
    waiting = _fault("ContainersNotReady", "containers with unready status", unready)
    if finished:
        waiting = ("PodCompleted", "") if phase == "Succeeded" else ("PodFailed", "")
    done = not uninitialized
    yield "Initialized", done, _fault("ContainersNotInitialized", "containers with incomplete status", uninitialized)
    serve = not unready and not finished
    without = ("SidecarNotReady", f"the pod's sidecar does not serve: {sidecar}")
    yield "Ready", serve and not sidecar, without if serve else waiting
    yield "ContainersReady", serve, waiting
    yield "PodScheduled", True, ("", "")
    if sidecar is not None:
        yield SIDECAR_READY, not sidecar, ("SidecarNotReady", sidecar)


def _names(containers: Sequence[Container], states: States, holds: Any) -> list[str]:
    return [container.name for container in containers if holds(states.get(container.name, ContainerState()))]


def _fault(reason: str, message: str, names: Sequence[str]) -> tuple[str, str]:
    return reason, f"{message}: [{' '.join(names)}]"


def _completed(state: ContainerState) -> bool:
    return state.phase == "terminated" and state.ended is not None and state.ended.exit_code == 0


def _containers(field: str, containers: Sequence[Container], states: States) -> dict[str, Any]:
    if not containers:
        return {}
    return {field: [_container(container, states.get(container.name, ContainerState())) for container in containers]}


def _container(container: Container, state: ContainerState) -> dict[str, Any]:
    last = state.ended if state.phase != "terminated" else None
    return {
        "name": container.name,
        "image": "",
        "imageID": "",
        "containerID": f"process://{state.pid}" if state.pid else "",
        "state": {state.phase: _now(state)},
        "lastState": {"terminated": _ended(last)} if last else {},
        "ready": state.ready or (state.phase == "terminated" and _completed(state)),
        "started": state.started,
        "restartCount": state.restarts,
    }


def _now(state: ContainerState) -> dict[str, Any]:
    if state.phase == "running":
        return {"startedAt": timestamp(state.started_at)}
    if state.phase == "terminated" and state.ended:
        return _ended(state.ended)
    return {"reason": state.reason, "message": state.message} if state.message else {"reason": state.reason}


def _ended(ended: Ended) -> dict[str, Any]:
    fields = {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "startedAt": timestamp(ended.started_at),
        "finishedAt": timestamp(ended.finished_at),
    }
    return {**fields, "message": ended.message} if ended.message else fields
