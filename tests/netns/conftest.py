"""Fixtures: a bridge for each module that tests redirection rules alone, and one mesh for all other modules."""

from collections.abc import Iterator, Sequence

import pytest
from tests.make.objects import Object
from tests.netns import objects
from tests.netns.namespaced_mesh import NamespacedMesh
from tests.netns.namespaces import Bridge, missing
from tests.netns.objects import served
from tests.wire import Address


@pytest.fixture(scope="session", autouse=True)
def _possible() -> None:
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def bridge(_possible: None) -> Iterator[Bridge]:
    bridge = Bridge()
    yield bridge
    bridge.close()


@pytest.fixture(scope="package")
def lab(_possible: None) -> Iterator[NamespacedMesh]:
    """Run two pods of the account web, two clients with a sidecar, and one client without a sidecar."""
    with NamespacedMesh() as lab:
        client = lab.pod("client", account="client")
        lab.pod("stranger", account="stranger")
        plain = lab.pod("plain", account="default", sidecar=False)
        servers = [lab.pod(name, account="web", excluded="9090", probe=(8080, "/healthy")) for name in ("one", "two")]
        for member in (*servers, client, plain):
            lab.listen(member, 8080, "web")
        for member in servers:
            lab.listen(member, 7000, "echo")
            lab.listen(member, 7001, "greet")
            lab.listen(member, 9090, "web")
        lab.start()
        yield lab


@pytest.fixture(scope="package")
def services(lab: NamespacedMesh) -> Sequence[Object]:
    """Return the objects of all Services of the lab."""
    client, one, two = (lab.members[name] for name in ("client", "one", "two"))
    return [
        *served("web", objects.WEB, [one, two], 8080),
        *served("one", objects.ONE, [one], 8080),
        *served("two", objects.TWO, [two], 8080),
        *served("h2", objects.H2, [one, two], 8080, "kubernetes.io/h2c"),
        *served("echo", objects.ECHO, [one, two], 7000, "tcp"),
        *served("echo-one", objects.ECHO_ONE, [one], 7000, "tcp"),
        *served("echo-two", objects.ECHO_TWO, [two], 7000, "tcp"),
        *served("greeting", objects.GREETING, [one], 7001, "tcp-server-first"),
        *served("own-tls", objects.OWN_TLS, [two], 7443, "tls"),
        *served("grpc", objects.GRPC, [one], 9000, "grpc"),
        *served("self", objects.SELF, [client], 8080),
        *served("headless", Address("", 8080), [one, two], 8080),
    ]
