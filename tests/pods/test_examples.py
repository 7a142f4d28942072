"""The examples of the documentation on a real cluster, applied unchanged with kubectl."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.world import until
from tests.pods.conftest import Cluster, build_image, deployment, namespace
from tests.pods.gateway_api import install_gateway_api
from tests.pods.test_gateways import address

EXAMPLES = Path(__file__).parents[2] / "examples"
ROLLOUT, OUTSIDE = "rollout", "outside"
SEND = """
import collections, http.client, json, sys
address, port, host, count = sys.argv[1:]
found = collections.Counter()
for _ in range(int(count)):
    connection = http.client.HTTPConnection(address, int(port), timeout=10)
    connection.request("GET", "/", headers={"Host": host})
    answer = connection.getresponse()
    body = answer.read().decode().strip()
    found[body if answer.status == 200 else answer.status] += 1
    connection.close()
print(json.dumps(found))
"""
"""Sends requests to an address with a Host header; prints the number of each body, or status of a failure."""


@pytest.fixture(scope="module")
def running(installed: Cluster) -> Iterator[Cluster]:
    """A cluster with the examples, each in a namespace of its own."""
    build_image("docker.io/library/python:3")
    install_gateway_api(installed)
    installed.apply(
        namespace(ROLLOUT),
        namespace(OUTSIDE, injected=False),
        *(deployment(place, "client", command=["sleep", "infinity"]) for place in (ROLLOUT, OUTSIDE)),
    )
    installed.kubectl("-n", ROLLOUT, "apply", "-f", EXAMPLES / "foobar-rollout/before", "-f", EXAMPLES / "gateway")
    names = ("canary", "ab-test", "bookstore")
    for name in names:
        installed.apply(namespace(name))
        installed.kubectl("-n", name, "apply", "-f", EXAMPLES / name)
    installed.wait_rolled_out(OUTSIDE, "client")
    for name in (*names, ROLLOUT):
        deployments = installed.get("-n", name, "deployments")["items"]
        installed.wait_rolled_out(name, *(item["metadata"]["name"] for item in deployments))
    installed.kubectl("-n", ROLLOUT, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=100s")
    yield installed
    installed.kubectl("-n", ROLLOUT, "delete", "gateways,httproutes", "--all")


def counts(cluster: Cluster, name: str, metric: str, window: str) -> Mapping[str, int]:
    """Return a metric's count for each Deployment of a namespace, over a window such as `30s`."""
    path = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{name}/deployments?t={window}"
    items = json.loads(cluster.kubectl("get", "--raw", path))["items"]
    return {
        item["resource"]["name"]: int(one["value"])
        for item in items
        for one in item["metrics"]
        if one["name"] == metric
    }


def last_line(cluster: Cluster, name: str, deployment: str) -> str:
    """Return the last line that the application of a Deployment has printed."""
    return cluster.kubectl("-n", name, "logs", f"deployment/{deployment}", "-c", deployment, "--tail=1").strip()


def test_the_canary_gets_a_tenth_of_the_requests(running: Cluster) -> None:
    """R4. Each of the two worker threads of the client's proxy is off by less than one request of the canary.

    The window of 30 seconds begins with requests that were sent before the canary was ready.
    """

    def has_a_tenth() -> bool:
        found = counts(running, "canary", "success_count", "30s")
        return sum(found.values()) >= 200 and abs(10 * found["website-v2"] - sum(found.values())) < 20

    until(has_a_tenth)
    assert sum(counts(running, "canary", "failure_count", "15m").values()) == 0


def test_the_ab_test_serves_both_groups(running: Cluster) -> None:
    until(
        lambda: (
            min(counts(running, "ab-test", "success_count", "15m")[name] for name in ("website-v1", "website-v2")) > 0
        )
    )
    assert sum(counts(running, "ab-test", "failure_count", "15m").values()) == 0


def test_the_bookstore_denies_the_thief_and_serves_the_buyer(running: Cluster) -> None:
    """R70."""
    until(lambda: re.fullmatch(r"GET: 403 \d+ +POST: 403 \d+", last_line(running, "bookstore", "thief")))
    until(lambda: re.fullmatch(r"(GET: v\d \d+ +)+(POST: v\d \d+ *)+", last_line(running, "bookstore", "buyer") + " "))


def test_the_workflow_of_the_specification_sends_no_request_to_a_wrong_version(running: Cluster) -> None:
    """R1 to R7: each step of examples/foobar-rollout, counted by the versions that answer one client."""
    steps = EXAMPLES / "foobar-rollout/steps"
    running.kubectl("-n", ROLLOUT, "delete", "--ignore-not-found", "--wait", "-f", steps)
    running.kubectl("-n", ROLLOUT, "wait", "--for=delete", "pod", "-l", "version=v2", "--timeout=100s")
    send = ("client", SEND, "foobar", 8080, "foobar")
    assert running.python(ROLLOUT, *send, 100) == {"v1": 100}
    expected = {
        "1-split": {"v1": 300},
        "2-foobar-v2": {"v1": 300},
        "3-one-third": {"v1": 200, "v2": 100},
        "4-all": {"v2": 300},
    }
    for step, answers in expected.items():
        running.kubectl("-n", ROLLOUT, "apply", "-f", steps / f"{step}.yaml")
        if step == "2-foobar-v2":
            running.wait_rolled_out(ROLLOUT, "foobar-v2")
        if step != "1-split":  # its status says that foobar-v2 does not exist
            running.wait_programmed("trafficsplit/foobar-rollout", ROLLOUT)
        assert running.python(ROLLOUT, *send, 300) == answers


def test_a_gateway_copies_42_percent_of_the_requests(running: Cluster) -> None:
    """R45. The number of copies is random; the tolerance is three standard deviations."""
    running.kubectl("-n", ROLLOUT, "apply", "-f", EXAMPLES / "foobar-rollout/steps/2-foobar-v2.yaml")
    running.wait_rolled_out(ROLLOUT, "foobar-v2")
    mirror = {"backendRef": {"name": "foobar-v2", "port": 8080}, "percent": 42}
    rule = {
        "backendRefs": [{"name": "foobar-v1", "port": 8080}],
        "filters": [{"type": "RequestMirror", "requestMirror": mirror}],
    }
    running.apply(
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": "mirror", "namespace": ROLLOUT},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": ["mirror.example"], "rules": [rule]},
        }
    )
    running.wait_programmed("httproute/mirror", ROLLOUT)
    before = requests_of_v2(running)
    answers = running.python(OUTSIDE, "client", SEND, address(running, "edge", ROLLOUT), 8000, "mirror.example", 1000)
    assert answers == {"v1": 1000}
    until(lambda: abs(requests_of_v2(running) - before - 420) <= 3 * (1000 * 0.42 * 0.58) ** 0.5)


def requests_of_v2(cluster: Cluster) -> int:
    """Return the number of requests that the pods of version v2 have logged."""
    logs = cluster.kubectl("-n", ROLLOUT, "logs", "-l", "version=v2", "-c", "foobar", "--tail=-1")
    return len(logs.splitlines())
