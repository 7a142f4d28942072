"""A Service in two versions, which tests of a real cluster disturb, and a client."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.pods.conftest import (
    PATIENCE_S,
    Cluster,
    app_deployment,
    http_service,
    is_deleted,
    mesh_namespace,
    split_in,
    until,
)
from tests.pods.kit import BIN

from headgate.resources.metrics import FAILURE, SUCCESS

LEAVE = """
import http.client, json, signal, sys, threading
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
print("ready", flush=True)
stopped.wait()
statuses = []
for _ in range(100):
    connection = http.client.HTTPConnection(sys.argv[1], 8080, timeout=50)
    try:
        connection.request("GET", "/")
        statuses.append(connection.getresponse().status)
    except OSError as error:
        statuses.append(repr(error))
    connection.close()
print(json.dumps(statuses), flush=True)
"""
"""Sends requests once it is asked to end, and prints their statuses."""


def run_website(cluster: Cluster, place: str, *versions: dict[str, Any]) -> None:
    """Create a namespace with the Service `website`, the Deployments of its versions, and a client; wait until sidecars are in sync."""
    cluster.apply(
        mesh_namespace(place),
        http_service(place, "website", part=place),
        http_service(place, "website-v1", version="v1"),
        http_service(place, "website-v2", version="v2"),
        *versions,
        app_deployment(place, "client", command=["sleep", "infinity"]),
    )
    cluster.wait_rolled_out(place, *(version["metadata"]["name"] for version in versions), "client")
    cluster.wait_in_sync(place)


def shift(cluster: Cluster, place: str, **weights: int) -> None:
    """Change the weights of the split, and wait until all proxies have them."""

    def is_applied() -> bool:  # once the API server, which may have restarted, and a replica answer
        cluster.apply(split_in(place, "canary", "website", **weights))
        return True

    until(is_applied, "the split")
    cluster.wait_programmed("trafficsplit/canary", place)


def running(cluster: Cluster, place: str, selector: str = "") -> list[str]:
    """Return the names of the pods that a selector selects, without those that are being deleted."""
    pods = cluster.get("pods", place, selector)["items"]
    return [pod["metadata"]["name"] for pod in pods if not is_deleted(pod)]


def counted(cluster: Cluster, place: str, path: str = "", caller: str = "") -> Counter[str]:
    """Return how many requests resources received in the last 15 minutes, by the metrics API.

    `path` is the rest of the API's path; without one, return the requests of the whole namespace. Of edges, return those
    from the pod `caller`.
    """
    url = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{place}{path and f'/{path}'}?t=15m"
    answer = cluster.api.call("GET", url)
    requests: Counter[str] = Counter()
    for entry in answer.get("items", [answer]):
        if caller and entry["edge"]["resource"].get("name") != caller:
            continue
        values = [int(metric["value"]) for metric in entry["metrics"] if metric["name"] in (SUCCESS, FAILURE)]
        requests[entry["resource"]["name"]] += sum(values)
    return +requests


def restarts(cluster: Cluster, place: str, pod: str) -> int:
    """Return how often the containers of a pod were restarted."""
    statuses = cluster.get(f"pod/{pod}", place)["status"]["containerStatuses"]
    return sum(status["restartCount"] for status in statuses)


def assert_client_can_leave(cluster: Cluster, place: str, disturb: Callable[[], object] = lambda: None) -> None:
    """Delete a client that sends 100 requests once it is asked to end, after a disturbance; assert that all succeed and are counted.

    The proxy ends after the application and after its last report, for which it waits for the next active replica.
    """
    leaver = app_deployment(place, "leaver", command=["python3", "-c", LEAVE, "website"])
    leaver["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 2 * PATIENCE_S
    cluster.apply(leaver)
    cluster.wait_rolled_out(place, "leaver")
    (pod,) = running(cluster, place, "app=leaver")
    with cluster.lines(BIN / "kubectl", "-n", place, "logs", "-f", pod, "-c", "app") as output:
        assert output.readline() == "ready\n"
        disturb()
        cluster.kubectl("-n", place, "delete", "deployment/leaver")
        printed = output.readline()
    assert json.loads(printed) == [200] * 100
    until(lambda: counted(cluster, place, "services/website/edges", pod)["website"] == 100)
