"""A resource that Envoy rejects is reported on the object that caused it; other objects are not affected."""

import socket

from tests.e2e.manifests import external, service, split
from tests.e2e.world import World
from tests.waiting import until
from tests.wire import Address


def occupied(world: World, namespace: str) -> socket.socket:
    """Occupy an address in the world's loopback range (`127.A`), so that Envoy can't listen there for a Service.

    The address is unique for each namespace: Envoy still listens on the addresses of earlier tests.
    """
    part = world.address("taken-range", 8080, namespace).host.rsplit(".", 2)[0]
    last = int(namespace.removeprefix("ns")) % 250 + 1
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((f"{part}.99.{last}", 8080))
    listener.listen()
    return listener


def test_a_service_on_an_occupied_address_reports_envoys_rejection(world: World, namespace: str) -> None:
    world.apply(external("taken-range", world.backend("fine")), namespace=namespace)
    mark = len(world.lines)
    with occupied(world, namespace) as listener:
        host, port = listener.getsockname()
        taken = service("taken", {"http": port}, clusterIP=host)
        world.apply(
            taken,
            external("web", world.backend("root")),
            external("web-v1", world.backend("v1")),
            split("web", "web", {"web-v1": 1}),
            namespace=namespace,
        )
        events = until(lambda: world.events("taken", namespace))
        assert [item[:2] for item in events] == [("Warning", "EnvoyRejected")]
        assert f"{host}:{port}" in events[0][2]
        assert "Address already in use" in events[0][2]
        line = world.line(
            lambda line: any(item["reason"] == "EnvoyRejected" for item in line.get("findings", ())), mark
        )
        about = next(item["about"] for item in line["findings"] if item["reason"] == "EnvoyRejected")
        assert about == {"kind": "Service", "namespace": namespace, "name": "taken"}
        world.event("Programmed", "web", namespace)
        assert world.send(10, world.request("web", 8080, namespace=namespace)) == {"v1": 10}
        through_proxy = world.request("taken-range", 8080, namespace=namespace, via="proxy")
        assert world.send(10, through_proxy) == {"fine": 10}
    world.event("EnvoyRejectedResolved", "taken", namespace)
    assert world.send(5, world.request("taken", 8080, namespace=namespace)) == {"503": 5}
    world.delete("service/taken", namespace)
    world.apply(taken, external("taken-2", world.backend("x")), namespace=namespace)
    assert world.send(5, world.request("taken", 8080, namespace=namespace)) == {"503": 5}
    assert Address(host, port) == world.address("taken", 8080, namespace)


def test_the_api_rejects_a_service_with_the_address_of_another_service(world: World, namespace: str) -> None:
    world.apply(external("one", world.backend("1")), namespace=namespace)
    host = world.address("one", 8080, namespace).host
    refused = world.try_kubectl(
        "apply", "-n", namespace, "-f", "-", stdin=service("two", {"http": 8080}, clusterIP=host)
    )
    assert refused.returncode == 1
    assert f"spec.clusterIP: address {host} is used by Service {namespace}/one" in refused.stderr.replace('"', "")
    assert world.send(5, world.request("one", 8080, namespace=namespace)) == {"1": 5}
