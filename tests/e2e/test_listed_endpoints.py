"""A pod that a Service selects, and whose address hand-written EndpointSlices list for Services without a selector.

Whatever a client calls, each of these Services and the pod have all requests that the pod received (D25).
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.e2e.metrics_api import SEED, WINDOW, ask, counts
from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import container, deployment, endpoint_slice, manifest, service, split
from tests.waiting import until
from tests.wire import Request

PROGRAM = Path(__file__).with_name("pod.py")
PORT = {"port": 8080}


@pytest.fixture
def address(mesh: RunningMesh, namespace: str, tmp_path: Path) -> str:
    """Run the pod, and write the Services: `selecting` has a selector, `a-list` and `z-list` have its address; return it."""
    (tmp_path / "count").touch()
    env = [{"name": "NAME", "value": "web"}, {"name": "COUNT", "value": str(tmp_path / "count")}]
    program = container("app", 8080, command=[sys.executable, "-S", str(PROGRAM)], env=env)
    selecting = service("selecting", PORT, selector={"app": "web"}, namespace=namespace)
    root = service("root", PORT, namespace=namespace)
    mesh.apply(manifest(deployment("web", program, namespace=namespace), selecting, root), namespace=namespace)
    mesh.kubectl("rollout", "status", "deployment/web", "--timeout=60s", "-n", namespace)
    (pod,) = mesh.get("pods", namespace)["items"]
    found: str = pod["status"]["podIP"]
    for name in ("a-list", "z-list"):
        lists = endpoint_slice(name, [found], {"": 8080}, namespace=namespace)
        mesh.apply(manifest(service(name, PORT, namespace=namespace), lists), namespace=namespace)
    return found


def received(mesh: RunningMesh, namespace: str, kind: str) -> Mapping[str, int]:
    """Return the successful requests of each object of a kind."""
    items = ask(mesh, f"{SEED}/namespaces/{namespace}/{kind}{WINDOW}")["items"]
    return {item["resource"]["name"]: counts(item)["success_count"] for item in items}


def test_each_service_that_leads_to_a_pod_has_all_of_its_requests(
    mesh: RunningMesh, namespace: str, address: str
) -> None:
    def assert_all_count(number: int) -> None:
        expected = {"selecting": number, "a-list": number, "z-list": number, "root": 0}
        until(lambda: received(mesh, namespace, "services") == expected, f"{number} requests in {expected}")
        assert received(mesh, namespace, "deployments") == {"web": number}

    sent = 0
    for name in ("selecting", "a-list", "z-list"):
        for via in ("address", "proxy"):
            assert mesh.send(3, mesh.request(name, 8080, namespace=namespace, via=via)) == {"web": 3}
            sent += 3
    assert_all_count(sent)
    host = f"{address}:8080"
    assert mesh.send(3, Request(mesh.proxy, target=f"http://{host}/", host=host)) == {"web": 3}
    sent += 3
    assert_all_count(sent)
    for backends in (("selecting", "a-list"), ("a-list", "z-list")):
        mesh.apply(manifest(split("root", dict.fromkeys(backends, 1), namespace=namespace)), namespace=namespace)
        for via in ("address", "proxy"):
            assert mesh.send(4, mesh.request("root", 8080, namespace=namespace, via=via)) == {"web": 4}
            sent += 4
        assert_all_count(sent)
