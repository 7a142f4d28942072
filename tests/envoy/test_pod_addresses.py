"""Requests to a pod's address through the HTTP proxy reach the pod without the routes of its Services."""

import pytest
from tests.envoy.rig import NODE, EnvoyRig
from tests.make.objects import endpoint, endpoint_slice, port, route, rule, service, service_parent
from tests.make.values import compiled
from tests.wire import Address

from headgate.envoy.view import Node
from headgate.model.evaluate import Request, decide
from headgate.model.routing import Mesh, PortRef


@pytest.fixture
def rig(envoy: EnvoyRig) -> EnvoyRig:
    for name in ("one", "two", "hand"):
        envoy.echo(name)
    return envoy


def pushed(rig: EnvoyRig, protocol: str) -> tuple[Mesh, Address]:
    """Push two pods of `web` and an endpoint without a pod; return the mesh and the HTTP proxy's address."""
    marked = {
        "type": "ResponseHeaderModifier",
        "responseHeaderModifier": {"set": [{"name": "x-routed", "value": "yes"}]},
    }
    mesh = compiled(
        service("web", port(8080, "main", app=protocol), clusterIP="127.0.0.9"),
        service("other", port(8080, "main"), clusterIP="127.0.0.8"),
        route("web", rule({"web": 1}, filters=[marked]), parents=[service_parent("web")]),
        *(
            endpoint_slice("web", [endpoint("127.0.0.1", pod)], {"main": rig.echoes[name].port}, name=f"web-{name}")
            for name, pod in (("one", "one"), ("two", "two"), ("hand", ""))
        ),
    ).mesh
    proxy = rig.free()
    rig.push(mesh, Node(id=NODE.id, proxy_address=proxy.host, proxy_port=proxy.port))
    rig.ask_when_listening(address=proxy)
    return mesh, proxy


@pytest.mark.conformance("MeshFrontend")
def test_a_request_to_a_pods_address_bypasses_the_routes_of_its_service(rig: EnvoyRig) -> None:
    mesh, proxy = pushed(rig, "http")
    by_name = rig.ask(address=proxy, host="web.default:8080")
    assert (by_name.status, by_name.headers.get("x-routed")) == (200, "yes")
    for name in ("one", "two"):
        host = f"127.0.0.1:{rig.echoes[name].port}"
        for _ in range(3):
            answer = rig.ask(address=proxy, host=host)
            assert (answer.answered_by, answer.headers.get("x-routed")) == (name, None)
        (portion,) = decide(mesh, host, Request(authority=host)).shares
        assert portion.pod
        assert (portion.ref, portion.pod.workload) == (PortRef("default/web", 8080), f"default/{name}")


def test_a_request_to_an_address_without_a_pod_gets_404(rig: EnvoyRig) -> None:
    mesh, proxy = pushed(rig, "http")
    for host in (f"127.0.0.1:{rig.echoes['hand'].port}", "127.0.0.1:1", "127.0.0.1"):
        assert rig.ask(address=proxy, host=host).status == 404
        assert [portion.status for portion in decide(mesh, host, Request(authority=host)).shares] == [404]


def test_an_http_request_to_the_tcp_port_of_a_pod_gets_400(rig: EnvoyRig) -> None:
    _, proxy = pushed(rig, "tcp")
    assert rig.ask(address=proxy, host=f"127.0.0.1:{rig.echoes['one'].port}").status == 400
