"""Pods that wait on a node without a ready node agent have a finding, which names the node."""

import asyncio
from typing import Any

from tests import virtual_time
from tests.admission.test_redirection_container import AGENT
from tests.admission.web_pod import OPTIONS, web_pod
from tests.decoding import admit
from tests.make.objects import Object, namespace, pod

from headgate.admission.redirection_container import INIT_CONTAINER
from headgate.admission.sidecar_containers import with_transparent_sidecar
from headgate.compiler.report import Finding
from headgate.kubernetes.missing_agents import LATE_S, MissingAgents, _ready_agents, missing_agents
from headgate.latest import until
from headgate.resources.registry import key_of
from headgate.standalone.store.memory import MemoryStore

TIMEOUT_S = 20
WAITING = with_transparent_sidecar(web_pod(nodeName="node-1"), AGENT)


def agent(node: str, *, ready: bool = True, place: str = "headgate-system") -> Object:
    conditions = [{"type": "Ready", "status": str(ready)}]
    made = pod(f"agent-{node}", namespace=place, status={"conditions": conditions})
    return {**made, "spec": {**made["spec"], "nodeName": node}}


def findings(obj: Object, *agents: Object) -> list[Any]:
    return list(missing_agents({key_of(obj): obj}, _ready_agents(agents)))


def test_a_waiting_pod_has_a_finding_until_an_agent_is_ready_on_its_node() -> None:
    for agents in ([], [agent("node-2")], [agent("node-1", ready=False)], [agent("node-1", place="shop")]):
        (finding,) = findings(WAITING, *agents)
        assert (finding.about, finding.reason.value) == (key_of(WAITING), "NodeAgentMissing")
        assert "no node agent is ready on its node node-1" in finding.message
        assert "headgate.dev/redirection=init-container" in finding.message
    assert not findings(WAITING, agent("node-2"), agent("node-1"))


def test_pods_without_a_node_or_with_a_privileged_init_container_wait_for_no_agent() -> None:
    assert not findings(with_transparent_sidecar(web_pod(), AGENT))
    assert not findings(with_transparent_sidecar(web_pod(nodeName="node-1"), OPTIONS))


def test_a_pod_that_a_ready_agent_does_not_serve_has_a_finding_that_names_the_agents_log() -> None:
    waiting = {"initContainerStatuses": [{"name": INIT_CONTAINER, "state": {"running": {}}}]}

    async def scenario() -> tuple[float, Finding]:
        pods, agents, missing = MemoryStore(admit=admit), MemoryStore(admit=admit), MissingAgents()
        await pods.create(namespace("shop"))
        await agents.create(namespace("headgate-system"))
        for store, obj, status in ((agents, agent("node-1"), agent("node-1")["status"]), (pods, WAITING, waiting)):
            created = await store.create({name: value for name, value in obj.items() if name != "status"})
            await store.update({**created, "status": status}, subresource="status")
        task = asyncio.create_task(missing.run(pods, agents))
        await until(lambda: bool(missing.findings.get()), missing.findings)
        task.cancel()
        (finding,) = missing.findings.get()
        return asyncio.get_running_loop().time(), finding

    seconds, finding = virtual_time.run(scenario())
    assert seconds == LATE_S
    assert (finding.about, finding.reason.value) == (key_of(WAITING), "NodeAgentFails")
    assert "kubectl -n headgate-system logs agent-node-1" in finding.message


async def test_the_findings_follow_the_pods_and_the_agents() -> None:
    pods, agents, missing = MemoryStore(admit=admit), MemoryStore(admit=admit), MissingAgents()
    await pods.create(namespace("shop"))
    await agents.create(namespace("headgate-system"))
    task = asyncio.create_task(missing.run(pods, agents))
    async with asyncio.timeout(TIMEOUT_S):
        await pods.create(WAITING)
        await until(lambda: bool(missing.findings.get()), missing.findings)
        new = agent("node-1")
        created = await agents.create({name: value for name, value in new.items() if name != "status"})
        await agents.update({**created, "status": new["status"]}, subresource="status")
        await until(lambda: not missing.findings.get(), missing.findings)
        await agents.delete(key_of(new))
        await until(lambda: bool(missing.findings.get()), missing.findings)
        await pods.delete(key_of(WAITING))
        await until(lambda: not missing.findings.get(), missing.findings)
    task.cancel()
