"""Gateways on a real cluster: each has proxies and a Service of its own, which clients without a sidecar call."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from tests.make.objects import Object, canary, config_map, gateway, listener, route, rule
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    app_deployment,
    http_service,
    is_deleted,
    is_left,
    mesh_namespace,
    split_in,
    until,
    wait_for_port,
)
from tests.pods.gateway_api import install_gateway_api
from tests.pods.kit import SECOND_IMAGE
from tests.pods.load import failures, load

from headgate.resources.gateway_api.proxies import proxy_name

WEB, OUTSIDE = "web", "web-outside"
OWN_GATEWAYS = f"gateway-{WEB}-"
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
REMOVE_GATEWAY = json.dumps([{"op": "remove", "path": "/spec/gateway"}])
NOT_OF_GATEWAY = "endpointslice.kubernetes.io/managed-by!=headgate-gateway"


@pytest.fixture(scope="module")
def edge(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A Gateway whose route leads to a split between two Deployments with sidecars; a client has none."""
    installed = shared_cluster
    install_gateway_api(installed)
    installed.apply(
        mesh_namespace(WEB),
        mesh_namespace(OUTSIDE, injected=False),
        http_service(WEB, "website", part="website"),
        http_service(WEB, "website-v1", app="v1"),
        http_service(WEB, "website-v2", app="v2"),
        split_in(WEB, "canary", "website", website_v1=3, website_v2=1),
        app_deployment(WEB, "v1", part="website"),
        app_deployment(WEB, "v2", part="website"),
        app_deployment(OUTSIDE, "client", command=["sleep", "infinity"]),
        web_gateway("edge", 80, 8080),
        web_route("website", host="shop.example"),
    )
    installed.wait_rolled_out(WEB, "v1", "v2")
    installed.wait_rolled_out(OUTSIDE, "client")
    installed.kubectl("-n", WEB, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=240s")
    installed.wait_in_sync(WEB)
    wait_for_port(address(installed, "edge"), 80)
    yield installed
    installed.kubectl("-n", WEB, "delete", "gateways,httproutes", "--all")


def web_gateway(name: str, *ports: int, **spec: Any) -> Object:
    """Return a Gateway with HTTP listeners."""
    listeners = [listener(port, f"http-{port}") for port in ports]
    return gateway(name, *listeners, namespace=WEB, **spec)


def web_route(root: str, *, host: str = "") -> Object:
    """Return an HTTPRoute from the Gateway `edge` to the root of a split."""
    hosts = [host or f"{root}.example"]
    return route(root, rule({root: 1}), parents=[{"name": "edge"}], namespace=WEB, hostnames=hosts)


def address(cluster: Cluster, name: str, place: str = WEB) -> str:
    """Return the address of a Gateway."""
    found: str = cluster.get(f"gateway/{name}", place)["status"]["addresses"][0]["value"]
    return found


def led(cluster: Cluster, name: str) -> bool:
    """Return whether the cluster leads clients without a sidecar to the gateway of a Service."""
    found = cluster.get("endpointslices", WEB, f"kubernetes.io/service-name={name}")["items"]
    return any(item["metadata"]["name"] == f"{name}-headgate-gateway" for item in found)


def runs(cluster: Cluster, name: str) -> bool:
    """Return whether the gateway of a Service has a Deployment."""
    return proxy_name(WEB, name, of="service") in cluster.kubectl("-n", SYSTEM, "get", "deployments")


def images(cluster: Cluster, name: str) -> set[str]:
    """Return the images of the pods of the gateway of a Service, whose containers may still run."""
    label = f"app.kubernetes.io/instance={proxy_name(WEB, name, of='service')}"
    pods = cluster.get("pods", SYSTEM, label)["items"]
    return {pod["spec"]["containers"][0]["image"] for pod in pods if is_left(pod)}


def answers(cluster: Cluster, name: str, count: int) -> Any:
    """Send requests from a client without a sidecar; return how many each Deployment answered."""
    return cluster.python(OUTSIDE, "client", COUNT, f"{name}.{WEB}:8080", count, name)


def specified_canary(proxy: str, *, share: int = 100) -> Object:
    """Return the Canary of specification 004, which asks for a gateway."""
    weights = {"web-next": f"{share}m", "web-current": "900m"}
    return canary("web", weights, name="my-canary", namespace=WEB, gateway=proxy)


def proxies(cluster: Cluster) -> list[str]:
    """Return the names of the pods that run the proxies of this module's Gateways."""
    pods = cluster.get("pods", SYSTEM, "app.kubernetes.io/name=headgate-gateway")["items"]
    names = [pod["metadata"]["name"] for pod in pods if not is_deleted(pod)]
    return [name for name in names if name.startswith(OWN_GATEWAYS)]


def endpoints(cluster: Cluster) -> list[Any]:
    """Return the endpoints of the Gateway `edge`."""
    label = f"kubernetes.io/service-name={proxy_name(WEB, 'edge')}"
    slices = cluster.get("endpointslices", SYSTEM, label)["items"]
    return [endpoint for one in slices for endpoint in one["endpoints"] or () if endpoint["conditions"].get("ready")]


def test_clients_without_a_sidecar_reach_a_split_in_its_exact_shares(edge: Cluster) -> None:
    """R30, D13."""
    found = edge.python(OUTSIDE, "client", COUNT, address(edge, "edge"), 100, "shop.example")
    assert found == {"v1": 75, "v2": 25}


def test_the_specified_canary_gives_clients_without_a_sidecar_its_shares_by_a_gateway_of_its_root(
    edge: Cluster,
) -> None:
    """R32, R33, D23: clients with a sidecar split by themselves, before and after the end of the gateway."""
    edge.apply(
        http_service(WEB, "web-next", app="v2"), http_service(WEB, "web-current", app="v1"), specified_canary("Envoy")
    )
    until(lambda: led(edge, "web"))
    edge.wait_programmed("trafficsplit/my-canary", WEB)
    until(lambda: answers(edge, "web", 10).keys() == {"v1", "v2"})
    for client in ((OUTSIDE, "client"), (WEB, "v1")):
        assert edge.python(*client, COUNT, "web.web:8080", 100, "web") == {"v1": 90, "v2": 10}
    until(lambda: "GatewayReady" in edge.kubectl("-n", WEB, "describe", "canary/my-canary"))
    if shutil.which("nginx"):
        replace_by_nginx(edge)
    edge.kubectl("-n", WEB, "patch", "canary/my-canary", "--type=json", "-p", REMOVE_GATEWAY)
    until(lambda: not led(edge, "web") and not runs(edge, "web"))
    assert edge.python(WEB, "v1", COUNT, "web.web:8080", 100, "web") == {"v1": 90, "v2": 10}


def replace_by_nginx(cluster: Cluster) -> None:
    """Replace the proxies of `web` by nginx and change its weights, without a failed request."""
    with load(cluster, OUTSIDE, "web.web", reconnect=True) as counts:
        cluster.apply(specified_canary("Nginx"))
        until(lambda: images(cluster, "web") == {SECOND_IMAGE}, "nginx alone runs")
        cluster.apply(specified_canary("Nginx", share=0))
        until(lambda: answers(cluster, "web", 40) == {"v1": 40})
        cluster.apply(specified_canary("Nginx"))
        until(lambda: answers(cluster, "web", 40).keys() == {"v1", "v2"})
    assert counts
    assert not failures(counts, "v1", "v2")
    assert answers(cluster, "web", 100) == {"v1": 90, "v2": 10}


def test_a_service_gets_a_gateway_and_loses_it_without_a_failed_request(edge: Cluster) -> None:
    """R32: its selected pods are replaced by the gateway, and later the gateway by the selected pods."""
    root = http_service(WEB, "moved", part="website")
    root["metadata"]["annotations"] = {"headgate.dev/gateway": "envoy"}
    edge.apply(root, split_in(WEB, "moved", "moved", website_v1=1))
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
        until(lambda: answers(edge, "moved", 40).keys() == {"v1", "v2"}, "nodes know the pods")
    assert counts
    assert not failures(counts, "v1", "v2")


def test_a_canary_is_judged_by_requests_through_the_gateway(edge: Cluster) -> None:
    """R108: its root has no other clients, and the Gateway's proxies must have the weights of each step."""
    analysis = {"canary": "website-v2", "interval": "1s", "success": {"margin": "50%"}}
    judged = canary("judged", {"website-v1": 1, "website-v2": 1}, analysis=analysis, namespace=WEB)
    edge.apply(http_service(WEB, "judged"), judged, web_route("judged"))

    def ask(count: int) -> Any:
        return edge.python(OUTSIDE, "client", COUNT, address(edge, "edge"), count, "judged.example")

    def promoted() -> bool:
        ask(40)
        status = edge.get("canary/judged", WEB).get("status") or {}
        found = {item["type"] for item in status.get("conditions", ()) if item["status"] == "True"}
        assert {"Promoted", "Programmed"} <= found, status
        return True

    until(promoted)
    assert ask(40) == {"v2": 40}


def test_a_wrong_parameter_is_reported_and_does_not_stop_running_proxies(edge: Cluster) -> None:
    def parameters(**data: str) -> None:
        labels = {"headgate.dev/gateway-parameters": "true"}
        edge.apply(config_map("edge", data, namespace=WEB, labels=labels))

    def accepted() -> str:
        found = edge.get("gateway/edge", WEB)["status"]["conditions"]
        return next(f"{item['reason']} {item['message']}" for item in found if item["type"] == "Accepted")

    reference = {"group": "", "kind": "ConfigMap", "name": "edge"}
    parameters(replicas="2 pods")
    edge.apply(web_gateway("edge", 80, 8080, infrastructure={"parametersRef": reference}))
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
    edge.apply(web_gateway("edge", 80, 8080))
    until(lambda: len(endpoints(edge)) == 1)
    edge.wait_for_nodes(WEB, app="v1")


def test_commands_show_the_proxies_of_a_gateway(edge: Cluster) -> None:
    (pod,) = proxies(edge)
    assert pod in edge.headgate("proxies")
    explained = edge.headgate("explain", "http://shop.example/", "--via", "gateway/edge", "-n", WEB)
    assert "HTTPRoute web/website" in explained


def test_a_deleted_gateway_leaves_no_proxy(edge: Cluster) -> None:
    before = proxies(edge)
    edge.apply(web_gateway("second", 80))
    edge.kubectl("-n", WEB, "wait", "gateway/second", "--for=condition=Programmed", "--timeout=240s")
    assert len(proxies(edge)) == len(before) + 1
    edge.kubectl("-n", WEB, "delete", "gateway/second")
    until(lambda: proxies(edge) == before)
    until(lambda: services_of_gateways(edge) == [proxy_name(WEB, "edge")])


def services_of_gateways(cluster: Cluster) -> list[str]:
    """Return the names of the Services of this module's Gateways."""
    services = cluster.get("services", SYSTEM, "app.kubernetes.io/name=headgate-gateway")["items"]
    names = [service["metadata"]["name"] for service in services]
    return [name for name in names if name.startswith(OWN_GATEWAYS)]
