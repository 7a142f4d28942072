"""`headgate proxies --outdated` and `headgate restart` with pods, under load, and sidecars that fit into a LimitRange."""

import json

import pytest
from tests.pods.conftest import Cluster, app_deployment, graceful, http_service, is_deleted, mesh_namespace
from tests.pods.load import failures, load

PLACE = "outdated"
LIMITS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "small", "namespace": PLACE},
    "spec": {"limits": [{"type": "Container", "max": {"memory": "512Mi"}, "default": {"memory": "256Mi"}}]},
}


@pytest.fixture(scope="module")
def website(shared_cluster: Cluster) -> Cluster:
    shared_cluster.apply(mesh_namespace(PLACE), http_service(PLACE, "website", app="website"))
    shared_cluster.apply(
        graceful(app_deployment(PLACE, "website", replicas=2)),
        app_deployment(PLACE, "client", command=["sleep", "infinity"]),
    )
    shared_cluster.wait_rolled_out(PLACE, "website", "client")
    shared_cluster.wait_in_sync(PLACE)
    return shared_cluster


def test_workloads_with_outdated_sidecars_are_restarted_without_a_lost_request(website: Cluster) -> None:
    assert json.loads(website.headgate("proxies", "--outdated", "-n", PLACE, "-o", "json")) == {"items": []}
    website.apply(LIMITS)
    # The command ends with 1, because workloads are outdated.
    with pytest.raises(AssertionError, match=r"deployment/website +2/2 +memory limit 1Gi, now 512Mi"):
        website.headgate("proxies", "--outdated", "-n", PLACE)
    with load(website, PLACE, "website") as counts:
        printed = website.headgate("restart", "deployment/website", "--outdated", "-n", PLACE)
    assert printed.startswith(f"{PLACE}/deployment/website restarted: ")
    assert "2 sidecars in sync" in printed
    assert failures(counts, "website") == {}
    pods = website.get("pods", PLACE, "app=website")["items"]
    limits = {
        container["resources"]["limits"]["memory"]
        for pod in pods
        if not is_deleted(pod)
        for container in pod["spec"]["containers"]
        if container["name"] == "headgate-sidecar"
    }
    assert limits == {"512Mi"}
    with pytest.raises(AssertionError, match=r"deployment/client +1/1"):
        website.headgate("proxies", "--outdated", "-n", PLACE)
