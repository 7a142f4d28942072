"""Probes of pods with a sidecar on a real cluster, with strict mutual TLS."""

from tests.pods.conftest import SIDECAR, Cluster, app_deployment, mesh_namespace, until

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
    server = app_deployment(VAULT, "late", command=["python3", "-c", LATE])
    (container,) = server["spec"]["template"]["spec"]["containers"]
    container["readinessProbe"] = {"tcpSocket": {"port": 7000}, "periodSeconds": 1}
    strict = {
        "apiVersion": "headgate.dev/v1beta1",
        "kind": "TLSConfig",
        "metadata": {"name": "strict", "namespace": VAULT},
        "spec": {"selector": {"matchLabels": {}}},
    }
    shared_cluster.apply(mesh_namespace(VAULT), strict, server)
    until(lambda: _ready(shared_cluster) == {"app": False, SIDECAR: True} and _has_failed(shared_cluster, "503"))
    shared_cluster.kubectl("-n", VAULT, "exec", "deployment/late", "-c", "app", "--", "touch", "/tmp/listen")
    shared_cluster.wait_rolled_out(VAULT, "late")
    until(lambda: _ready(shared_cluster) == {"app": True, SIDECAR: True})


def _has_failed(cluster: Cluster, text: str) -> bool:
    """Return whether an Event says that a probe of the application has failed, with a text.

    Probes fail in other ways before the sidecar listens, and on a busy machine.
    """
    events = cluster.get("events", VAULT)["items"]
    found = (item for item in events if item["involvedObject"].get("fieldPath") == "spec.containers{app}")
    return any(item["reason"] == "Unhealthy" and text in item["message"] for item in found)


def _ready(cluster: Cluster) -> dict[str, bool]:
    """Return for each container whether it is ready."""
    pods = cluster.get("pods", VAULT)["items"]
    return {item["name"]: item["ready"] for pod in pods for item in pod["status"].get("containerStatuses", ())}
