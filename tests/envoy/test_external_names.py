"""ExternalName Services in splits, routes, mirrors and TCP, compiled from objects and pushed to a real Envoy (R5).

The tests replace the external names by `localhost` after compilation: the compiler rejects that name in a Service.
"""

from collections import Counter
from functools import partial
from typing import Any

import pytest
from msgspec import structs
from tests.envoy.rig import NODE, EnvoyRig
from tests.make.objects import (
    Object,
    backend_ref,
    endpoint_slice,
    gateway,
    listener,
    obj,
    path_match,
    port,
    route,
    rule,
    service,
    split,
)
from tests.make.values import compiled
from tests.waiting import until
from tests.wire import Address

from headgate.envoy.view import Node
from headgate.model.evaluate import Request, decide
from headgate.model.routing import Endpoint, Mesh, PortRef

ROOT, EDGE = "127.0.0.9", "127.0.0.10"


@pytest.fixture
def rig(envoy: EnvoyRig) -> EnvoyRig:
    for name in ("inside", "outside"):
        envoy.echo(name)
    return envoy


def service_on(port_number: int, name: str, *, protocol: str = "http", **spec: Any) -> Object:
    """Return a Service with one port, and no endpoints of its own."""
    return service(name, port(port_number, "main", app=protocol), **spec)


def mesh(*objects: Object) -> Mesh:
    result = compiled(*objects)
    assert [finding for finding in result.report.findings if finding.about.kind != "Gateway"] == []

    def local(endpoint: Endpoint) -> Endpoint:
        return structs.replace(endpoint, address="localhost") if endpoint.resolved else endpoint

    entries = tuple(
        structs.replace(entry, ready=tuple(local(endpoint) for endpoint in entry.ready))
        for entry in result.mesh.endpoints
    )
    return structs.replace(result.mesh, endpoints=entries)


def objects(rig: EnvoyRig, *more: Object, protocol: str = "http") -> tuple[Object, ...]:
    """Return the Services `root`, `inside` and `outside`, all on one port, because a split needs equal ports (R35)."""
    at = partial(service_on, rig.echoes["outside"].port, protocol=protocol)
    return (
        at("root", clusterIP=ROOT),
        at("inside", clusterIP="127.0.0.8"),
        endpoint_slice("inside", ["127.0.0.1"], {"main": rig.echoes["inside"].port}),
        at("outside", type="ExternalName", externalName="API.example.com."),
        *more,
    )


def answers(rig: EnvoyRig, address: Address, count: int = 40) -> Counter[str]:
    return Counter(rig.ask(address=address, host="root").answered_by for _ in range(count))


def until_answered_by(rig: EnvoyRig, address: Address, *names: str) -> None:
    """Wait until these backends answer: Envoy resolves external names after it has acknowledged them."""
    until(lambda: set(answers(rig, address)) == set(names), f"answers of {names}")


def hosts(rig: EnvoyRig, name: str) -> set[str]:
    return {seen.headers["host"] for seen in rig.take_requests(name)}


def test_requests_to_an_external_name_have_that_name_as_host(rig: EnvoyRig) -> None:
    address = Address(ROOT, rig.echoes["outside"].port)
    weights = split("root", {"inside": 0, "outside": 1})
    rig.push(mesh(*objects(rig, weights)))
    until_answered_by(rig, address, "outside")
    assert answers(rig, address) == {"outside": 40}
    assert hosts(rig, "outside") == {f"api.example.com:{address.port}"}
    weights = split("root", {"inside": 1, "outside": 1})
    rig.push(mesh(*objects(rig, weights)))
    until_answered_by(rig, address, "inside", "outside")
    assert hosts(rig, "outside") == {f"api.example.com:{address.port}"}
    assert hosts(rig, "inside") == {"root"}


def test_a_tcp_split_sends_connections_to_an_external_name(rig: EnvoyRig) -> None:
    address = Address(ROOT, rig.echoes["outside"].port)
    weights = split("root", {"inside": 1, "outside": 1})
    rig.push(mesh(*objects(rig, weights, protocol="tcp")))
    until_answered_by(rig, address, "inside", "outside")
    assert hosts(rig, "outside") == {"root"}  # a TCP proxy does not change the Host header


def test_clients_call_an_external_name_service_through_the_http_proxy(rig: EnvoyRig) -> None:
    proxy = rig.free()
    address = Address(ROOT, rig.echoes["outside"].port)
    found = mesh(*objects(rig))
    rig.push(found, Node(id=NODE.id, proxy_address=proxy.host, proxy_port=proxy.port))
    host = f"Outside.default.svc.cluster.local.:{address.port}"
    until(lambda: rig.ask(address=proxy, host=host).answered_by == "outside")
    assert hosts(rig, "outside") == {f"api.example.com:{address.port}"}
    (portion,) = decide(found, host, Request(authority=host)).shares
    assert portion.ref == PortRef("default/outside", address.port)


def test_routes_and_mirrors_send_requests_to_an_external_name(rig: EnvoyRig) -> None:
    """A filter that rewrites the host takes precedence over the external name."""
    entrance, backend = rig.free(), rig.echoes["outside"].port
    to = partial(rule, port=backend)
    copy = {"type": "RequestMirror", "requestMirror": {"backendRef": backend_ref("outside", backend)}}
    rewrite = {"type": "URLRewrite", "urlRewrite": {"hostname": "other.example"}}
    edge = (
        gateway("edge", listener(entrance.port), status={"addresses": [{"value": EDGE}]}),
        route(
            "web",
            to({"inside": 1}, matches=[path_match("/copied")], filters=[copy]),
            to({"outside": 1}, matches=[path_match("/rewritten")], filters=[rewrite]),
            to({"outside": 1}),
            parents=[{"name": "edge"}],
        ),
    )
    address = Address(EDGE, entrance.port)
    rig.push(mesh(*objects(rig, *edge)))
    until(lambda: rig.ask(address=address).answered_by == "outside")
    assert hosts(rig, "outside") == {f"api.example.com:{backend}"}
    assert rig.ask("/rewritten", address=address).answered_by == "outside"
    assert hosts(rig, "outside") == {"other.example"}
    assert rig.ask("/copied", address=address, host="shop.example").answered_by == "inside"
    until(lambda: rig.echoes["outside"].seen, "the copy")
    assert hosts(rig, "outside") == {f"api.example.com:{backend}"}
    assert hosts(rig, "inside") == {"shop.example"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("localhost", "is this machine"),
        ("a.localhost", "is this machine"),
        ("169.254.169.254", "is an IP address"),
        ("web.shop.svc.cluster.local.", "is a Service of this mesh"),
        ("web.shop.svc", "is a Service of this mesh"),
        ("", "is missing"),
        ("a_b", "is not a DNS name"),
    ],
)
def test_a_service_with_an_invalid_external_name_has_a_finding_and_gets_503(
    rig: EnvoyRig, name: str, message: str
) -> None:
    found = compiled(service_on(8080, "outside", type="ExternalName", externalName=name))
    (finding,) = found.report.findings
    assert (finding.reason.value, finding.field) == ("NameNotResolved", "spec.externalName")
    assert message in finding.message
    proxy = rig.free()
    rig.push(found.mesh, Node(id=NODE.id, proxy_address=proxy.host, proxy_port=proxy.port))
    assert rig.ask_when_listening(address=proxy, host="outside:8080").status == 503


def test_an_external_name_service_without_ports_has_ports_80_and_443() -> None:
    found = compiled(obj("Service", "outside", spec={"type": "ExternalName", "externalName": "api.example.com"}))
    assert [table.protocol.value for table in found.mesh.tables] == ["http", "tls"]
    assert [(item.address, item.port) for entry in found.mesh.endpoints for item in entry.ready] == [
        ("api.example.com", 80),
        ("api.example.com", 443),
    ]
    assert found.report.findings == ()
