"""Connections to a Service port with TLSRoutes in a real Envoy: a transparent sidecar, and tunnels through an HTTP proxy."""

import ssl
from collections.abc import Callable, Iterator, Mapping

import pytest
from msgspec import structs
from tests.envoy.counting import ReportingRig
from tests.envoy.outbound_rig import OutboundRig, RedirectedRig, TlsServer, redirection_skip_reason
from tests.envoy.test_traffic_counts import exchange, server_that_answers
from tests.make.objects import GATEWAY_API
from tests.waiting import until
from tests.wire import Address, listens

from headgate.envoy import names as resource_names
from headgate.envoy.view import Node
from headgate.model.routing import (
    Endpoint,
    Endpoints,
    Frontend,
    Mesh,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    ServerName,
    Split,
    Target,
)
from headgate.resources.meta import Key

WEB = Address("10.98.0.1", 80)
NAMES = {"a.example": "one", "*.example": "two", "mixed.b.example": "one", "gone.example": ""}
UNROUTED = ("example", "other.org", "")
SERVERS = ("one", "two")


def hello(name: str) -> bytes:
    """Return the first bytes of a TLS client that requests a server name."""
    context, sent = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO()
    context.check_hostname = False
    session = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name or None)
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return sent.read()


def by_server_name(mesh: Mesh, names: Mapping[str, str]) -> Mesh:
    """Return a mesh in which connections to `web` go to servers by server name; all remaining ones are closed."""
    targets = {name: _route(mesh, server) if server else None for name, server in names.items()}
    entries = [ServerName(host=name, route=targets.get(name)) for name in sorted({"*", *names})]
    tables = (
        structs.replace(table, routes=(), server_names=tuple(entries)) if table.ref.service == "default/web" else table
        for table in mesh.tables
    )
    return structs.replace(mesh, tables=tuple(tables))


def _route(mesh: Mesh, server: str) -> Route:
    (ref,) = (entry.ref for entry in mesh.endpoints if entry.ref.service == f"default/{server}")
    origin = Key(GATEWAY_API, "TLSRoute", "default", server)
    return Route(split=Split(targets=(Target(ref=ref, weight=1),)), name="0", origin=origin)


def serve(rig: OutboundRig, **more: Mapping[str, str]) -> dict[str, TlsServer]:
    """Serve `web`, whose connections have the routes in `NAMES`; return the servers."""
    servers = {name: rig.server(name) for name in ("web", *SERVERS)}
    endpoints = {name: [server.endpoint()] for name, server in servers.items()}
    rig.push(by_server_name(rig.mesh(endpoints, protocol=Protocol.TLS, **more), NAMES))
    return servers


def check(servers: Mapping[str, TlsServer], send: Callable[[bytes], bytes]) -> None:
    """Send the first bytes of clients; each reaches the server of its name, and no other one."""
    for name, expected in (
        ("a.example", "one"),
        ("x.y.example", "two"),
        ("mixed.b.example", "one"),
        ("A.Example", "one"),
    ):
        data = hello(name)
        assert send(data) == b""
        until(lambda server=servers[expected], data=data: server.plaintext == data, f"{name} reaches {expected}")
        servers[expected].plaintext = b""
    for name in ("gone.example", *UNROUTED):
        assert send(hello(name)) == b""
    assert send(b"hello\n") == b""  # no TLS
    assert not any(server.plaintext for server in servers.values())


def test_a_tunnel_to_a_tls_port_follows_the_server_name_of_its_client(rig: OutboundRig) -> None:
    servers = serve(rig)
    check(servers, lambda data: rig.tunnel("web", data))


def test_a_redirected_connection_follows_its_server_name(redirected: RedirectedRig) -> None:
    servers = serve(redirected, addresses={"web": WEB.host})
    check(servers, lambda data: redirected.exchange(WEB, data))


def test_routes_by_server_name_can_come_and_go_while_a_tunnel_is_open(rig: OutboundRig) -> None:
    """R7: the connection keeps its server; a new one follows the new routes."""
    servers = {name: rig.server(name) for name in ("web", *SERVERS)}
    plain = rig.mesh({name: [server.endpoint()] for name, server in servers.items()}, protocol=Protocol.TLS)
    rig.push(plain)
    assert rig.tunnel("web") == b"web\n"
    rig.push(by_server_name(plain, {"*": "two"}))
    data = hello("any.example")
    assert rig.tunnel("web", data) == b""
    until(lambda: servers["two"].plaintext == data, "the connection reaches the server of all names")
    rig.push(plain)
    assert rig.tunnel("web") == b"web\n"


def test_a_connection_in_a_tunnel_counts_once_with_its_server(counting: ReportingRig) -> None:
    """The tunnel's own series leads to no Service; a connection without a route counts as failed."""
    server = server_that_answers(counting, b"welcome\n", after=b"db.example")
    ref, origin = PortRef("default/web", counting.address.port), Key(GATEWAY_API, "TLSRoute", "default", "db")
    route = Route(split=Split(targets=(Target(ref=ref, weight=1),)), name="0", origin=origin)
    names = (ServerName(host="*"), ServerName(host="db.example", route=route))
    mesh = Mesh(
        domain="cluster.local",
        frontends=(Frontend(service=ref.service, address=counting.address.host, ports=(ref.port,)),),
        tables=(RouteTable(ref=ref, routes=(), server_names=names, protocol=Protocol.TLS),),
        endpoints=(
            Endpoints(
                ref=ref,
                ready=(Endpoint(address=counting.address.host, port=server.port, workload="default/db-0"),),
            ),
        ),
    )
    proxy = Address(counting.address.host, counting.free().port)
    counting.push(mesh, Node(id=counting.node.id, proxy_address=proxy.host, proxy_port=proxy.port))
    until(lambda: listens(proxy), "the listener")
    target = f"web.default:{ref.port}"
    assert [exchange(proxy, hello("db.example"), connect=target) for _ in range(3)] == [b"welcome\n"] * 3
    assert exchange(proxy, hello("other.example"), connect=target) == b""
    tunnel = resource_names.tunnel(resource_names.outbound(ref))
    counts = {resource_names.rule(ref, origin, "0"): 3, tunnel: 4}
    counting.reports.wait_for("mesh.connections", counts, "cluster")
    counting.reports.wait_for("mesh.failed", {resource_names.outbound(ref): 1}, "cluster")


@pytest.fixture
def counting() -> Iterator[ReportingRig]:
    with ReportingRig() as rig:
        yield rig


@pytest.fixture
def rig() -> Iterator[OutboundRig]:
    with OutboundRig() as rig:
        yield rig


@pytest.fixture
def redirected() -> Iterator[RedirectedRig]:
    if reason := redirection_skip_reason():
        pytest.skip(reason)
    with RedirectedRig() as rig:
        yield rig
