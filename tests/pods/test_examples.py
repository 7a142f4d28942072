"""The examples of the documentation on a real cluster, applied unchanged with kubectl."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.e2e.world import until
from tests.pods.conftest import Cluster, build_image, namespace

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def running(installed: Cluster) -> Cluster:
    """A cluster with the examples, each in a namespace of its own."""
    build_image("docker.io/library/python:3")
    names = ("canary", "ab-test", "bookstore")
    for name in names:
        installed.apply(namespace(name))
        installed.kubectl("-n", name, "apply", "-f", EXAMPLES / name)
    for name in names:
        deployments = installed.get("-n", name, "deployments")["items"]
        installed.wait_rolled_out(name, *(item["metadata"]["name"] for item in deployments))
    return installed


def counts(cluster: Cluster, name: str, metric: str, window: str) -> Mapping[str, int]:
    """Return a count of each Deployment in a namespace for a window such as `30s`."""
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
    """R66, R67."""
    until(lambda: re.fullmatch(r"GET: 403 \d+ +POST: 403 \d+", last_line(running, "bookstore", "thief")))
    until(lambda: re.fullmatch(r"(GET: v\d \d+ +)+(POST: v\d \d+ *)+", last_line(running, "bookstore", "buyer") + " "))
