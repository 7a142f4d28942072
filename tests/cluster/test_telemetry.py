"""A control plane on a cluster whose metrics API reads a Prometheus, and whose pods report to a collector."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from tests.cluster.conftest import Cluster, started
from tests.cluster.control_planes import ControlPlane, NotAnswered, eventually, install, running

from headgate.kubernetes.install.manifests import Values
from headgate.telemetry.prometheus_source import parse_source

pytestmark = pytest.mark.asyncio(loop_scope="module")

VALUES = Values(image="headgate:1", budget_version="policy/v1beta1")
PODS = "/apis/traffic.metrics.k8s.io/v1beta1/namespaces/shop/pods"
METRICS = "/apis/inspect.headgate.dev/v1/meshstatuses/mesh/metrics"
COLLECTOR = "collector.monitoring:4317"
GATEWAY = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "Gateway",
    "metadata": {"name": "edge", "namespace": "shop"},
    "spec": {"gatewayClassName": "headgate", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
}


class Store:
    """The samples of a Prometheus that scraped headgate: 40 requests to the pod `web` of the namespace `shop`."""

    def __init__(self) -> None:
        self.url = ""
        self.is_failing = False

    def answer(self, now: float) -> Any:
        if self.is_failing:
            return {"status": "error", "error": "the disk is full"}
        scraped = {"job": "headgate", "instance": "kubernetes"}
        labels = {
            "source_outside": "gateway",
            "destination_pod": "web",
            "destination_workload_namespace": "shop",
            "destination_pod_port": "8080",
            "destination_service_name": "web",
            "destination_service_namespace": "shop",
            "destination_port": "80",
            "response_class": "2xx",
            "classification": "success",
        }
        series = (
            ({"__name__": "headgate_traffic_start_time_seconds", "by": "pod"}, (str(now - 900), str(now - 900))),
            ({"__name__": "headgate_requests_total", **labels}, ("2", "42")),
        )
        result = [
            {"metric": {**names, **scraped}, "values": [[now - 60, before], [now - 5, after]]}
            for names, (before, after) in series
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}


@contextmanager
def prometheus() -> Iterator[Store]:
    """Serve the query API of a Prometheus on loopback."""
    store = Store()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["content-length"])).decode()
            moment = float(form.rpartition("time=")[2])
            body = json.dumps(store.answer(moment)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    store.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class World(NamedTuple):
    """A replica that is active, with its API server and the Prometheus."""

    cluster: Cluster
    plane: ControlPlane
    prometheus: Store


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    with (
        started(tmp_path_factory.mktemp("telemetry")) as cluster,
        prometheus() as store,
        pytest.MonkeyPatch.context() as patch,
    ):
        await install(cluster, VALUES)
        cluster.namespace("shop")
        pods = "/api/v1/namespaces/{}/pods"
        container = {"name": "app", "image": "app", "ports": [{"containerPort": 8080}]}
        for place, name in (("headgate-system", "headgate-1"), ("shop", "web")):
            cluster.make(pods.format(place), {"metadata": {"name": name}, "spec": {"containers": [container]}})
        source = parse_source(f"prometheus={store.url}")
        options = {"metrics_by": "pod", "metrics_source": source, "collector": COLLECTOR}
        async with running(cluster, patch, **options) as plane:
            await eventually(plane.served)
            yield World(cluster, plane, store)


async def test_the_metrics_api_has_the_counts_of_the_prometheus(world: World) -> None:
    found = await eventually(lambda: world.plane.get(PODS))
    counts = {metric["name"]: metric["value"] for item in found["items"] for metric in item["metrics"]}
    assert counts["success_count"] == "40"


async def test_the_metrics_api_fails_with_the_reason_while_the_prometheus_fails(world: World) -> None:
    """It answers with an error, not with zero counts or with headgate's own."""
    world.prometheus.is_failing = True
    try:
        with pytest.raises(
            NotAnswered, match=f"the Prometheus {world.prometheus.url} reports an error: the disk is full"
        ):
            await world.plane.get(PODS)
    finally:
        world.prometheus.is_failing = False


async def test_the_series_for_the_prometheus_have_the_labels_of_pods(world: World) -> None:
    text = await world.plane.get_text(METRICS)
    assert 'headgate_traffic_start_time_seconds{by="pod"}' in text


async def test_the_proxies_of_gateways_get_the_address_of_the_collector(world: World) -> None:
    world.cluster.make("/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways", GATEWAY)
    path = "/apis/apps/v1/namespaces/headgate-system/deployments?labelSelector=app.kubernetes.io/name=headgate-gateway"

    async def variables() -> dict[str, str]:
        _, found = await asyncio.to_thread(world.cluster.call, "GET", path)
        (deployment,) = found["items"] or [{"spec": {"template": {"spec": {"containers": [{"env": []}]}}}}]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return {item["name"]: item.get("value", "") for item in container["env"]}

    assert (await eventually(variables))["HEADGATE_OTLP_COLLECTOR"] == COLLECTOR
