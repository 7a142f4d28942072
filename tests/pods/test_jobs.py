"""Jobs of a real cluster: their pods complete although they have a sidecar, and their requests are counted."""

from typing import Any

import pytest
from tests.pods.conftest import APPLICATION, Cluster, app_deployment, counted, http_service, mesh_namespace, until

BATCH = "batch"
REQUESTS = 10
COUNTED = (("complete", "complete-never"), ("complete", "complete-onfailure"), ("failed", "fail"))
"""The Jobs that send requests to `server`, with the conditions that they get."""
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
    """Two servers, and Jobs that run at the same time: those of COUNTED send REQUESTS to `server` each, `prepared` to `prepares`."""
    servers = ("server", "prepares")
    shared_cluster.apply(mesh_namespace(BATCH))
    for name in servers:
        shared_cluster.apply(http_service(BATCH, name, app=name), app_deployment(BATCH, name))
    shared_cluster.wait_rolled_out(BATCH, *servers)
    shared_cluster.wait_in_sync(BATCH)
    setup = sender("setup", "prepares")
    shared_cluster.apply(
        job("complete-never", "Never", sender("app", "server")),
        job("complete-onfailure", "OnFailure", sender("app", "server")),
        job("fail", "Never", sender("app", "server", code=3)),
        job("prepared", "Never", sender("app", "prepares"), initContainers=[setup]),
    )
    return shared_cluster


def wait_for_job(cluster: Cluster, condition: str, name: str) -> None:
    """Wait until a Job has a condition."""
    cluster.kubectl("-n", BATCH, "wait", f"--for=condition={condition}", f"job/{name}", "--timeout=240s")


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_job_completes_with_a_sidecar(batch: Cluster, policy: str) -> None:
    """The sidecar is a container of the pod on Kubernetes before 1.29, and a native sidecar since then."""
    wait_for_job(batch, "complete", f"complete-{policy.lower()}")


def test_a_job_whose_container_fails_is_failed(batch: Cluster) -> None:
    wait_for_job(batch, "failed", "fail")


def test_requests_of_jobs_that_complete_or_fail_are_counted(batch: Cluster) -> None:
    """R85."""
    for condition, name in COUNTED:
        wait_for_job(batch, condition, name)
    until(lambda: counted(batch, BATCH, "server") == len(COUNTED) * REQUESTS)


def test_an_init_container_of_a_job_reaches_a_service(batch: Cluster) -> None:
    """The init container runs before a sidecar that is not native, and before connections are redirected to the sidecar."""
    wait_for_job(batch, "complete", "prepared")
