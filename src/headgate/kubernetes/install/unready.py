"""Says why the pods of the control plane are not ready, for `headgate install` and `headgate status`."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headgate.errors import HeadgateError
from headgate.kubernetes.client import Client
from headgate.kubernetes.names import DEPLOYMENT_PATH, NAME, NAMESPACE
from headgate.resources.meta import Object

PULL_FAILED, PULL_PAUSED = "ErrImagePull", "ImagePullBackOff"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class UnreadyPods:
    """Reads why pods are not ready, again and again.

    The kubelet alternates between a failed pull of an image and a pause before the next one. Only the failure has its cause,
    so this cause is kept during the pauses.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._failed_pulls: dict[str, str] = {}  # by the beginning of the line, which names the pod

    async def reasons(self, *, starting: bool = True) -> Sequence[str]:
        """Return the lines of `unready_reasons`, without those of pods that the installation replaces. Raises HeadgateError."""
        lines = await unready_reasons(self._client, starting=starting, replaced=False)
        return [self._with_cause(line) for line in lines]

    def _with_cause(self, line: str) -> str:
        pod, _, reason = line.partition(": ")
        if reason.startswith(PULL_FAILED):
            self._failed_pulls[pod] = line
        return self._failed_pulls.get(pod, line) if reason.startswith(PULL_PAUSED) else line


async def unready_reasons(client: Client, *, starting: bool = True, replaced: bool = True) -> Sequence[str]:
    """Return a line for each pod of the control plane that is not ready, or why there are no pods. Raises HeadgateError.

    Without `starting`, pods whose container runs and may soon be ready are left out; without `replaced`, those of an
    earlier template, such as the pods of a wrong image after an installation with the right one.
    """
    listed = await client.get(_PODS, labelSelector=f"app.kubernetes.io/name={NAME}")
    pods = [pod for pod in listed.get("items") or () if not pod["metadata"].get("deletionTimestamp")]
    if not replaced:
        newest = max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), default=None)
        pods = [pod for pod in pods if _template(pod) == _template(newest)]
    if not starting:
        pods = [pod for pod in pods if not _runs(pod)]
    lines = [
        f"pod {pod['metadata']['name']}: {_state(pod) or await _log_end(client, pod) or 'it is not ready'}"
        for pod in pods
        if not _is_ready(pod)
    ]
    return lines + list(_creation_failures(await client.get(DEPLOYMENT_PATH)))


def _template(pod: Object | None) -> str:
    return str(((pod or {}).get("metadata", {}).get("labels") or {}).get("pod-template-hash", ""))


def _is_ready(pod: Object) -> bool:
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in _conditions(pod))


def _runs(pod: Object) -> bool:
    states = [
        container_status.get("state") or {}
        for container_status in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    return any("running" in state for state in states)


def _state(pod: Object) -> str:
    """Return why a pod's container does not run; empty if it runs, or has ended with an error that its log names."""
    for container_status in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (container_status.get("state") or {}).get("waiting") or {}
        if waiting and waiting.get("reason") != "CrashLoopBackOff":
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    unscheduled = [
        condition
        for condition in _conditions(pod)
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]
    return str(unscheduled[0].get("message", "")) if unscheduled else ""


async def _log_end(client: Client, pod: Object) -> str:
    """Return the last line of a pod's log, which often has the reason; empty without a log."""
    content = b""
    with contextlib.suppress(HeadgateError):  # the reason is only a help: the caller names the pod in any case
        path = f"{_PODS}/{pod['metadata']['name']}/log"
        async with contextlib.aclosing(client.stream(path, container=NAME, tailLines="1")) as parts:
            async for part in parts:
                content += part
    line = content.decode(errors="replace").strip()
    return f"its log ends with: {line}" if line else ""


async def blocked_deletions(client: Client) -> Sequence[str]:
    """Return what Kubernetes can't do while no replica serves headgate's APIs; nothing if they are not registered.

    Raises HeadgateError.
    """
    selector = f"app.kubernetes.io/name={NAME}"
    listed = await client.get("/apis/apiregistration.k8s.io/v1/apiservices", labelSelector=selector)
    line = (
        "until a replica is active, Kubernetes deletes no namespace, because it reads all APIs before, also headgate's; to end"
        f" this without a replica: kubectl delete apiservices --selector {selector}"
    )
    return [line] if listed.get("items") else []


def _creation_failures(deployment: Object) -> Iterator[str]:
    """Yield why pods can't be created, such as an exceeded quota."""
    for condition in _conditions(deployment):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            yield f"deployment {NAME}: {condition.get('message', condition.get('reason', ''))}"


def _conditions(obj: Object) -> Sequence[Mapping[str, Any]]:
    return (obj.get("status") or {}).get("conditions") or ()
