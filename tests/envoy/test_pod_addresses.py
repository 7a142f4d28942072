"""Requests to a pod's address through the HTTP proxy reach the pod without the routes of its Services."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.envoy.rig import NODE, Rig
from tests.wire import Address

from headgate.compiler.compile import compile_mesh
from headgate.envoy.view import Node
from headgate.model.evaluate import Request, decide
from headgate.model.routing import Mesh, PortRef
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import key_of
from headgate.settings import Settings

OBJECTS = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 127.0.0.9, ports: [{name: main, port: 8080, appProtocol: PROTOCOL}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: default}
spec: {clusterIP: 127.0.0.8, ports: [{name: main, port: 8080}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: default}
spec:
  parentRefs: [{group: "", kind: Service, name: web}]
  rules:
    - backendRefs: [{name: web, port: 8080}]
      filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-routed, value: "yes"}]}}]
"""


@pytest.fixture
def rig() -> Iterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="hg") as root, Rig(Path(root)) as found:
        for name in ("one", "two", "hand"):
            found.echo(name)
        yield found


def endpoints(rig: Rig, service: str, name: str, *, pod: bool = True) -> dict[str, Any]:
    target = {"targetRef": {"kind": "Pod", "namespace": "default", "name": name}} if pod else {}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-{name}",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [{"name": "main", "port": rig.echoes[name].port}],
        "endpoints": [{"addresses": ["127.0.0.1"], **target}],
    }


def pushed(rig: Rig, protocol: str) -> tuple[Mesh, Address]:
    """Push two pods of `web` and an endpoint without a pod; return the mesh and the HTTP proxy's address."""
    slices = (endpoints(rig, "web", name) for name in ("one", "two"))
    by_hand = endpoints(rig, "web", "hand", pod=False)
    objects = [*yaml.safe_load_all(OBJECTS.replace("PROTOCOL", protocol)), *slices, by_hand]
    mesh = compile_mesh(snapshot_of({key_of(item): item for item in objects}), Settings()).mesh
    proxy = rig.free()
    rig.push(mesh, Node(id=NODE.id, proxy_address=proxy.host, proxy_port=proxy.port))
    rig.ask_when_listening(address=proxy)
    return mesh, proxy


@pytest.mark.conformance("MeshFrontend")
def test_a_request_to_a_pods_address_bypasses_the_routes_of_its_service(rig: Rig) -> None:
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


def test_a_request_to_an_address_without_a_pod_gets_404(rig: Rig) -> None:
    mesh, proxy = pushed(rig, "http")
    for host in (f"127.0.0.1:{rig.echoes['hand'].port}", "127.0.0.1:1", "127.0.0.1"):
        assert rig.ask(address=proxy, host=host).status == 404
        assert [item.status for item in decide(mesh, host, Request(authority=host)).shares] == [404]


def test_an_http_request_to_the_tcp_port_of_a_pod_gets_400(rig: Rig) -> None:
    _, proxy = pushed(rig, "tcp")
    assert rig.ask(address=proxy, host=f"127.0.0.1:{rig.echoes['one'].port}").status == 400
