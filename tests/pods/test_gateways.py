"""Gateways on a real cluster: each has proxies and a Service of its own, which clients without a sidecar call."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pods.conftest import (
    BIN,
    IMAGE,
    SYSTEM,
    Cluster,
    build_image,
    deployment,
    namespace,
    service,
    split,
    until,
    wait_for_port,
)
from tests.pods.gateway_api import install_gateway_api
from tests.pods.load import failures, load

from headgate.kinds import GATEWAY
from headgate.resources.gateway import proxy_name

WEB, OUTSIDE = "web", "outside"
NGINX_IMAGE = "localhost/headgate-nginx:test"
COUNT = """
import collections, http.client, json, sys
found = collections.Counter()
for _ in range(int(sys.argv[2])):
    connection = http.client.HTTPConnection(sys.argv[1], timeout=50)
    connection.request("GET", "/", headers={"Host": sys.argv[3]})
    answer = connection.getresponse()
    words = answer.read().decode().split()
    found[words[-2].rsplit("-", 2)[0] if answer.status == 200 else f"status {answer.status}"] += 1
    connection.close()
print(json.dumps(found))
"""
"""Sends requests to an address, and prints how many each Deployment answered."""
REMOVE_SELECTOR = json.dumps([{"op": "remove", "path": "/spec/selector"}])
NOT_OF_GATEWAY = "endpointslice.kubernetes.io/managed-by!=headgate-gateway"


@pytest.fixture(scope="module")
def edge(cluster: Cluster) -> Iterator[Cluster]:
    """A Gateway whose route leads to a split between two Deployments with sidecars; a client has none."""
    installed = cluster
    options = []
    if nginx := shutil.which("nginx"):
        build_image(NGINX_IMAGE, "--venv", BIN.parent, "--dist", "headgate", *added_files(nginx))
        options = ["--nginx-image", NGINX_IMAGE]
    installed.headgate("install", "--image", IMAGE, *options)
    install_gateway_api(installed)
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
        gateway("edge", 80, 8080),
        route("edge", "website", "shop.example"),
    )
    installed.wait_rolled_out(WEB, "v1", "v2")
    installed.wait_rolled_out(OUTSIDE, "client")
    installed.kubectl("-n", WEB, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=240s")
    installed.wait_in_sync(WEB)
    wait_for_port(address(installed, "edge"), 80)
    yield installed
    installed.kubectl("-n", WEB, "delete", "gateways,httproutes", "--all")


def added_files(program: str) -> list[str]:
    """Return options of `build_image` that add a program and its libraries."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    paths = [program, *(word for word in listed.split() if word.startswith("/"))]
    return [option for path in paths for option in ("--add", f"{Path(path).resolve()}:{path}")]


def gateway(name: str, *ports: int, place: str = WEB, **spec: Any) -> dict[str, Any]:
    """Return a Gateway with HTTP listeners."""
    listeners = [{"name": f"http-{port}", "port": port, "protocol": "HTTP"} for port in ports]
    spec = {"gatewayClassName": "headgate", "listeners": listeners, **spec}
    return {
        "apiVersion": f"{GATEWAY}/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": place},
        "spec": spec,
    }


def route(parent: str, root: str, host: str) -> dict[str, Any]:
    """Return an HTTPRoute from a Gateway to the root of a split."""
    rules = [{"backendRefs": [{"name": root, "port": 8080}]}]
    return {
        "apiVersion": f"{GATEWAY}/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": root, "namespace": WEB},
        "spec": {"parentRefs": [{"name": parent}], "hostnames": [host], "rules": rules},
    }


def address(cluster: Cluster, name: str, place: str = WEB) -> str:
    """Return the address of a Gateway."""
    found: str = cluster.get("-n", place, f"gateway/{name}")["status"]["addresses"][0]["value"]
    return found


def led(cluster: Cluster, name: str) -> bool:
    """Return whether the cluster leads clients without a sidecar to the gateway of a Service."""
    found = cluster.get("-n", WEB, "endpointslices", "-l", f"kubernetes.io/service-name={name}")["items"]
    return any(item["metadata"]["name"] == f"{name}-headgate-gateway" for item in found)


def runs(cluster: Cluster, name: str) -> bool:
    """Return whether the gateway of a Service has a Deployment."""
    return proxy_name(WEB, name, of="service") in cluster.kubectl("-n", SYSTEM, "get", "deployments")


def images(cluster: Cluster, name: str) -> set[str]:
    """Return the images of the pods of the gateway of a Service, whose containers may still run."""
    label = f"app.kubernetes.io/instance={proxy_name(WEB, name, of='service')}"
    pods = cluster.get("-n", SYSTEM, "pods", "-l", label)["items"]
    return {pod["spec"]["containers"][0]["image"] for pod in pods}


def answers(cluster: Cluster, name: str, count: int) -> Any:
    """Send requests from a client without a sidecar; return how many each Deployment answered."""
    return cluster.python(OUTSIDE, "client", COUNT, f"{name}.{WEB}:8080", count, name)


def specified_canary(proxy: str, *, canary: int = 100) -> dict[str, Any]:
    """Return the Canary of specification 004, which asks for a gateway."""
    backends = [{"service": "web-next", "weight": f"{canary}m"}, {"service": "web-current", "weight": "900m"}]
    return {
        "apiVersion": "headgate.dev/v1beta1",
        "kind": "Canary",
        "metadata": {"name": "my-canary", "namespace": WEB, "annotations": {"headgate.dev/gateway": proxy}},
        "spec": {"service": "web", "backends": backends},
    }


def proxies(cluster: Cluster) -> list[str]:
    """Return the names of the pods that run the proxies of Gateways."""
    pods = cluster.get("-n", SYSTEM, "pods", "-l", "app.kubernetes.io/name=headgate-gateway")["items"]
    return [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]


def endpoints(cluster: Cluster) -> list[Any]:
    """Return the endpoints of the Gateway `edge`."""
    label = f"kubernetes.io/service-name={proxy_name(WEB, 'edge')}"
    slices = cluster.get("-n", SYSTEM, "endpointslices", "-l", label)["items"]
    return [endpoint for one in slices for endpoint in one["endpoints"] or () if endpoint["conditions"].get("ready")]


def test_clients_without_a_sidecar_reach_a_split_in_its_exact_shares(edge: Cluster) -> None:
    """R30, D13."""
    found = edge.python(OUTSIDE, "client", COUNT, address(edge, "edge"), 100, "shop.example")
    assert found == {"v1": 75, "v2": 25}


def test_the_specified_canary_gives_clients_without_a_sidecar_its_shares_by_a_gateway_of_its_root(
    edge: Cluster,
) -> None:
    """R32, R33, D23: clients with a sidecar split by themselves, before and after the end of the gateway."""
    edge.apply(service(WEB, "web-next", app="v2"), service(WEB, "web-current", app="v1"), specified_canary("envoy"))
    until(lambda: led(edge, "web"))
    edge.wait_programmed("trafficsplit/my-canary", WEB)
    until(lambda: answers(edge, "web", 10).keys() == {"v1", "v2"})
    for client in ((OUTSIDE, "client"), (WEB, "v1")):
        assert edge.python(*client, COUNT, "web.web:8080", 100, "web") == {"v1": 90, "v2": 10}
    until(lambda: "GatewayReady" in edge.kubectl("-n", WEB, "describe", "canary/my-canary"))
    if shutil.which("nginx"):
        replace_by_nginx(edge)
    edge.kubectl("-n", WEB, "annotate", "canary/my-canary", "headgate.dev/gateway-")
    until(lambda: not led(edge, "web") and not runs(edge, "web"))
    assert edge.python(WEB, "v1", COUNT, "web.web:8080", 100, "web") == {"v1": 90, "v2": 10}


def replace_by_nginx(cluster: Cluster) -> None:
    """Replace the proxies of `web` by nginx and change its weights, without a failed request."""
    with load(cluster, OUTSIDE, "web.web", reconnect=True) as counts:
        cluster.apply(specified_canary("nginx"))
        until(lambda: images(cluster, "web") == {NGINX_IMAGE}, "nginx alone runs")
        cluster.apply(specified_canary("nginx", canary=0))
        until(lambda: answers(cluster, "web", 40) == {"v1": 40})
        cluster.apply(specified_canary("nginx"))
        until(lambda: answers(cluster, "web", 40).keys() == {"v1", "v2"})
    assert counts
    assert not failures(counts, "v1", "v2")
    assert answers(cluster, "web", 100) == {"v1": 90, "v2": 10}


def test_a_service_gets_a_gateway_and_loses_it_without_a_failed_request(edge: Cluster) -> None:
    """R32: its selected pods are replaced by the gateway, and later the gateway by the selected pods."""
    root = service(WEB, "moved", part="website")
    root["metadata"]["annotations"] = {"headgate.dev/gateway": "envoy"}
    edge.apply(root, split(WEB, "moved", "moved", website_v1=1))
    until(lambda: runs(edge, "moved"))
    edge.wait_rolled_out(SYSTEM, proxy_name(WEB, "moved", of="service"))
    until(lambda: answers(edge, "moved", 40).keys() == {"v1", "v2"}, "nodes know the Service")
    with load(edge, OUTSIDE, "moved.web", reconnect=True) as counts:
        edge.kubectl("-n", WEB, "patch", "service/moved", "--type=json", "-p", REMOVE_SELECTOR)
        until(lambda: led(edge, "moved"))
        edge.kubectl("-n", WEB, "delete", "endpoints/moved")
        edge.kubectl("-n", WEB, "delete", "endpointslices", "-l", f"kubernetes.io/service-name=moved,{NOT_OF_GATEWAY}")
        until(lambda: answers(edge, "moved", 40) == {"v1": 40})
        edge.kubectl("-n", WEB, "patch", "service/moved", "-p", json.dumps({"spec": root["spec"]}))
        until(lambda: not led(edge, "moved"))
        edge.kubectl("-n", WEB, "annotate", "service/moved", "headgate.dev/gateway-")
        until(lambda: not runs(edge, "moved"))
        assert answers(edge, "moved", 40).keys() == {"v1", "v2"}
    assert counts
    assert not failures(counts, "v1", "v2")


def test_a_canary_is_judged_by_requests_through_the_gateway(edge: Cluster) -> None:
    """R108: its root has no other clients, and the Gateway's proxies must have the weights of each step."""
    backends = [{"service": f"website-{version}", "weight": 1} for version in ("v1", "v2")]
    analysis = {"canary": "website-v2", "interval": "1s", "success": {"margin": "50%"}}
    canary = {
        "apiVersion": "headgate.dev/v1beta1",
        "kind": "Canary",
        "metadata": {"name": "judged", "namespace": WEB},
        "spec": {"service": "judged", "backends": backends, "analysis": analysis},
    }
    edge.apply(service(WEB, "judged"), canary, route("edge", "judged", "judged.example"))

    def ask(count: int) -> Any:
        return edge.python(OUTSIDE, "client", COUNT, address(edge, "edge"), count, "judged.example")

    def promoted() -> bool:
        ask(40)
        status = edge.get("-n", WEB, "canary/judged").get("status") or {}
        found = {item["type"] for item in status.get("conditions", ()) if item["status"] == "True"}
        assert {"Promoted", "Programmed"} <= found, status
        return True

    until(promoted)
    assert ask(40) == {"v2": 40}


def test_a_wrong_parameter_is_reported_and_does_not_stop_running_proxies(edge: Cluster) -> None:
    def parameters(**data: str) -> None:
        labels = {"headgate.dev/gateway-parameters": "true"}
        metadata = {"name": "edge", "namespace": WEB, "labels": labels}
        edge.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    def accepted() -> str:
        found = edge.get("-n", WEB, "gateway/edge")["status"]["conditions"]
        return next(f"{item['reason']} {item['message']}" for item in found if item["type"] == "Accepted")

    reference = {"group": "", "kind": "ConfigMap", "name": "edge"}
    parameters(replicas="2 pods")
    edge.apply(gateway("edge", 80, 8080, infrastructure={"parametersRef": reference}))
    until(lambda: "InvalidParameters" in accepted())
    assert "ConfigMap web/edge, key replicas: must be a whole number" in accepted()
    found = edge.python(OUTSIDE, "client", COUNT, address(edge, "edge"), 4, "shop.example")
    assert found == {"v1": 3, "v2": 1}
    parameters(replicas="2")
    until(lambda: len(proxies(edge)) == 2)
    edge.wait_rolled_out(SYSTEM, proxy_name(WEB, "edge"))
    edge.kubectl("-n", WEB, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=240s")
    parameters(replicas="1")  # each proxy counts by itself, so the shares of the other tests are exact with one proxy
    until(lambda: len(proxies(edge)) == 1)
    edge.apply(gateway("edge", 80, 8080))
    until(lambda: len(endpoints(edge)) == 1)
    edge.wait_for_nodes(WEB, app="v1")


def test_commands_show_the_proxies_of_a_gateway(edge: Cluster) -> None:
    (pod,) = proxies(edge)
    assert pod in edge.headgate("proxies")
    explained = edge.headgate("explain", "http://shop.example/", "--via", "gateway/edge", "-n", WEB)
    assert "HTTPRoute web/website" in explained


def test_a_deleted_gateway_leaves_no_proxy(edge: Cluster) -> None:
    before = proxies(edge)
    edge.apply(gateway("second", 80))
    edge.kubectl("-n", WEB, "wait", "gateway/second", "--for=condition=Programmed", "--timeout=240s")
    assert len(proxies(edge)) == len(before) + 1
    edge.kubectl("-n", WEB, "delete", "gateway/second")
    until(lambda: proxies(edge) == before)
    until(lambda: services_of_gateways(edge) == [proxy_name(WEB, "edge")])


def services_of_gateways(cluster: Cluster) -> list[str]:
    """Return the names of the Services of Gateways."""
    found = cluster.get("-n", SYSTEM, "services", "-l", "app.kubernetes.io/name=headgate-gateway")["items"]
    return [item["metadata"]["name"] for item in found]
