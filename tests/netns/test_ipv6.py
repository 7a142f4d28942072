"""Transparent sidecars of pods with IPv6 addresses."""

import pytest
from tests.make.objects import tls_config
from tests.netns.namespaced_mesh import NamespacedMesh
from tests.netns.namespaces import has_ipv6
from tests.netns.objects import served
from tests.netns.traffic import CLOSED, ask, talk
from tests.waiting import until
from tests.wire import Address

WEB, ECHO = Address("fd00:96::10", 80), Address("fd00:96::14", 7000)
pytestmark = pytest.mark.skipif(not has_ipv6(), reason="needs a kernel with IPv6")


@pytest.fixture(scope="module")
def lab(_possible):
    with NamespacedMesh() as found:
        found.pod("client", account="client", ipv6=True)
        found.pod("plain", account="default", sidecar=False, ipv6=True)
        server = found.pod("one", account="web", ipv6=True, probe=(8080, "/healthy"))
        found.listen(server, 8080, "web")
        found.listen(server, 7000, "echo")
        found.start()
        yield found


def test_redirection_and_mtls_work_over_ipv6(lab):
    client, plain, one = (lab.members[name] for name in ("client", "plain", "one"))
    services = [
        *served("web", WEB, [one], 8080),
        *served("echo", ECHO, [one], 7000, "tcp"),
    ]
    lab.serve(*services, tls_config("one", {"app": "one"}))
    assert lab.run(ask(client, WEB)).body == "one"
    assert one.apps[8080].seen[-1].peer == "::6"
    assert lab.run(ask(one, WEB)).body == "one"  # the pod calls its own Service
    assert lab.run(talk(client, ECHO, b"hello")) == ("", "hello")
    assert lab.run(ask(plain, Address(one.address, 8080))).status == 0
    assert lab.run(talk(plain, Address(one.address, 7000), b"hello")) == CLOSED
    assert lab.run(ask(plain, Address(one.address, 15020), path="/app/readiness")).status == 200
    until(lambda: lab.run(ask(plain, Address(one.address, 15020), path="/app/liveness")).status == 200)
    assert lab.run(ask(plain, Address(one.address, 15020), path="/app/startup")).status == 503
    assert (
        lab.run(ask(one, Address("127.0.0.1", 15020), path="/ready")).status == 200
    )  # as `headgate sidecar wait` asks
    lab.serve(*services)
    assert lab.run(ask(plain, Address(one.address, 8080))).body == "one"
