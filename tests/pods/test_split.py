"""A split between Deployments of a real cluster: injection, exact shares, the commands, updates without a lost request."""

import json
from collections.abc import Iterator

import pytest
from tests.pods.conftest import IMAGE, SYSTEM, Cluster, deployment, namespace, service, split

SHOP = "shop"
COUNT = """
import collections, http.client, json, sys
found = collections.Counter()
for _ in range(int(sys.argv[2])):
    connection = http.client.HTTPConnection(sys.argv[1], 8080, timeout=10)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        body = answer.read().decode().split()
        found[body[-2].rsplit("-", 2)[0] if answer.status == 200 else f"status {answer.status}"] += 1
    except OSError as error:
        found[str(error)] += 1
    connection.close()
print(json.dumps(found))
"""
"""Sends requests to a host, and prints how many each Deployment answered."""


@pytest.fixture(scope="module")
def shop(installed: Cluster) -> Iterator[Cluster]:
    installed.apply(
        namespace(SHOP),
        service(SHOP, "website", part="website"),
        service(SHOP, "website-v1", app="v1"),
        service(SHOP, "website-v2", app="v2"),
        split(SHOP, "canary", "website", website_v1=90, website_v2=10),
        deployment(SHOP, "v1", replicas=2, part="website"),
        deployment(SHOP, "v2", part="website"),
        deployment(SHOP, "client", command=["sleep", "infinity"]),
    )
    installed.wait_rolled_out(SHOP, "v1", "v2", "client")
    installed.headgate("wait", "trafficsplit/canary", "-n", SHOP)
    return installed


def test_an_installation_twice_changes_nothing(installed: Cluster) -> None:
    printed = installed.headgate("install", "--image", IMAGE)
    assert "created" not in printed
    assert "deployment/headgate unchanged" in printed


def test_requests_have_exact_shares(shop: Cluster) -> None:
    """R4, R5. 1,000 requests of one client: 900 and 100."""
    assert shop.python(SHOP, "client", COUNT, "website", 1000) == {"v1": 900, "v2": 100}


def test_a_patched_weight_applies_to_all_requests_after_wait(shop: Cluster) -> None:
    backends = [{"service": "website-v1", "weight": 1}, {"service": "website-v2", "weight": 3}]
    shop.kubectl(
        "-n", SHOP, "patch", "trafficsplit/canary", "--type=merge", "-p", json.dumps({"spec": {"backends": backends}})
    )
    shop.headgate("wait", "trafficsplit/canary", "-n", SHOP)
    assert shop.python(SHOP, "client", COUNT, "website", 400) == {"v1": 100, "v2": 300}


def test_commands_use_the_aggregated_api(shop: Cluster) -> None:
    """D29: one kubeconfig, no port-forward."""
    assert "in sync" in shop.headgate("status")
    assert "Route      TrafficSplit shop/canary" in shop.headgate("explain", "http://website.shop:8080/")
    assert shop.headgate("proxies").count("InSync") == 4
    assert "no rotation is in progress" in shop.headgate("ca", "status")


def test_a_split_with_itself_as_a_backend_is_rejected_by_admission(shop: Cluster) -> None:
    """R18, D1."""
    with pytest.raises(AssertionError, match=r"spec\.backends\[0\]\.service"):
        shop.apply(split(SHOP, "loop", "website", website=1))


def test_old_versions_are_converted_without_a_change_of_weights(shop: Cluster) -> None:
    """R9, R10: quantities of v1alpha1 come back as they were written."""
    written = split(SHOP, "old", "other", website_v1=0, website_v2=0)
    written["apiVersion"] = "split.smi-spec.io/v1alpha1"
    for backend, weight in zip(written["spec"]["backends"], ("1500m", "100m"), strict=True):
        backend["weight"] = weight
    shop.apply(written)
    found = shop.get("-n", SHOP, "trafficsplits.v1alpha1.split.smi-spec.io/old")
    assert [backend["weight"] for backend in found["spec"]["backends"]] == ["1500m", "100m"]
    stored = shop.get("-n", SHOP, "trafficsplits.v1alpha4.split.smi-spec.io/old")
    assert [backend["weight"] for backend in stored["spec"]["backends"]] == [15, 1]
    shop.kubectl("-n", SHOP, "delete", "trafficsplit/old")


def test_a_new_active_replica_continues_without_a_change_at_the_proxies(shop: Cluster) -> None:
    """D28. The holder of the Lease is deleted, and another replica serves the proxies."""
    (before,) = _active(shop)
    shop.kubectl("-n", SYSTEM, "delete", "pod", before)
    shop.wait_rolled_out(SYSTEM, "headgate")
    shop.headgate("wait", "trafficsplit/canary", "-n", SHOP)
    (after,) = _active(shop)
    assert after != before
    assert shop.headgate("proxies").count("InSync") == 4


def test_the_uninstallation_names_pods_with_sidecars_and_then_leaves_nothing(shop: Cluster) -> None:
    with pytest.raises(AssertionError, match=r"4 pods still have a sidecar: shop/client-"):
        shop.headgate("uninstall")
    shop.kubectl("delete", "namespace", SHOP)
    shop.headgate("uninstall")
    shop.kubectl("wait", "--for=delete", f"namespace/{SYSTEM}", "--timeout=100s")
    kinds = "customresourcedefinitions,clusterroles,clusterrolebindings,apiservices,mutatingwebhookconfigurations"
    names = shop.kubectl("get", kinds, "-o", "name")
    assert "headgate" not in names
    assert "smi-spec.io" not in names


def _active(cluster: Cluster) -> list[str]:
    pods = cluster.get("-n", SYSTEM, "pods", "-l", "headgate.dev/active=true")["items"]
    return [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]
