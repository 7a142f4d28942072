"""Ports of splits: both examples of specification 001, with real pods (requirements 1.2)."""

from pathlib import Path

from tests.e2e.manifests import counting_deployment, endpoints, external, service_manifest, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.waiting import until

LEFT_OUT = "traffic will not be split for blue-birds on port 8080"


def birds(color: str, count: Path, **ports: int) -> str:
    labels = {"app": "birds", "color": color}
    return counting_deployment(f"{color}-birds", count / color, labels=labels, ports=ports)


def wait_until_backends_are_ready(mesh: RunningMesh, namespace: str, split: str = "birds") -> None:
    """Wait until every backend has endpoints and the proxy has acknowledged them."""
    mesh.conditions(split, namespace, BackendsReady="True")
    mesh.settle()


def test_the_valid_example_splits_every_port_of_the_root(mesh: RunningMesh, namespace: str, tmp_path: Path) -> None:
    """R34, R37: green-birds has the targetPort 8081 for its port 8080."""
    two = {"grpc": 8080, "rest": 9090}
    green = service_manifest("green-birds", two, selector={"app": "birds", "color": "green"})
    mesh.apply(
        service_manifest("birds", two, selector={"app": "birds"}),
        service_manifest("blue-birds", two, selector={"app": "birds", "color": "blue"}),
        green.replace('"port": 8080}', '"port": 8080, "targetPort": 8081}'),
        birds("blue", tmp_path, grpc=8080, rest=9090),
        birds("green", tmp_path, grpc=8081, rest=9090),
        split_manifest("birds", "birds", {"blue-birds": 1, "green-birds": 1}),
        namespace=namespace,
    )
    wait_until_backends_are_ready(mesh, namespace)
    for port in (8080, 9090):
        assert mesh.send(40, mesh.request("birds", port, namespace=namespace)) == {
            "blue-birds": 20,
            "green-birds": 20,
        }
    for color in ("blue", "green"):
        assert (tmp_path / color).stat().st_size == 40


def test_a_backend_without_the_roots_port_joins_the_split_when_it_is_corrected(
    mesh: RunningMesh, namespace: str
) -> None:
    """R35, R39, R41, R43: until blue-birds offers port 8080, green-birds gets all requests."""
    blue, green = mesh.backend("blue"), mesh.backend("green")
    mesh.apply(
        service_manifest("birds", {"grpc": 8080}),
        service_manifest("blue-birds", {"grpc": 1024}),
        endpoints("blue-birds", {"grpc": [blue]}),
        service_manifest("green-birds", {"grpc": 8080}),
        endpoints("green-birds", {"grpc": [green]}),
        split_manifest("birds", "birds", {"blue-birds": 90, "green-birds": 10}),
        namespace=namespace,
    )
    request = mesh.request("birds", 8080, namespace=namespace)
    assert mesh.send(50, request) == {"green": 50}
    assert (blue.reset_count(), green.reset_count()) == (0, 50)

    described = until(lambda: _described(mesh, namespace, LEFT_OUT))
    warning = next(line for line in described.splitlines() if line.split()[:2] == ["Warning", "PortMismatch"])
    assert f"{LEFT_OUT}: Service {namespace}/blue-birds has only port 1024" in warning
    assert mesh.conditions("birds", namespace, ResolvedRefs="PortMismatch")["ResolvedRefs"][0] == "False"

    patch = '[{"op": "replace", "path": "/spec/ports/0/port", "value": 8080}]'
    mesh.kubectl("patch", "service", "blue-birds", "-n", namespace, "--type=json", "-p", patch)
    mesh.settle()
    assert mesh.send(50, request) == {"blue": 45, "green": 5}
    described = until(lambda: _described(mesh, namespace, "PortMismatchResolved"))
    answer = next(line for line in described.splitlines() if "PortMismatchResolved" in line)
    assert answer.split()[0] == "Normal"
    assert (
        "(blue-birds): the backend Service offers the root's port now; the backend gets its share of the traffic"
        in answer
    )
    mesh.conditions("birds", namespace, ResolvedRefs="True")


def test_a_backend_is_excluded_only_on_the_port_that_it_lacks(mesh: RunningMesh, namespace: str) -> None:
    """R36."""
    both, one = mesh.backend("both"), mesh.backend("one")
    mesh.apply(
        service_manifest("web", {"http": 8080, "rest": 9090}),
        service_manifest("both", {"http": 8080, "rest": 9090}),
        endpoints("both", {"http": [both], "rest": [both]}),
        external("one", one),
        split_manifest("web", "web", {"both": 1, "one": 1}),
        namespace=namespace,
    )
    assert mesh.send(20, mesh.request("web", 8080, namespace=namespace)) == {"both": 10, "one": 10}
    assert mesh.send(20, mesh.request("web", 9090, namespace=namespace)) == {"both": 20}


def test_a_named_target_port_is_looked_up_in_each_pod(mesh: RunningMesh, namespace: str, tmp_path: Path) -> None:
    """R38."""
    backend = service_manifest("birds-v1", {"http": 8080}, selector={"app": "birds"})
    mesh.apply(
        service_manifest("birds", {"http": 8080}),
        backend.replace('"port": 8080}', '"port": 8080, "targetPort": "web"}'),
        birds("red", tmp_path, web=8001),
        birds("gray", tmp_path, web=8002),
        split_manifest("birds", "birds", {"birds-v1": 1}),
        namespace=namespace,
    )
    until(lambda: len(_ready_pods(mesh, namespace)) == 2)
    request = mesh.request("birds", 8080, namespace=namespace)
    until(lambda: set(mesh.send(4, request)) == {"red-birds", "gray-birds"})
    assert mesh.send(20, request) == {"red-birds": 10, "gray-birds": 10}


def test_the_root_serves_a_port_that_no_backend_offers(mesh: RunningMesh, namespace: str) -> None:
    """R42, D9."""
    plain, other = mesh.backend("plain"), mesh.backend("other")
    mesh.apply(
        external("web", plain),
        external("web-v1", other, port=1024),
        split_manifest("web", "web", {"web-v1": 1}),
        namespace=namespace,
    )
    assert mesh.send(20, mesh.request("web", 8080, namespace=namespace)) == {"plain": 20}
    status, _, message = mesh.conditions("web", namespace, ResolvedRefs="PortMismatch")["ResolvedRefs"]
    assert status == "False"
    assert "web-v1" in message
    event = mesh.event("Programmed", "web", namespace)
    assert event[2] == "every proxy applies these shares: port 8080: web-v1 0%, the plain Service web 100%"


def _described(mesh: RunningMesh, namespace: str, word: str) -> str:
    text = mesh.kubectl("describe", "trafficsplit", "birds", "-n", namespace)
    return text if word in text.partition("\nEvents:")[2] else ""


def _ready_pods(mesh: RunningMesh, namespace: str) -> list[str]:
    slices = mesh.get("endpointslices", namespace)["items"]
    return [
        endpoint["addresses"][0]
        for item in slices
        for endpoint in item["endpoints"] or ()
        if endpoint["conditions"]["ready"]
    ]
