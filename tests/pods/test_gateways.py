"""Gateways on a real cluster: each has proxies and a Service of its own, which clients without a sidecar call."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.world import until
from tests.pods.conftest import SYSTEM, Cluster, deployment, namespace, service, split

from headgate.kinds import GATEWAY
from headgate.kubernetes.install.custom_resources import custom_resource_definitions
from headgate.resources.registry import KINDS

WEB, OUTSIDE = "web", "outside"
COUNT = """
import collections, http.client, json, sys
found = collections.Counter()
for _ in range(int(sys.argv[2])):
    connection = http.client.HTTPConnection(sys.argv[1], 80, timeout=10)
    connection.request("GET", "/", headers={"Host": "shop.example"})
    answer = connection.getresponse()
    words = answer.read().decode().split()
    found[words[-2].rsplit("-", 2)[0] if answer.status == 200 else f"status {answer.status}"] += 1
    connection.close()
print(json.dumps(found))
"""
"""Sends requests to an address, and prints how many each Deployment answered."""


@pytest.fixture(scope="module")
def edge(installed: Cluster) -> Iterator[Cluster]:
    """A Gateway whose route leads to a split between two Deployments with sidecars; a client has none."""
    definitions = gateway_api_definitions()
    installed.apply(*definitions)
    for definition in definitions:
        installed.kubectl("wait", "--for=condition=Established", f"crd/{definition['metadata']['name']}")
    installed.apply(
        namespace(WEB),
        namespace(OUTSIDE, injected=False),
        service(WEB, "website", part="website"),
        service(WEB, "website-v1", app="v1"),
        service(WEB, "website-v2", app="v2"),
        split(WEB, "canary", "website", website_v1=3, website_v2=1),
        deployment(WEB, "v1", part="website"),
        deployment(WEB, "v2", part="website"),
        deployment(OUTSIDE, "client", command=["sleep", "infinity"]),
        gateway("edge"),
        route("edge"),
    )
    installed.wait_rolled_out(WEB, "v1", "v2")
    installed.wait_rolled_out(OUTSIDE, "client")
    installed.kubectl("-n", WEB, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=100s")
    yield installed
    installed.kubectl("-n", WEB, "delete", "gateways,httproutes", "--all")


def gateway_api_definitions() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of the Gateway API, which every cluster installs itself."""
    kinds = [kind for kind in KINDS if kind.group == GATEWAY]
    found = custom_resource_definitions(kinds, {"service": {"namespace": "none", "name": "none"}})
    approval = {"api-approved.kubernetes.io": "unapproved, for tests"}  # the API server requires it in this group
    return [{**item, "metadata": {**item["metadata"], "annotations": approval}} for item in found]


def gateway(name: str) -> dict[str, Any]:
    """Return a Gateway with an HTTP listener on port 80."""
    spec = {"gatewayClassName": "headgate", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
    return {
        "apiVersion": f"{GATEWAY}/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": WEB},
        "spec": spec,
    }


def route(parent: str) -> dict[str, Any]:
    """Return an HTTPRoute from a Gateway to the root of the split."""
    rules = [{"backendRefs": [{"name": "website", "port": 8080}]}]
    return {
        "apiVersion": f"{GATEWAY}/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "website", "namespace": WEB},
        "spec": {"parentRefs": [{"name": parent}], "hostnames": ["shop.example"], "rules": rules},
    }


def address(cluster: Cluster, name: str) -> str:
    """Return the address of a Gateway."""
    found: str = cluster.get("-n", WEB, f"gateway/{name}")["status"]["addresses"][0]["value"]
    return found


def proxies(cluster: Cluster) -> list[str]:
    """Return the names of the pods that run the proxies of Gateways."""
    pods = cluster.get("-n", SYSTEM, "pods", "-l", "app.kubernetes.io/name=headgate-gateway")["items"]
    return [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]


def test_clients_without_a_sidecar_reach_a_split_in_its_exact_shares(edge: Cluster) -> None:
    """R30, D13."""
    found = edge.python(OUTSIDE, "client", COUNT, address(edge, "edge"), 100)
    assert found == {"v1": 75, "v2": 25}


def test_commands_show_the_proxies_of_a_gateway(edge: Cluster) -> None:
    (pod,) = proxies(edge)
    assert pod in edge.headgate("proxies")
    explained = edge.headgate("explain", "http://shop.example/", "--via", "gateway/edge", "-n", WEB)
    assert "HTTPRoute web/website" in explained


def test_a_deleted_gateway_leaves_no_proxy(edge: Cluster) -> None:
    before = proxies(edge)
    edge.apply(gateway("second"))
    edge.kubectl("-n", WEB, "wait", "gateway/second", "--for=condition=Programmed", "--timeout=100s")
    assert len(proxies(edge)) == len(before) + 1
    edge.kubectl("-n", WEB, "delete", "gateway/second")
    until(lambda: proxies(edge) == before)
    services = edge.get("-n", SYSTEM, "services", "-l", "app.kubernetes.io/name=headgate-gateway")["items"]
    assert [json.dumps(item["spec"]["ports"][0]["port"]) for item in services] == ["80"]
