"""HorizontalPodAutoscalers on a real cluster: the cluster's own controller scales Deployments by headgate's metrics (R102)."""

from typing import Any

import pytest
from tests.pods.conftest import Cluster, app_deployment, http_service, mesh_namespace

PLACE = "autoscaled"
MOST = 3
LOAD = """
import http.client, sys
while True:
    connection = http.client.HTTPConnection(sys.argv[1], 8080, timeout=10)
    try:
        connection.request("GET", "/sleep/0.1")
        connection.getresponse().read()
    except OSError:
        pass
    connection.close()
"""
"""Sends one request after the other to a host. Each takes 100 ms, so there are at most 10 in a second.

On a busy machine there are fewer; more than 1 in a second needs MOST pods (BY_REQUESTS)."""
BY_REQUESTS = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "requests_per_second"},
        "target": {"type": "AverageValue", "averageValue": "500m"},
    },
}
BY_LATENCY = {
    "type": "Object",
    "object": {
        "metric": {"name": "p99_response_latency_ms"},
        "describedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "slow"},
        "target": {"type": "Value", "value": "10"},
    },
}


@pytest.fixture(scope="module")
def autoscaled(shared_cluster: Cluster) -> Cluster:
    """A cluster with custom metrics, and two idle Deployments with an autoscaler each."""
    cluster = shared_cluster
    cluster.apply(
        mesh_namespace(PLACE),
        *(http_service(PLACE, name, app=name) for name in ("busy", "slow")),
        *(app_deployment(PLACE, name) for name in ("busy", "slow")),
    )
    cluster.wait_rolled_out(PLACE, "busy", "slow")
    version = "v2" if "autoscaling/v2\n" in cluster.kubectl("api-versions") else "v2beta2"
    cluster.apply(autoscaler(version, "busy", BY_REQUESTS), autoscaler(version, "slow", BY_LATENCY))
    return cluster


def autoscaler(version: str, name: str, metric: dict[str, Any]) -> dict[str, Any]:
    """Return a HorizontalPodAutoscaler of a Deployment, which also scales down without delay."""
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": PLACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": MOST,
            "metrics": [metric],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


def wait_replicas(cluster: Cluster, name: str, count: int) -> None:
    """Wait until a Deployment is scaled to `count` pods and all are ready. Print the autoscaler's conditions on failure."""
    for field in ("spec.replicas", "status.readyReplicas"):
        condition = f"--for=jsonpath={{.{field}}}={count}"
        try:
            cluster.kubectl("-n", PLACE, "wait", f"deployment/{name}", condition, "--timeout=240s")
        except AssertionError as error:
            raise AssertionError(cluster.kubectl("-n", PLACE, "describe", f"hpa/{name}")) from error


def test_deployments_are_scaled_up_under_load_and_down_without_load(autoscaled: Cluster) -> None:
    """`busy` is scaled by the requests of each pod, `slow` by the latency of the Deployment."""
    names = ("busy", "slow")
    autoscaled.apply(*(app_deployment(PLACE, f"load-{name}", command=["python3", "-c", LOAD, name]) for name in names))
    for name in names:
        wait_replicas(autoscaled, name, MOST)
    autoscaled.kubectl("-n", PLACE, "delete", *(f"deployment/load-{name}" for name in names))
    for name in names:
        wait_replicas(autoscaled, name, 1)
