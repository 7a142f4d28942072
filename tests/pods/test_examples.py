"""The examples of the documentation on a real cluster, applied unchanged with kubectl."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.world import until
from tests.pods.conftest import Cluster, build_image, deployment, namespace
from tests.pods.gateway_api import install_gateway_api
from tests.pods.test_gateways import address

EXAMPLES = Path(__file__).parents[2] / "examples"
ROLLOUT, OUTSIDE = "rollout", "outside"
SEND = """
import collections, http.client, json, sys
address, port, host, count, path, *headers = (*sys.argv[1:], "/")[: max(5, len(sys.argv) - 1)]
found = collections.Counter()
for _ in range(int(count)):
    connection = http.client.HTTPConnection(address, int(port), timeout=10)
    connection.request("GET", path, headers={"Host": host} | dict(header.split(": ", 1) for header in headers))
    answer = connection.getresponse()
    words = answer.read().decode().split()
    found[words[0] if answer.status == 200 else answer.status] += 1
    connection.close()
print(json.dumps(found))
"""
"""Sends requests to an address with a Host header: ADDRESS PORT HOST COUNT [PATH [HEADER ...]].

Prints how often each first word of a body came, or each status of a failure."""


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
        installed.apply(client(name, account="buyer" if name == "bookstore" else "default"))
    installed.wait_rolled_out(OUTSIDE, "client")
    for name in (*names, ROLLOUT):
        deployments = installed.get("-n", name, "deployments")["items"]
        installed.wait_rolled_out(name, *(item["metadata"]["name"] for item in deployments))
    installed.kubectl("-n", ROLLOUT, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=100s")
    yield installed
    installed.kubectl("-n", ROLLOUT, "delete", "gateways,httproutes", "--all")


def client(place: str, *, account: str) -> dict[str, Any]:
    """Return a Deployment whose pods run programs of the tests, with a ServiceAccount."""
    made = deployment(place, "tester", command=["sleep", "infinity"])
    made["spec"]["template"]["spec"]["serviceAccountName"] = account
    return made


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


def log(cluster: Cluster, name: str, deployment: str, *, lines: int = 1) -> str:
    """Return the last lines that the application of a Deployment has printed."""
    return cluster.kubectl("-n", name, "logs", f"deployment/{deployment}", "-c", deployment, f"--tail={lines}")


def wait_for_results(cluster: Cluster, **wanted: str) -> None:
    """Wait until the last report of each caller of the bookstore has these results, without counts and versions."""

    def same(caller: str, results: str) -> bool:
        found = re.findall(r"(?:GET|POST): \w+", log(cluster, "bookstore", caller))
        return sorted({re.sub(r"v\d", "v", result) for result in found}) == re.findall(r"\w+: \w+", results)

    for caller, results in wanted.items():
        until(lambda caller=caller, results=results: same(caller, results), f"{results} of the {caller}")


def test_the_canary_gets_a_tenth_of_the_requests(running: Cluster) -> None:
    """R4. The client of the example goes on; the numbers of the metrics API grow by what the tester has sent."""
    assert running.python("canary", "tester", SEND, "website", 8080, "website", 200) == {"v1": 180, "v2": 20}
    until(lambda: counts(running, "canary", "success_count", "15m")["website-v2"] >= 20)
    assert sum(counts(running, "canary", "failure_count", "15m").values()) == 0


def test_the_ab_test_serves_each_group_with_its_version(running: Cluster) -> None:
    """R11. The insider of the example keeps the version that the first answer chose, by a cookie."""
    send = ("tester", SEND, "website", 8080, "website", 100, "/")
    assert running.python("ab-test", *send, "User-Agent: Mozilla/5.0 Firefox/140.0") == {"v2": 100}
    assert running.python("ab-test", *send, "User-Agent: curl/8.5.0") == {"v1": 100}
    until(lambda: re.search(r"^insider: v[12]: \d+$", log(running, "ab-test", "client", lines=3), re.MULTILINE))
    assert sum(counts(running, "ab-test", "failure_count", "15m").values()) == 0


def test_the_bookstore_denies_the_thief_and_serves_the_buyer(running: Cluster) -> None:
    """R70. Then the thief may look at books, and the strict store answers callers with a sidecar only (R74, R75)."""
    steps = EXAMPLES / "bookstore-steps"
    wait_for_results(running, buyer="GET: v POST: v", thief="GET: 403 POST: 403")
    send = ("tester", SEND, "bookstore", 8080, "bookstore", 200, "/books")
    assert running.python("bookstore", *send) == {"v1": 180, "v2": 20}
    running.kubectl("-n", "bookstore", "apply", "-f", steps / "allow-thief.yaml")
    wait_for_results(running, buyer="GET: v POST: v", thief="GET: v POST: 403")
    running.kubectl("-n", "bookstore", "delete", "-f", steps / "allow-thief.yaml")
    running.kubectl("-n", "bookstore", "apply", "-f", steps / "strict.yaml")
    running.wait_programmed("tlsconfig/bookstore", "bookstore")
    wait_for_results(running, buyer="GET: v POST: v", thief="GET: 403 POST: 403")
    with pytest.raises(AssertionError, match=r"ConnectionResetError|RemoteDisconnected"):
        running.python(OUTSIDE, "client", SEND, "bookstore.bookstore", 8080, "bookstore", 1, "/books")


def test_the_workflow_of_the_specification_sends_no_request_to_a_wrong_version(running: Cluster) -> None:
    """R1 to R7: each step of examples/foobar-rollout, counted by the versions that answer one client."""
    steps = EXAMPLES / "foobar-rollout/steps"
    running.kubectl("-n", ROLLOUT, "delete", "--ignore-not-found", "--wait", "-f", steps)
    running.wait_ended(ROLLOUT, version="v2")
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
