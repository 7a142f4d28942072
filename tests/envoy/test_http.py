"""What a proxy does to requests and responses, over plain sockets: at every place, without mutual TLS and with it.

The cases are reports from users of other meshes and gateways, and the rows of the table in docs/tasks/protocols.md.
"""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.envoy.gateway_ports import SHOP as SHOP_ROUTE
from tests.envoy.http_rig import SERVICES, HttpRig, Place
from tests.envoy.raw_http import RawConnection, RawMessage, answer
from tests.wire import DEADLINE_S

from headgate.envoy import http_connections
from headgate.envoy.http_connections import IDLE_MS
from headgate.model.requests import Filters, HeaderEdit, Match, Path, PathEdit, Redirect, Rewrite

SOON_S = 0.5  # a proxy that forwards at once has done so long before
LARGE = 100_000  # bytes: more than the 60 KiB that Envoy accepts by default


@pytest.fixture
def rig(http_rig: HttpRig) -> HttpRig:
    return http_rig


@pytest.fixture(params=[*SERVICES])
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(rig: HttpRig, where: str, service: str) -> Place:
    return next(place for place in rig.places(service) if place.name == where)


# --- offers and expectations


@pytest.mark.parametrize("protocols", ["TLS/1.2", "TLS/1.3, TLS/1.2", "h2c, TLS/1.2", "h2c", "other", ""])
def test_an_upgrade_is_an_offer_that_the_proxy_ignores(rig, place, protocols):
    """RFC 9110, 7.8: Apache HttpClient 5.4 offers TLS in each request."""
    assert place.ask("/a", "Connection: Upgrade", f"Upgrade: {protocols}").head.status == 200
    head = rig.server.seen[-1].head
    assert head.line == "GET /a HTTP/1.1"
    assert not head.values("upgrade")
    assert not head.values("connection")


@pytest.mark.parametrize("protocols", ["websocket", "WebSocket", "other, websocket"])
def test_an_upgrade_to_websocket_is_forwarded(rig, place, protocols):
    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(RawMessage(connection.head(), b""))
        connection.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        connection.send(connection.exactly(3))

    rig.server.use(serve)
    client = rig.connect(place)
    client.send(place.head("/", "Connection: Upgrade", f"Upgrade: {protocols}"))
    assert client.head().status == 101
    client.send(b"abc")
    assert client.exactly(3) == b"abc"
    assert rig.server.seen[-1].head.get("upgrade").lower() == "websocket"


@pytest.mark.parametrize(("status", "body"), [("404 Not Found", b"abc"), ("200 OK", b""), ("302 Found", b"")])
def test_a_server_may_ignore_the_offer_of_websocket(rig, place, status, body):
    """Envoy drops the body of a response below 400, and changes headers before it adds those of the server."""

    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(connection.message())
        connection.send(answer("abc", status, "x-a: server", "x-b: server"))

    rig.server.use(serve)
    edit = HeaderEdit(set=(("x-a", "route"),), remove=("x-b",))
    rig.set_routes(1, filters=Filters(response=edit))
    answered = place.ask("/", "Connection: Upgrade", "Upgrade: websocket")
    rig.set_routes()
    assert (answered.head.line, answered.body) == (f"HTTP/1.1 {status}", body)
    is_changed = {"x-a": "route", "x-b": ""} if body else {"x-a": "route,server", "x-b": "server"}
    assert {name: answered.head.get(name) for name in is_changed} == is_changed


def test_the_server_decides_about_an_expectation(rig, place):
    """RFC 9110, 10.1.1: the client gets the server's 401, and sends no byte of the body."""

    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(RawMessage(connection.head(), b""))
        connection.send(answer("no", "401 Unauthorized"))
        connection.close()

    rig.server.use(serve)
    client = rig.connect(place)
    client.send(place.head("/upload", "Expect: 100-continue", "Content-Length: 1000", method="PUT"))
    assert client.response().head.status == 401
    assert rig.server.seen[-1].head.get("expect") == "100-continue"


def test_the_client_gets_100_when_the_server_sends_it(rig, place):
    allowed = threading.Event()

    def serve(connection: RawConnection) -> None:
        head = connection.head()
        allowed.wait(DEADLINE_S)
        connection.send("HTTP/1.1 100 Continue\r\n\r\n")
        connection.send(answer(connection.body(head).body))

    rig.server.use(serve)
    client = rig.connect(place)
    client.send(place.head("/upload", "Expect: 100-continue", "Content-Length: 3", method="PUT"))
    assert client.is_silent(SOON_S)
    allowed.set()
    assert client.head().status == 100
    client.send(b"abc")
    assert client.response().body == b"abc"


def test_early_hints_arrive_before_the_response(rig, place):
    """RFC 9110, 15.2: a proxy must forward a 1xx response."""
    seen = threading.Event()

    def serve(connection: RawConnection) -> None:
        connection.message()
        connection.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
        seen.wait(DEADLINE_S)
        connection.send(answer("page"))

    rig.server.use(serve)
    client = rig.connect(place)
    client.send(place.head())
    hints = client.head()
    seen.set()
    assert (hints.status, hints.get("link")) == (103, "</a.css>; rel=preload")
    assert client.response().body == b"page"


def test_an_http_1_0_client_gets_early_hints_too(rig, place):
    """RFC 9110, 15.2 forbids it, and Envoy has no setting: `proxy_100_continue` is for all clients (docs/tasks/protocols.md)."""

    def serve(connection: RawConnection) -> None:
        connection.message()
        connection.send("HTTP/1.1 103 Early Hints\r\n\r\n")
        connection.send(answer("page"))

    rig.server.use(serve)
    client = rig.connect(place)
    client.send(place.head(version="1.0"))
    assert client.head().status == 103
    assert client.response().body == b"page"
    client.close()


# --- HTTP/1.0, methods, and headers that routes do not read


def test_http_1_0_needs_no_host(rig, place):
    """RFC 9112, 3.2: health checks of load balancers send no Host. The HTTP proxy gets the host from the URL."""
    assert place.ask("/health", host=None, version="1.0").head.status == 200
    client = rig.connect(place)
    for _ in range(2):
        client.send(place.head("/health", "Connection: keep-alive", host=None, version="1.0"))
        response = client.response()
        assert (response.head.status, response.head.get("connection")) == (200, "keep-alive")


def test_http_1_1_needs_a_host(place):
    status = place.ask("/", host=None).head.status
    assert status == (200 if place.base else 400)


def test_a_gateway_with_hostnames_has_no_route_without_a_host(rig, service):
    assert rig.named_place(service).ask("/", host=None, version="1.0").head.status == 404


def test_http_1_0_gets_no_chunks(rig, place):
    def serve(connection: RawConnection) -> None:
        connection.message()
        connection.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")

    rig.server.use(serve)
    response = place.ask("/", host=None, version="1.0")
    assert response.body == b"abc"
    assert not response.head.values("transfer-encoding")


@pytest.mark.parametrize("method", ["LIST", "VERSION-CONTROL", "QUERY", "PROPFIND", "get", "A~B"])
def test_a_method_is_forwarded_whatever_it_is(rig, place, method):
    """RFC 9110, 9.1; RFC 10008."""
    lines = ("Content-Type: text/plain", "Content-Length: 8")
    assert place.ask("/q", *lines, method=method, body=b"select 1").head.status == 200
    request = rig.server.seen[-1]
    assert (request.head.line, request.body) == (f"{method} /q HTTP/1.1", b"select 1")


@pytest.mark.parametrize("values", [[""], ["https,http"], ["https", "http"], ["", ""]])
def test_x_forwarded_proto_has_no_effect_on_routes(rig, place, values):
    assert place.ask("/", *(f"X-Forwarded-Proto: {value}" for value in values)).head.status == 200
    forwarded = rig.server.seen[-1].head.get("x-forwarded-proto")
    joined = ",".join(value for value in values if value)
    assert forwarded == (joined if joined and place.name != "gateway" else "http")


# --- the host


def test_a_host_in_capitals_needs_no_scheme(rig, service):
    """Each of both hides the route from Envoy."""
    proxy = rig.places(service)[1]
    host = proxy.host.upper()
    assert proxy._replace(host=host, base=f"http://{host}").ask("/", "X-Forwarded-Proto:").head.status == 200
    assert rig.server.seen[-1].head.get("host") == host


@pytest.mark.parametrize(
    "host", ["shop.example.com:8000", "Shop.Example.COM", "shop.example.com.", "SHOP.example.com.:8000"]
)
def test_a_gateway_forwards_the_host_unchanged(rig, service, host):
    """HTTPRoute.spec.hostnames: the port does not count, and Host must be forwarded unmodified."""
    assert rig.named_place(service)._replace(host=host).ask().head.status == 200
    assert rig.server.seen[-1].head.get("host") == host


@pytest.mark.parametrize("change", [str.upper, lambda host: host.replace(":", ".:")])
def test_the_proxy_forwards_the_host_unchanged(rig, service, change):
    proxy = rig.places(service)[1]
    host = change(proxy.host)
    assert proxy._replace(host=host, base=f"http://{host}").ask().head.status == 200
    assert rig.server.seen[-1].head.get("host") == host


@pytest.mark.parametrize("host", ["Web.Example", "web.example.", "web.example:1"])
def test_an_address_forwards_any_host_unchanged(rig, service, host):
    assert rig.places(service)[0]._replace(host=host).ask().head.status == 200
    assert rig.server.seen[-1].head.get("host") == host


# --- sizes


@pytest.mark.parametrize("lines", [[f"x-{number}: 1" for number in range(900)], [f"x-a: {'v' * LARGE}"]])
def test_large_heads_pass_both_ways(rig, place, lines):
    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(connection.message())
        connection.send(answer("", "200 OK", *lines))

    rig.server.use(serve)
    response = place.ask("/", *lines)
    expected = sum(map(len, lines))
    for head in (rig.server.seen[-1].head, response.head):
        assert sum(len(f"{name}: {value}") for name, value in head.fields if name.startswith("x-")) >= expected


def test_a_long_url_passes(rig, place):
    assert place.ask("/" + "a" * LARGE).head.status == 200
    assert len(rig.server.seen[-1].head.line) > LARGE


def test_more_than_a_thousand_headers_are_refused(place):
    assert place.ask("/", *(f"x-{number}: 1" for number in range(1001))).head.status == 431


@pytest.mark.parametrize("lines", [[f"x-{number}: 1" for number in range(1001)], [f"x-a: {'v' * 2**20}"]])
def test_a_response_with_too_many_or_too_large_headers_becomes_502(rig, place, lines):
    rig.server.use(lambda connection: connection.message() and connection.send(answer("", "200 OK", *lines)))
    assert place.ask().head.status == 502


def test_trailers_pass_both_ways(rig, place):
    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(connection.message())
        connection.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-sum: 1\r\n\r\n")

    rig.server.use(serve)
    body = b"1\r\nb\r\n0\r\nx-check: 2\r\n\r\n"
    response = place.ask("/", "TE: trailers", "Transfer-Encoding: chunked", method="POST", body=body)
    assert response.trailers == (("x-sum", "1"),)
    assert rig.server.seen[-1].trailers == (("x-check", "2"),)


def test_grpc_web_is_forwarded_as_it_is(rig, place):
    """The server speaks it, not the proxy: trailers are the last message of the body."""
    message, trailers = b"\x00\x00\x00\x00\x01a", b"\x80\x00\x00\x00\x0fgrpc-status: 0\r\n"

    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(connection.message())
        connection.send(answer(message + trailers, "200 OK", "content-type: application/grpc-web+proto"))

    rig.server.use(serve)
    lines = ("Content-Type: application/grpc-web+proto", "X-Grpc-Web: 1", f"Content-Length: {len(message)}")
    response = place.ask("/shop.Cart/Add", *lines, method="POST", body=message)
    request = rig.server.seen[-1]
    assert (request.head.get("content-type"), request.body) == ("application/grpc-web+proto", message)
    assert (response.head.get("content-type"), response.body) == ("application/grpc-web+proto", message + trailers)


def test_connect_opens_a_tunnel_only_through_the_http_proxy(rig, place):
    """The requests in the tunnel are routed one by one."""
    authority = place.host if place.base else "web.example:80"
    client = rig.connect(place)
    client.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
    assert client.head().status == (200 if place.base else 404)
    if place.base:
        client.send("GET /in HTTP/1.1\r\nHost: any\r\n\r\n")
        assert client.response().body == b"GET /in HTTP/1.1"
        client.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
        assert client.head().status == 404
    client.close()
    assert len(rig.server.seen) == bool(place.base)


# --- what stays and what changes


@pytest.mark.parametrize("target", ["/a/../b//c/./d", "/%2e%2E/%2f?x=/../y", "/a;b=c?d&&e"])
def test_a_path_is_forwarded_as_it_was_written(rig, place, target):
    assert place.ask(target).head.status == 200
    assert rig.server.seen[-1].head.line == f"GET {target} HTTP/1.1"


def test_names_of_headers_are_in_lower_case(rig, place):
    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(connection.message())
        connection.send(answer("", "200 OK", "X-Answer: 1"))

    rig.server.use(serve)
    assert "x-answer" in place.ask("/", "X-Camel: 1").head.names
    assert "x-camel" in rig.server.seen[-1].head.names


def test_hop_by_hop_fields_are_for_one_connection(rig, place):
    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(connection.message())
        connection.send(answer("", "200 OK", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive"))

    rig.server.use(serve)
    head = place.ask("/", "Connection: x-a", "X-A: 1", "Keep-Alive: timeout=5").head
    assert not head.get("keep-alive")
    assert not head.get("proxy-connection")
    assert not {"x-a", "keep-alive", "connection"} & dict(rig.server.seen[-1].head.fields).keys()


@pytest.mark.parametrize("lines", [(), ("Date: Sat, 01 Jan 2000 00:00:00 GMT", "Server: mine")])
def test_date_is_added_and_server_is_not(rig, place, lines):
    def serve(connection: RawConnection) -> None:
        connection.message()
        connection.send(answer("", "200 OK", *lines))

    rig.server.use(serve)
    head = place.ask().head
    assert head.get("server") == ("mine" if lines else "")
    assert head.get("date").startswith("Sat, 01 Jan 2000") if lines else head.get("date")


@pytest.mark.parametrize("name", [*SERVICES])
def test_an_idle_connection_to_an_application_is_closed_before_ordinary_servers_do(rig, name):
    closed = threading.Event()
    times: list[float] = []

    def serve(connection: RawConnection) -> None:
        connection.message()
        connection.send(answer())
        times.append(time.monotonic())
        try:
            connection.wait_for_bytes()
        except ConnectionError:
            times.append(time.monotonic())
            closed.set()
            raise

    rig.server.use(serve)
    assert rig.places(name)[0].ask().head.status == 200
    assert closed.wait(DEADLINE_S)
    assert times[1] - times[0] >= IDLE_MS / 1000 - 0.1


def test_a_request_has_no_time_limit_after_its_end(rig):
    """Streams of gRPC go on after the client's last message. By default, Envoy cuts them after 15 s."""
    is_over = threading.Event()

    def serve(connection: RawConnection) -> None:
        connection.message()
        connection.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        assert is_over.wait(2 * DEADLINE_S)
        connection.send("4\r\nlast\r\n0\r\n\r\n")

    rig.server.use(serve)
    clients = [rig.connect(place) for name in SERVICES for place in rig.places(name)]
    for client, place in zip(clients, [place for name in SERVICES for place in rig.places(name)], strict=True):
        client.send(place.head("/", "grpc-timeout: 30S"))
    heads = [client.head() for client in clients]
    assert [client.exactly(len("5\r\nfirst\r\n")) for client in clients] == [b"5\r\nfirst\r\n"] * len(clients)
    assert clients[0].is_silent(16)
    is_over.set()
    assert [client.body(head).body for client, head in zip(clients, heads, strict=True)] == [b"last"] * len(clients)


# --- redirects and rewrites


@pytest.fixture
def routed(rig: HttpRig) -> Iterator[Callable[..., None]]:
    """Return `set_routes`; afterwards all requests go to the first server again."""
    yield rig.set_routes
    rig.set_routes()


@pytest.mark.parametrize("port", [0, 443])
def test_a_redirect_does_not_write_the_default_port(routed, place, port):
    """HTTPRequestRedirectFilter.port: 80 and 443 should not be written, whatever port the client wrote."""
    routed(redirect=Redirect(scheme="https", status=301, port=port))
    name = place.host.partition(":")[0]
    for host in (place.host, *(() if place.base else (f"{place.host}:8000", f"{place.host}:80"))):
        head = place.ask("/x?y=1", host=host).head
        assert (head.status, head.get("location")) == (301, f"https://{name}/x?y=1")


def test_a_redirect_keeps_the_letters_of_the_host(routed, rig, service):
    """Report 19, through the HTTP proxy too, whose names of Services ignore case."""
    routed(redirect=Redirect(path=PathEdit(kind="full", value="/new")))
    for place in rig.places(service):
        host = place.host.upper()
        head = place._replace(host=host, base=place.base and f"http://{host}").ask("/x?y=1").head
        port = "" if place.base else f":{place.address.port}"
        assert (head.status, head.get("location")) == (302, f"http://{host}{port}/new?y=1")


def test_a_redirect_to_http_does_not_write_port_80(routed, place):
    routed(redirect=Redirect(scheme="http"))
    assert place.ask("/x").head.get("location") == f"http://{place.host.partition(':')[0]}/x"


def test_a_redirect_of_the_path_keeps_the_port_of_the_gateway(routed, rig, service):
    routed(redirect=Redirect(path=PathEdit(kind="full", value="/new")))
    gateway = rig.places(service)[2]
    port = gateway.address.port
    assert gateway.ask("/x?y=1").head.get("location") == f"http://web.example:{port}/new?y=1"


@pytest.mark.parametrize("weights", [(1,), (1, 1)])
def test_a_prefix_is_put_before_every_path(routed, rig, place, weights):
    rewrite = Rewrite(path=PathEdit(kind="prefix", value="/foo"))
    match = Match(path=Path(kind="prefix", value="/"))
    routed(*weights, filters=Filters(rewrite=rewrite), match=match, origin=SHOP_ROUTE, name="0")
    for sent, received in (("/", "/foo/"), ("/test", "/foo/test"), ("//test", "/foo/test"), ("/foo?a", "/foo/foo?a")):
        assert place.ask(sent).body.decode() == f"GET {received} HTTP/1.1"


# --- connections that end before a response (D30)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_an_idempotent_request_is_repeated_on_a_new_connection(rig, place, method):
    """The server resets each connection on the first byte of its second request."""

    def serve(connection: RawConnection) -> None:
        if connection.requests > 1:
            connection.reset()
            return
        connection.message()
        connection.send(answer())

    rig.server.use(serve)
    statuses = []
    client = rig.connect(place)
    for _ in range(10):
        client.send(place.head("/", "Content-Length: 0", method=method))
        statuses.append(client.head().status)
    assert statuses == [200] * 10


@pytest.mark.parametrize("method", ["POST", "PATCH", "LIST"])
def test_other_requests_are_never_sent_twice(rig, place, method):
    """The server reads each request and closes the connection without a response."""

    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(connection.message())
        connection.close()

    rig.server.use(serve)
    statuses = {place.ask("/", "Content-Length: 3", method=method, body=b"abc").head.status for _ in range(5)}
    assert statuses <= {502, 503}
    assert len(rig.server.seen) == 5


def test_an_error_of_the_application_is_not_repeated(rig, place):
    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(connection.message())
        connection.send(answer("", "503 Service Unavailable"))

    rig.server.use(serve)
    assert place.ask().head.status == 503
    assert len(rig.server.seen) == 1


def test_an_upload_that_is_cut_is_not_sent_again(rig, place):
    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(RawMessage(connection.head(), b""))
        connection.exactly(1000)
        connection.reset()

    rig.server.use(serve)
    sent = place.ask("/", "Content-Length: 3000000", method="POST", body=b"x" * 3_000_000)
    assert sent.head.status in {502, 503}
    assert len(rig.server.seen) == 1


def test_a_response_that_is_cut_is_not_repeated(rig, place):
    def serve(connection: RawConnection) -> None:
        rig.server.seen.append(connection.message())
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
        connection.close()

    rig.server.use(serve)
    with pytest.raises(ConnectionError):
        place.ask()
    assert len(rig.server.seen) == 1


def test_a_request_whose_head_does_not_end_gets_408(monkeypatch):
    """An unknown client can't keep the memory of its head. A connection between two requests stays open."""
    monkeypatch.setattr(http_connections, "HEAD_MS", 200)
    with HttpRig() as rig:
        for place in rig.places("plain"):
            connection = rig.connect(place)
            connection.send(place.head("/first"))
            assert connection.response().head.status == 200
            connection.send(place.head("/second")[:-2])
            assert connection.response().head.status == 408
