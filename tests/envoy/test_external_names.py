"""ExternalName Services in splits, routes, mirrors and TCP, compiled from objects and pushed to a real Envoy (R5).

The tests replace the external names by `localhost` after compilation: the compiler rejects that name in a Service.
"""

import json
from collections import Counter
from typing import Any

import pytest
import yaml
from msgspec import structs
from tests.e2e.manifests import split
from tests.envoy.rig import NODE, Rig
from tests.waiting import until
from tests.wire import Address

from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.envoy.view import Node
from headgate.model.evaluate import Request, decide
from headgate.model.routing import Endpoint, Mesh, PortRef
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import key_of
from headgate.settings import Settings

ROOT, EDGE = "127.0.0.9", "127.0.0.10"


@pytest.fixture
def rig(envoy: Rig) -> Rig:
    for name in ("inside", "outside"):
        envoy.echo(name)
    return envoy


def service(name: str, port: int, *, protocol: str = "http", **spec: Any) -> dict[str, Any]:
    ports = [{"name": "main", "port": port, "appProtocol": protocol}]
    return obj("v1", "Service", name, spec={"ports": ports, **spec})


def obj(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", **fields.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def endpoints(name: str, port: int) -> dict[str, Any]:
    return obj(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        name,
        metadata={"labels": {"kubernetes.io/service-name": name}},
        addressType="IPv4",
        ports=[{"name": "main", "port": port}],
        endpoints=[{"addresses": ["127.0.0.1"]}],
    )


def parsed(manifest: str) -> dict[str, Any]:
    found = json.loads(manifest)
    return found | {"metadata": found["metadata"] | {"namespace": "default"}}


def compiled(*objects: dict[str, Any]) -> Compiled:
    return compile_mesh(snapshot_of({key_of(item): item for item in objects}), Settings())


def mesh(*objects: dict[str, Any]) -> Mesh:
    found = compiled(*objects)
    assert [item for item in found.report.findings if item.about.kind != "Gateway"] == []

    def local(endpoint: Endpoint) -> Endpoint:
        return structs.replace(endpoint, address="localhost") if endpoint.resolved else endpoint

    entries = tuple(
        structs.replace(entry, ready=tuple(local(endpoint) for endpoint in entry.ready))
        for entry in found.mesh.endpoints
    )
    return structs.replace(found.mesh, endpoints=entries)


def objects(rig: Rig, *more: dict[str, Any], protocol: str = "http") -> tuple[dict[str, Any], ...]:
    """Return the Services `root`, `inside` and `outside`, all on one port, because a split needs equal ports (R35)."""
    port = rig.echoes["outside"].port
    return (
        service("root", port, protocol=protocol, clusterIP=ROOT),
        service("inside", port, protocol=protocol, clusterIP="127.0.0.8"),
        endpoints("inside", rig.echoes["inside"].port),
        service("outside", port, protocol=protocol, type="ExternalName", externalName="API.example.com."),
        *more,
    )


def answers(rig: Rig, address: Address, count: int = 40) -> Counter[str]:
    return Counter(rig.ask(address=address, host="root").answered_by for _ in range(count))


def until_answered_by(rig: Rig, address: Address, *names: str) -> None:
    """Wait until these backends answer: Envoy resolves external names after it has acknowledged them."""
    until(lambda: set(answers(rig, address)) == set(names), f"answers of {names}")


def hosts(rig: Rig, name: str) -> set[str]:
    return {seen.headers["host"] for seen in rig.take_requests(name)}


def test_requests_to_an_external_name_have_that_name_as_host(rig: Rig) -> None:
    address = Address(ROOT, rig.echoes["outside"].port)
    weights = parsed(split("canary", "root", {"inside": 0, "outside": 1}))
    rig.push(mesh(*objects(rig, weights)))
    until_answered_by(rig, address, "outside")
    assert answers(rig, address) == {"outside": 40}
    assert hosts(rig, "outside") == {f"api.example.com:{address.port}"}
    weights = parsed(split("canary", "root", {"inside": 1, "outside": 1}))
    rig.push(mesh(*objects(rig, weights)))
    until_answered_by(rig, address, "inside", "outside")
    assert hosts(rig, "outside") == {f"api.example.com:{address.port}"}
    assert hosts(rig, "inside") == {"root"}


def test_a_tcp_split_sends_connections_to_an_external_name(rig: Rig) -> None:
    address = Address(ROOT, rig.echoes["outside"].port)
    weights = parsed(split("canary", "root", {"inside": 1, "outside": 1}))
    rig.push(mesh(*objects(rig, weights, protocol="tcp")))
    until_answered_by(rig, address, "inside", "outside")
    assert hosts(rig, "outside") == {"root"}  # a TCP proxy does not change the Host header


def test_clients_call_an_external_name_service_through_the_http_proxy(rig: Rig) -> None:
    proxy = rig.free()
    address = Address(ROOT, rig.echoes["outside"].port)
    found = mesh(*objects(rig))
    rig.push(found, Node(id=NODE.id, proxy_address=proxy.host, proxy_port=proxy.port))
    host = f"Outside.default.svc.cluster.local.:{address.port}"
    until(lambda: rig.ask(address=proxy, host=host).answered_by == "outside")
    assert hosts(rig, "outside") == {f"api.example.com:{address.port}"}
    (portion,) = decide(found, host, Request(authority=host)).shares
    assert portion.ref == PortRef("default/outside", address.port)


def test_routes_and_mirrors_send_requests_to_an_external_name(rig: Rig) -> None:
    """A filter that rewrites the host takes precedence over the external name."""
    entrance, backend = rig.free(), rig.echoes["outside"].port
    manifest = f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge, namespace: default}}
spec: {{gatewayClassName: headgate, listeners: [{{name: http, port: {entrance.port}, protocol: HTTP}}]}}
status: {{addresses: [{{value: {EDGE}}}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web, namespace: default}}
spec:
  parentRefs: [{{name: edge}}]
  rules:
    - matches: [{{path: {{value: /copied}}}}]
      backendRefs: [{{name: inside, port: {backend}}}]
      filters: [{{type: RequestMirror, requestMirror: {{backendRef: {{name: outside, port: {backend}}}}}}}]
    - matches: [{{path: {{value: /rewritten}}}}]
      backendRefs: [{{name: outside, port: {backend}}}]
      filters: [{{type: URLRewrite, urlRewrite: {{hostname: other.example}}}}]
    - backendRefs: [{{name: outside, port: {backend}}}]
"""
    address = Address(EDGE, entrance.port)
    rig.push(mesh(*objects(rig, *yaml.safe_load_all(manifest))))
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
def test_a_service_with_an_invalid_external_name_has_a_finding_and_gets_503(rig: Rig, name: str, message: str) -> None:
    found = compiled(service("outside", 8080, type="ExternalName", externalName=name))
    (finding,) = found.report.findings
    assert (finding.reason.value, finding.field) == ("NameNotResolved", "spec.externalName")
    assert message in finding.message
    proxy = rig.free()
    rig.push(found.mesh, Node(id=NODE.id, proxy_address=proxy.host, proxy_port=proxy.port))
    assert rig.ask_when_listening(address=proxy, host="outside:8080").status == 503


def test_an_external_name_service_without_ports_has_ports_80_and_443() -> None:
    found = compiled(obj("v1", "Service", "outside", spec={"type": "ExternalName", "externalName": "api.example.com"}))
    assert [table.protocol.value for table in found.mesh.tables] == ["http", "tls"]
    assert [(item.address, item.port) for entry in found.mesh.endpoints for item in entry.ready] == [
        ("api.example.com", 80),
        ("api.example.com", 443),
    ]
    assert found.report.findings == ()
