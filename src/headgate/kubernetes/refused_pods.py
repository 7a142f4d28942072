"""Findings about Deployments with sidecars whose new pods the cluster refuses, for example because of a quota."""

import asyncio
from collections.abc import Iterator, Mapping

from headgate.admission.injection import Sidecars, pod_namespace
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.latest import Latest, wait_for_any
from headgate.objects.ports import Reader, Relist, follow
from headgate.plane.snapshot_view import SnapshotView
from headgate.resources.core.proxy_annotations import CPU, CPU_LIMIT, MEMORY, MEMORY_LIMIT
from headgate.resources.meta import Key, Object, part
from headgate.resources.pod_templates import pod_of_template
from headgate.resources.registry import DEPLOYMENT, key_of

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


class RefusedPods:
    """The findings about Deployments of the mesh. Kubernetes itself writes Events about the refused pods."""

    def __init__(self, sidecars: Sidecars) -> None:
        self.findings: Latest[tuple[Finding, ...]] = Latest(())
        self._sidecars = sidecars
        self._failing: Latest[Mapping[Key, Object]] = Latest({})

    async def run(self, reader: Reader, snapshot: Latest[Snapshot | None]) -> None:
        """Follow the Deployments until canceled. `snapshot` decides which pods get sidecars."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(reader), name="refused Deployments")
            while True:
                changes = snapshot.next_change(), self._failing.next_change()
                self.findings.set(tuple(self._current(snapshot.get() or Snapshot())))
                await wait_for_any(*(change.wait() for change in changes))

    async def _follow(self, reader: Reader) -> None:
        async for step in follow(reader, DEPLOYMENT.group, DEPLOYMENT.kind):
            if isinstance(step, Relist):
                self._failing.set({key_of(obj): obj for obj in step.items if refusal(obj)})
            elif step.type != "DELETED" and refusal(step.object):
                self._failing.set({**self._failing.get(), step.key: step.object})
            elif step.key in (failing := self._failing.get()):
                self._failing.set({key: obj for key, obj in failing.items() if key != step.key})

    def _current(self, snapshot: Snapshot) -> Iterator[Finding]:
        view = SnapshotView(snapshot)
        failing = self._failing.get()
        for key in sorted(failing):
            pod = pod_of_template(failing[key])
            if self._sidecars.decide(pod, pod_namespace(view, pod)).injected:
                message = refusal(failing[key]).rstrip(".")
                remedy = next((text for words, text in _REMEDIES if words in message), _OTHERWISE)
                yield Finding(key, Reason.PODS_REFUSED, "", f"the cluster refuses its new pods: {message}. {remedy}")


def refusal(deployment: Object) -> str:
    """Return why the API server refuses the new pods of a Deployment; empty if it does not."""
    for condition in part(deployment, "status").get("conditions") or ():
        if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True"):
            return str(condition.get("message", ""))
    return ""
