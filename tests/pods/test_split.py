"""A split between Deployments of a real cluster: injection, exact shares, the commands, updates without a lost request."""

import json
import re
import select
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.pods.conftest import (
    APPLICATION,
    Cluster,
    app_deployment,
    http_service,
    is_deleted,
    mesh_namespace,
    split_in,
    token,
    until,
    wait_replicas,
)
from tests.pods.kit import BIN, IMAGE

SHOP = "shop"
COUNT = """
import collections, http.client, json, sys
found = collections.Counter()
for _ in range(int(sys.argv[2])):
    connection = http.client.HTTPConnection(sys.argv[1], 8080, timeout=50)
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


class Shop:
    """A cluster with a client and a split. `sent` is the number of requests that the client has sent."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sent = 0

    def send(self, count: int) -> Mapping[str, int]:
        """Send requests to the root of the split; return how many each Deployment answered."""
        self.sent += count
        return self.cluster.python(SHOP, "client", COUNT, "website", count)

    def counted(self) -> int:
        """Return how many requests all Deployments received in the last 15 minutes, by the metrics API."""
        path = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{SHOP}/deployments?t=15m"
        items = self.cluster.api.call("GET", path)["items"]
        values = [metric for item in items for metric in item["metrics"] if metric["name"].endswith("_count")]
        return sum(int(metric["value"]) for metric in values)


@pytest.fixture(scope="module")
def shop(shared_cluster: Cluster) -> Shop:
    installed = shared_cluster
    installed.apply(
        mesh_namespace(SHOP),
        http_service(SHOP, "website", part="website"),
        http_service(SHOP, "website-v1", app="v1"),
        http_service(SHOP, "website-v2", app="v2"),
        split_in(SHOP, "canary", "website", website_v1=90, website_v2=10),
        app_deployment(SHOP, "v1", replicas=2, part="website"),
        app_deployment(SHOP, "v2", part="website"),
        app_deployment(SHOP, "client", command=["sleep", "infinity"]),
    )
    installed.wait_rolled_out(SHOP, "v1", "v2", "client")
    installed.wait_programmed("trafficsplit/canary", SHOP)
    installed.wait_in_sync(SHOP)
    return Shop(installed)


def test_requests_have_the_exact_shares_of_the_split_that_wait_has_confirmed(shop: Shop) -> None:
    """R4, R5. One client sends 1,000 requests, and 400 after a change to the weights."""
    wait = ("wait", "trafficsplit/canary", "-n", SHOP, "--timeout", "240s")
    shop.cluster.apply(split_in(SHOP, "canary", "website", website_v1=90, website_v2=10))
    shop.cluster.headgate(*wait)
    shop.cluster.wait_in_sync(SHOP)  # with new pods of another test
    assert shop.send(1000) == {"v1": 900, "v2": 100}
    shop.cluster.apply(split_in(SHOP, "canary", "website", website_v1=1, website_v2=3))
    shop.cluster.headgate(*wait)
    assert shop.send(400) == {"v1": 100, "v2": 300}


def test_prometheus_gets_a_count_of_each_request(shop: Shop) -> None:
    """The counters belong to the active replica; another one begins at 0. The proxies report earlier requests first."""
    until(lambda: shop.counted() == shop.sent)
    before = requests_to(shop, "v1", "v2")
    shop.send(100)
    until(lambda: shop.counted() == shop.sent)
    assert requests_to(shop, "v1", "v2") == before + 100


def requests_to(shop: Shop, *workloads: str) -> int:
    """Return how many requests to workloads the metrics for Prometheus have counted."""
    text = shop.cluster.kubectl("get", "--raw", "/apis/inspect.headgate.dev/v1beta1/meshstatuses/mesh/metrics")
    counters = [line for line in text.splitlines() if line.startswith("headgate_requests_total{")]
    labels = [f'destination_workload="{name}",destination_workload_namespace="{SHOP}"' for name in workloads]
    return sum(int(line.rpartition(" ")[2]) for line in counters if any(label in line for label in labels))


def test_tap_shows_live_requests_with_their_caller(shop: Shop) -> None:
    """D29: the stream of events comes through the API server too."""
    command = [BIN / "kubectl-traffic", "tap", "deployment/v1", "-n", SHOP, "-o", "json"]
    with shop.cluster.lines(*command) as tap:
        until(lambda: shop.send(10) and select.select([tap], [], [], 0)[0])
        event = next(found for line in tap if (found := json.loads(line)).get("side") == "Server")
    assert event["response"]["status"] == 200
    assert event["source"]["identity"] == f"spiffe://cluster.local/ns/{SHOP}/sa/default"
    assert event["secured"]


def test_try_sends_requests_from_a_sidecar_for_a_user_with_a_role(shop: Shop, tmp_path: Path) -> None:
    """Without the last rule of the role, the error names it. Requests of `headgate try` are counted too."""
    shop.cluster.apply(split_in(SHOP, "canary", "website", website_v1=3, website_v2=1))
    shop.cluster.wait_programmed("trafficsplit/canary", SHOP)
    shop.cluster.wait_ended(
        SHOP
    )  # else `headgate try` could choose the sidecar of a pod that another test has replaced
    shop.cluster.wait_in_sync(SHOP)
    *rules, run_programs = [
        {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        for group, resource, verb in (
            ("", "services", "get"),
            ("split.smi-spec.io", "trafficsplits", "get"),
            ("inspect.headgate.dev", "proxies", "list"),
            ("inspect.headgate.dev", "explanations", "create"),
            ("", "pods/exec", "get"),
        )
    ]
    shop.cluster.kubectl("-n", SHOP, "create", "serviceaccount", "developer")
    bound = ("--role", "developer", "--serviceaccount", f"{SHOP}:developer")
    shop.cluster.kubectl("-n", SHOP, "create", "rolebinding", "developer", *bound)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text((shop.cluster.work / "kubeconfig").read_text())
    user = ("--kubeconfig", kubeconfig, "config")
    shop.cluster.kubectl(*user, "set-credentials", "developer", "--token", token(shop.cluster, SHOP, "developer"))
    shop.cluster.kubectl(*user, "set-context", "--current", "--user", "developer")
    words = (
        "try",
        "http://website.shop:8080/",
        "--number",
        40,
        "--concurrency",
        4,
        "-o",
        "json",
        "--kubeconfig",
        kubeconfig,
    )
    client = ("--from", "deployment/client", "--namespace", SHOP)
    shop.cluster.apply(role(*rules))
    with pytest.raises(AssertionError, match=r"a Role with this rule allows it: .*\[pods/exec\], verbs: \[get\]"):
        shop.cluster.headgate(*words, *client)
    shop.cluster.apply(role(*rules, run_programs))
    found = json.loads(until(lambda: shop.cluster.headgate(*words, *client), "the API server knows the Role"))
    shop.sent += 40
    assert found["caller"].startswith("Pod shop/client-")
    assert found["identity"] == f"spiffe://cluster.local/ns/{SHOP}/sa/default"
    assert (found["split"], found["statuses"], found["fits"]) == ("shop/canary", {"200": 40}, True)
    assert {row["backend"]: row["requests"] for row in found["backends"]} == {
        "shop/website-v1": 30,
        "shop/website-v2": 10,
    }
    found = json.loads(shop.cluster.headgate(*words))  # any sidecar of the namespace sends
    shop.sent += 40
    assert found["statuses"] == {"200": 40}


def role(*rules: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": "developer", "namespace": SHOP}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)}


def test_a_split_with_itself_as_a_backend_is_rejected_by_admission(shop: Shop) -> None:
    """R18, D1."""
    wait_replicas(shop.cluster)
    until(lambda: "spec.backends[0].service" in refusal(shop, split_in(SHOP, "loop", "website", website=1)))


def refusal(shop: Shop, obj: dict[str, Any]) -> str:
    """Return why an object can't be applied, or an empty text if it can: the webhook fails open, if it answers late."""
    try:
        shop.cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(obj))
    except AssertionError as error:
        return str(error)
    return ""


def test_old_versions_are_converted_without_a_change_of_weights(shop: Shop) -> None:
    """R9, R10: quantities of v1alpha1 come back as they were written."""
    written = split_in(SHOP, "old", "other", website_v1=0, website_v2=0)
    written["apiVersion"] = "split.smi-spec.io/v1alpha1"
    for backend, weight in zip(written["spec"]["backends"], ("1500m", "100m"), strict=True):
        backend["weight"] = weight
    wait_replicas(shop.cluster)
    shop.cluster.apply(written)
    found = shop.cluster.get("trafficsplits.v1alpha1.split.smi-spec.io/old", SHOP)
    assert [backend["weight"] for backend in found["spec"]["backends"]] == ["1500m", "100m"]
    stored = shop.cluster.get("trafficsplits.v1alpha4.split.smi-spec.io/old", SHOP)
    assert [backend["weight"] for backend in stored["spec"]["backends"]] == [15, 1]
    shop.cluster.kubectl("-n", SHOP, "delete", "trafficsplit/old")


def test_a_sidecar_object_adds_a_container_to_new_pods(shop: Shop) -> None:
    """R79, D18. The status counts the pods that need a restart."""
    shop.cluster.apply(
        {
            "apiVersion": "headgate.dev/v1beta1",
            "kind": "Sidecar",
            "metadata": {"name": "monitor", "namespace": SHOP},
            "spec": {
                "selector": {"matchLabels": {"app": "v2"}},
                "containers": [{"name": "monitor", "image": APPLICATION, "command": ["sleep", "infinity"]}],
            },
        }
    )
    until(lambda: _sidecar_pods(shop)["restartNeeded"] == 1)
    shop.cluster.kubectl("-n", SHOP, "rollout", "restart", "deployment/v2")
    shop.cluster.wait_rolled_out(SHOP, "v2")
    shop.cluster.headgate("wait", "sidecar/monitor", "-n", SHOP, "--timeout", "240s")
    (pod,) = _pods(shop, "v2")
    assert sorted(item["name"] for item in pod["spec"]["containers"]) == ["app", "headgate-sidecar", "monitor"]


def test_a_tls_config_an_annotation_and_a_manifest_inject_pods_of_a_namespace_without_the_label(
    shop: Shop, tmp_path: Path
) -> None:
    """R73, R77. The strict server answers callers with a sidecar only; a pod that is selected by none of them gets none."""
    place, annotated = "plain", app_deployment("plain", "client", command=["sleep", "infinity"])
    annotations = {"headgate.dev/inject": "enabled", "headgate.dev/proxy-cpu-limit": "500m"}
    annotated["spec"]["template"]["metadata"]["annotations"] = annotations
    key = {"apiVersion": "headgate.dev/v1beta1", "kind": "TLSConfig"}
    strict = {
        **key,
        "metadata": {"name": "strict", "namespace": place},
        "spec": {"selector": {"matchLabels": {"app": "v1"}}},
    }
    shop.cluster.apply(mesh_namespace(place, injected=False), http_service(place, "website", app="v1"), strict)
    outside, offline = (app_deployment(place, name, command=["sleep", "infinity"]) for name in ("outside", "offline"))
    manifest = tmp_path / "offline.json"
    manifest.write_text(json.dumps(offline))
    shop.cluster.apply(app_deployment(place, "v1"), annotated, outside)
    shop.cluster.kubectl("apply", "-f", "-", stdin=shop.cluster.headgate("inject", "-f", manifest, "--image", IMAGE))
    shop.cluster.wait_rolled_out(place, "v1", "client", "outside", "offline")
    shop.cluster.wait_programmed("tlsconfig/strict", place)
    shop.cluster.wait_in_sync(place)
    for caller in ("client", "offline"):
        assert shop.cluster.python(place, caller, COUNT, "website", 10) == {"v1": 10}
    assert "v1" not in shop.cluster.python(place, "outside", COUNT, "website", 10)
    pods = {item["metadata"]["labels"]["app"]: item for item in shop.cluster.get("pods", place)["items"]}
    assert pods["client"]["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "20m", "memory": "64Mi"},
        "limits": {"cpu": "500m", "memory": "1Gi"},
    }
    for app, sidecar, reason in (
        ("v1", "transparent", "the TLSConfig strict selects the pod"),
        ("client", "transparent", 'the pod\'s annotation headgate.dev/inject is "enabled"'),
        ("outside", "none", "no label, annotation or TLSConfig requests one"),
    ):
        explained = partial(shop.cluster.headgate, "explain", f"pod/{place}/{pods[app]['metadata']['name']}")
        assert f"Sidecar    {sidecar}\nReason     {reason}" in explained()
        if sidecar == "none":
            assert "InSync" not in explained()
        else:
            until(lambda explained=explained: "InSync" in explained())
    shop.cluster.delete_namespaces(place)


def test_a_wrong_label_is_rejected_with_the_valid_values(shop: Shop) -> None:
    wrong = mesh_namespace("wrong")
    wrong["metadata"]["labels"]["headgate.dev/inject"] = "on"
    template = app_deployment(SHOP, "wrong")
    template["spec"]["template"]["metadata"]["annotations"] = {"headgate.dev/inject": "on"}
    wait_replicas(shop.cluster)
    expected = r'must be "true", "enabled", "false" or "disabled", not .on.'
    for obj in (wrong, template):
        until(lambda obj=obj: re.search(expected, refusal(shop, obj)))


def _pods(shop: Shop, app: str = "") -> list[dict[str, Any]]:
    """Return the pods that are not being deleted, of one Deployment if `app` names it."""
    pods = shop.cluster.get("pods", SHOP, f"app={app}" if app else "")["items"]
    return [pod for pod in pods if not is_deleted(pod)]


def _sidecar_pods(shop: Shop) -> dict[str, int]:
    found: dict[str, int] = shop.cluster.get("sidecar/monitor", SHOP)["status"]["pods"]
    return found
