"""A user's own telemetry on a real cluster: a collector to which all proxies report, and a Prometheus as the source of metrics.

Mutual TLS is strict in the mesh. The collector and the Prometheus do not belong to it.
"""

import base64
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.e2e.prometheus import BINARY, MISSING, Prometheus, prometheus
from tests.make.objects import Object, gateway, route, rule
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    app_deployment,
    counted,
    http_service,
    is_deleted,
    mesh_namespace,
    token,
    until,
    wait_for_port,
)
from tests.pods.gateway_api import install_gateway_api
from tests.pods.kit import IMAGE

from headgate.resources.gateway_api.proxies import proxy_name

pytestmark = pytest.mark.skipif(not BINARY, reason=MISSING)

SHOP, MONITORING = "telemetry", "monitoring"
DIRECT, BY_GATEWAY = 20, 10
COUNTS_PORT = 8081
RECEIVE = f"""
import json
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import grpc
from headgate.envoy.outcomes import parse_code
from headgate.telemetry.reports.otlp import METHOD, read_report

reported = {{}}

def is_of_requests(series):
    code = series.pairs().get("code", "")
    return series.name == ("mesh.flagged" if parse_code(code).is_flagged else "mesh.latency")

def receive(data, _):
    report = read_report(data)
    known = reported.setdefault(report.node, {{}})
    known.update({{sample.series: sample.value for sample in report.samples if is_of_requests(sample.series)}})
    return b""

class Receiver(grpc.GenericRpcHandler):
    def http_service(self, call):
        return grpc.unary_unary_rpc_method_handler(receive) if call.method == METHOD else None

class Counts(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        counts = {{node: sum(values.values()) for node, values in list(reported.items())}}
        self.wfile.write(json.dumps(counts).encode())

server = grpc.server(ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Receiver(),))
server.add_insecure_port("0.0.0.0:4317")
server.start()
ThreadingHTTPServer(("", {COUNTS_PORT}), Counts).serve_forever()
"""
"""A collector that returns the number of requests that each proxy has reported."""
SEND = """
import http.client, json, sys
statuses = []
for _ in range(int(sys.argv[2])):
    connection = http.client.HTTPConnection(sys.argv[1], 8080, timeout=50)
    connection.request("GET", "/")
    statuses.append(connection.getresponse().status)
    connection.close()
print(json.dumps(statuses))
"""
"""Sends requests to a host, and prints their statuses."""


class Telemetry(NamedTuple):
    """A mesh whose requests a collector and a Prometheus count. `collector` is the address of the collector's pod."""

    cluster: Cluster
    collector: str
    prometheus: Prometheus

    def reported(self) -> dict[str, int]:
        """Return the number of requests that each proxy has reported to the collector, by its node ID."""
        with urllib.request.urlopen(f"http://{self.collector}:{COUNTS_PORT}", timeout=50) as answer:
            return dict(json.loads(answer.read()))


def only_pod(cluster: Cluster, place: str, **labels: str) -> Any:
    """Return the only pod with these labels that is not being deleted."""
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    (pod,) = (pod for pod in cluster.get("pods", place, selector)["items"] if not is_deleted(pod))
    return pod


@pytest.fixture(scope="module")
def telemetry(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Telemetry]:
    """A mesh with a server, a client and a Gateway, of which the Prometheus has the first metrics."""
    cluster.apply(mesh_namespace(MONITORING, injected=False), mesh_namespace(SHOP), *collector(), *permission())
    install_gateway_api(cluster)
    root = tmp_path_factory.mktemp("prometheus") / "p"
    target, job = urlsplit(cluster.api_server).netloc, scrape_job(cluster, root.parent)
    with prometheus(root, target, host=cluster.host_address, job=job) as found:
        cluster.headgate(
            *("install", "--image", IMAGE, "--mtls", "strict"),
            *("--otlp-collector", f"collector.{MONITORING}:4317"),
            *("--metrics-source", f"prometheus={found.url}"),
        )
        cluster.apply(
            http_service(SHOP, "server", app="server"),
            app_deployment(SHOP, "server"),
            app_deployment(SHOP, "client", command=["sleep", "infinity"]),
            *gateway_to_server(),
        )
        cluster.wait_rolled_out(SHOP, "server", "client")
        cluster.wait_rolled_out(MONITORING, "collector")
        cluster.kubectl("-n", SHOP, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=240s")
        until(lambda: found.ask('headgate_traffic_start_time_seconds{by="pod"}'), "the first scrape")
        pod = only_pod(cluster, MONITORING, app="collector")
        yield Telemetry(cluster, pod["status"]["podIP"], found)
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", "headgate-metrics")


def collector() -> list[dict[str, Any]]:
    """Return the Deployment and the Service of the collector."""
    workload = app_deployment(MONITORING, "collector", command=["/opt/headgate/bin/python", "-c", RECEIVE])
    container = workload["spec"]["template"]["spec"]["containers"][0]
    container["image"] = IMAGE
    container["readinessProbe"] = {"tcpSocket": {"port": 4317}, "periodSeconds": 1}
    reached = http_service(MONITORING, "collector", app="collector")
    reached["spec"]["ports"] = [{"name": "grpc", "port": 4317}]
    return [workload, reached]


def permission() -> list[dict[str, Any]]:
    """Return the ServiceAccount of the Prometheus, and what it needs to scrape (docs/tasks/prometheus.md)."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "headgate-metrics"}}
    rule = {"apiGroups": ["inspect.headgate.dev"], "resources": ["meshstatuses/metrics"], "verbs": ["get"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "headgate-metrics"}
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": MONITORING}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus", "namespace": MONITORING}},
        {**rbac, "kind": "ClusterRole", "rules": [rule]},
        {**rbac, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    ]


def scrape_job(cluster: Cluster, root: Path) -> dict[str, Any]:
    """Return the fields of a scrape job that reads headgate's metrics from the API server (docs/tasks/prometheus.md)."""
    (root / "token").write_text(token(cluster, MONITORING, "prometheus"))
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    (root / "ca.crt").write_bytes(base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
    return {
        "scheme": "https",
        "metrics_path": "/apis/inspect.headgate.dev/v1beta1/meshstatuses/mesh/metrics",
        "authorization": {"credentials_file": str(root / "token")},
        "tls_config": {"ca_file": str(root / "ca.crt")},
    }


def gateway_to_server() -> list[Object]:
    """Return a Gateway, and a route from it to the server."""
    to_server = route("edge", rule({"server": 1}), parents=[{"name": "edge"}], namespace=SHOP)
    return [gateway("edge", namespace=SHOP), to_server]


def test_a_collector_and_a_prometheus_get_exact_counts_and_requests_succeed_without_the_collector(
    telemetry: Telemetry,
) -> None:
    """The proxies' own connections to the collector are neither redirected nor counted.

    At the end, the name of the collector has no address any more, and a new pod starts.
    """
    cluster = telemetry.cluster
    cluster.wait_programmed("httproute/edge", SHOP)
    cluster.wait_in_sync(SHOP)
    address = cluster.get("gateway/edge", SHOP)["status"]["addresses"][0]["value"]
    wait_for_port(address, 80)
    assert cluster.python(SHOP, "client", SEND, "server", DIRECT) == [200] * DIRECT
    for _ in range(BY_GATEWAY):
        urllib.request.urlopen(f"http://{address}/", timeout=50).close()
    client = only_pod(cluster, SHOP, app="client")["metadata"]["name"]
    instance = {"app.kubernetes.io/instance": proxy_name(SHOP, "edge")}  # Gateways of earlier modules may still end
    edge = only_pod(cluster, SYSTEM, **instance)["metadata"]["name"]
    expected = {f"sidecar/{SHOP}/{client}": DIRECT, f"gateway/{edge}": BY_GATEWAY}
    until(lambda: {node: count for node, count in telemetry.reported().items() if count} == expected, f"{expected}")
    until(lambda: counted(cluster, SHOP, "server") == DIRECT + BY_GATEWAY, "the metrics API")
    cluster.kubectl("-n", MONITORING, "delete", "service/collector", "deployment/collector")
    cluster.kubectl("-n", SHOP, "rollout", "restart", "deployment/client")
    cluster.wait_rolled_out(SHOP, "client")
    cluster.wait_ended(SHOP, app="client")
    cluster.wait_in_sync(SHOP)
    assert cluster.python(SHOP, "client", SEND, "server", DIRECT) == [200] * DIRECT
    until(lambda: counted(cluster, SHOP, "server") == 2 * DIRECT + BY_GATEWAY, "the metrics API")
