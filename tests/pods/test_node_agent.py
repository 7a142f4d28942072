"""Pods of a namespace with the Pod Security level `restricted`, whose connections the node agent redirects, on a real cluster.

Kubernetes 1.20 has no Pod Security admission, so the tests check the pods against the rules themselves.
"""

from typing import Any

import pytest
from tests.make.objects import tls_config
from tests.pod_security import violations
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    app_deployment,
    http_service,
    is_deleted,
    is_ready,
    mesh_namespace,
    until,
)
from tests.pods.kit import IMAGE
from tests.pods.test_split import COUNT

PLACE, OUTSIDE = "locked-down", "locked-down-outside"
AGENT = "headgate-node-agent"
REDIRECTION = "headgate.dev/redirection"
FINDINGS = "/apis/inspect.headgate.dev/v1beta1/findings"
MISSING = "NodeAgentMissing"
INSTALL = ("install", "--image", IMAGE, "--replicas", 1)
INIT_CONTAINER = "headgate-redirect"


def restricted(workload: dict[str, Any]) -> dict[str, Any]:
    """Return a workload whose own container satisfies the level `restricted`."""
    pod = workload["spec"]["template"]["spec"]
    pod["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod["containers"] = [{**container, "securityContext": context} for container in pod["containers"]]
    return workload


def pods(cluster: Cluster, app: str = "") -> list[dict[str, Any]]:
    """Return the pods of the namespace that are not being deleted."""
    listed = cluster.get("pods", PLACE, f"app={app}" if app else "")["items"]
    return [pod for pod in listed if not is_deleted(pod)]


@pytest.fixture(scope="module")
def locked_down(cluster: Cluster) -> Cluster:
    """A server with strict mutual TLS and a client in a namespace with sidecars, and a client in another namespace without."""
    cluster.headgate(*INSTALL, "--node-agent")
    cluster.apply(mesh_namespace(PLACE), mesh_namespace(OUTSIDE, injected=False))
    cluster.apply(
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
    return cluster


def test_the_level_restricted_admits_the_pods_with_their_sidecars(locked_down: Cluster) -> None:
    """The API server and the kubelet have accepted these pods as they are."""
    specs = [pod["spec"] for pod in pods(locked_down)]
    assert [text for spec in specs for text in violations(spec)] == []
    assert {spec["initContainers"][0]["name"] for spec in specs} == {INIT_CONTAINER}


def test_connections_of_clients_and_servers_pass_their_sidecars(locked_down: Cluster) -> None:
    """Strict mutual TLS shows both: the server's sidecar accepts only calls that the client's sidecar encrypts."""
    assert locked_down.python(PLACE, "client", COUNT, "web", 20) == {"web": 20}
    assert "web" not in locked_down.python(OUTSIDE, "client", COUNT, f"web.{PLACE}", 5)


def test_a_pod_does_not_start_without_the_agent_and_a_finding_names_its_node(locked_down: Cluster) -> None:
    """An installation without the option removes the agent; the namespace still asks for it."""
    locked_down.kubectl("annotate", "namespace", PLACE, f"{REDIRECTION}=node-agent")
    locked_down.headgate(*INSTALL)
    until(
        lambda: not locked_down.get("pods", SYSTEM, f"app.kubernetes.io/name={AGENT}")["items"], "the end of the agent"
    )
    assert AGENT not in locked_down.kubectl(
        "get", "serviceaccounts,clusterroles,clusterrolebindings", "-A", "-o", "name"
    )
    locked_down.apply(restricted(app_deployment(PLACE, "late")))

    def finding() -> dict[str, Any]:
        items = locked_down.api.call("GET", FINDINGS)["items"]
        return next(item for item in items if item["reason"] == MISSING)

    def waits() -> bool:
        (status,) = pods(locked_down, "late")[0]["status"]["initContainerStatuses"]
        return "running" in status["state"]

    until(waits, "an init container that waits")
    (pod,) = pods(locked_down, "late")
    missing = until(finding, "the finding")
    assert missing["object"]["name"] == pod["metadata"]["name"]
    assert f"no node agent is ready on its node {pod['spec']['nodeName']}" in missing["message"]
    log = locked_down.kubectl("-n", PLACE, "logs", pod["metadata"]["name"], "-c", INIT_CONTAINER)
    assert f"waiting for the node agent of the node {pod['spec']['nodeName']}" in log
    assert not any("running" in status["state"] for status in pod["status"]["containerStatuses"])
    locked_down.headgate(*INSTALL, "--node-agent")
    locked_down.wait_rolled_out(PLACE, "late")
    until(lambda: MISSING not in str(locked_down.api.call("GET", FINDINGS)), "no finding")
    assert all(map(is_ready, pods(locked_down)))
