"""Findings about pods that wait for the redirection of their connections on a node without a ready node agent."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from headgate.admission.redirection_container import waiting_container
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


class MissingAgents:
    """The findings, from the pods that have not started yet and the pods of node agents."""

    def __init__(self) -> None:
        self.findings: Latest[tuple[Finding, ...]] = Latest(())

    async def run(self, pending: Reader, agents: Reader) -> None:
        """Follow the pods of both readers until canceled. There are no findings before both have listed their pods."""
        pods, agent_pods = Latest[Pods | None](None), Latest[Pods | None](None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_follow(pending, pods), name="pending pods")
            tasks.create_task(_follow(agents, agent_pods), name="node agents")
            while True:
                changes = pods.next_change(), agent_pods.next_change()
                waiting, running = pods.get(), agent_pods.get()
                if waiting is not None and running is not None:
                    self.findings.set(tuple(missing_agents(waiting, running.values())))
                await wait_for_any(*(change.wait() for change in changes))


async def _follow(reader: Reader, published: Latest[Pods | None]) -> None:
    async for step in follow(reader, *_POD):
        if isinstance(step, Relist):
            published.set({key_of(pod): pod for pod in step.items})
        else:
            unchanged = {key: pod for key, pod in (published.get() or {}).items() if key != step.key}
            published.set(unchanged if step.type == "DELETED" else {**unchanged, step.key: step.object})


def missing_agents(pending: Pods, agents: Iterable[Object]) -> Iterator[Finding]:
    """Yield a finding for each pod that waits on a node without a ready agent."""
    served = {part(agent, "spec").get("nodeName") for agent in agents if _is_ready(agent)}
    for key in sorted(pending):
        node = part(pending[key], "spec").get("nodeName")
        if node and node not in served and waiting_container(pending[key]):
            message = (
                f"the pod does not start: no node agent is ready on its node {node}, which redirects the connections of pods"
                f" without privileges. See `kubectl -n {NAMESPACE} get daemonset,pods -l app.kubernetes.io/name={NODE_AGENT}"
                f" -o wide`; without it, install headgate with --node-agent, or annotate the namespace with"
                f" {REDIRECTION}=init-container and create the pod again"
            )
            yield Finding(key, Reason.NODE_AGENT_MISSING, "", message)


def _is_ready(pod: Object) -> bool:
    conditions = part(pod, "status").get("conditions") or ()
    if pod["metadata"]["namespace"] != NAMESPACE:  # users can give their pods any labels
        return False
    return any((condition["type"], condition["status"]) == ("Ready", "True") for condition in conditions)
