"""What Envoy refuses comes back on the object that caused it, and nothing else suffers."""

import socket

from tests.e2e.manifests import external, service, split
from tests.e2e.wire import Address
from tests.e2e.world import World, until


def occupied(world: World, namespace: str) -> socket.socket:
    """Listen on an address that a Service may choose; `127.A` is the world's own part of the loopback network.

    Each test has an address of its own: that of an earlier one is Envoy's now.
    """
    part = world.address("taken-range", 8080, namespace).host.rsplit(".", 2)[0]
    last = int(namespace.removeprefix("ns")) % 250 + 1
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((f"{part}.99.{last}", 8080))
    listener.listen()
    return listener


def test_an_address_that_somebody_else_listens_on(world: World, namespace: str) -> None:
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
        said = world.line(
            lambda line: any(item["reason"] == "EnvoyRejected" for item in line.get("findings", ())), mark
        )
        about = next(item["about"] for item in said["findings"] if item["reason"] == "EnvoyRejected")
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


def test_an_address_that_a_service_has_is_refused_at_once(world: World, namespace: str) -> None:
    world.apply(external("one", world.backend("1")), namespace=namespace)
    host = world.address("one", 8080, namespace).host
    refused = world.try_kubectl(
        "apply", "-n", namespace, "-f", "-", stdin=service("two", {"http": 8080}, clusterIP=host)
    )
    assert refused.returncode == 1
    assert f"spec.clusterIP: address {host} is used by Service {namespace}/one" in refused.stderr.replace('"', "")
    assert world.send(5, world.request("one", 8080, namespace=namespace)) == {"1": 5}
