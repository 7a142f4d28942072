"""Fixtures: a bridge for each module that tests redirection rules alone, and one mesh for all other modules."""

from typing import NamedTuple

import pytest
from tests.netns.lab import Lab
from tests.netns.namespaces import Bridge, missing
from tests.netns.objects import served, strict


@pytest.fixture(scope="session", autouse=True)
def _possible():
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def bridge(_possible):
    found = Bridge()
    yield found
    found.close()


class Address(NamedTuple):
    host: str
    port: int


WEB, ONE, TWO = Address("10.96.0.10", 80), Address("10.96.0.11", 80), Address("10.96.0.12", 80)
H2, ECHO, GREETING = Address("10.96.0.13", 80), Address("10.96.0.14", 7000), Address("10.96.0.15", 7001)
OWN_TLS, GRPC, SELF = Address("10.96.0.16", 7443), Address("10.96.0.17", 9000), Address("10.96.0.18", 80)
ECHO_ONE, ECHO_TWO = Address("10.96.0.20", 7000), Address("10.96.0.21", 7000)
ALL_STRICT = [strict(name, {"app": name}) for name in ("client", "stranger", "one", "two")]


@pytest.fixture(scope="package")
def lab(_possible):
    """Run two pods of the account web, two clients with a sidecar, and one client without a sidecar."""
    with Lab() as found:
        client = found.pod("client", account="client")
        found.pod("stranger", account="stranger")
        found.pod("plain", account="default", sidecar=False)
        servers = [found.pod(name, account="web", excluded="9090", probe=(8080, "/healthy")) for name in ("one", "two")]
        for member in (*servers, client, found.members["plain"]):
            found.listen(member, 8080, "web")
        for member in servers:
            for port, kind in ((7000, "echo"), (7001, "greet"), (9090, "web")):
                found.listen(member, port, kind)
        found.start()
        yield found


@pytest.fixture(scope="package")
def services(lab):
    """Return the objects of all Services of the lab."""
    client, one, two = (lab.members[name] for name in ("client", "one", "two"))
    return [
        *served("web", WEB.host, [one, two], port=WEB.port, target=8080),
        *served("one", ONE.host, [one], port=ONE.port, target=8080),
        *served("two", TWO.host, [two], port=TWO.port, target=8080),
        *served("h2", H2.host, [one, two], port=H2.port, target=8080, app="kubernetes.io/h2c"),
        *served("echo", ECHO.host, [one, two], port=ECHO.port, target=7000, app="tcp"),
        *served("echo-one", ECHO_ONE.host, [one], port=ECHO.port, target=7000, app="tcp"),
        *served("echo-two", ECHO_TWO.host, [two], port=ECHO.port, target=7000, app="tcp"),
        *served("greeting", GREETING.host, [one], port=GREETING.port, target=7001, app="tcp-server-first"),
        *served("own-tls", OWN_TLS.host, [two], port=OWN_TLS.port, target=7443, app="tls"),
        *served("grpc", GRPC.host, [one], port=GRPC.port, target=9000, app="grpc"),
        *served("self", SELF.host, [client], port=SELF.port, target=8080),
        *served("headless", "", [one, two], port=8080, target=8080),
    ]
