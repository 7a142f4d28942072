"""Ejection between pods of a real cluster: a pod that fails gets no requests for some time, and then gets them again.

`tests/envoy/test_ejection.py` has the rules, and `tests/e2e` the table of `headgate up --watch`.
"""

from collections import Counter
from typing import Any

import pytest
from tests.pods.conftest import (
    Cluster,
    app_deployment,
    http_service,
    mesh_namespace,
    until,
)
from tests.pods.endpoints import endpoints_of_proxy

PLACE = "ejection"
HOST = "website.ejection:8080"
TIME_S = 45
"""The time of an ejection: several times as long as the requests that show it."""
PODS = 3
SERVE = """
import http.server, os, socket
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_GET(self):
        body = socket.gethostname().encode()
        fails = self.path != "/healthz" and os.path.exists("/tmp/fails")
        self.send_response(503 if fails else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
"""Answers with the name of the pod: 200, or 503 while the file exists. It stays ready."""
SEND = """
import collections, http.client, json, sys
answers = collections.Counter()
for _ in range(int(sys.argv[1])):
    connection = http.client.HTTPConnection("website", 8080, timeout=50)
    connection.request("GET", "/")
    answer = connection.getresponse()
    answers[f"{answer.status} {answer.read().decode()}"] += 1
    connection.close()
print(json.dumps(answers))
"""


class Shop:
    """A client, and the pods of a Service by name, with their addresses."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        pods = cluster.get("pods", PLACE, "app=website")["items"]
        self.pods = {pod["metadata"]["name"]: str(pod["status"]["podIP"]) for pod in pods}
        self.answers: Counter[str] = Counter()

    def send(self, count: int) -> Counter[str]:
        """Send requests one by one; return how many have each status and pod."""
        answers = Counter(self.cluster.python(PLACE, "client", SEND, count))
        self.answers += answers
        return answers

    def ejected(self, *options: str) -> list[str]:
        """Return the addresses that the client's sidecar has ejected; `options` has those of `endpoints_of_proxy`."""
        endpoints = endpoints_of_proxy(self.cluster, PLACE, "client", *options)
        return [address for address, is_ejected in endpoints if is_ejected]

    def run(self, pod: str, *command: str) -> None:
        """Run a command in the application's container of a pod."""
        self.cluster.kubectl("-n", PLACE, "exec", pod, "-c", "app", "--", *command)

    def failures(self) -> int:
        """Return the failed requests that the metrics API has counted for the Deployment in the last 15 minutes."""
        path = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{PLACE}/deployments/website?t=15m"
        metrics = self.cluster.api.call("GET", path)["metrics"]
        return sum(int(metric["value"]) for metric in metrics if metric["name"] == "failure_count")


@pytest.fixture(scope="module")
def shop(shared_cluster: Cluster) -> Shop:
    """Pods with sidecars and mutual TLS; an ejection ends after TIME_S."""
    service = http_service(PLACE, "website", app="website")
    service["metadata"]["annotations"] = {"headgate.dev/outlier-detection": f"time={TIME_S}s max-time={TIME_S}s"}
    servers = app_deployment(PLACE, "website", replicas=PODS, command=["python3", "-c", SERVE])
    probe: dict[str, Any] = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1}
    servers["spec"]["template"]["spec"]["containers"][0] |= {
        "ports": [{"containerPort": 8080}],
        "readinessProbe": probe,
    }
    client = app_deployment(PLACE, "client", command=["sleep", "infinity"])
    shared_cluster.apply(mesh_namespace(PLACE), service, servers, client)
    shared_cluster.wait_rolled_out(PLACE, "website", "client")
    shared_cluster.wait_in_sync(PLACE)
    return Shop(shared_cluster)


def test_explain_shows_the_ejection_of_the_service(shop: Shop) -> None:
    words = f"for {TIME_S}s, at most 50%"
    assert words in shop.cluster.headgate("explain", f"http://{HOST}/")


def test_a_failing_pod_is_ejected_and_comes_back(shop: Shop) -> None:
    """The client sees each failure before the ejection, and the metrics count it."""
    failing, *healthy = sorted(shop.pods)
    assert shop.send(30) == {f"200 {pod}": 10 for pod in shop.pods}
    shop.run(failing, "touch", "/tmp/fails")
    until(lambda: shop.send(3 * PODS) and shop.ejected() == [shop.pods[failing]], "the failing pod is ejected")
    shop.run(failing, "rm", "/tmp/fails")  # so nothing ejects it again
    while_ejected = shop.send(20)
    assert shop.ejected() == [shop.pods[failing]]
    assert while_ejected == {f"200 {pod}": 10 for pod in healthy}
    assert not shop.ejected("wait")
    assert shop.send(30) == {f"200 {pod}": 10 for pod in shop.pods}
    failed = shop.answers[f"503 {failing}"]
    assert failed >= 5
    assert shop.answers.total() == sum(count for answer, count in shop.answers.items() if answer[:3] == "200") + failed
    until(lambda: shop.failures() == failed, "the metrics have all failures")
