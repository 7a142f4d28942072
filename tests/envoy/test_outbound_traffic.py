"""The outbound side of a sidecar in a real Envoy, with servers that do not run headgate (R70, R74, R76)."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs
from tests.authority import account
from tests.envoy.outbound_rig import CLIENT, OpenConnection, OutboundRig, RedirectedRig, redirection_skip_reason
from tests.waiting import until
from tests.wire import Address, Load

from headgate.cli.probe import Batch, ProbeRequest, RequestBatch
from headgate.envoy.node_ids import OUTBOUND_PORT
from headgate.envoy.routes import ORIGINAL_ADDRESS
from headgate.model.access import Access, Grant
from headgate.model.mutual_tls import TlsMode
from headgate.model.requests import Match
from headgate.model.requests import Path as PathMatch
from headgate.model.routing import (
    Endpoint,
    InboundPort,
    Mirror,
    PortProtocol,
    PortRef,
    Protocol,
    Route,
    Target,
    Workload,
)
from headgate.resources.meta import Key

BLUE, GREEN = account("blue"), account("green")


@pytest.fixture(scope="module")
def envoy() -> Iterator[OutboundRig]:
    with OutboundRig() as rig:
        yield rig


@pytest.fixture
def rig(envoy: OutboundRig) -> OutboundRig:
    return envoy


def load(rig, count, connections=1):
    return Load(rig.network, [rig.request()] * connections, most=count).wait()


def test_a_split_between_identities_is_exact_and_verifies_each_identity(rig):
    blue, green = rig.server("blue", BLUE), rig.server("green", GREEN)
    rig.push(rig.mesh({"blue": [blue.endpoint()], "green": [green.endpoint()]}, blue=9, green=1))
    assert load(rig, 1000) == {"blue": 900, "green": 100}
    assert (blue.tls_requests, green.tls_requests) == (900, 100)
    assert blue.plaintext + green.plaintext == b""
    for server in (blue, green):
        assert {(item.peer, item.version) for item in server.tls_connections} == {(CLIENT, "TLSv1.3")}
        assert {item.server_name for item in server.tls_connections} == {f"80.{server.name}.default.svc.cluster.local"}
        assert "headgate" not in {item.alpn for item in server.tls_connections}


def test_a_copy_over_mutual_tls_is_counted_with_the_version_of_tls(rig):
    blue, green = rig.server("blue", BLUE), rig.server("green", GREEN)
    mesh = rig.mesh(
        {"web": [blue.endpoint()], "green": [structs.replace(green.endpoint(), workload="default/green-1")]}
    )
    target = next(table.ref for table in mesh.tables if table.ref.service == "default/green")
    mirror = Mirror(ref=target, targets=(Target(ref=target, weight=1),), numerator=1, denominator=1)
    tables = tuple(
        table
        if table.ref == target
        else structs.replace(table, routes=tuple(structs.replace(route, mirrors=(mirror,)) for route in table.routes))
        for table in mesh.tables
    )
    rig.push(structs.replace(mesh, tables=tables))
    assert load(rig, 5) == {"blue": 5}
    until(lambda: green.tls_requests == 5)
    assert green.plaintext == b""
    pod = f'pod="default/green-1:{green.port} TLSv1.3"'
    until(lambda: pod in rig.network.run(rig.envoy.admin.get("/stats?format=prometheus")).decode())


def test_a_server_with_another_identity_gets_no_request(rig):
    """R70, R76: the caller gets 503; the impostor gets only the beginning of a handshake."""
    impostor = rig.server("impostor", GREEN)
    rig.push(rig.mesh({"web": [impostor.endpoint(BLUE)]}))
    assert rig.get().status == 503
    assert (impostor.requests, impostor.decrypted, impostor.plaintext) == (0, b"", b"")


def test_an_endpoint_with_an_identity_is_never_called_in_plaintext(rig):
    server = rig.server("plain")
    rig.push(rig.mesh({"web": [server.endpoint(BLUE)]}))
    assert rig.get().status == 503
    assert server.requests == 0
    assert b"GET" not in server.plaintext


def test_endpoints_with_and_without_identity_share_a_cluster(rig):
    """One Service selects pods with and without a sidecar, of two ServiceAccounts."""
    servers = [rig.server("one", BLUE), rig.server("two", GREEN), rig.server("three")]
    rig.push(rig.mesh({"web": [server.endpoint() for server in servers]}))
    assert load(rig, 300) == {"one": 100, "two": 100, "three": 100}
    assert [server.tls_requests for server in servers] == [100, 100, 0]


@pytest.mark.parametrize("with_tls_endpoint", [False, True])
def test_no_request_fails_when_an_endpoint_changes_between_tls_and_plaintext(rig, with_tls_endpoint):
    """Pods of a workload change one by one, so another endpoint of the Service may already use TLS."""
    web, other = rig.server("web", BLUE), rig.server("other", BLUE)
    beside = [other.endpoint()] if with_tls_endpoint else []
    rig.push(rig.mesh({"web": [web.endpoint(""), *beside]}))
    flow = Load(rig.network, [rig.request()] * 4, pause=0.001)
    for identity in (BLUE, "", BLUE, ""):
        rig.push(rig.mesh({"web": [web.endpoint(identity), *beside]}))
        before = web.requests
        wanted = 30 if identity else 0
        until(lambda before=before: web.requests > before + 30, "requests flow")
        secured, before = web.tls_requests, web.requests  # in this order, as requests arrive meanwhile
        until(lambda before=before: web.requests >= before + 30, "requests flow")
        secured = web.tls_requests - secured
        assert (secured >= wanted) if identity else (secured == 0), (identity, secured)
    assert flow.stop().keys() <= {"web", "other"}


def test_a_changed_identity_of_an_endpoint_replaces_the_old_one(rig):
    """A Deployment gets another ServiceAccount: clients reject the old certificate and accept the new one."""
    web = rig.server("web", BLUE)
    rig.push(rig.mesh({"web": [web.endpoint()]}))
    assert rig.get().answered_by == "web"
    web.change_identity(GREEN)
    rig.push(rig.mesh({"web": [web.endpoint(BLUE)]}))
    assert rig.get().status == 503
    rig.push(rig.mesh({"web": [web.endpoint(GREEN)]}))
    assert rig.get().answered_by == "web"
    assert web.plaintext == b""


@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.TCP_SERVER_FIRST, Protocol.TLS])
def test_a_connect_tunnel_uses_the_sidecars_identity(rig, protocol):
    server = rig.server("db", BLUE)
    rig.push(rig.mesh({"db": [server.endpoint()]}, protocol=protocol))
    assert rig.tunnel("db") == b"db\n"
    (connection,) = server.tls_connections
    assert (connection.peer, connection.server_name) == (CLIENT, "80.db.default.svc.cluster.local")
    assert connection.alpn == "headgate"
    assert server.plaintext == b""


def test_a_connect_tunnel_to_another_identity_sends_no_data(rig):
    impostor = rig.server("db", GREEN)
    rig.push(rig.mesh({"db": [impostor.endpoint(BLUE)]}, protocol=Protocol.TCP))
    assert rig.tunnel("db") == b"503"
    assert impostor.decrypted + impostor.plaintext == b""


def test_the_sidecar_sends_http2_over_tls(rig):
    server = rig.server("grpc", BLUE)
    rig.push(rig.mesh({"web": [server.endpoint()]}, protocol=Protocol.HTTP2))
    request = rig.request()._replace(method="POST")  # a GET is repeated, and this server answers no HTTP/2
    flow = Load(rig.network, [request], most=1)
    until(lambda: server.decrypted.startswith(b"PRI * HTTP/2.0"), "the server is called")
    server.change_identity(BLUE)
    flow.wait()
    assert server.plaintext == b""


@pytest.mark.parametrize("tls_mode", [TlsMode.READY, TlsMode.PERMISSIVE, TlsMode.STRICT])
@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.HTTP_ANY, Protocol.TCP, Protocol.TCP_SERVER_FIRST])
def test_a_sidecar_calls_a_sidecar_in_every_tls_mode(rig, protocol, tls_mode):
    """A pod calls its own Service, so one proxy has both the outbound and the inbound configuration."""
    server, address = rig.server("app"), rig.free()
    ref = PortRef("default/web", 80)
    protocols = (PortProtocol(protocol=protocol, services=(ref,)),)
    port = InboundPort(port=address.port, application=server.port, protocols=protocols)
    endpoint = Endpoint(address=address.host, port=address.port, identity=CLIENT if tls_mode.clients_use_tls else "")
    mesh = rig.mesh({"web": [endpoint]}, protocol=protocol)
    (own,) = mesh.workloads
    own = structs.replace(own, address=address.host, ports=(port,), tls_mode=tls_mode)
    rig.push(structs.replace(mesh, workloads=(own,)))
    if protocol.is_http:
        until(lambda: rig.get().answered_by == "app", "requests arrive")
    until(
        lambda: rig.tunnel("web") == b"app\n" if not protocol.is_http else rig.tunnel("web", GET).endswith(b"app"),
        "connections arrive",
    )


@pytest.mark.parametrize("scoped", [True, False])
def test_a_request_without_a_matching_route_gets_404_that_names_the_service(rig, scoped):
    server = rig.server("web", BLUE)
    mesh = rig.mesh({"web": [server.endpoint()]})
    (table,) = mesh.tables
    books = Route(split=table.routes[0].split, match=Match(path=PathMatch(kind="prefix", value="/books")))
    rig.push(structs.replace(mesh, scoped=scoped, tables=(structs.replace(table, routes=(books,)),)))
    answer = rig.get()
    assert (answer.status, answer.body) == (404, "headgate: no route of default/web/80 matches this request\n")


def test_a_service_that_a_workload_may_not_call_gets_403_with_the_reason(rig):
    """D21 `deny`: a sidecar gets no configuration of a Service until a TrafficTarget allows the sidecar's account."""
    server = rig.server("web", BLUE)
    port = InboundPort(port=server.port, application=server.port, protocols=(PortProtocol(protocol=Protocol.HTTP),))
    mesh = rig.mesh({"web": [server.endpoint()]})

    def allow(*sources):
        grants = (Grant(origin=Key("access.smi-spec.io", "TrafficTarget", "default", "t"), sources=sources),)
        access = Access(closed=True, grants=grants)
        closed = Workload(name="default/web-1", address=server.address, identity=BLUE, ports=(port,), access=access)
        rig.push(structs.replace(mesh, scoped=True, workloads=(*mesh.workloads, closed)))

    allow(GREEN)
    answer = rig.get()
    assert answer.status == 403
    assert answer.body.startswith(f"headgate: access denied: {CLIENT} may not call the host web.default:80")
    assert "TrafficTarget" in answer.body
    allow(GREEN, CLIENT)
    assert rig.get().answered_by == "web"


# --- redirected connections (transparent sidecars)


@pytest.fixture(scope="module")
def network() -> Iterator[RedirectedRig]:
    if reason := redirection_skip_reason():
        pytest.skip(reason)
    with RedirectedRig() as rig:
        yield rig


WEB = Address("10.98.0.10", 80)
UNKNOWN_ADDRESS = "10.98.0.99"
GET = b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n"


def test_redirected_requests_are_split_by_the_service_address(network):
    blue, green = network.server("blue", BLUE), network.server("green", GREEN)
    endpoints = {"blue": [blue.endpoint()], "green": [green.endpoint()]}
    network.push(network.mesh(endpoints, addresses={"web": WEB.host}, blue=3, green=1))
    until(lambda: b"200 OK" in network.exchange(WEB, GET), "the Service's listener")
    blue.requests = green.requests = 0
    assert all(b"200 OK" in network.exchange(WEB, GET) for _ in range(40))
    assert (blue.requests, green.requests) == (30, 10)
    assert blue.plaintext + green.plaintext == b""


def test_a_forged_header_does_not_select_the_routes_of_another_service(network):
    """The proxy selects routes by a header that it sets itself and removes from the request."""
    one, two = network.server("one", BLUE), network.server("two", GREEN)
    addresses = {"web": WEB.host, "other": "10.98.0.11"}
    network.push(network.mesh({"web": [one.endpoint()], "other": [two.endpoint()]}, addresses=addresses))
    until(lambda: b"200 OK" in network.exchange(WEB, GET), "the Service's listener")
    forged = b"".join(f"{ORIGINAL_ADDRESS}: {addresses['other']}:80\r\n".encode() for _ in range(2))
    answers = [network.exchange(WEB, GET.replace(b"host:", forged + b"host:")) for _ in range(2)]
    assert all(answer.endswith(b"one") for answer in answers)
    assert ORIGINAL_ADDRESS.encode() not in one.decrypted
    assert not two.requests


def test_the_listener_of_try_has_the_routes_of_redirected_connections(network):
    """Its client names the address of the Service, and each response names the backend."""
    blue, green = network.server("blue", BLUE), network.server("green", GREEN)
    endpoints = {"blue": [blue.endpoint()], "green": [green.endpoint()]}
    mesh = network.mesh(endpoints, addresses={"web": WEB.host}, blue=3, green=1)
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has at most 107 bytes
        path = Path(short, "try.sock")
        network.push(mesh, structs.replace(network.node, try_socket=str(path)))
        until(lambda: b"200 OK" in network.exchange(WEB, GET), "the Service's listener")
        blue.requests = green.requests = 0
        batch = Batch(request=to_address("10.98.0.10:80"), number=40, concurrency=2)
        tally = network.network.run(RequestBatch(path, batch).run())
        unknown = network.network.run(
            RequestBatch(path, structs.replace(batch, request=to_address("10.98.0.99:80"))).run()
        )
    assert (tally.backends, tally.statuses) == ({"default/blue": 30, "default/green": 10}, {200: 40})
    assert (blue.requests, green.requests) == (30, 10)
    assert ORIGINAL_ADDRESS.encode() not in blue.decrypted
    (failure,) = unknown.failures
    assert failure.status == 404
    assert failure.message.startswith("headgate: this proxy has no routes for website.default")


def to_address(address: str) -> ProbeRequest:
    headers = (("host", "website.default"), (ORIGINAL_ADDRESS, address))
    return ProbeRequest(method="GET", url="http://website.default/", headers=headers)


def test_routes_work_again_after_a_mesh_without_services(network):
    """Without listeners Envoy drops the resources that listeners share, and subscribes again for the next listener."""
    web = network.server("web", BLUE)
    for _ in range(2):
        network.push(network.mesh({"web": [web.endpoint()]}, addresses={"web": WEB.host}))
        until(lambda: b"200 OK" in network.exchange(WEB, GET), "the Service's listener")
        network.push(network.mesh({}))
        until(lambda: not network.count("total_listeners_draining"), "the last listener is gone")


def test_redirected_connections_are_forwarded_over_tls(network):
    db = network.server("db", BLUE)
    mesh = network.mesh({"web": [db.endpoint()]}, protocol=Protocol.TCP, addresses={"web": WEB.host})
    network.push(mesh)
    until(lambda: network.exchange(WEB) == b"db\n", "the Service's listener")
    assert {item.alpn for item in db.tls_connections} == {"headgate"}
    assert db.plaintext == b""


def test_a_change_of_one_service_closes_no_connection_of_another_service(network):
    """Each Service port has its own listener, and Envoy drains only a changed one."""
    one, two = network.server("one", BLUE), network.server("two", GREEN)
    addresses = {"web": WEB.host, "other": "10.98.0.11"}
    endpoints = {"web": [one.endpoint()], "other": [two.endpoint()]}
    network.push(network.mesh(endpoints, protocol=Protocol.TCP, addresses=addresses))
    until(lambda: network.exchange(WEB) == b"one\n", "the Service's listener")
    with contextlib.closing(OpenConnection(network.network, WEB)) as connection:
        assert connection.exchange() == b"one\n"
        more = endpoints | {"third": [two.endpoint()]}, addresses | {"third": "10.98.0.12"}
        network.push(network.mesh(more[0], protocol=Protocol.TCP, addresses=more[1]))
        network.push(network.mesh({"web": endpoints["web"]}, protocol=Protocol.TCP, addresses={"web": WEB.host}))
        assert connection.exchange() == b"one\n"


@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.HTTP])
def test_a_pod_of_a_headless_service_is_called_over_tls(network, protocol):
    """StatefulSets: clients resolve the Service and connect to one of the pods."""
    pods = [network.server(f"pod{n}", (BLUE, GREEN, "")[n], address=f"10.98.1.{n + 1}") for n in range(3)]
    network.push(network.mesh({"db": [pod.endpoint() for pod in pods]}, protocol=protocol))
    for pod in pods:
        until(
            lambda pod=pod: network.exchange(Address(pod.address, pod.port), GET).endswith(pod.name.encode()),
            "the pod answers",
        )
    assert [bool(pod.tls_requests) for pod in pods] == [True, True, False]
    assert all(pod.tls_connections[0].server_name == "80.db.default.svc.cluster.local" for pod in pods[:2])
    assert pods[0].plaintext + pods[1].plaintext == b""


def test_a_split_of_a_headless_root_applies_to_connections_to_its_pods(network):
    web, blue = network.server("web", address="10.98.1.9"), network.server("blue", BLUE)
    network.push(network.mesh({"web": [web.endpoint()], "blue": [blue.endpoint()]}, blue=1))
    until(lambda: network.exchange(Address(web.address, web.port), GET).endswith(b"blue"), "the split applies")


@pytest.mark.parametrize("host", ["web-0.web", "web-0.web.default", "web-0.web.default.svc.cluster.local"])
def test_the_name_of_a_pod_of_a_headless_root_means_the_pod_without_the_split(network, host):
    """D37: the name distinguishes a call of the pod from one of the Service, whose name has the same addresses."""
    web, blue = network.server("web", GREEN, address="10.98.1.9"), network.server("blue", BLUE)
    pod = structs.replace(web.endpoint(), hostname="web-0")
    network.push(network.mesh({"web": [pod], "blue": [blue.endpoint()]}, blue=1))
    where = Address(web.address, web.port)

    def answer(name: str) -> bytes:
        return network.exchange(where, f"GET / HTTP/1.1\r\nhost: {name}\r\n\r\n".encode())

    until(lambda: answer("web.default").endswith(b"blue"), "the split applies")
    assert answer(f"{host}:{web.port}").endswith(b"web")
    assert answer(host).endswith(b"web")
    assert web.plaintext == b""


@pytest.mark.parametrize("passthrough", [True, False])
def test_connections_to_unknown_addresses_are_forwarded_or_closed(network, passthrough):
    outside = network.server("outside", address=UNKNOWN_ADDRESS)
    network.push(structs.replace(network.mesh({}), passthrough=passthrough))
    wanted = b"outside\n" if passthrough else b""
    until(lambda: network.exchange(Address(UNKNOWN_ADDRESS, outside.port)) == wanted, "the change is active")


def test_the_sidecar_closes_a_connection_to_its_capturing_listener(network):
    """Forwarded to its original destination, such a connection would return to the listener forever."""
    server = network.server("web")
    network.push(network.mesh({"web": [server.endpoint()]}, addresses={"web": WEB.host}))
    until(lambda: b"200 OK" in network.exchange(WEB, GET), "the proxy listens")
    assert network.exchange(Address("127.0.0.1", OUTBOUND_PORT), mark=0) == b""
