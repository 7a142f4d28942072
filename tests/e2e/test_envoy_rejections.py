"""A resource that Envoy rejects is reported on the object that caused it; other objects are not affected."""

from tests.e2e.manifests import external, service_manifest, split_manifest
from tests.e2e.running_mesh import RunningMesh, occupied
from tests.waiting import until
from tests.wire import Address


def test_a_service_on_an_occupied_address_reports_envoys_rejection(mesh: RunningMesh, namespace: str) -> None:
    mesh.apply(external("taken-range", mesh.backend("fine")), namespace=namespace)
    mark = len(mesh.lines)
    with occupied(mesh, namespace) as listener:
        host, port = listener.getsockname()
        taken = service_manifest("taken", {"http": port}, clusterIP=host)
        mesh.apply(
            taken,
            external("web", mesh.backend("root")),
            external("web-v1", mesh.backend("v1")),
            split_manifest("web", "web", {"web-v1": 1}),
            namespace=namespace,
        )
        events = until(lambda: mesh.events("taken", namespace))
        assert [item[:2] for item in events] == [("Warning", "EnvoyRejected")]
        assert f"{host}:{port}" in events[0][2]
        assert "Address already in use" in events[0][2]
        line = mesh.line(lambda line: any(item["reason"] == "EnvoyRejected" for item in line.get("findings", ())), mark)
        about = next(item["about"] for item in line["findings"] if item["reason"] == "EnvoyRejected")
        assert about == {"kind": "Service", "namespace": namespace, "name": "taken"}
        mesh.event("Programmed", "web", namespace)
        assert mesh.send(10, mesh.request("web", 8080, namespace=namespace)) == {"v1": 10}
        through_proxy = mesh.request("taken-range", 8080, namespace=namespace, via="proxy")
        assert mesh.send(10, through_proxy) == {"fine": 10}
    mesh.event("EnvoyRejectedResolved", "taken", namespace)
    assert mesh.send(5, mesh.request("taken", 8080, namespace=namespace)) == {"503": 5}
    mesh.delete("service/taken", namespace)
    mesh.apply(taken, external("taken-2", mesh.backend("x")), namespace=namespace)
    assert mesh.send(5, mesh.request("taken", 8080, namespace=namespace)) == {"503": 5}
    assert Address(host, port) == mesh.address("taken", 8080, namespace)


def test_the_api_rejects_a_service_with_the_address_of_another_service(mesh: RunningMesh, namespace: str) -> None:
    mesh.apply(external("one", mesh.backend("1")), namespace=namespace)
    host = mesh.address("one", 8080, namespace).host
    refused = mesh.try_kubectl(
        "apply", "-n", namespace, "-f", "-", stdin=service_manifest("two", {"http": 8080}, clusterIP=host)
    )
    assert refused.returncode == 1
    assert f"spec.clusterIP: address {host} is used by Service {namespace}/one" in refused.stderr.replace('"', "")
    assert mesh.send(5, mesh.request("one", 8080, namespace=namespace)) == {"1": 5}
