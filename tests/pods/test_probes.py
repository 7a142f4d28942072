"""Probes of pods with a sidecar on a real cluster, with strict mutual TLS."""

from typing import Any

from tests.e2e.world import until
from tests.pods.conftest import Cluster, deployment, namespace

VAULT = "vault"
LATE = """
import pathlib, socket, time
while not pathlib.Path("/tmp/listen").exists():
    time.sleep(0.1)
with socket.create_server(("", 7000)) as server:
    while True:
        server.accept()[0].close()
"""
"""A server that begins to listen when a file exists."""


def test_a_pod_with_a_tcp_probe_is_not_ready_before_its_application_listens(shared_cluster: Cluster) -> None:
    """The sidecar accepts connections to the port from the beginning."""
    server = deployment(VAULT, "late", command=["python3", "-c", LATE])
    (container,) = server["spec"]["template"]["spec"]["containers"]
    container["readinessProbe"] = {"tcpSocket": {"port": 7000}, "periodSeconds": 1}
    strict = {
        "apiVersion": "headgate.dev/v1beta1",
        "kind": "TLSConfig",
        "metadata": {"name": "strict", "namespace": VAULT},
        "spec": {"selector": {"matchLabels": {}}},
    }
    shared_cluster.apply(namespace(VAULT), strict, server)
    failed = until(lambda: _failed_probe(shared_cluster))
    assert "503" in failed["message"]
    assert _ready(shared_cluster) == {"app": False, "headgate-sidecar": True}
    shared_cluster.kubectl("-n", VAULT, "exec", "deployment/late", "-c", "app", "--", "touch", "/tmp/listen")
    shared_cluster.wait_rolled_out(VAULT, "late")
    assert _ready(shared_cluster) == {"app": True, "headgate-sidecar": True}


def _failed_probe(cluster: Cluster) -> dict[str, Any] | None:
    """Return an Event about a failed probe of the application while its sidecar is ready."""
    if not _ready(cluster).get("headgate-sidecar"):
        return None
    events = cluster.get("-n", VAULT, "events")["items"]
    found = (item for item in events if item["involvedObject"].get("fieldPath") == "spec.containers{app}")
    return next((item for item in found if item["reason"] == "Unhealthy"), None)


def _ready(cluster: Cluster) -> dict[str, bool]:
    pods = cluster.get("-n", VAULT, "pods")["items"]
    return {item["name"]: item["ready"] for pod in pods for item in pod["status"].get("containerStatuses", ())}
