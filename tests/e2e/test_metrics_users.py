"""The metrics API for users: current counts, separate counts of requests and connections, a canary controller."""

import socket
import time
from collections.abc import Mapping
from datetime import datetime

from tests.e2e.manifests import endpoints, external, service_manifest, split_manifest
from tests.e2e.metrics_api import RELEASED, SEED, WINDOW, ask, counts
from tests.e2e.running_mesh import RunningMesh
from tests.waiting import until

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"


def test_the_first_request_of_a_service_is_in_the_current_window(mesh: RunningMesh, namespace: str) -> None:
    """R85, R97: the default window is 30 seconds, and metrics need no configuration."""
    mesh.apply(external("first", mesh.backend("first")), namespace=namespace)
    mesh.settle()
    url = f"{SEED}/namespaces/{namespace}/services/first"
    assert counts(ask(mesh, url)) == {"success_count": 0, "failure_count": 0}
    before = time.time()  # a reading that is shared by queries may be older than the query, but not than what it counts
    mesh.send(1, mesh.request("first", 8080, namespace=namespace))
    until(lambda: counts(ask(mesh, url))["success_count"] == 1, "the request")
    found = ask(mesh, url)
    after = time.time()
    assert found["window"] == "30s"
    assert found["timestamp"].endswith("Z")
    assert int(before) <= datetime.fromisoformat(found["timestamp"]).timestamp() <= after


def test_an_autoscaler_reads_the_requests_of_a_service_and_of_a_split(mesh: RunningMesh, namespace: str) -> None:
    """R102: 6 requests in the window of 30 seconds are 0.2 requests per second."""
    manifests = (
        service_manifest("web", {"http": 8080}),
        *(external(name, mesh.backend(name)) for name in ("one", "two")),
    )
    mesh.apply(*manifests, split_manifest("web", "web", {"one": 2, "two": 1}), namespace=namespace)
    mesh.settle()
    mesh.send(6, mesh.request("web", 8080, namespace=namespace))

    def rate(path: str) -> list[str]:
        return [item["value"] for item in ask(mesh, f"{CUSTOM}/namespaces/{namespace}/{path}")["items"]]

    whole = "trafficsplits.split.smi-spec.io/web/requests_per_second"
    until(lambda: rate(whole) == ["200m"], "the requests")
    assert rate(f"{whole}?metricLabelSelector=backend%3Dtwo") == ["67m"]
    assert rate("services/one/requests_per_second") == ["133m"]
    assert rate("services/one/success_rate") == ["1"]
    assert rate("services/%2A/requests_per_second") == ["133m", "67m"]


def test_failed_connections_do_not_count_as_failed_requests(mesh: RunningMesh, namespace: str) -> None:
    """R98: on a TCP port, with and without endpoints."""
    ports = {"tcp": 5432}
    server = mesh.backend("db")
    mesh.apply(
        service_manifest("db", ports),
        endpoints("db", {"tcp": [server]}),
        service_manifest("gone", ports),
        namespace=namespace,
    )
    mesh.settle()
    for name, times in {"db": 3, "gone": 2}.items():
        for _ in range(times):
            with socket.create_connection(mesh.address(name, 5432, namespace)) as client:
                client.settimeout(60)
                if name == "db":
                    client.sendall(b"GET / HTTP/1.1\r\nhost: db\r\n\r\n")
                assert bool(client.recv(1)) == (name == "db")

    def service_counts() -> Mapping[str, Mapping[str, int]]:
        items = ask(mesh, f"{SEED}/namespaces/{namespace}/services{WINDOW}")["items"]
        return {item["resource"]["name"]: counts(item) for item in items}

    none = {"success_count": 0, "failure_count": 0}
    expected = {
        "db": {**none, "connection_count": 3, "connection_failure_count": 0},
        "gone": {**none, "connection_count": 0, "connection_failure_count": 2},
    }
    until(lambda: service_counts() == expected, str(expected))


def test_a_canary_controller_finds_the_failing_backend_in_the_metrics_api(mesh: RunningMesh, namespace: str) -> None:
    """R102: the controller reads the failures by backend, and sets the weight of the failing backend to 0."""
    good, bad = mesh.backend("v1"), mesh.backend("v2")
    bad.status = "500 Broken"
    shares = {"web-v1": 50, "web-v2": 50}
    manifests = service_manifest("web", {"http": 8080}), external("web-v1", good), external("web-v2", bad)
    mesh.apply(*manifests, split_manifest("web", "web", shares), namespace=namespace)
    mesh.settle()
    request = mesh.request("web", 8080, namespace=namespace)
    mesh.send(20, request)
    url = f"{RELEASED}/namespaces/{namespace}/trafficsplits/web{WINDOW}"

    def failing() -> set[str]:
        legs = {item["backend"]["name"]: counts(item) for item in ask(mesh, url)["items"]}
        assert sum(sum(leg.values()) for leg in legs.values()) == 20
        return {name for name, leg in legs.items() if leg["failure_count"]}

    found = until(failing, "the failures of web-v2")
    assert found == {"web-v2"}
    mesh.apply(split_manifest("web", "web", {name: 0 if name in found else 1 for name in shares}), namespace=namespace)
    mesh.settle()
    good.reset_count(), bad.reset_count()
    mesh.send(20, request)
    assert (good.reset_count(), bad.reset_count()) == (20, 0)
