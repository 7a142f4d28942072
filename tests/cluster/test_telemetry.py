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
from tests.cluster.api_server import KubeApiServer
from tests.cluster.control_planes import NotAnswered, RunningReplica, eventually, running
from tests.make.objects import container, gateway, pod

pytestmark = pytest.mark.asyncio(loop_scope="module")

PODS = "/apis/traffic.metrics.k8s.io/v1beta1/namespaces/shop/pods"
METRICS = "/apis/inspect.headgate.dev/v1beta1/meshstatuses/mesh/metrics"
COLLECTOR = "collector.monitoring:4317"


class ScrapedSamples:
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
def prometheus() -> Iterator[ScrapedSamples]:
    """Serve the query API of a Prometheus on loopback."""
    samples = ScrapedSamples()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["content-length"])).decode()
            moment = float(form.rpartition("time=")[2])
            body = json.dumps(samples.answer(moment)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    samples.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield samples
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class ReplicaWithPrometheus(NamedTuple):
    """A replica that is active, with its API server and the Prometheus."""

    cluster: KubeApiServer
    plane: RunningReplica
    prometheus: ScrapedSamples


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replica(cluster: KubeApiServer) -> AsyncIterator[ReplicaWithPrometheus]:
    cluster.namespace("shop")
    cluster.make(
        "/api/v1/namespaces/shop/pods", pod("web", namespace="shop", containers=[container("app", 8080, image="app")])
    )
    with prometheus() as samples, pytest.MonkeyPatch.context() as patch:
        options = {"metrics_by": "pod", "metrics_source": samples.url, "otlp_collector": COLLECTOR}
        async with running(cluster, patch, **options) as plane:
            await eventually(plane.served)
            yield ReplicaWithPrometheus(cluster, plane, samples)


async def test_the_metrics_api_has_the_counts_of_the_prometheus(replica: ReplicaWithPrometheus) -> None:
    found = await eventually(lambda: replica.plane.get(PODS))
    counts = {metric["name"]: metric["value"] for item in found["items"] for metric in item["metrics"]}
    assert counts["success_count"] == "40"


async def test_the_metrics_api_fails_with_the_reason_while_the_prometheus_fails(replica: ReplicaWithPrometheus) -> None:
    """It answers with an error, not with zero counts or with headgate's own."""
    replica.prometheus.is_failing = True
    try:
        with pytest.raises(
            NotAnswered, match=f"the Prometheus {replica.prometheus.url} reports an error: the disk is full"
        ):
            await replica.plane.get(f"{PODS}?t=1m")  # not the reading that the test before has got
    finally:
        replica.prometheus.is_failing = False


async def test_the_series_for_the_prometheus_have_the_labels_of_pods(replica: ReplicaWithPrometheus) -> None:
    text = await replica.plane.get_text(METRICS)
    assert 'headgate_traffic_start_time_seconds{by="pod"}' in text


async def test_the_proxies_of_gateways_get_the_address_of_the_collector(replica: ReplicaWithPrometheus) -> None:
    replica.cluster.make(
        "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways", gateway("edge", namespace="shop")
    )
    path = "/apis/apps/v1/namespaces/headgate-system/deployments?labelSelector=app.kubernetes.io/name=headgate-gateway"

    async def variables() -> dict[str, str]:
        _, found = await asyncio.to_thread(replica.cluster.call, "GET", path)
        (deployment,) = found["items"] or [{"spec": {"template": {"spec": {"containers": [{"env": []}]}}}}]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return {item["name"]: item.get("value", "") for item in container["env"]}

    assert (await eventually(variables))["HEADGATE_OTLP_COLLECTOR"] == COLLECTOR
