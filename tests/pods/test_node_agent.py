"""Pods of a namespace with the Pod Security level `restricted`, whose connections the node agent redirects, on a real cluster.

Kubernetes 1.20 has no Pod Security admission, so the tests check the pods against the rules themselves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.make.objects import tls_config
from tests.pod_security import violations
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    app_deployment,
    http_service,
    is_deleted,
    is_left,
    is_ready,
    mesh_namespace,
    shared_installation,
    until,
)
from tests.pods.test_split import COUNT

PLACE, OUTSIDE = "locked-down", "locked-down-outside"
AGENT = "headgate-node-agent"
REDIRECTION = "headgate.dev/redirection"
FINDINGS = "/apis/inspect.headgate.dev/v1beta1/findings"
MISSING = "NodeAgentMissing"
INIT_CONTAINER = "headgate-redirect"


def restricted(workload: dict[str, Any]) -> dict[str, Any]:
    """Return a workload whose own container satisfies the level `restricted`."""
    pod = workload["spec"]["template"]["spec"]
    pod["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod["containers"] = [{**container, "securityContext": context} for container in pod["containers"]]
    return workload


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the pods of the namespace that are not being deleted."""
    return [pod for pod in cluster.get("pods", PLACE)["items"] if not is_deleted(pod)]


@contextmanager
def node_agent(cluster: Cluster) -> Iterator[None]:
    """Add the node agent to the installation for the `with` block."""
    cluster.headgate(*shared_installation(), "--node-agent")
    try:
        yield
    finally:
        cluster.headgate(*shared_installation())


def test_a_pod_waits_for_the_node_agent_and_its_connections_pass_its_sidecar(disturbed: Cluster) -> None:
    """The agent is there while the installation has its option. Before, the namespace asks for it."""
    cluster = disturbed
    asking = mesh_namespace(PLACE)
    asking["metadata"]["annotations"] = {REDIRECTION: "node-agent"}
    cluster.apply(asking, restricted(app_deployment(PLACE, "early")))
    assert_pod_waits_for_the_agent(cluster)
    with node_agent(cluster):
        cluster.wait_rolled_out(PLACE, "early")
        until(lambda: MISSING not in str(cluster.api.call("GET", FINDINGS)), "no finding")
        assert all(map(is_ready, pods(cluster)))
        cluster.kubectl("annotate", "namespace", PLACE, f"{REDIRECTION}-")
        assert_connections_pass_sidecars(cluster)
    agents = f"app.kubernetes.io/name={AGENT}"
    until(lambda: not any(map(is_left, cluster.get("pods", SYSTEM, agents)["items"])), "the end of the agent")
    assert AGENT not in cluster.kubectl("get", "serviceaccounts,clusterroles,clusterrolebindings", "-A", "-o", "name")


def assert_connections_pass_sidecars(cluster: Cluster) -> None:
    """Run a server with strict mutual TLS and its clients, in the namespace and in another one without sidecars.

    It shows that calls pass both sidecars: the server's sidecar accepts only calls that the client's sidecar encrypts.
    """
    cluster.apply(
        mesh_namespace(OUTSIDE, injected=False),
        http_service(PLACE, "web", app="web"),
        tls_config("strict", {}, namespace=PLACE),
        restricted(app_deployment(PLACE, "web")),
        restricted(app_deployment(PLACE, "client", command=["sleep", "infinity"])),
        app_deployment(OUTSIDE, "client", command=["sleep", "infinity"]),
    )
    cluster.wait_rolled_out(PLACE, "web", "client")
    cluster.wait_rolled_out(OUTSIDE, "client")
    cluster.wait_programmed("tlsconfig/strict", PLACE)
    cluster.wait_in_sync(PLACE)
    assert_level_restricted_admits_the_pods(cluster)
    assert cluster.python(PLACE, "client", COUNT, "web", 20) == {"web": 20}
    assert "web" not in cluster.python(OUTSIDE, "client", COUNT, f"web.{PLACE}", 5)


def assert_pod_waits_for_the_agent(cluster: Cluster) -> None:
    """Assert that the only pod does not start without the agent, and that a finding names its node."""

    def finding() -> dict[str, Any]:
        items = cluster.api.call("GET", FINDINGS)["items"]
        return next(item for item in items if item["reason"] == MISSING)

    def waits() -> bool:
        (status,) = pods(cluster)[0]["status"]["initContainerStatuses"]
        return "running" in status["state"]

    until(waits, "an init container that waits")
    (pod,) = pods(cluster)
    missing = until(finding, "the finding")
    assert missing["object"]["name"] == pod["metadata"]["name"]
    assert f"no node agent is ready on its node {pod['spec']['nodeName']}" in missing["message"]
    log = cluster.kubectl("-n", PLACE, "logs", pod["metadata"]["name"], "-c", INIT_CONTAINER)
    assert f"waiting for the node agent of the node {pod['spec']['nodeName']}" in log
    assert not any("running" in status["state"] for status in pod["status"]["containerStatuses"])


def assert_level_restricted_admits_the_pods(cluster: Cluster) -> None:
    """Assert that the pods with sidecars satisfy the level. The API server and the kubelet have accepted them as they are."""
    specs = [pod["spec"] for pod in pods(cluster)]
    assert [text for spec in specs for text in violations(spec)] == []
    assert {spec["initContainers"][0]["name"] for spec in specs} == {INIT_CONTAINER}
