"""Requests on a real cluster while pods and sidecars fail or are replaced. `test_takeover.py` has the control plane."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.pods.conftest import (
    SERVER,
    Cluster,
    app_deployment,
    graceful,
    is_deleted,
    is_ready,
    kill_program,
    until,
)
from tests.pods.disturbed_website import assert_client_can_leave, restarts, run_website, running, shift
from tests.pods.load import CONNECTIONS, failures, load

SHOP = "disrupted"
SKIP_ENDING = "--skip-wait-for-delete-timeout=1"
"""`kubectl drain` does not wait for a pod for longer than its grace period: the kubelet may need a minute more to remove it."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the log of each server's requests, also of deleted pods."""
    return tmp_path_factory.mktemp("log")


def logging(workload: dict[str, Any], log: Path) -> dict[str, Any]:
    """Let the server write its log into a directory of the node."""
    pod = workload["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "log", "hostPath": {"path": str(log), "type": "Directory"}}]
    pod["containers"][0] |= {
        "command": ["sh", "-c", 'exec "$0" "$@" 2>> /log/$HOSTNAME', *SERVER],
        "volumeMounts": [{"name": "log", "mountPath": "/log"}],
    }
    return workload


def logged(log: Path) -> Counter[str]:
    """Return how many requests the servers of each Deployment have logged, without those of probes."""
    found: Counter[str] = Counter()
    for file in log.iterdir():
        found[file.name.rsplit("-", 2)[0]] += file.read_text().count('"GET / ')
    return found


@pytest.fixture(scope="module")
def shop(shared_cluster: Cluster, log: Path) -> Cluster:
    """A client, and two versions of a server: the Deployments `v1` and `v1-more`, and `v2`."""
    versions = (
        logging(graceful(app_deployment(SHOP, "v1", replicas=2, part=SHOP, version="v1")), log),
        logging(graceful(app_deployment(SHOP, "v1-more", part=SHOP, version="v1")), log),
        app_deployment(SHOP, "v2", part=SHOP, version="v2"),
    )
    run_website(shared_cluster, SHOP, *versions)
    return shared_cluster


def pods(cluster: Cluster, app: str) -> list[str]:
    """Return the names of the pods of a Deployment, without those that are being deleted."""
    return running(cluster, SHOP, f"app={app}")


def wait_ready(cluster: Cluster, app: str, count: int) -> None:
    """Wait until a Deployment has `count` ready pods that are not being deleted."""

    def ready() -> bool:
        found = cluster.get("pods", SHOP, f"app={app}")["items"]
        return [is_ready(pod) for pod in found if not is_deleted(pod)] == [True] * count

    until(ready, f"{count} ready pods of {app}")


def results(cluster: Cluster, client: str) -> Counter[str]:
    """Return the results that the proxies of a client Deployment have counted, by the metrics API.

    The keys are those of `load`: the Deployment that answered, or a failure.
    """
    url = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{SHOP}/deployments/{client}/edges?t=15m"
    found: Counter[str] = Counter()
    for item in cluster.api.call("GET", url)["items"]:
        server = item["edge"]["resource"]["name"]
        for metric in item["metrics"]:
            name, value = metric["name"], metric["value"]
            if name.endswith("_count"):
                found[server if name == "success_count" else f"{server}: {name}"] += int(value)
    return +found


def test_no_request_is_lost_when_pods_are_replaced_removed_or_evicted(shop: Cluster, log: Path) -> None:
    """A rolling update, a scale-down, a deleted pod, and a drained node.

    The client, its proxy and the servers count the same requests for each Deployment. The client is one of this test only, because
    the proxy of another one may still report earlier requests.
    """
    (node,) = (item["metadata"]["name"] for item in shop.get("nodes")["items"])
    shop.apply(app_deployment(SHOP, "customer", command=["sleep", "infinity"]))
    shop.wait_rolled_out(SHOP, "customer")
    shop.wait_in_sync(SHOP)
    shift(shop, SHOP, website_v1=1, website_v2=0)
    logged_before, counted_before = logged(log), results(shop, "customer")
    with load(shop, SHOP, "website", client="customer") as counts:
        shop.kubectl("-n", SHOP, "rollout", "restart", "deployment/v1")
        shop.wait_rolled_out(SHOP, "v1")
        shop.kubectl("-n", SHOP, "scale", "deployment/v1", "--replicas=1")
        until(lambda: len(pods(shop, "v1")) == 1)
        shop.kubectl("-n", SHOP, "delete", "pod", pods(shop, "v1-more")[0], "--wait=false")
        wait_ready(shop, "v1-more", 1)
        try:
            shop.kubectl("drain", node, f"--pod-selector=app=v1,part={SHOP}", "--delete-emptydir-data", SKIP_ENDING)
        finally:
            shop.kubectl("uncordon", node)
        shop.wait_rolled_out(SHOP, "v1")
    assert set(counts) == {"v1", "v1-more"}
    assert logged(log) - logged_before == counts
    until(lambda: results(shop, "customer") - counted_before == counts)


def test_a_client_that_is_asked_to_end_can_still_send_requests_and_they_are_counted(shop: Cluster) -> None:
    assert_client_can_leave(shop, SHOP)


def test_a_killed_sidecar_misroutes_no_request(shop: Cluster) -> None:
    """R4. Only requests in flight at the killed proxy may fail: one for each connection of the client."""
    shift(shop, SHOP, website_v1=1, website_v2=0)
    pod = pods(shop, "v1-more")[0]
    restarts_before = restarts(shop, SHOP, pod)
    with load(shop, SHOP, "website") as counts:
        kill_program(shop, pod, SHOP)
        until(lambda: restarts(shop, SHOP, pod) == restarts_before + 1)
        shop.kubectl("-n", SHOP, "wait", f"pod/{pod}", "--for=condition=Ready", "--timeout=240s")
    assert counts["v1"] > 0
    assert "v2" not in counts
    assert sum(failures(counts, "v1", "v1-more").values()) <= CONNECTIONS
