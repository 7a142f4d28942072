"""The protocol of a Service port decides how the proxy handles it (requirements 1.4; D7, D15, D16)."""

import json
import socket
import ssl
from pathlib import Path

from tests.draws import fits
from tests.e2e.manifests import external, protocol_service, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.protocols import certificate, connect_often, greeting_server, http2_server, talk, upgrade, websocket_server
from tests.wire import Address, Request

from headgate.cli.reporter import service_address
from headgate.envoy.names import outbound
from headgate.model.routing import PortRef


class ClosedPort:
    """An endpoint that refuses every connection: its port is bound, but no socket listens."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.address = Address(*self._socket.getsockname())

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


def test_a_tcp_split_is_exact_by_connection(mesh: RunningMesh, namespace: str) -> None:
    """R34, R7, R8 for TCP: weights 90/10 split 100 connections into 90 and 10; a backend with weight 0 gets none."""
    v1, v2, idle = (greeting_server(mesh.network, name) for name in ("v1", "v2", "idle"))
    mesh.apply(
        protocol_service("db", app="tcp"),
        protocol_service("db-v1", v1, app="tcp"),
        protocol_service("db-v2", v2),
        protocol_service("db-v3", idle, app="redis"),
        split_manifest("db", "db", {"db-v1": 90, "db-v2": 10, "db-v3": 0}),
        namespace=namespace,
    )
    address = mesh.address("db", 9000, namespace)
    assert mesh.network.run(connect_often(address, 100)) == {"v1": 90, "v2": 10}
    assert (v1.connections, v2.connections, idle.connections) == (90, 10, 0)
    mesh.apply(split_manifest("db", "db", {"db-v1": 1, "db-v2": 1, "db-v3": 0}), namespace=namespace)
    assert mesh.network.run(connect_often(address, 20)) == {"v1": 10, "v2": 10}
    assert idle.connections == 0


def test_no_connection_fails_when_a_backend_refuses_connections(mesh: RunningMesh, namespace: str) -> None:
    v1, dead = greeting_server(mesh.network, "v1"), ClosedPort()
    mesh.apply(
        protocol_service("db", app="tcp"),
        protocol_service("db-v1", v1),
        protocol_service("db-v2", dead),
        split_manifest("db", "db", {"db-v1": 9, "db-v2": 1}),
        namespace=namespace,
    )
    assert mesh.network.run(connect_often(mesh.address("db", 9000, namespace), 40)) == {"v1": 40}
    dead.close()


def test_a_client_gets_the_greeting_of_a_server_before_it_sends(mesh: RunningMesh, namespace: str) -> None:
    """D16: no listener filter of the proxy waits for the client's first bytes."""
    mesh.apply(protocol_service("db", greeting_server(mesh.network, "hello"), app="mysql"), namespace=namespace)
    address = mesh.address("db", 9000, namespace)
    exchanges = [mesh.network.run(talk(address, "ping")) for _ in range(5)]
    assert {(item.greeting, item.echo) for item in exchanges} == {("hello", "ping")}
    listeners = json.loads(mesh.envoy("/config_dump?resource=dynamic_listeners"))["configs"]
    (own,) = [item["active_state"] for item in listeners if item["name"] == outbound(PortRef(f"{namespace}/db", 9000))]
    assert own["listener"]["filter_chains"]
    assert "listener_filters" not in own["listener"]


def test_the_proxy_passes_the_tls_of_a_backend_through(mesh: RunningMesh, namespace: str, tmp_path: Path) -> None:
    """D16: the client sees the backend's own certificate."""
    file = certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)
    trusting = ssl.create_default_context(cafile=str(file))
    mesh.apply(
        protocol_service("db", greeting_server(mesh.network, "private", serving), app="https"), namespace=namespace
    )
    exchange = mesh.network.run(talk(mesh.address("db", 9000, namespace), "ping", tls=trusting))
    assert (exchange.greeting, exchange.echo) == ("private", "ping")


def test_the_proxy_closes_a_connection_to_a_service_without_endpoints(mesh: RunningMesh, namespace: str) -> None:
    """D9, D10 for TCP: the connection does not hang."""
    mesh.apply(
        protocol_service("db", greeting_server(mesh.network, "root"), app="tcp"),
        protocol_service("db-v1", app="tcp"),
        split_manifest("db", "db", {"db-v1": 1}),
        namespace=namespace,
    )
    assert mesh.network.run(talk(mesh.address("db", 9000, namespace))).greeting == ""
    mesh.conditions("db", namespace, BackendsReady="NoReadyEndpoints")


def test_a_split_excludes_a_backend_of_another_protocol(mesh: RunningMesh, namespace: str) -> None:
    """R35, R39 for protocols: a condition and an Event report it."""
    web = mesh.backend("web")
    mesh.apply(
        external("web"),
        external("web-v1", web),
        protocol_service("web-v2", greeting_server(mesh.network, "raw"), app="tcp", port=8080),
        split_manifest("web", "web", {"web-v1": 1, "web-v2": 1}),
        namespace=namespace,
    )
    assert mesh.send(20, mesh.request("web", 8080, namespace=namespace)) == {"web": 20}
    status, _, message = mesh.conditions("web", namespace, ResolvedRefs="ProtocolMismatch")["ResolvedRefs"]
    assert status == "False"
    assert "web-v2" in message
    mesh.event("ProtocolMismatch", "web", namespace)


def test_a_service_can_change_its_protocol(mesh: RunningMesh, namespace: str) -> None:
    """R71: from http to tcp and back, on the same address."""
    raw, web = greeting_server(mesh.network, "raw"), mesh.backend("web")
    mesh.apply(protocol_service("app", web, app="http"), namespace=namespace)
    address = mesh.address("app", 9000, namespace)
    request = mesh.request("app", 9000, namespace=namespace)
    assert mesh.send(5, request) == {"web": 5}
    mesh.apply(protocol_service("app", raw, app="tcp"), namespace=namespace)
    assert mesh.network.run(connect_often(address, 5)) == {"raw": 5}
    mesh.apply(protocol_service("app", web, app="http"), namespace=namespace)
    assert mesh.send(5, request) == {"web": 5}


def test_a_change_of_protocol_fails_no_request_to_another_service(mesh: RunningMesh, namespace: str) -> None:
    """R71."""
    web = mesh.backend("web")
    mesh.apply(external("calm", web), protocol_service("app", web, app="http"), namespace=namespace)
    with mesh.load(mesh.request("calm", 8080, namespace=namespace)) as load:
        for app in ("tcp", "http", "grpc", "tls", "http"):
            mesh.apply(protocol_service("app", web, app=app), namespace=namespace)
    assert set(load.counts) == {"web"}


def test_clients_of_the_http_proxy_reach_tcp_services_by_connect(mesh: RunningMesh, namespace: str) -> None:
    v1, v2 = greeting_server(mesh.network, "v1"), greeting_server(mesh.network, "v2")
    mesh.apply(
        protocol_service("db", app="tcp"),
        protocol_service("db-v1", v1),
        protocol_service("db-v2", v2),
        split_manifest("db", "db", {"db-v1": 9, "db-v2": 1}),
        namespace=namespace,
    )
    host = f"db.{namespace}:9000"
    assert mesh.network.run(connect_often(mesh.proxy, 20, tunnel=host)) == {"v1": 18, "v2": 2}
    assert mesh.network.run(connect_often(mesh.proxy, 1, tunnel=f"unknown.{namespace}:9000")) == {"404": 1}
    answer = mesh.ask(Request(mesh.proxy, target=f"http://{host}/", host=host))
    assert answer.status == 400
    assert "CONNECT" in answer.body


def test_the_proxy_calls_http2_backends_with_http2(mesh: RunningMesh, namespace: str) -> None:
    """R65, D16: for clients of HTTP/1.1 and HTTP/2."""
    mesh.apply(
        protocol_service("api", http2_server(mesh.network, "h2"), app="kubernetes.io/h2c", port=8080),
        protocol_service("any", http2_server(mesh.network, "h2"), port_name="grpc", port=8080),
        external("web", mesh.backend("h1")),
        protocol_service("named", mesh.backend("h1"), port_name="grpc", port=8080),
        namespace=namespace,
    )
    for service, server in (("api", "h2"), ("any", "h2"), ("web", "h1")):
        address = mesh.address(service, 8080, namespace)
        assert mesh.send_h2(3, address, f"{service}.{namespace}") == {server: 3}
    for service, server in (("api", "h2"), ("web", "h1"), ("named", "h1")):
        assert mesh.send(3, mesh.request(service, 8080, namespace=namespace)) == {server: 3}


def test_a_split_calls_each_backend_with_its_own_protocol(mesh: RunningMesh, namespace: str) -> None:
    """R65: the proxy selects the backend of each request at random."""
    mesh.apply(
        external("web"),
        external("web-v1", mesh.backend("h1")),
        protocol_service("web-v2", http2_server(mesh.network, "h2"), app="h2c", port=8080),
        split_manifest("web", "web", {"web-v1": 1, "web-v2": 1}),
        namespace=namespace,
    )
    counts = mesh.send(400, mesh.request("web", 8080, namespace=namespace))
    assert set(counts) == {"h1", "h2"}
    assert fits(counts["h1"], 0.5, of=400)


def test_websockets_pass_the_proxy(mesh: RunningMesh, namespace: str) -> None:
    """D16: with the appProtocol `kubernetes.io/ws`, and on an http port."""
    for name, app in (("chat", "kubernetes.io/ws"), ("web", "")):
        mesh.apply(protocol_service(name, websocket_server(mesh.network, name), app=app), namespace=namespace)
        address = mesh.address(name, 9000, namespace)
        assert mesh.network.run(upgrade(address, "ping")) == ["101", name, "ping"]


def test_services_with_the_same_pods_may_have_different_protocols(mesh: RunningMesh, namespace: str) -> None:
    """R67, D15: each client gets the protocol of its Service; the younger Service has a Warning."""
    pod = mesh.backend("pod")
    mesh.apply(protocol_service("one", pod, app="http"), protocol_service("two", pod, app="tcp"), namespace=namespace)
    assert mesh.send(3, mesh.request("one", 9000, namespace=namespace)) == {"pod": 3}
    assert mesh.send(3, mesh.request("two", 9000, namespace=namespace)) == {
        "pod": 3
    }  # the TCP proxy forwards HTTP as bytes
    severity, _, message = mesh.event("ProtocolConflict", "two", namespace)
    assert severity == "Warning"
    assert f"Service {namespace}/one" in message
    assert [item for item in mesh.events("one", namespace) if item[1] == "ProtocolConflict"] == []


def test_up_prints_urls_for_http_services_and_the_protocol_for_tcp_services(tmp_path: Path) -> None:
    """The JSON output has the protocol of each port."""
    assert service_address("127.77.0.9:8080", "http") == "http://127.77.0.9:8080"
    assert service_address("127.77.0.9:8080", "http2") == "http://127.77.0.9:8080"
    assert service_address("127.77.0.9:3306", "tcp-server-first") == "127.77.0.9:3306 (tcp-server-first)"
    with RunningMesh(tmp_path, manifests={"db.yaml": protocol_service("db", app="redis")}) as mesh:
        assert mesh.ready["protocols"] == {"default/db": {"9000": "tcp"}}


def test_a_port_with_an_unknown_protocol_is_http_and_has_a_warning(mesh: RunningMesh, namespace: str) -> None:
    """D16."""
    mesh.apply(protocol_service("app", mesh.backend("web"), app="example.com/own"), namespace=namespace)
    assert mesh.send(3, mesh.request("app", 9000, namespace=namespace)) == {"web": 3}
    assert mesh.event("UnknownProtocol", "app", namespace)[0] == "Warning"
