"""A split between Deployments of a real cluster: injection, exact shares, the commands, updates without a lost request."""

from collections.abc import Iterator

import pytest
from tests.pods.conftest import SYSTEM, Cluster, deployment, namespace, service, split

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


def test_requests_have_the_exact_shares_of_the_split_that_wait_has_confirmed(shop: Cluster) -> None:
    """R4, R5. One client sends 1,000 requests, and 400 after a change of the weights."""
    shop.apply(split(SHOP, "canary", "website", website_v1=90, website_v2=10))
    shop.headgate("wait", "trafficsplit/canary", "-n", SHOP)
    assert shop.python(SHOP, "client", COUNT, "website", 1000) == {"v1": 900, "v2": 100}
    shop.apply(split(SHOP, "canary", "website", website_v1=1, website_v2=3))
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


def test_a_wrong_label_is_rejected_with_the_valid_values(shop: Cluster) -> None:
    wrong = namespace("wrong")
    wrong["metadata"]["labels"]["headgate.dev/inject"] = "enabled"
    with pytest.raises(AssertionError, match=r'must be "true" or "false", not .enabled.'):
        shop.apply(wrong)


def _active(cluster: Cluster) -> list[str]:
    pods = cluster.get("-n", SYSTEM, "pods", "-l", "headgate.dev/active=true")["items"]
    return [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]
