"""Run the scenarios of `routes` on a real cluster: a Gateway with a proxy of its own, called from outside the cluster.

HEADGATE_TEST_CLUSTER names the directory of the programs that start the cluster (`tests/pods/kit.py`).
"""

import contextlib
from collections.abc import Mapping

import pytest
from benchmarks import routes
from tests.e2e.gateway_api.objects import PORT, edge_gateway
from tests.pods.cluster_host import traffic_deployment
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    active_pod,
    http_service,
    program,
    started,
)
from tests.pods.gateway_api import install_gateway_api
from tests.pods.kit import IMAGE, CannotStart, build_second_image
from tests.pods.traffic_pod import PORT as BACKEND_PORT
from tests.wire import Address, Network

USUAL = routes.Scale(created=900, attached=1000, changes=300)
"""Less than on one machine: a write takes longer on a cluster."""
SMALLEST = None  # a cluster takes minutes to start; `routes` runs the scenarios at their smallest scale
PLACE = "default"
BACKENDS = ("backend", "second")
PROXIES = "app.kubernetes.io/name=headgate-gateway"


async def measure(scale: routes.Scale) -> None:
    """Start a cluster and run the scenarios, or skip them if no cluster can be started."""
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(started())
        except CannotStart as error:
            pytest.skip(str(error))
        install(cluster)
        network = Network()
        stack.callback(network.close)
        edge = routes.Edge(address(cluster), cluster.kubeconfig, cluster.api, network, lambda: processes(cluster))
        routes.change_under_load(edge, scale.changes)
        routes.attach_and_detach(edge, scale.attached, scale.settle)
        routes.create_with_probes(edge, scale.created)


def install(cluster: Cluster) -> None:
    """Install headgate, the backends without sidecars, and the Gateway."""
    install_gateway_api(cluster)
    cluster.headgate("install", "--image", IMAGE)
    build_second_image()
    for name in BACKENDS:
        made = http_service(PLACE, name, app=name)
        made["spec"]["ports"] = [
            {"name": port, "port": number, "targetPort": BACKEND_PORT}
            for port, number in (("http", 8080), ("other", 8081))
        ]
        cluster.apply(traffic_deployment(PLACE, name), made)
    cluster.wait_rolled_out(PLACE, *BACKENDS)
    cluster.kubectl("-n", PLACE, "create", "-f", "-", stdin=edge_gateway())
    cluster.kubectl("-n", PLACE, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=100s")


def address(cluster: Cluster) -> Address:
    """Return the address of the Gateway."""
    found = cluster.get("gateway/edge", PLACE)["status"]["addresses"][0]["value"]
    return Address(found, PORT)


def processes(cluster: Cluster) -> Mapping[str, int]:
    """Return the processes of the active replica and of the Gateway's Envoy."""
    (proxy,) = cluster.get("pods", SYSTEM, PROXIES)["items"]
    return {"headgate": program(active_pod(cluster)), "Envoy": program(proxy["metadata"]["name"])}
