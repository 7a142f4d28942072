"""Findings about pods that wait for the redirection of their connections: no node agent is ready on their node, or it fails."""

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Any

from headgate.admission.redirection_container import requested_redirection, waiting_container
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.kubernetes.names import NAMESPACE, NODE_AGENT
from headgate.kubernetes.store import Selectors
from headgate.latest import Latest, wait_for_any
from headgate.objects.ports import Reader, Relist, follow
from headgate.resources.core.pod_metadata import REDIRECTION
from headgate.resources.meta import Key, Object, part
from headgate.resources.registry import POD, key_of

Pods = Mapping[Key, Object]
_POD = (POD.group, POD.kind)
PENDING: Selectors = {_POD: {"fieldSelector": "status.phase=Pending"}}
AGENTS: Selectors = {_POD: {"labelSelector": f"app.kubernetes.io/name={NODE_AGENT}"}}
"""The selectors of the `kubernetes.store.ClusterStore`s with the pods that may wait, and with those of node agents."""


LATE_S = 30.0
"""The wait for a ready agent after which a pod has a finding: a redirection takes about a second of processor time."""


class MissingAgents:
    """The findings, from the pods that have not started yet and the pods of node agents."""

    def __init__(self) -> None:
        self.findings: Latest[tuple[Finding, ...]] = Latest(())
        self._waiting_since: Mapping[tuple[Key, str], float] = {}  # by the pod and its UID

    async def run(self, pending: Reader, agents: Reader) -> None:
        """Follow the pods of both readers until canceled. There are no findings before both have listed their pods."""
        pods, agent_pods = Latest[Pods | None](None), Latest[Pods | None](None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_follow(pending, pods), name="pending pods")
            tasks.create_task(_follow(agents, agent_pods), name="node agents")
            while True:
                changes: list[Coroutine[Any, Any, object]]
                changes = [cell.next_change().wait() for cell in (pods, agent_pods)]
                waiting, running = pods.get(), agent_pods.get()
                if waiting is not None and running is not None:
                    ready = _ready_agents(running.values())
                    late, pause = self._late(waiting, ready)
                    self.findings.set(tuple(missing_agents(waiting, ready, late)))
                    changes += [] if pause is None else [asyncio.sleep(pause)]
                await wait_for_any(*changes)

    def _late(self, pods: Pods, ready: Mapping[str, str]) -> tuple[Collection[Key], float | None]:
        """Return the pods that have waited for a ready agent for LATE_S, and the seconds until the next one has; None without one."""
        now = asyncio.get_running_loop().time()
        self._waiting_since = {
            (key, requested.uid): self._waiting_since.get((key, requested.uid), now)
            for key, pod in pods.items()
            if part(pod, "spec").get("nodeName") in ready and (requested := requested_redirection(pod))
        }
        left = {key: since + LATE_S - now for (key, _), since in self._waiting_since.items()}
        return {key for key, seconds in left.items() if seconds <= 0}, min(
            filter(_positive, left.values()), default=None
        )


def _positive(seconds: float) -> bool:
    return seconds > 0


async def _follow(reader: Reader, published: Latest[Pods | None]) -> None:
    async for step in follow(reader, *_POD):
        if isinstance(step, Relist):
            published.set({key_of(pod): pod for pod in step.items})
        else:
            unchanged = {key: pod for key, pod in (published.get() or {}).items() if key != step.key}
            published.set(unchanged if step.type == "DELETED" else {**unchanged, step.key: step.object})


def missing_agents(pending: Pods, ready: Mapping[str, str], late: Collection[Key] = ()) -> Iterator[Finding]:
    """Yield a finding for each pod that waits on a node without a ready agent, and for those of `late` on other nodes.

    `ready` has the name of the agent's pod by the node.
    """
    for key in sorted(pending):
        node = part(pending[key], "spec").get("nodeName")
        if not node or not waiting_container(pending[key]):
            continue
        if node not in ready:
            message = (
                f"the pod does not start: no node agent is ready on its node {node}, which redirects the connections of pods"
                f" without privileges. See `kubectl -n {NAMESPACE} get daemonset,pods -l app.kubernetes.io/name={NODE_AGENT}"
                f" -o wide`; without it, install headgate with --node-agent, or annotate the namespace with"
                f" {REDIRECTION}=init-container and create the pod again"
            )
            yield Finding(key, Reason.NODE_AGENT_MISSING, "", message)
        elif key in late:
            message = (
                f"the pod does not start: the node agent on its node {node} has not redirected its connections for"
                f" {LATE_S:g} s. `kubectl -n {NAMESPACE} logs {ready[node]}` says why"
            )
            yield Finding(key, Reason.NODE_AGENT_FAILS, "", message)


def _ready_agents(agents: Iterable[Object]) -> Mapping[str, str]:
    return {part(agent, "spec").get("nodeName", ""): agent["metadata"]["name"] for agent in agents if _is_ready(agent)}


def _is_ready(pod: Object) -> bool:
    conditions = part(pod, "status").get("conditions") or ()
    if pod["metadata"]["namespace"] != NAMESPACE:  # users can give their pods any labels
        return False
    return any((condition["type"], condition["status"]) == ("Ready", "True") for condition in conditions)
