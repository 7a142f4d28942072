"""Each request counts once, in the right series: the reports of a real Envoy, compared with the backends' counts."""

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from msgspec import structs
from tests.authority import CLIENT, DOMAIN, OTHER, Authority
from tests.envoy.counting import REQUESTS, Report, ReportingInboundRig, ReportingRig
from tests.envoy.gateway_ports import SHOP, gateway_port
from tests.envoy.inbound_rig import ADDRESS
from tests.envoy.raw_http import RawConnection, RawServer, answer
from tests.envoy.rig import Echo
from tests.ports import free_port
from tests.protocols import websocket_server
from tests.waiting import until
from tests.wire import Address, Load, Request, listens

from headgate.envoy import traffic_stats
from headgate.envoy.names import parse
from headgate.envoy.outcomes import parse_code
from headgate.envoy.stats_sink import BOUNDS
from headgate.envoy.upstream_tls import MESH_ALPN, UNREACHED_HEADER
from headgate.envoy.view import Node
from headgate.model.access import Access, ConnectionRule, Grant, RequestRule
from headgate.model.authorities import server_name
from headgate.model.latency_buckets import BOUNDS_US
from headgate.model.requests import Match, Redirect
from headgate.model.requests import Path as RequestPath
from headgate.model.routing import (
    Broken,
    Endpoint,
    Endpoints,
    Frontend,
    InboundPort,
    Mesh,
    Mirror,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    ServerName,
    Split,
    Target,
)
from headgate.resources.meta import Key
from headgate.telemetry.counters import packed_counters
from headgate.telemetry.counters.histogram import bucket_of
from headgate.telemetry.reports.otlp import read_report

LATENCY, ATTEMPTS = "mesh.latency", "mesh.attempts"
CONNECTIONS, FAILED, SENT, RECEIVED = "mesh.connections", "mesh.failed", "mesh.sent", "mesh.received"
DENIED = "mesh.denied"
COPIES = {"cluster": "mirror/default/two/80"}
DEAD_PORT = 1


@pytest.fixture
def rig() -> Iterator[ReportingRig]:
    """Run a new proxy, without counts, and two backends."""
    with ReportingRig() as rig:
        for name in ("one", "two"):
            rig.echo(name)
        yield rig


@pytest.fixture
def inbound() -> Iterator[ReportingInboundRig]:
    with ReportingInboundRig() as rig:
        rig.echo("app")
        yield rig
        rig.abort()


def ready(rig: ReportingRig, *routes: Route, **more) -> None:
    """Push routes to the proxy and wait until it listens."""
    rig.apply(*routes, **more)
    until(lambda: listens(rig.address), "the listener")


def share(rig: ReportingRig, name: str, weight: int) -> Target:
    return Target(ref=rig.ref(name), weight=weight)


def split_route(rig: ReportingRig, **weights: int) -> Route:
    return Route(split=Split(targets=tuple(share(rig, name, weight) for name, weight in weights.items())))


# --- exact counts


def test_each_request_counts_once_under_load_while_the_configuration_changes(rig):
    """R86, R97: the requests that proxies report add up to the requests that the backends count."""
    ready(rig, split_route(rig, one=9, two=1))
    flow = Load(rig.network, [Request(rig.address, "/", "web")] * 4)
    third = rig.echo("three")
    changes = [
        lambda: rig.apply(split_route(rig, one=1, two=9)),
        lambda: rig.change_listeners("first"),
        lambda: rig.apply(split_route(rig, one=1, two=1), services={"three": [third, rig.echoes["one"]]}),
        lambda: rig.apply(rig.route("two"), rig.route("one")),
        lambda: rig.change_listeners("second"),
        lambda: rig.apply(split_route(rig, one=1, two=1, three=1)),
    ]
    for change in changes:
        change()
        mark = flow.sent
        until(lambda mark=mark: flow.sent >= mark + 100, "the load sends requests after the change")
    answered = flow.stop()
    seen = sum(len(echo.seen) for echo in rig.echoes.values())
    assert seen >= answered["one"] + answered["two"] + answered["three"] > 0
    rig.reports.wait_for(REQUESTS, {f"outbound/default/web/{rig.address.port}": seen}, "cluster")
    by_backend = {f"default/{name}": len(echo.seen) for name, echo in rig.echoes.items()}
    assert rig.reports.counts(REQUESTS, "backend") == Counter(by_backend)


def test_requests_to_an_address_count_for_the_current_pod_of_the_address(rig):
    """No request fails when another pod takes over the address."""
    ready(rig, rig.route("one"))
    mesh, port = rig.apply(rig.route("one")), rig.echoes["one"].port
    flow = Load(rig.network, [Request(rig.address, "/", "web")] * 4)
    for pod in ("default/first", "default/second"):
        endpoint = Endpoint(address=ADDRESS, port=port, workload=pod)
        rig.push(structs.replace(mesh, endpoints=(Endpoints(ref=rig.ref("one"), ready=(endpoint,)),)))
        until(lambda pod=pod: rig.reports.total(REQUESTS, pod=f"{pod}:{port} "), f"requests to {pod}")
    answered = flow.stop()
    assert answered == {"one": flow.sent}
    rig.reports.wait_for(REQUESTS, {"default/one": flow.sent}, "backend")
    before = rig.reports.counts(REQUESTS, "pod")
    rig.load(10)
    rig.reports.wait_for(REQUESTS, before + Counter({f"default/second:{port} ": 10}), "pod")


def test_counts_survive_the_removal_of_their_listener(rig):
    ready(rig, rig.route("one"))
    rig.load(20)
    rig.reports.wait_for(REQUESTS, {"default/one": 20}, "backend")
    rig.push(Mesh(domain="cluster.local"))
    until(lambda: not listens(rig.address), "the listener is gone")
    ready(rig, rig.route("one"))
    rig.load(5)
    rig.reports.wait_for(REQUESTS, {"default/one": 25}, "backend")


def test_no_count_is_lost_while_the_receiver_rejects_reports(rig):
    ready(rig, rig.route("one"))
    rig.load(10)
    rig.reports.wait_for(REQUESTS, {"default/one": 10}, "backend")
    rig.reports.rejecting = True
    rig.load(7)
    mark = rig.reports.rejected
    until(lambda: rig.reports.rejected >= mark + 3, "rejected reports")
    rig.reports.rejecting = False
    rig.reports.wait_for(REQUESTS, {"default/one": 17}, "backend")


# --- the series in which a request counts


def test_responses_count_by_status_code(rig):
    ready(rig, rig.route("one"))
    for status, times in (("200 OK", 3), ("404 Not Found", 2), ("500 Broken", 1)):
        rig.echo("one").status = status
        rig.load(times)
    rig.reports.wait_for(REQUESTS, {"200-": 3, "404-": 2, "500-": 1}, "code", backend="default/one")
    rig.reports.wait_for(LATENCY, {"default/one": 6}, "backend")


def test_a_retried_request_counts_once(rig):
    dead = Echo(rig.network, "dead")
    dead.close()
    until(lambda: not listens(Address(ADDRESS, dead.port)), "the port does not listen")
    ready(rig, rig.route("one"), services={"one": [dead, rig.echoes["one"]]})
    assert rig.load(10) == {"one": 10}
    rig.reports.wait_for(REQUESTS, {("default/one", "200-"): 10}, "backend", "code")


def test_an_attempt_in_which_no_program_answered_counts_for_the_backend_that_was_tried(rig):
    """D33: the request counts for the backend that answered it."""
    dead = Echo(rig.network, "dead")
    dead.close()
    until(lambda: not listens(Address(ADDRESS, dead.port)), "the port does not listen")
    ready(rig, split_route(rig, one=1, two=1), services={"two": [dead]})
    assert rig.load(20) == {"one": 20}
    rig.reports.wait_for(REQUESTS, {("default/one", "200-"): 20}, "backend", "code")
    attempts = rig.reports.counts(ATTEMPTS, "backend", "code")
    assert attempts.keys() == {("default/two", "0UF")}
    assert attempts.total() >= 10


def test_an_attempt_that_the_servers_proxy_could_not_pass_on_counts_for_the_backend(rig):
    """A server's sidecar answers for an application that refuses connections; the caller's proxy repeats the request."""
    fields = f"{UNREACHED_HEADER}: true\r\nconnection: close\r\ncontent-length: 0"
    head = f"HTTP/1.1 503 Service Unavailable\r\n{fields}\r\n\r\n".encode()
    ready(rig, split_route(rig, one=1, two=1), services={"two": [server_that_answers(rig, head)]})
    assert rig.load(20) == {"one": 20}
    rig.reports.wait_for(REQUESTS, {("default/one", "200-"): 20}, "backend", "code")
    assert rig.reports.counts(ATTEMPTS, "backend", "code").keys() == {("default/two", "503-")}


def test_each_attempt_without_an_answer_counts_for_its_backend(rig):
    """A GET is repeated twice (D30); the request counts once, with its last attempt."""
    ready(rig, rig.route("short"), services={"short": [server_that_answers(rig, b"")]})
    assert rig.load(5) == {"503": 5}
    rig.reports.wait_for(REQUESTS, {("default/short", "503URX,UC"): 5}, "backend", "code")
    rig.reports.wait_for(ATTEMPTS, {("default/short", "0UC"): 15}, "backend", "code")


def test_a_repeated_request_counts_once_and_its_lost_attempt_too(rig):
    """The server resets every connection on its second request, so every second request needs two attempts."""
    server = RawServer()

    def serve(connection: RawConnection) -> None:
        if connection.requests > 1:
            connection.reset()
            return
        connection.message()
        connection.send(answer("once"))

    server.use(serve)
    ready(rig, rig.route("once"), services={"once": [server.address]})
    assert rig.load(10, connections=1) == {"once": 10}
    rig.reports.wait_for(REQUESTS, {("default/once", "200-"): 10}, "backend", "code")
    rig.reports.wait_for(ATTEMPTS, {("default/once", "0UC"): 9}, "backend", "code")
    server.close()


def test_answers_of_a_program_are_no_attempts(rig):
    ready(rig, rig.route("one"))
    for status in ("200 OK", "404 Not Found", "503 Broken"):
        rig.echo("one").status = status
        rig.load(3)
    rig.reports.wait_for(REQUESTS, {"200-": 3, "404-": 3, "503-": 3}, "code")
    rig.reports.wait_for(ATTEMPTS, {}, "backend")


def test_a_request_that_reached_no_server_counts_for_the_service(rig):
    ready(rig, rig.route("without-endpoints"))
    assert rig.load(4) == {"503": 4}
    cluster = f"outbound/default/web/{rig.address.port}"
    rig.reports.wait_for(REQUESTS, {(cluster, "503UH", "", ""): 4}, "cluster", "code", "pod", "backend")


def test_a_failing_share_of_a_split_counts_for_the_service(rig):
    """D11: the proxy answers half of the requests with 500, without a cluster."""
    broken = Split(targets=(share(rig, "one", 1),), broken=(Broken(weight=1, status=500, reason="why"),))
    ready(rig, Route(split=broken))
    answered = rig.load(40)
    rig.reports.wait_for(REQUESTS, {"200-": answered["one"], "500NC": answered["500"]}, "code")
    found = rig.reports.counts(REQUESTS, "cluster", "backend")
    assert {parse(cluster) for cluster, _ in found} == {PortRef("default/web", rig.address.port)}
    assert {backend for _, backend in found} == {"", "default/one"}


def test_a_redirect_counts_for_the_service(rig):
    redirect = Route(split=Split(targets=()), redirect=Redirect(status=302, scheme="https"))
    ready(rig, redirect)
    assert rig.load(3) == {"302": 3}
    rig.reports.wait_for(REQUESTS, {"302-": 3}, "code")
    assert {parse(name) for name in rig.reports.counts(REQUESTS, "cluster")} == {
        PortRef("default/web", rig.address.port)
    }


def test_disconnects_of_the_client_and_of_the_server_count_separately(rig):
    ready(rig, rig.route("one"))
    rig.echo("one").hangs = True
    for _ in range(3):
        with socket.create_connection(rig.address) as client:
            client.sendall(b"GET /left HTTP/1.1\r\nhost: web\r\n\r\n")
            until(lambda: rig.take_requests("one"), "the server has the request")
    rig.reports.wait_for(REQUESTS, {"0DC": 3}, "code")
    short = server_that_answers(rig, b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello")
    rig.apply(rig.route("short"), services={"short": [short]})
    for _ in range(2):
        assert rig.ask().body == "IncompleteReadError"
    rig.reports.wait_for(REQUESTS, {"0DC": 3, "200UPE": 2}, "code")
    assert parse_code("200UPE").complete_status == 0
    rig.reports.wait_for(LATENCY, {}, "backend")  # without a complete response there is no latency


class Backend(NamedTuple):
    """A server that `server_that_answers` started; it listens on `port`."""

    port: int


def server_that_answers(rig: ReportingRig, answer: bytes, *, after: bytes = b"\r\n\r\n") -> Backend:
    """Start a server that reads until `after`, sends `answer` and closes the connection."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(after)
            writer.write(answer)
            await writer.drain()
        writer.close()

    async def start() -> Backend:
        server = await asyncio.start_server(respond, ADDRESS, 0)
        rig.network.opened.add(server)
        return Backend(server.sockets[0].getsockname()[1])

    return rig.network.run(start())


def test_grpc_responses_count_by_http_status_and_grpc_status(rig):
    ready(rig, rig.route("one"))
    for status, times in ((0, 2), (5, 1), (14, 3)):
        rig.echo("one").status = f"200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: {status}"
        for _ in range(times):
            rig.ask(content_type="application/grpc")
    rig.echo("one")
    rig.load(1)
    rig.reports.wait_for(
        REQUESTS, {("200-", "0"): 2, ("200-", "5"): 1, ("200-", "14"): 3, ("200-", ""): 1}, "code", "grpc"
    )


def test_latencies_are_reported_in_the_buckets_of_headgate(rig):
    """R89: all proxies use the same bounds, so that their counts can be added."""
    ready(rig, rig.route("one"))
    rig.load(30)
    rig.reports.wait_for(LATENCY, {"default/one": 30}, "backend")
    metrics = [
        metric
        for part in rig.reports.all[-1].message.resource_metrics
        for scope in part.scope_metrics
        for metric in scope.metrics
        if metric.name == LATENCY
    ]
    (point,) = metrics[0].histogram.data_points
    assert tuple(point.explicit_bounds) == pytest.approx(BOUNDS)
    assert sum(point.bucket_counts) == 30


def test_a_latency_that_equals_a_bound_is_in_the_bucket_above(rig, monkeypatch):
    """R89: `bucket_of` returns the bucket that Envoy chooses."""
    monkeypatch.setattr(traffic_stats, "_WHOLE", "%REQ(TOOK)%")
    ready(rig, rig.route("one"))
    latencies = [bound + more for bound in BOUNDS_US for more in (-1, 0)]
    for microseconds in latencies:
        assert rig.ask(took=str(microseconds)).status == 200
    rig.reports.wait_for(LATENCY, {"default/one": len(latencies)}, "backend")
    found = read_report(rig.reports.all[-1].message.SerializeToString())
    (counts,) = (sample.buckets for sample in found.samples if sample.series.name == LATENCY)
    assert packed_counters.by_index(counts, packed_counters.WIDE) == Counter(map(bucket_of, latencies))


def test_mirrored_requests_count_separately_for_the_pod_that_received_them(rig):
    """D22: mirrored requests count neither as successes nor as failures of a Service."""
    mirror = Mirror(ref=rig.ref("two"), targets=(Target(ref=rig.ref("two"), weight=1),), numerator=1, denominator=1)
    arrived = f"default/two-1:{rig.echoes['two'].port} "
    ready(rig, rig.route("one", mirrors=(mirror,)))
    rig.push(mesh_with_mirror(rig, mirror, rig.echoes["two"].port))
    rig.load(10)
    rig.reports.wait_for(LATENCY, {(arrived, "200-"): 10}, "pod", "code", **COPIES)
    rig.echo("two").status = "500 Broken"
    rig.load(3)
    rig.reports.wait_for(LATENCY, {(arrived, "200-"): 10, (arrived, "500-"): 3}, "pod", "code", **COPIES)
    rig.reports.wait_for(REQUESTS, {"200-": 13}, "code", cluster=f"outbound/default/web/{rig.address.port}")
    rig.echo("two").status = "200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 14"
    for _ in range(2):
        rig.ask(content_type="application/grpc")
    rig.reports.wait_for(LATENCY, {("200-", ""): 10, ("500-", ""): 3, ("200-", "14"): 2}, "code", "grpc", **COPIES)


def test_mirrored_requests_without_an_answer_are_failures_of_the_copies(rig):
    mirror = Mirror(ref=rig.ref("two"), targets=(Target(ref=rig.ref("two"), weight=1),), numerator=1, denominator=1)
    ready(rig, rig.route("one", mirrors=(mirror,)))
    rig.push(mesh_with_mirror(rig, mirror, free_port()))
    rig.load(5)
    until(lambda: rig.reports.total(REQUESTS, **COPIES) >= 5)
    found = rig.reports.counts(REQUESTS, "code", **COPIES)
    assert found.total() == 5
    assert {parse_code(code).complete_status for code in found} == {0}


def mesh_with_mirror(rig: ReportingRig, mirror: Mirror, port: int) -> Mesh:
    """Return a mesh whose mirror has one pod, at `port`."""
    pod = Endpoint(address=ADDRESS, port=port, workload="default/two-1")
    ref = PortRef("default/web", rig.address.port)
    one = Endpoint(address=ADDRESS, port=rig.echoes["one"].port)
    return Mesh(
        domain="cluster.local",
        frontends=(Frontend(service=ref.service, address=ADDRESS, ports=(ref.port,)),),
        tables=(RouteTable(ref=ref, routes=(rig.route("one", mirrors=(mirror,)),), protocol=Protocol.HTTP),),
        endpoints=(Endpoints(ref=rig.ref("one"), ready=(one,)), Endpoints(ref=mirror.ref, ready=(pod,))),
    )


# --- connections


def database(rig: ReportingRig, *ports: int, proxy_port: int = 0) -> Address:
    """Push the TCP Service `default/web` with pods on these ports; return the address that the proxy listens on."""
    ref = PortRef("default/web", rig.address.port)
    pods = tuple(
        Endpoint(address=ADDRESS, port=port, workload=f"default/db-{number}") for number, port in enumerate(ports)
    )
    mesh = Mesh(
        domain="cluster.local",
        frontends=(Frontend(service=ref.service, address=ADDRESS, ports=(ref.port,)),),
        tables=(
            RouteTable(
                ref=ref, routes=(Route(split=Split(targets=(Target(ref=ref, weight=1),))),), protocol=Protocol.TCP
            ),
        ),
        endpoints=(Endpoints(ref=ref, ready=pods),),
    )
    rig.push(mesh, Node(id=rig.node.id, proxy_address=ADDRESS if proxy_port else "", proxy_port=proxy_port))
    address = Address(ADDRESS, proxy_port or ref.port)
    until(lambda: listens(address), "the listener")
    return address


def exchange(address: Address, data: bytes = b"hello\n", *, connect: str = "") -> bytes:
    """Send bytes over a new connection, through a CONNECT tunnel if its target is given; return the whole answer."""
    with socket.create_connection(address) as client:
        if connect:
            client.sendall(f"CONNECT {connect} HTTP/1.1\r\nhost: {connect}\r\n\r\n".encode())
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(1)
            if b" 200 " not in head:
                return head.split()[1]
        client.sendall(data)
        with contextlib.suppress(ConnectionError):
            return b"".join(iter(lambda: client.recv(4096), b""))
    return b""


def test_an_open_connection_counts_at_once_and_its_bytes_count_when_the_connection_ends(rig):
    server = server_that_answers(rig, b"welcome\n", after=b"\n")
    address, pod = database(rig, server.port), f"default/db-0:{server.port} "
    with socket.create_connection(address) as client:
        client.sendall(b"no end of line")
        rig.reports.wait_for(CONNECTIONS, {pod: 1}, "pod")
    for _ in range(4):
        assert exchange(address) == b"welcome\n"
    rig.reports.wait_for(CONNECTIONS, {pod: 5}, "pod")
    rig.reports.wait_for(SENT, {pod: len(b"no end of line") + 4 * len(b"hello\n")}, "pod")
    rig.reports.wait_for(RECEIVED, {pod: 4 * len(b"welcome\n")}, "pod")
    assert not rig.reports.total(FAILED)


def test_a_connection_that_was_retried_on_another_pod_counts_once(rig):
    server = server_that_answers(rig, b"welcome\n", after=b"\n")
    address = database(rig, DEAD_PORT, server.port)
    for _ in range(6):
        assert exchange(address) == b"welcome\n"
    rig.reports.wait_for(CONNECTIONS, {f"default/db-1:{server.port} ": 6}, "pod")
    assert not rig.reports.total(FAILED)


@pytest.mark.parametrize(("ports", "pod"), [((DEAD_PORT,), f"default/db-0:{DEAD_PORT} "), ((), "")])
def test_a_connection_that_reached_no_pod_counts_as_failed(rig, ports, pod):
    address = database(rig, *ports)
    assert [exchange(address) for _ in range(3)] == [b""] * 3
    rig.reports.wait_for(FAILED, {(f"outbound/default/web/{address.port}", pod): 3}, "cluster", "pod")
    assert not rig.reports.total(CONNECTIONS)


def test_a_connect_tunnel_counts_as_a_connection_not_as_a_request(rig):
    proxy_port = rig.free().port
    server = server_that_answers(rig, b"welcome\n", after=b"\n")
    address, pod = database(rig, server.port, proxy_port=proxy_port), f"default/db-0:{server.port} "
    target = f"web.default:{rig.address.port}"
    for _ in range(3):
        assert exchange(address, connect=target) == b"welcome\n"
    rig.reports.wait_for(CONNECTIONS, {pod: 3}, "pod")
    rig.reports.wait_for(SENT, {pod: 3 * len(b"hello\n")}, "pod")
    rig.reports.wait_for(RECEIVED, {pod: 3 * len(b"welcome\n")}, "pod")
    assert not rig.reports.total(REQUESTS)
    database(rig, proxy_port=proxy_port)
    assert exchange(address, connect=target) == b"503"
    rig.reports.wait_for(FAILED, {f"outbound/default/web/{rig.address.port}": 1}, "cluster")
    assert exchange(address, connect="unknown.default:1") == b"404"
    rig.reports.wait_for(
        FAILED, {f"outbound/default/web/{rig.address.port}": 1, "": 1}, "cluster"
    )  # an unknown host belongs to no Service


def test_each_request_in_a_tunnel_to_an_http_port_counts_and_the_tunnel_does_not(rig):
    proxy_port, backend = rig.free().port, rig.echo("web")
    rig.push(chat_mesh(rig, backend.port), Node(id=rig.node.id, proxy_address=ADDRESS, proxy_port=proxy_port))
    proxy, target = Address(ADDRESS, proxy_port), f"web.default:{rig.address.port}"
    until(lambda: listens(proxy), "the listener")
    with socket.create_connection(proxy) as client:
        client.sendall(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode())
        assert b" 200 " in client.recv(4096)
        for _ in range(3):
            client.sendall(b"GET / HTTP/1.1\r\nhost: any\r\n\r\n")
            assert client.recv(4096).endswith(b"web")
    rig.reports.wait_for(REQUESTS, {f"default/chat-0:{backend.port} ": 3}, "pod")
    rig.reports.wait_for(CONNECTIONS, {"tunnel": 1}, "cluster")


def test_a_websocket_through_the_http_proxy_counts_once_when_it_ends(rig):
    """The log of established tunnels, which the HTTP proxy needs for CONNECT, is written for upgrades too."""
    proxy_port = rig.free().port
    chat = websocket_server(rig.network, "chat")
    rig.push(chat_mesh(rig, chat.address.port), Node(id=rig.node.id, proxy_address=ADDRESS, proxy_port=proxy_port))
    proxy = Address(ADDRESS, proxy_port)
    until(lambda: listens(proxy), "the listener")
    target = f"http://web.default:{rig.address.port}/chat"
    upgrade_head = f"GET {target} HTTP/1.1\r\nhost: web.default\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
    for ended in range(1, 4):
        with socket.create_connection(proxy) as client:
            client.sendall(upgrade_head.encode())
            answer = b""
            while not answer.endswith(b"chat\n"):
                answer += client.recv(4096)
            assert b" 101 " in answer
            mark = len(rig.reports.all)
            rig.reports.next(after=mark + 1)  # a flush after the upgrade: the open WebSocket is in no report
            assert rig.reports.total(REQUESTS) == ended - 1
        rig.reports.wait_for(REQUESTS, {f"default/chat-0:{chat.address.port} ": ended}, "pod")
    assert not rig.reports.total(CONNECTIONS)


def chat_mesh(rig: ReportingRig, port: int) -> Mesh:
    """Return a mesh with the HTTP Service `default/web`, whose only pod listens on a port."""
    ref = PortRef("default/web", rig.address.port)
    pod = Endpoint(address=ADDRESS, port=port, workload="default/chat-0")
    return Mesh(
        domain="cluster.local",
        frontends=(Frontend(service=ref.service, address=ADDRESS, ports=(ref.port,)),),
        tables=(RouteTable(ref=ref, routes=(Route(split=Split(targets=(Target(ref=ref, weight=1),))),)),),
        endpoints=(Endpoints(ref=ref, ready=(pod,)),),
    )


# --- the inbound side of a sidecar


def test_a_sidecar_counts_inbound_requests_in_plaintext_only(inbound):
    """Requests over mutual TLS count at the client's proxy."""
    port = inbound.port(inbound.echoes["app"].port)
    inbound.serve(port)
    inbound.wait_for(port)
    plain = inbound.caller(port)
    meshed = inbound.caller(port, CLIENT)
    assert [plain.get("/", x_forwarded_for="10.1.2.3").status for _ in range(3)] == [200] * 3
    assert [meshed.get().status for _ in range(5)] == [200] * 5
    inbound.reports.wait_for(REQUESTS, {(str(port.port), ADDRESS, "200-"): 3}, "port", "source", "code")
    inbound.reports.wait_for(LATENCY, {ADDRESS: 3}, "source")


def test_a_gateway_counts_tls_connections_without_a_route_as_failed(rig):
    address = rig.free()
    names = (ServerName(host="*"), ServerName(host="shop.example", route=rig.route("one", origin=SHOP)))
    rig.apply(gateways=(gateway_port(address, protocol=Protocol.TLS, server_names=names),))
    until(lambda: listens(address), "the listener")
    for name in ("", "other.example"):
        with pytest.raises(OSError, match=r"EOF|reset"):
            rig.handshake(address, name)
    rig.reports.wait_for(FAILED, {f"gateway/default/edge/{address.port}": 2}, "cluster")
    assert rig.ask(address=address).status == 0


def test_a_sidecar_counts_successful_and_failed_inbound_plaintext_connections(inbound):
    server = server_that_answers(inbound, b"welcome\n", after=b"\n")
    port = inbound.port(server.port, Protocol.TCP)
    inbound.serve(port)
    inbound.wait_for(port)
    address = Address(ADDRESS, port.port)
    assert exchange(address) == b"welcome\n"
    inbound.reports.wait_for(CONNECTIONS, {(str(port.port), ADDRESS): 1}, "port", "source")
    inbound.reports.wait_for(RECEIVED, {ADDRESS: len(b"welcome\n")}, "source")
    dead = inbound.port(DEAD_PORT, Protocol.TCP)
    inbound.serve(dead)
    inbound.wait_for(dead)
    assert exchange(Address(ADDRESS, dead.port)) == b""
    inbound.reports.wait_for(FAILED, {str(dead.port): 1}, "port")


# --- requests and connections that access rules deny

BOOKS = RequestRule(name="books/look", match=Match(path=RequestPath(kind="exact", value="/books")))
ORIGIN = Key("access.smi-spec.io", "TrafficTarget", "default", "target")


def only(*sources: str) -> Access:
    """Return access rules that allow these identities to request /books and to open connections."""
    grant = Grant(origin=ORIGIN, sources=sources, requests=(BOOKS,), connections=(ConnectionRule(name="all"),))
    return Access(closed=True, grants=(grant,))


def test_the_clients_proxy_counts_responses_marked_as_denied_separately(rig):
    """R68. A server without a sidecar may send any mark: the proxy reports only the mark's first character."""
    ready(rig, rig.route("one"))
    for mark in ("", "\r\nx-headgate-denied: true", "\r\nx-headgate-denied: anything"):
        rig.echo("one").status = f"403 Forbidden{mark}"
        rig.load(2)
    rig.reports.wait_for(REQUESTS, {"403-": 2, "403-t": 2, "403-a": 2}, "code")


def test_the_sidecar_marks_only_the_403_of_its_access_rules_as_denied(inbound):
    """R68, R70: the sidecar removes the application's mark, and does not mark the 403 of an unknown upgrade."""
    app = inbound.echo("app")
    app.status = "403 Forbidden\r\nx-headgate-denied: true\r\nx-headgate-unreached: true"
    port = inbound.port(app.port)
    inbound.serve(port, access=only(CLIENT))
    inbound.wait_for(port)
    own = inbound.caller(port, CLIENT).get("/books")
    assert (own.status, own.headers.get("x-headgate-denied"), own.headers.get("x-headgate-unreached")) == (
        403,
        None,
        None,
    )
    refused = inbound.caller(port, OTHER).get("/books")
    assert (refused.status, refused.headers.get("x-headgate-denied")) == (403, "true")
    assert CLIENT not in refused.body
    unknown = inbound.caller(port, CLIENT).get("/books", connection="upgrade", upgrade="unknown")
    assert (unknown.status, unknown.headers.get("x-headgate-denied")) == (403, None)
    over_grpc = inbound.caller(port, OTHER).get("/books", content_type="application/grpc")
    assert (over_grpc.headers.get("grpc-status"), over_grpc.headers.get("x-headgate-denied")) == ("7", "true")


def test_a_sidecar_counts_the_plaintext_requests_that_it_denied(inbound):
    port = inbound.port(inbound.echoes["app"].port)
    inbound.serve(port, access=only(CLIENT))
    inbound.wait_for(port)
    plain = inbound.caller(port)
    assert [plain.get("/books").status for _ in range(3)] == [403] * 3
    inbound.reports.wait_for(REQUESTS, {(str(port.port), ADDRESS, "403-t"): 3}, "port", "source", "code")


def test_a_sidecar_counts_denied_connections_by_the_callers_identity(inbound):
    """R68, R69: plaintext has no identity. A failed handshake, here by a foreign certificate, is not counted."""
    port = inbound.port(server_that_answers(inbound, b"welcome\n", after=b"\n").port, Protocol.TCP)
    inbound.serve(port, access=only(CLIENT))
    inbound.wait_for(port)
    foreign = Authority("another").issue(OTHER)
    tls = [inbound.client_tls(one, [MESH_ALPN]) for one in (CLIENT, OTHER, OTHER, foreign)]
    assert [answer_by_tls(inbound, port, one) for one in tls] == [b"welcome\n", b"", b"", b""]
    assert exchange(Address(ADDRESS, port.port)) == b""
    key = str(port.port), ADDRESS
    inbound.reports.wait_for(DENIED, {(*key, OTHER): 2, (*key, ""): 1}, "port", "source", "identity")
    assert not inbound.reports.total(FAILED)


def test_a_sidecar_that_allows_no_caller_counts_every_connection_as_denied(inbound):
    port = inbound.port(server_that_answers(inbound, b"welcome\n", after=b"\n").port, Protocol.TCP)
    inbound.serve(port, access=Access(closed=True))
    inbound.wait_for(port)
    assert [answer_by_tls(inbound, port, inbound.client_tls(CLIENT, [MESH_ALPN])) for _ in range(2)] == [b"", b""]
    inbound.reports.wait_for(DENIED, {CLIENT: 2}, "identity")


def answer_by_tls(inbound: ReportingInboundRig, port: InboundPort, tls: ssl.SSLContext) -> bytes:
    """Connect to a TCP port over TLS and send a line; return the answer."""
    with contextlib.suppress(OSError), socket.create_connection(Address(ADDRESS, port.port)) as plain:
        name = server_name(port.protocols[0].services[0], DOMAIN)
        with tls.wrap_socket(plain, server_hostname=name) as client:
            client.sendall(b"hello\n")
            return b"".join(iter(lambda: client.recv(4096), b""))
    return b""


# --- limits


def test_the_overflow_counter_counts_requests_beyond_the_limit_of_latency_series(monkeypatch):
    monkeypatch.setattr(traffic_stats, "MAX_HISTOGRAMS", 2)
    with ReportingRig() as rig:
        rig.echo("one")
        ready(rig, rig.route("one"))
        for status in ("200 OK", "201 Made", "404 Not Found", "409 Conflict"):
            rig.echo("one").status = status
            rig.load(5)
        rig.reports.wait_for(REQUESTS, {"200-": 5, "201-": 5}, "code")
        until(lambda: rig.reports.total("server.stats_overflow.histogram") == 10, "the overflow counter")


def test_an_unused_series_is_evicted_and_starts_again_at_zero():
    """The receiver must detect the eviction: the new value does not include earlier counts."""
    with ReportingRig(sweep_s=0.5) as rig:
        rig.echo("one")
        ready(rig, rig.route("one"))

        def first_report_after(requests: int) -> Report:
            mark = len(rig.reports.all)
            rig.load(requests)
            return rig.reports.next(lambda report: any(name == REQUESTS for name, _ in report.values), after=mark)

        first_report_after(5)
        for _ in range(12):  # a proxy without traffic sends reports too
            rig.reports.next()
        assert not rig.reports.total(REQUESTS)
        found = first_report_after(1)
        assert [value for (name, _), value in found.values.items() if name == REQUESTS] == [1]
