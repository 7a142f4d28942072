"""Jobs of a real cluster: their pods complete although they have a sidecar, and their requests are counted."""

from typing import Any

import pytest
from tests.pods.conftest import APPLICATION, Cluster, app_deployment, counted, http_service, mesh_namespace, until

BATCH = "batch"
REQUESTS = 10
SEND = """
import http.client, sys
for _ in range(int(sys.argv[2])):
    connection = http.client.HTTPConnection(sys.argv[1], 8080, timeout=50)
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    connection.close()
sys.exit(int(sys.argv[3]))
"""
"""Sends requests to a host, and ends with an exit code."""


def sender(name: str, server: str, *, code: int = 0) -> dict[str, Any]:
    """Return a container that sends requests to a server, and ends with an exit code."""
    command = ["python3", "-c", SEND, server, str(REQUESTS), str(code)]
    return {"name": name, "image": APPLICATION, "imagePullPolicy": "Never", "command": command}


def job(name: str, policy: str, container: dict[str, Any], **pod: Any) -> dict[str, Any]:
    """Return a Job that runs one container."""
    spec = {"restartPolicy": policy, "containers": [container], **pod}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": BATCH},
        "spec": {"backoffLimit": 0, "template": template},
    }


@pytest.fixture(scope="module")
def batch(shared_cluster: Cluster) -> Cluster:
    servers = ("server", "prepares")
    shared_cluster.apply(mesh_namespace(BATCH))
    for name in servers:
        shared_cluster.apply(http_service(BATCH, name, app=name), app_deployment(BATCH, name))
    shared_cluster.wait_rolled_out(BATCH, *servers)
    shared_cluster.wait_in_sync(BATCH)
    return shared_cluster


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_job_completes_and_its_requests_are_counted(batch: Cluster, policy: str) -> None:
    """R85. The sidecar is a container of the pod on Kubernetes before 1.29, and a native sidecar since then."""
    name, before = f"complete-{policy.lower()}", counted(batch, BATCH, "server")
    batch.apply(job(name, policy, sender("app", "server")))
    batch.kubectl("-n", BATCH, "wait", "--for=condition=complete", f"job/{name}", "--timeout=240s")
    until(lambda: counted(batch, BATCH, "server") == before + REQUESTS)


def test_a_job_whose_container_fails_is_failed_and_its_requests_are_counted(batch: Cluster) -> None:
    before = counted(batch, BATCH, "server")
    batch.apply(job("fail", "Never", sender("app", "server", code=3)))
    batch.kubectl("-n", BATCH, "wait", "--for=condition=failed", "job/fail", "--timeout=240s")
    until(lambda: counted(batch, BATCH, "server") == before + REQUESTS)


def test_an_init_container_of_a_job_reaches_a_service(batch: Cluster) -> None:
    """The init container runs before a sidecar that is not native, and before connections are redirected to the sidecar."""
    setup = sender("setup", "prepares")
    batch.apply(job("prepared", "Never", sender("app", "prepares"), initContainers=[setup]))
    batch.kubectl("-n", BATCH, "wait", "--for=condition=complete", "job/prepared", "--timeout=240s")
