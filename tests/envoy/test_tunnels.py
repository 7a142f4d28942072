"""Requests in tunnels (CONNECT) to HTTP ports: a sidecar routes each of them, for Services without an address."""

import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import grpc
import pytest
from msgspec import structs
from tests import hpack
from tests.authority import account
from tests.envoy.outbound_rig import CLIENT, PORT, OutboundRig
from tests.envoy.raw_http import RawConnection
from tests.envoy.raw_http2 import DATA, END_HEADERS, HEADERS, Http2Client
from tests.envoy.rig import ADDRESS
from tests.greeter import LIMIT_S, Greeter
from tests.waiting import until

from headgate.model.requests import Match, Path
from headgate.model.routing import Endpoint, Mesh, Mirror, Protocol, Route, Target

BLUE = account("blue")


@pytest.fixture
def rig() -> Iterator[OutboundRig]:
    with OutboundRig() as rig:
        yield rig


def serve(rig: OutboundRig, *names: str, **weights: int) -> Mesh:
    """Serve Services without addresses, each with one server, which requires the sidecar's identity."""
    servers = {name: rig.server(name, BLUE) for name in names}
    mesh = rig.mesh({name: [server.endpoint()] for name, server in servers.items()}, **weights)
    rig.push(mesh)
    return mesh


def tunnel(rig: OutboundRig, authority: str = f"web.default:{PORT}") -> RawConnection:
    """Open a tunnel."""
    connection = RawConnection(socket.create_connection(rig.address))
    connection.send(f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n")
    assert connection.head().status == 200
    return connection


def get(connection: RawConnection, path: str = "/", *fields: str) -> tuple[int, bytes]:
    """Send a request in a tunnel; return the status and the body of its response."""
    connection.send("\r\n".join([f"GET {path} HTTP/1.1", "host: any.example", *fields, "", ""]))
    response = connection.response()
    return response.head.status, response.body


def answers(connection: RawConnection, paths: Iterable[str]) -> Counter[tuple[int, bytes]]:
    return Counter(get(connection, path) for path in paths)


def test_the_requests_in_a_tunnel_are_split_one_by_one(rig):
    """R7: 100 requests at 90/10, with the sidecar's identity; the next weights apply to an open tunnel."""
    mesh = serve(rig, "one", "two", one=90, two=10)
    connection = tunnel(rig)
    assert answers(connection, ["/"] * 100) == {(200, b"one"): 90, (200, b"two"): 10}
    only_two = rig.mesh({entry.ref.service.partition("/")[2]: entry.ready for entry in mesh.endpoints}, two=1)
    rig.push(only_two)
    assert answers(connection, ["/"] * 10) == {(200, b"two"): 10}
    connection.close()


def test_the_requests_in_a_tunnel_are_matched_one_by_one(rig):
    mesh = serve(rig, "web", "books")
    (books,) = (table.routes[0].split for table in mesh.tables if table.ref.service == "default/books")
    matched = Route(split=books, match=Match(path=Path(kind="prefix", value="/books")))
    tables = (
        structs.replace(table, routes=(matched,)) if table.ref.service == "default/web" else table
        for table in mesh.tables
    )
    rig.push(structs.replace(mesh, tables=tuple(tables)))
    connection = tunnel(rig)
    assert get(connection, "/books/1") == (200, b"books")
    assert get(connection, "/cars") == (404, b"headgate: no route of default/web/80 matches this request\n")
    connection.close()


def test_the_requests_in_a_tunnel_are_mirrored_one_by_one(rig):
    """R44: with the sidecar's identity; no copy changes a response."""
    web, copies = (rig.server(name, BLUE) for name in ("web", "copies"))
    mesh = rig.mesh({"web": [web.endpoint()], "copies": [copies.endpoint()]})
    (ref,) = (table.ref for table in mesh.tables if table.ref.service == "default/copies")
    mirror = Mirror(ref=ref, targets=(Target(ref=ref, weight=1),), numerator=1, denominator=1)
    tables = (
        table
        if table.ref == ref
        else structs.replace(table, routes=tuple(structs.replace(route, mirrors=(mirror,)) for route in table.routes))
        for table in mesh.tables
    )
    rig.push(structs.replace(mesh, tables=tuple(tables)))
    connection = tunnel(rig)
    assert answers(connection, ["/"] * 20) == {(200, b"web"): 20}
    connection.close()
    until(lambda: copies.tls_requests == 20, "each request is mirrored")


@pytest.mark.parametrize("authority", ["WEB.Default:80", "web.default.:80", "web.default.svc.cluster.local:80"])
def test_a_tunnel_leads_to_the_service_by_each_spelling_of_its_name(rig, authority):
    serve(rig, "web")
    connection = tunnel(rig, authority)
    assert get(connection) == (200, b"web")
    connection.close()


def test_a_header_of_the_client_does_not_select_another_service(rig):
    """The server gets no header of the tunnel."""
    web, other = rig.server("web", BLUE), rig.server("other", BLUE)
    rig.push(rig.mesh({"web": [web.endpoint()], "other": [other.endpoint()]}))
    connection = tunnel(rig)
    assert get(connection, "/", "x-headgate-tunnel: other.default:80") == (200, b"web")
    assert b"x-headgate" not in web.decrypted.lower()
    connection.close()


def test_calls_of_a_grpc_channel_are_split_one_by_one(rig):
    """grpcio opens a tunnel for a channel; 100 calls at 90/10."""
    greeters = {name: Greeter(name) for name in ("one", "two")}
    ready = {name: [Endpoint(address=ADDRESS, port=greeter.address.port)] for name, greeter in greeters.items()}
    rig.push(rig.mesh(ready, protocol=Protocol.HTTP2, one=90, two=10))
    options = [("grpc.http_proxy", f"http://{rig.address}")]
    try:
        with grpc.insecure_channel(f"web.default:{PORT}", options) as channel:
            for _ in range(100):
                channel.unary_unary("/Greeter/Hello")(b"", timeout=LIMIT_S)
        assert [greeter.calls for greeter in greeters.values()] == [90, 10]
    finally:
        for greeter in greeters.values():
            greeter.close()


def test_tunnels_of_one_http2_connection_lead_to_their_own_hosts(rig):
    """Envoy's pools of connections differ by the host: a tunnel gets no connection of another tunnel."""
    serve(rig, "one", "two")
    client = Http2Client(RawConnection(socket.create_connection(rig.address)))
    names = []
    for number, service in enumerate(["one", "two", "one"]):
        stream = 2 * number + 1
        client.request(stream, [(":method", "CONNECT"), (":authority", f"{service}.default:{PORT}")], END_HEADERS)
        assert hpack.status(client.next(HEADERS, stream=stream).content) == 200
        client.send(DATA, 0, stream, b"GET / HTTP/1.1\r\nhost: any\r\n\r\n")
        names.append(client.next(DATA, stream=stream).content.rpartition(b"\n")[2].decode())
    client.connection.close()
    assert names == ["one", "two", "one"]


@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.TCP])
def test_an_open_tunnel_survives_changes_of_services_weights_and_certificates(rig, protocol):
    one, two = (rig.server(name, BLUE) for name in ("one", "two"))
    ready = {"one": [one.endpoint()], "two": [two.endpoint()]}
    rig.push(rig.mesh(ready, protocol=protocol, one=1))
    connection = tunnel(rig)

    def answered_by() -> bytes:
        if protocol.is_http:
            return get(connection)[1]
        connection.send("hello\n")
        return connection.exactly(4).strip()

    assert answered_by() == b"one"
    rig.push(rig.mesh({**ready, "three": [two.endpoint()]}, protocol=protocol, one=1))
    assert answered_by() == b"one"
    rig.push(rig.mesh(ready, protocol=protocol, two=1))
    assert answered_by() == (b"two" if protocol.is_http else b"one")
    rig.credential = rig.authority.issue(CLIENT)
    rig.push(rig.mesh(ready, protocol=protocol, one=1))
    assert answered_by() == b"one"
    connection.close()


def test_the_end_of_a_tunnel_arrives_in_less_than_a_second(rig):
    """A client that only waits sees that the server has closed the connection; by default Envoy delays this by a second."""
    server = socket.create_server((ADDRESS, 0))
    ready = [Endpoint(address=ADDRESS, port=server.getsockname()[1])]
    rig.push(rig.mesh({"web": ready}, protocol=Protocol.TCP))

    def wait_for_end() -> float:
        """Return how long the end of a connection takes from the server to the client, in seconds."""
        connection = tunnel(rig)
        connection.send("hello")
        accepted, _ = server.accept()
        accepted.recv(5)
        closed_at = time.monotonic()
        accepted.close()
        assert connection.rest() == b""
        waited = time.monotonic() - closed_at
        connection.close()
        return waited

    assert any(wait_for_end() < 0.8 for _ in range(30))  # a busy machine delays some, and the default all
    server.close()
