"""Splits of ports with different protocols between pods with sidecars: exact shares of connections, calls and upgrades."""

from typing import Any

import pytest
from tests.make.objects import Object, port, service
from tests.pods.conftest import (
    Cluster,
    app_deployment,
    mesh_namespace,
    split_in,
)
from tests.pods.kit import IMAGE

PLACE = "protocols"
PORTS = {"mysql": 3306, "redis": 6379, "tls": 8443, "grpc": 9090, "h2c": 9091, "ws": 8081}
"""The ports of the Services, by their `appProtocol`. A server sends first on the port of `mysql`."""
SERVE = """
import socketserver, ssl, subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
import grpc
name = sys.argv[1].encode()
request = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=website -keyout /tmp/key.pem -out /tmp/crt.pem"
subprocess.run(request.split(), check=True)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/crt.pem", "/tmp/key.pem")
upgraded = b"HTTP/1.1 101 Switching Protocols\\r\\nconnection: upgrade\\r\\nupgrade: websocket\\r\\n\\r\\n" + name

def respond(server, connection):
    if server.server_address[1] == 3306:
        connection.sendall(name)
    elif server.server_address[1] == 8443:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            encrypted.recv(1)
            encrypted.sendall(name)
    else:
        received = connection.recv(65536)
        while received and server.server_address[1] == 8081 and not received.endswith(b"\\r\\n\\r\\n"):
            received += connection.recv(65536)
        connection.sendall(upgraded if server.server_address[1] == 8081 else name)

class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            respond(self.server, self.request)
        except OSError:
            pass  # such as a probe, which sends nothing

class Calls(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: name)

calls = grpc.server(ThreadPoolExecutor(2), handlers=(Calls(),))
for port in (9090, 9091):
    calls.add_insecure_port(f"0.0.0.0:{port}")
calls.start()
for port in (3306, 6379, 8443, 8081):
    server = socketserver.ThreadingTCPServer(("0.0.0.0", port), Handler)
    threading.Thread(target=server.serve_forever).start()
calls.wait_for_termination()
"""
"""Answers with its name, over each protocol."""
SEND = """
import collections, json, socket, ssl, sys
import grpc
protocol, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
unverified = ssl.create_default_context()
unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
upgrade = b"GET / HTTP/1.1\\r\\nhost: website\\r\\nconnection: upgrade\\r\\nupgrade: websocket\\r\\n\\r\\n"

def read(connection, sent):
    connection.sendall(sent)
    received = b""
    while not received.endswith((b"v1", b"v2")):
        part = connection.recv(65536)
        assert part, received
        received += part
    return received[-2:].decode()

def ask():
    with socket.create_connection(("website", port), timeout=50) as connection:
        if protocol == "tls":
            with unverified.wrap_socket(connection, server_hostname="website") as encrypted:
                assert b"website" in encrypted.getpeercert(True)
                return read(encrypted, b"?")
        return read(connection, {"mysql": b"", "redis": b"?", "ws": upgrade}[protocol])

if protocol in ("grpc", "h2c"):
    name = grpc.insecure_channel(f"website:{port}").unary_unary("/shop.Shop/Name")
    ask = lambda: name(b"", timeout=50).decode()
print(json.dumps(collections.Counter(ask() for _ in range(count))))
"""
"""Sends requests over a protocol to a port, and prints how often each server answered."""


@pytest.fixture(scope="module")
def shop(shared_cluster: Cluster) -> Cluster:
    """A client, and two versions of a server whose Services have a port for each protocol."""
    shared_cluster.apply(
        mesh_namespace(PLACE),
        protocol_service("website", part="website"),
        *(protocol_service(f"website-{version}", version=version) for version in ("v1", "v2")),
        *(server(version) for version in ("v1", "v2")),
        workload("client", "sleep", "infinity"),
    )
    shared_cluster.wait_rolled_out(PLACE, "v1", "v2", "client")
    shared_cluster.wait_in_sync(PLACE)
    return shared_cluster


def workload(name: str, *command: str, **labels: str) -> dict[str, Any]:
    """Return a Deployment of a program in headgate's image, which has gRPC for Python."""
    made = app_deployment(PLACE, name, command=command, **labels)
    made["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE
    return made


def server(version: str) -> dict[str, Any]:
    """Return the Deployment of a server, which is ready when it accepts connections."""
    made = workload(version, "python3", "-c", SERVE, version, part="website", version=version)
    made["spec"]["template"]["spec"]["containers"][0] |= {
        "ports": [{"containerPort": port} for port in PORTS.values()],
        "readinessProbe": {"tcpSocket": {"port": PORTS["ws"]}, "periodSeconds": 1},
    }
    return made


def protocol_service(name: str, **selector: str) -> Object:
    """Return a Service with a port for each protocol."""
    ports = [port(number, protocol, app=protocol) for protocol, number in PORTS.items()]
    return service(name, *ports, selector=selector, namespace=PLACE)


@pytest.mark.parametrize("protocol", PORTS)
def test_a_split_is_exact_for_connections_calls_and_upgrades(shop: Cluster, protocol: str) -> None:
    """R34, R61, R65. The client receives the certificate of the server itself over TLS."""
    for weights, count, expected in (((90, 10), 100, {"v1": 90, "v2": 10}), ((1, 3), 40, {"v1": 10, "v2": 30})):
        shop.apply(split_in(PLACE, "canary", "website", website_v1=weights[0], website_v2=weights[1]))
        shop.wait_programmed("trafficsplit/canary", PLACE)
        assert shop.python(PLACE, "client", SEND, protocol, PORTS[protocol], count) == expected
