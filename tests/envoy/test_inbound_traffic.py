"""The inbound side of a sidecar in a real Envoy: TLS modes, identities and access rules (R61 to R76)."""

import asyncio
import itertools
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator

import grpc
import pytest
from cryptography import x509
from tests.authority import CLIENT, OTHER, WEB, Authority, account
from tests.envoy.inbound_rig import ADDRESS, Caller, InboundRig, ask_h2
from tests.greeter import Greeter
from tests.protocols import TcpServer, certificate, greeting_server, http2_server, talk, upgrade
from tests.waiting import until
from tests.wire import Address, send

from headgate.envoy.upstream_tls import MESH_ALPN, UNREACHED_HEADER
from headgate.model.access import Access, ConnectionRule, Grant, RequestRule
from headgate.model.mutual_tls import TlsMode
from headgate.model.requests import Match
from headgate.model.requests import Path as PathMatch
from headgate.model.routing import InboundPort, Protocol
from headgate.resources.meta import Key

BOOKS = Match(path=PathMatch(kind="regex", value="/books.*"), methods=("GET",))
TARGET = Key("access.smi-spec.io", "TrafficTarget", "default", "cars")
WORDS = b"longer than the head of a TLS record"  # longer than what the sidecar reads to detect TLS
MIXED = [TlsMode.READY, TlsMode.PERMISSIVE]  # the modes that accept mutual TLS and plaintext


@pytest.fixture(scope="module")
def envoy() -> Iterator[InboundRig]:
    with InboundRig() as sidecar:
        yield sidecar


@pytest.fixture
def inbound(envoy: InboundRig) -> Iterator[InboundRig]:
    envoy.echo("app")
    yield envoy
    envoy.abort()


@pytest.fixture
def web(inbound: InboundRig) -> InboundPort:
    """Return an inbound port in front of an HTTP application."""
    return inbound.port(inbound.echoes["app"].port)


@pytest.fixture
def database(inbound: InboundRig) -> Iterator[TcpServer]:
    """Run an application that sends the first bytes of a connection."""
    server = greeting_server(inbound.network, "hello")
    yield server
    server.close()


def closed(*sources: str, match: Match | None = None, name: str = "routes/books", connections: bool = False) -> Access:
    """Return rules that allow these identities to send matching requests, or with `connections` to open connections."""
    grant = Grant(
        origin=TARGET,
        sources=sources,
        requests=(RequestRule(name=name, match=match),) if match else (),
        connections=(ConnectionRule(name="all"),) if connections else (),
    )
    return Access(closed=True, grants=(grant,))


def served(inbound: InboundRig, port: InboundPort, **more: object) -> InboundPort:
    """Serve one port; return it when the sidecar accepts connections."""
    inbound.serve(port, **more)
    inbound.wait_for(port)
    return port


def mesh_tls(inbound: InboundRig, identity: str | None = CLIENT) -> ssl.SSLContext:
    return inbound.client_tls(identity, [MESH_ALPN])


def echo_of_ping(inbound: InboundRig, port: InboundPort, tls: ssl.SSLContext | None = None) -> str:
    """Connect and send `ping`; return its echo, or the name of the error."""
    try:
        return inbound.network.run(talk(Address(ADDRESS, port.port), "ping", tls=tls)).echo
    except (OSError, EOFError) as error:
        return type(error).__name__


def test_strict_mode_accepts_only_callers_with_an_identity_of_the_mesh(inbound, web):
    """R74, R76."""
    served(inbound, web, tls_mode=TlsMode.STRICT)
    assert inbound.caller(web, CLIENT).get().answered_by == "app"
    inbound.take_requests("app")
    rejected = {
        "plaintext": None,
        "no certificate": inbound.client_tls(None),
        "of another authority": inbound.client_tls(Authority().issue(CLIENT)),
        "of another trust domain": inbound.client_tls(account("client", "other.local")),
        "of a longer trust domain": inbound.client_tls(account("client", "cluster.local.evil")),
        "no identity": inbound.client_tls(inbound.authority.issue("", "client")),
        "an identity that is only a DNS name": inbound.client_tls(inbound.authority.issue("", CLIENT)),
        "an older TLS": inbound.client_tls(CLIENT, newest=ssl.TLSVersion.TLSv1_2),
    }
    answers = {name: inbound.caller(web, tls).get().status for name, tls in rejected.items()}
    assert answers == dict.fromkeys(rejected, 0)
    assert inbound.take_requests("app") == []


@pytest.mark.parametrize("tls_mode", MIXED)
def test_ready_and_permissive_modes_accept_plaintext_and_mutual_tls(inbound, web, tls_mode):
    served(inbound, web, tls_mode=tls_mode)
    assert inbound.caller(web, CLIENT).get().answered_by == "app"
    assert inbound.caller(web).get().answered_by == "app"
    assert inbound.caller(web, inbound.client_tls(Authority().issue(CLIENT))).get().status == 0


def test_plain_mode_accepts_plaintext_only(inbound, web):
    served(inbound, web, tls_mode=TlsMode.PLAIN)
    assert inbound.caller(web).get().answered_by == "app"
    assert inbound.caller(web, CLIENT).get().status == 0


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl on the PATH")
def test_the_certificate_has_the_subject_names_of_a_tls_config(inbound, web, tmp_path):
    """R75: openssl reads the names; the identity is a URI name of the same certificate."""
    served(inbound, web, tls_mode=TlsMode.STRICT)
    address = ["-connect", f"{ADDRESS}:{web.port}"]
    shown = subprocess.run(["openssl", "s_client", *address], input=b"", capture_output=True, check=False).stdout
    names = x509.load_pem_x509_certificate(shown).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["web.default.svc", "foo", "bar"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [WEB]


@pytest.mark.parametrize("protocol", [Protocol.HTTP2, Protocol.HTTP_ANY])
def test_the_sidecar_detects_http2_without_alpn(inbound, protocol):
    """R65: a calling sidecar negotiates no protocol and sends HTTP/2 to an HTTP/2 port."""
    server = http2_server(inbound.network, "two")
    port = served(inbound, inbound.port(server.address.port, protocol), tls_mode=TlsMode.STRICT)

    async def ask() -> str:
        return await ask_h2(await inbound.caller(port, CLIENT).open(), "web.example")

    assert inbound.network.run(ask()) == "two"


def test_access_rules_allow_and_deny_grpc_calls_by_method(inbound, tmp_path):
    """R65, R69: a client without a sidecar negotiates HTTP/2; a denied call gets the gRPC status PERMISSION_DENIED."""
    greeter = Greeter("v1")
    try:
        hello = Match(path=PathMatch(kind="exact", value="/Greeter/Hello"))
        port = inbound.port(greeter.address.port, Protocol.HTTP2)
        served(inbound, port, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=hello))
        own = inbound.authority.issue(CLIENT)
        trust = grpc.ssl_channel_credentials(own.roots.encode(), own.key.reveal().encode(), own.chain.encode())
        options = [("grpc.ssl_target_name_override", "foo"), ("grpc.enable_http_proxy", 0)]
        with grpc.secure_channel(f"{ADDRESS}:{port.port}", trust, options) as calls:
            assert calls.unary_unary("/Greeter/Hello")(b"I am ", timeout=60) == b"I am v1"
            with pytest.raises(grpc.RpcError) as refused:
                calls.unary_unary("/Greeter/Refuse")(b"", timeout=60)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert CLIENT in refused.value.details()
    finally:
        greeter.close()


def test_a_websocket_passes_the_sidecar(inbound):
    server = TcpServer(inbound.network, _accept_upgrade)
    port = served(inbound, inbound.port(server.address.port), tls_mode=TlsMode.PERMISSIVE)
    assert inbound.network.run(upgrade(Address(ADDRESS, port.port), "ping")) == ["101", "there", "ping"]


async def _accept_upgrade(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    reader, writer = stream
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nthere\n")
    while data := await reader.read(4096):
        writer.write(data)


def test_the_application_gets_the_callers_identity_and_no_forged_one(inbound, web):
    """R70: the sidecar writes the certificate's identity into the header, and drops the client's value."""
    served(inbound, web, tls_mode=TlsMode.PERMISSIVE)
    forged = f"URI={OTHER}"
    inbound.caller(web, CLIENT).get(x_forwarded_client_cert=forged)
    header = inbound.last_headers("app")["x-forwarded-client-cert"]
    assert f"URI={CLIENT}" in header
    assert OTHER not in header
    inbound.caller(web).get(x_forwarded_client_cert=forged)
    assert "x-forwarded-client-cert" not in inbound.last_headers("app")


@pytest.mark.parametrize("known", [True, False])
def test_the_sidecar_drops_every_spelling_of_the_client_certificate_header(inbound, web, known):
    """R70: many applications read `x_forwarded_client_cert` as the header that only the sidecar writes."""
    served(inbound, web, tls_mode=TlsMode.PERMISSIVE)
    marks = itertools.product("-_", repeat=3)
    spelled = ["x{}forwarded{}client{}cert".format(*found) for found in marks]
    target = Address(ADDRESS, web.port)
    lines = "".join(f"{name}: URI={OTHER}\r\n" for name in spelled)
    asked = f"GET / HTTP/1.1\r\nhost: web.example\r\nother_header: kept\r\n{lines}connection: close\r\n\r\n"

    async def ask() -> None:
        tls = inbound.client_tls(CLIENT) if known else None
        reader, writer = await asyncio.open_connection(*target, ssl=tls, server_hostname="web" if known else None)
        writer.write(asked.encode())
        await reader.read()
        writer.close()

    inbound.network.run(ask())
    seen = inbound.last_headers("app")
    assert seen["other_header"] == "kept"
    assert OTHER not in str(seen)
    assert [name for name in spelled if name in seen] == (["x-forwarded-client-cert"] if known else [])


def test_access_rules_allow_requests_by_identity_method_and_path(inbound, web):
    """R68, R70: the rules of a TrafficTarget."""
    served(inbound, web, tls_mode=TlsMode.PERMISSIVE, access=closed(CLIENT, match=BOOKS))
    client = inbound.caller(web, CLIENT)
    assert client.get("/books/1?page=2").status == 200
    assert client.get("/cars").status == 403
    assert client.get("/books", "POST").status == 403
    assert inbound.caller(web, OTHER).get("/books").status == 403
    assert inbound.caller(web).get("/books").status == 403
    assert [seen.path for seen in inbound.take_requests("app")] == ["/books/1?page=2"]


def test_the_answer_to_a_denied_caller_names_its_identity_and_no_allowed_identity(inbound, web):
    served(inbound, web, tls_mode=TlsMode.PERMISSIVE, access=closed(CLIENT, match=BOOKS))
    known = inbound.caller(web, OTHER).get("/books").body
    assert OTHER in known
    assert known.startswith("headgate: access denied")
    assert known.count("\n") == 1
    assert CLIENT not in known
    assert "requires mutual TLS" in inbound.caller(web).get("/books").body


@pytest.mark.parametrize(
    "path",
    ["/books/../cars", "/books//cars", "/books/./x", "/books/..", "/books%2f..%2fcars", "/books/%2E%2e/x", "/books\\x"]
    + [f"/books/{dots}/cars" for dots in ("%252e%252e", "%c0%ae%c0%ae", "%u002e%u002e", "..%00", "..;a", "%e0%80%ae.")],
)
def test_a_path_rule_never_allows_an_ambiguous_path(inbound, web, path):
    """D21: the application may normalize such a path differently than the proxy."""
    served(inbound, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS))
    assert inbound.caller(web, CLIENT).get(path).status in {400, 403}
    assert inbound.take_requests("app") == []


def test_a_dns_name_on_a_certificate_is_not_an_identity(inbound, web):
    """R70, R75: a user may choose the subject names of pods, but the names give no other identity."""
    served(inbound, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS))
    borrowed = inbound.client_tls(inbound.authority.issue(OTHER, CLIENT))
    assert inbound.caller(web, borrowed).get("/books").status == 403


def test_the_sidecar_resumes_no_tls_session(inbound, web):
    """A resumed session has no client certificate, or an outdated one."""
    served(inbound, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS))
    tls = inbound.client_tls(CLIENT)

    def get(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession, bool]:
        connection = socket.create_connection((ADDRESS, web.port))
        with connection, tls.wrap_socket(connection, server_hostname="web", session=session) as secured:
            secured.sendall(b"GET /books HTTP/1.1\r\nhost: web\r\n\r\n")
            return secured.recv(12), secured.session, secured.session_reused

    first, session, _ = get(None)
    again, _, resumed = get(session)
    assert (first, again, resumed) == (b"HTTP/1.1 200", b"HTTP/1.1 200", False)


def test_a_change_of_access_rules_applies_to_open_connections_at_once(inbound, web):
    """R69: the rules for requests are part of the routes."""
    served(inbound, web, tls_mode=TlsMode.STRICT)
    client = inbound.caller(web, CLIENT)
    statuses = [client.get("/books").status]
    connection = client._writer
    for access in (closed(OTHER, match=BOOKS), closed(CLIENT, match=BOOKS), Access(closed=True)):
        inbound.serve(web, tls_mode=TlsMode.STRICT, access=access)
        statuses.append(client.get("/books").status)
    assert statuses == [200, 403, 200, 403]
    assert client._writer is connection


def test_envoy_counts_allowed_requests_by_access_rule(inbound, web):
    """No other test here uses this rule name: Envoy removes a rule's counters together with its filter chain."""
    served(inbound, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS, name="routes/counted"))
    denied = inbound.count("http.inbound.rbac.denied")
    inbound.caller(web, CLIENT).get("/books")
    inbound.caller(web, CLIENT).get("/cars")
    assert inbound.count("rbac.policy.default/cars/routes/counted.allowed") == 1
    assert inbound.count("http.inbound.rbac.denied") == denied + 1


def test_the_sidecar_rejects_connect(inbound, web):
    served(inbound, web, tls_mode=TlsMode.STRICT)
    assert inbound.caller(web, CLIENT).get("db:5432", "CONNECT").status == 403


def test_the_answer_is_marked_when_the_application_does_not_listen(inbound):
    """The mark is a header that lets the caller's proxy retry with another pod; the application's errors lack it."""
    absent = inbound.port(inbound.free().port)
    broken = inbound.port(inbound.echoes["app"].port)
    inbound.echoes["app"].status = "503 Service Unavailable"
    inbound.serve(absent, broken, tls_mode=TlsMode.STRICT)
    inbound.wait_for(absent)
    answer = inbound.caller(absent, CLIENT).get()
    assert (answer.status, answer.headers.get(UNREACHED_HEADER)) == (503, "true")
    assert "does not accept connections" in answer.body
    answer = inbound.caller(broken, CLIENT).get()
    assert (answer.status, answer.headers.get(UNREACHED_HEADER)) == (503, None)


def test_a_new_certificate_closes_no_connection(inbound, web):
    served(inbound, web, tls_mode=TlsMode.STRICT)
    client = inbound.caller(web, CLIENT)
    assert client.get().answered_by == "app"
    connection = client._writer
    renewed = inbound.authority.issue(WEB, "renewed")
    inbound.serve(web, tls_mode=TlsMode.STRICT, credential=renewed)

    def is_presented() -> bool:
        caller = inbound.caller(web, CLIENT)
        caller.get()
        shown = ssl.DER_cert_to_PEM_cert(caller._writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        caller.close()
        return shown.strip() == renewed.chain.strip()

    until(is_presented, "the new certificate")
    assert client.get().answered_by == "app"
    assert client._writer is connection


def test_the_sidecar_trusts_a_root_certificate_until_its_removal(inbound, web):
    served(inbound, web, tls_mode=TlsMode.STRICT)
    new = Authority("new")
    newcomer = inbound.client_tls(new.issue(CLIENT))
    assert inbound.caller(web, newcomer).get().status == 0
    own = inbound.credential

    def trust(roots: str) -> None:
        renewed = type(own)(chain=own.chain, key=own.key, roots=roots)
        inbound.serve(web, tls_mode=TlsMode.STRICT, credential=renewed)

    trust(own.roots + new.pem)
    until(lambda: inbound.caller(web, newcomer).get().answered_by == "app", "the sidecar trusts the new root")
    assert inbound.caller(web, CLIENT).get().answered_by == "app"
    trust(new.pem)
    until(lambda: inbound.caller(web, CLIENT).get().status == 0, "the sidecar does not trust the old root any more")
    assert inbound.caller(web, newcomer).get().answered_by == "app"


def test_each_mesh_client_gets_the_protocol_of_the_service_that_it_calls(inbound, database):
    """R67, D15: two Services share a target port; plaintext clients get the protocol of the first Service."""
    port = inbound.port(database.address.port, Protocol.TCP, Protocol.HTTP)
    served(inbound, port, tls_mode=TlsMode.PERMISSIVE)
    assert is_echoed(inbound, connected(inbound, port, plain=True))
    assert is_echoed(inbound, connected(inbound, port))
    web = inbound.caller(port, CLIENT, Protocol.HTTP).get()
    assert web.status == 502  # the proxy can't parse the database's greeting as HTTP
    port = inbound.port(inbound.echoes["app"].port, Protocol.HTTP, Protocol.TCP)
    served(inbound, port, tls_mode=TlsMode.PERMISSIVE, access=closed(CLIENT, match=BOOKS))
    assert inbound.caller(port, CLIENT).get("/books").status == 200
    named = inbound.caller(port, mesh_tls(inbound), Protocol.TCP)
    assert named.get("/books").status == 0  # the rules allow requests, but not connections


def test_a_plaintext_client_gets_the_greeting_of_a_server_that_speaks_first(inbound, database):
    port = inbound.port(database.address.port, Protocol.TCP_SERVER_FIRST)
    served(inbound, port, tls_mode=TlsMode.PLAIN)
    assert echo_of_ping(inbound, port) == "ping"


@pytest.mark.parametrize("protocol", [Protocol.TCP_SERVER_FIRST, Protocol.TCP])
def test_a_mesh_client_gets_the_greeting_of_a_server_that_speaks_first(inbound, database, protocol):
    """Strict mode accepts the mesh's certificates with and without the mesh's ALPN."""
    port = served(inbound, inbound.port(database.address.port, protocol), tls_mode=TlsMode.STRICT)
    assert echo_of_ping(inbound, port, mesh_tls(inbound)) == "ping"
    assert echo_of_ping(inbound, port, inbound.client_tls(CLIENT)) == "ping"
    before = database.connections
    assert echo_of_ping(inbound, port, mesh_tls(inbound, None)) != "ping"
    assert echo_of_ping(inbound, port, inbound.client_tls(Authority().issue(CLIENT), [MESH_ALPN])) != "ping"
    assert database.connections == before


def test_data_sent_before_the_application_is_connected_arrives_complete(inbound, database):
    access = closed(CLIENT, connections=True)
    port = served(inbound, inbound.port(database.address.port, Protocol.TCP), tls_mode=TlsMode.STRICT, access=access)
    text = "0123456789" * 100_000
    tls = mesh_tls(inbound)
    assert inbound.network.run(talk(Address(ADDRESS, port.port), text, tls=tls)).echo == text


@pytest.mark.parametrize("protocol", [Protocol.TLS, Protocol.TCP])
def test_the_applications_own_tls_passes_in_all_modes_but_strict(inbound, tmp_path, protocol):
    file = certificate(tmp_path)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(file)
    server = greeting_server(inbound.network, "secret", own)
    outsider = ssl.create_default_context(cafile=str(file))
    port = inbound.port(server.address.port, protocol)
    for tls_mode in (TlsMode.PLAIN, TlsMode.READY, TlsMode.PERMISSIVE):
        served(inbound, port, tls_mode=tls_mode)
        assert until(lambda: echo_of_ping(inbound, port, outsider) == "ping", f"TLS passes in {tls_mode}")
    inbound.serve(port, tls_mode=TlsMode.STRICT)
    until(lambda: echo_of_ping(inbound, port, outsider) == "SSLCertVerificationError", "the mesh's own certificate")
    server.close()


@pytest.mark.parametrize("tls_mode", [TlsMode.PERMISSIVE, TlsMode.STRICT])
def test_a_denied_client_gets_no_byte_and_no_connection_to_the_application(inbound, database, tls_mode):
    """R68, R69: not even the greeting of a server that speaks first."""
    port = inbound.port(database.address.port, Protocol.TCP_SERVER_FIRST)
    served(inbound, port, tls_mode=tls_mode, access=closed(CLIENT, connections=True))
    assert echo_of_ping(inbound, port, mesh_tls(inbound)) == "ping"
    before = database.connections
    assert echo_of_ping(inbound, port, mesh_tls(inbound, OTHER)) != "ping"
    assert echo_of_ping(inbound, port, inbound.client_tls(OTHER)) != "ping"
    served(inbound, port, tls_mode=tls_mode, access=closed(CLIENT))
    until(lambda: echo_of_ping(inbound, port, mesh_tls(inbound)) != "ping", "all connections are denied")
    assert database.connections - before <= 1  # allowed before the change took effect


def test_a_withdrawn_access_rule_closes_open_connections(inbound, database):
    """R69: the sidecar closes these connections within seconds; a port that keeps its rule accepts connections."""
    port, other = (inbound.port(database.address.port, Protocol.TCP) for _ in range(2))
    allowed = closed(CLIENT, connections=True)
    inbound.serve(port, other, tls_mode=TlsMode.STRICT, access=allowed)
    inbound.wait_for(other)
    mine = connected(inbound, port)
    grant = Grant(origin=TARGET, sources=(CLIENT,), port=other.port, connections=(ConnectionRule(name="all"),))
    inbound.serve(port, other, tls_mode=TlsMode.STRICT, access=Access(closed=True, grants=(grant,)))
    assert is_closed(inbound, mine)
    assert is_echoed(inbound, connected(inbound, other))


@pytest.mark.parametrize("tls_mode", [TlsMode.PERMISSIVE, TlsMode.STRICT])
def test_a_change_of_the_sources_closes_only_the_connections_that_it_forbids(inbound, database, tls_mode):
    """R69: a connection stays open while rules are added, renamed and withdrawn, if one of them allows it."""
    port = inbound.port(database.address.port, Protocol.TCP)

    def allow(*sources: str, **more: str) -> None:
        inbound.serve(port, tls_mode=tls_mode, access=closed(*sources, connections=True, **more))

    allow(CLIENT)
    inbound.wait_for(port)
    kept = connected(inbound, port)
    allow(CLIENT, OTHER)
    other = until(lambda: opened(inbound, port, OTHER), "the new source may connect")
    allow(OTHER, CLIENT, WEB)
    assert is_echoed(inbound, other)
    allow(CLIENT)
    assert is_closed(inbound, other)  # though it sends nothing
    assert is_echoed(inbound, kept)
    assert not opened(inbound, port, OTHER)
    allow()
    assert is_closed(inbound, kept)


def test_strict_mode_closes_only_plaintext_connections(inbound, database):
    """Connections over mutual TLS stay open."""
    port = inbound.port(database.address.port, Protocol.TCP)
    served(inbound, port, tls_mode=TlsMode.PERMISSIVE)
    mesh, plain = connected(inbound, port), connected(inbound, port, plain=True)
    inbound.serve(port, tls_mode=TlsMode.STRICT)
    assert is_closed(inbound, plain)
    assert is_echoed(inbound, mesh)


def opened(inbound: InboundRig, port: InboundPort, identity: str) -> Caller | None:
    """Open a connection to the database with an identity; return None if the sidecar closes it."""
    try:
        return connected(inbound, port, identity=identity)
    except (OSError, EOFError):
        return None


def connected(inbound: InboundRig, port: InboundPort, *, plain: bool = False, identity: str = CLIENT) -> Caller:
    """Open a connection to the database, and read its greeting."""
    caller = inbound.caller(port, None if plain else mesh_tls(inbound, identity))

    async def begin() -> None:
        caller._reader, caller._writer = await caller.open()
        caller._writer.write(WORDS)
        assert await caller._reader.readexactly(6 + len(WORDS)) == b"hello\n" + WORDS

    inbound.network.run(begin())
    return caller


def is_echoed(inbound: InboundRig, caller: Caller) -> bool:
    async def ping() -> bool:
        send(caller._writer, b"ping")
        return await caller._reader.readexactly(4) == b"ping"

    return inbound.network.run(ping())


def is_closed(inbound: InboundRig, caller: Caller) -> bool:
    """Wait until the sidecar closes a connection; return whether the client got no data before."""

    async def last() -> bool:
        try:
            return await caller._reader.read() == b""
        except ConnectionError:
            return True

    return inbound.network.run(last())
