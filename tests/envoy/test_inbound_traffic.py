"""The inbound side of a sidecar in a real Envoy: TLS modes, identities and access rules (R61 to R76)."""

import asyncio
import itertools
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from tests.authority import CLIENT, OTHER, WEB, Authority, account
from tests.e2e.test_grpc import Greeter
from tests.envoy.inbound_rig import ADDRESS, Caller, Sidecar, ask_h2
from tests.protocols import TcpServer, certificate, greeting_server, http2_server, talk, upgrade
from tests.waiting import until
from tests.wire import Address

from headgate.envoy.upstream_tls import MESH_ALPN, UNREACHED_HEADER
from headgate.model.requests import Match
from headgate.model.requests import Path as PathMatch
from headgate.model.routing import (
    Access,
    ConnectionRule,
    Grant,
    InboundPort,
    Protocol,
    RequestRule,
    TlsMode,
)
from headgate.resources.meta import Key

BOOKS = Match(path=PathMatch(kind="regex", value="/books.*"), methods=("GET",))
TARGET = Key("access.smi-spec.io", "TrafficTarget", "default", "cars")
WORDS = b"longer than the head of a TLS record"  # longer than what the sidecar reads to detect TLS
MIXED = [TlsMode.READY, TlsMode.PERMISSIVE]  # the modes that accept mutual TLS and plaintext


@pytest.fixture(scope="module")
def envoy() -> Iterator[Sidecar]:
    with tempfile.TemporaryDirectory(prefix="hg") as root, Sidecar(Path(root)) as sidecar:
        yield sidecar


@pytest.fixture
def sidecar(envoy: Sidecar) -> Iterator[Sidecar]:
    envoy.echo("app")
    yield envoy
    envoy.abort()


@pytest.fixture
def web(sidecar: Sidecar) -> InboundPort:
    """Return an inbound port in front of an HTTP application."""
    return sidecar.port(sidecar.echoes["app"].port)


@pytest.fixture
def database(sidecar: Sidecar) -> Iterator[TcpServer]:
    """Run an application that sends the first bytes of a connection."""
    server = greeting_server(sidecar.network, "hello")
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


def served(sidecar: Sidecar, port: InboundPort, **more: object) -> InboundPort:
    """Serve one port; return it when the sidecar accepts connections."""
    sidecar.serve(port, **more)
    sidecar.wait_for(port)
    return port


def mesh_tls(sidecar: Sidecar, identity: str | None = CLIENT) -> ssl.SSLContext:
    return sidecar.client_tls(identity, [MESH_ALPN])


def echo_of_ping(sidecar: Sidecar, port: InboundPort, tls: ssl.SSLContext | None = None) -> str:
    """Connect and send `ping`; return its echo, or the name of the error."""
    try:
        return sidecar.network.run(talk(Address(ADDRESS, port.port), "ping", tls=tls)).echo
    except (OSError, EOFError) as error:
        return type(error).__name__


def test_strict_mode_accepts_only_callers_with_an_identity_of_the_mesh(sidecar, web):
    """R74, R76."""
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    assert sidecar.caller(web, CLIENT).get().answered_by == "app"
    sidecar.take_requests("app")
    rejected = {
        "plaintext": None,
        "no certificate": sidecar.client_tls(None),
        "of another authority": sidecar.client_tls(Authority().issue(CLIENT)),
        "of another trust domain": sidecar.client_tls(account("client", "other.local")),
        "of a longer trust domain": sidecar.client_tls(account("client", "cluster.local.evil")),
        "no identity": sidecar.client_tls(sidecar.authority.issue("", "client")),
        "an identity that is only a DNS name": sidecar.client_tls(sidecar.authority.issue("", CLIENT)),
        "an older TLS": sidecar.client_tls(CLIENT, newest=ssl.TLSVersion.TLSv1_2),
    }
    answers = {name: sidecar.caller(web, tls).get().status for name, tls in rejected.items()}
    assert answers == dict.fromkeys(rejected, 0)
    assert sidecar.take_requests("app") == []


@pytest.mark.parametrize("tls_mode", MIXED)
def test_ready_and_permissive_modes_accept_plaintext_and_mutual_tls(sidecar, web, tls_mode):
    served(sidecar, web, tls_mode=tls_mode)
    assert sidecar.caller(web, CLIENT).get().answered_by == "app"
    assert sidecar.caller(web).get().answered_by == "app"
    assert sidecar.caller(web, sidecar.client_tls(Authority().issue(CLIENT))).get().status == 0


def test_plain_mode_accepts_plaintext_only(sidecar, web):
    served(sidecar, web, tls_mode=TlsMode.PLAIN)
    assert sidecar.caller(web).get().answered_by == "app"
    assert sidecar.caller(web, CLIENT).get().status == 0


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl on the PATH")
def test_the_certificate_has_the_subject_names_of_a_tls_config(sidecar, web, tmp_path):
    """R75: openssl reads the names; the identity is a URI name of the same certificate."""
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    address = ["-connect", f"{ADDRESS}:{web.port}"]
    shown = subprocess.run(["openssl", "s_client", *address], input=b"", capture_output=True, check=False).stdout
    names = x509.load_pem_x509_certificate(shown).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["web.default.svc", "foo", "bar"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [WEB]


@pytest.mark.parametrize("protocol", [Protocol.HTTP2, Protocol.HTTP_ANY])
def test_the_sidecar_detects_http2_without_alpn(sidecar, protocol):
    """R65: a calling sidecar negotiates no protocol and sends HTTP/2 to an HTTP/2 port."""
    server = http2_server(sidecar.network, "two")
    port = served(sidecar, sidecar.port(server.address.port, protocol), tls_mode=TlsMode.STRICT)

    async def ask() -> str:
        return await ask_h2(await sidecar.caller(port, CLIENT).open(), "web.example")

    assert sidecar.network.run(ask()) == "two"


def test_access_rules_allow_and_deny_grpc_calls_by_method(sidecar, tmp_path):
    """R65, R69: a client without a sidecar negotiates HTTP/2; a denied call gets the gRPC status PERMISSION_DENIED."""
    greeter = Greeter("v1")
    try:
        hello = Match(path=PathMatch(kind="exact", value="/Greeter/Hello"))
        port = sidecar.port(greeter.address.port, Protocol.HTTP2)
        served(sidecar, port, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=hello))
        own = sidecar.authority.issue(CLIENT)
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


def test_a_websocket_passes_the_sidecar(sidecar):
    server = TcpServer(sidecar.network, _accept_upgrade)
    port = served(sidecar, sidecar.port(server.address.port), tls_mode=TlsMode.PERMISSIVE)
    assert sidecar.network.run(upgrade(Address(ADDRESS, port.port), "ping")) == ["101", "there", "ping"]


async def _accept_upgrade(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    reader, writer = stream
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nthere\n")
    while data := await reader.read(4096):
        writer.write(data)


def test_the_application_gets_the_callers_identity_and_no_forged_one(sidecar, web):
    """R70: the sidecar writes the certificate's identity into the header, and drops the client's value."""
    served(sidecar, web, tls_mode=TlsMode.PERMISSIVE)
    forged = f"URI={OTHER}"
    sidecar.caller(web, CLIENT).get(x_forwarded_client_cert=forged)
    header = sidecar.last_headers("app")["x-forwarded-client-cert"]
    assert f"URI={CLIENT}" in header
    assert OTHER not in header
    sidecar.caller(web).get(x_forwarded_client_cert=forged)
    assert "x-forwarded-client-cert" not in sidecar.last_headers("app")


@pytest.mark.parametrize("known", [True, False])
def test_the_sidecar_drops_every_spelling_of_the_client_certificate_header(sidecar, web, known):
    """R70: many applications read `x_forwarded_client_cert` as the header that only the sidecar writes."""
    served(sidecar, web, tls_mode=TlsMode.PERMISSIVE)
    marks = itertools.product("-_", repeat=3)
    spelled = ["x{}forwarded{}client{}cert".format(*found) for found in marks]
    target = Address(ADDRESS, web.port)
    lines = "".join(f"{name}: URI={OTHER}\r\n" for name in spelled)
    asked = f"GET / HTTP/1.1\r\nhost: web.example\r\nother_header: kept\r\n{lines}connection: close\r\n\r\n"

    async def ask() -> None:
        tls = sidecar.client_tls(CLIENT) if known else None
        reader, writer = await asyncio.open_connection(*target, ssl=tls, server_hostname="web" if known else None)
        writer.write(asked.encode())
        await reader.read()
        writer.close()

    sidecar.network.run(ask())
    seen = sidecar.last_headers("app")
    assert seen["other_header"] == "kept"
    assert OTHER not in str(seen)
    assert [name for name in spelled if name in seen] == (["x-forwarded-client-cert"] if known else [])


def test_access_rules_allow_requests_by_identity_method_and_path(sidecar, web):
    """R68, R70: the rules of a TrafficTarget."""
    served(sidecar, web, tls_mode=TlsMode.PERMISSIVE, access=closed(CLIENT, match=BOOKS))
    client = sidecar.caller(web, CLIENT)
    assert client.get("/books/1?page=2").status == 200
    assert client.get("/cars").status == 403
    assert client.get("/books", "POST").status == 403
    assert sidecar.caller(web, OTHER).get("/books").status == 403
    assert sidecar.caller(web).get("/books").status == 403
    assert [seen.path for seen in sidecar.take_requests("app")] == ["/books/1?page=2"]


def test_the_answer_to_a_denied_caller_names_its_identity_and_no_allowed_identity(sidecar, web):
    served(sidecar, web, tls_mode=TlsMode.PERMISSIVE, access=closed(CLIENT, match=BOOKS))
    known = sidecar.caller(web, OTHER).get("/books").body
    assert OTHER in known
    assert known.startswith("headgate: access denied")
    assert known.count("\n") == 1
    assert CLIENT not in known
    assert "requires mutual TLS" in sidecar.caller(web).get("/books").body


@pytest.mark.parametrize(
    "path",
    ["/books/../cars", "/books//cars", "/books/./x", "/books/..", "/books%2f..%2fcars", "/books/%2E%2e/x", "/books\\x"],
)
def test_a_path_rule_never_allows_an_ambiguous_path(sidecar, web, path):
    """D21: the application may normalize such a path differently than the proxy."""
    served(sidecar, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS))
    assert sidecar.caller(web, CLIENT).get(path).status in {400, 403}
    assert sidecar.take_requests("app") == []


def test_a_dns_name_on_a_certificate_is_not_an_identity(sidecar, web):
    """R70, R75: a user may choose the subject names of pods, but the names give no other identity."""
    served(sidecar, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS))
    borrowed = sidecar.client_tls(sidecar.authority.issue(OTHER, CLIENT))
    assert sidecar.caller(web, borrowed).get("/books").status == 403


def test_the_sidecar_resumes_no_tls_session(sidecar, web):
    """A resumed session has no client certificate, or an outdated one."""
    served(sidecar, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS))
    tls = sidecar.client_tls(CLIENT)

    def get(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession, bool]:
        connection = socket.create_connection((ADDRESS, web.port))
        with connection, tls.wrap_socket(connection, server_hostname="web", session=session) as secured:
            secured.sendall(b"GET /books HTTP/1.1\r\nhost: web\r\n\r\n")
            return secured.recv(12), secured.session, secured.session_reused

    first, session, _ = get(None)
    again, _, resumed = get(session)
    assert (first, again, resumed) == (b"HTTP/1.1 200", b"HTTP/1.1 200", False)


def test_a_change_of_access_rules_applies_to_open_connections_at_once(sidecar, web):
    """R69: the rules for requests are part of the routes."""
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    client = sidecar.caller(web, CLIENT)
    statuses = [client.get("/books").status]
    connection = client._writer
    for access in (closed(OTHER, match=BOOKS), closed(CLIENT, match=BOOKS), Access(closed=True)):
        sidecar.serve(web, tls_mode=TlsMode.STRICT, access=access)
        statuses.append(client.get("/books").status)
    assert statuses == [200, 403, 200, 403]
    assert client._writer is connection


def test_envoy_counts_allowed_requests_by_access_rule(sidecar, web):
    """No other test here uses this rule name: Envoy removes a rule's counters together with its filter chain."""
    served(sidecar, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS, name="routes/counted"))
    denied = sidecar.count("http.inbound.rbac.denied")
    sidecar.caller(web, CLIENT).get("/books")
    sidecar.caller(web, CLIENT).get("/cars")
    assert sidecar.count("rbac.policy.default/cars/routes/counted.allowed") == 1
    assert sidecar.count("http.inbound.rbac.denied") == denied + 1


def test_the_sidecar_rejects_connect(sidecar, web):
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    assert sidecar.caller(web, CLIENT).get("db:5432", "CONNECT").status == 403


def test_the_answer_is_marked_when_the_application_does_not_listen(sidecar):
    """The mark is a header that lets the caller's proxy retry with another pod; the application's errors lack it."""
    absent = sidecar.port(sidecar.free().port)
    broken = sidecar.port(sidecar.echoes["app"].port)
    sidecar.echoes["app"].status = "503 Service Unavailable"
    sidecar.serve(absent, broken, tls_mode=TlsMode.STRICT)
    sidecar.wait_for(absent)
    answer = sidecar.caller(absent, CLIENT).get()
    assert (answer.status, answer.headers.get(UNREACHED_HEADER)) == (503, "true")
    assert "does not accept connections" in answer.body
    answer = sidecar.caller(broken, CLIENT).get()
    assert (answer.status, answer.headers.get(UNREACHED_HEADER)) == (503, None)


def test_a_new_certificate_closes_no_connection(sidecar, web):
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    client = sidecar.caller(web, CLIENT)
    assert client.get().answered_by == "app"
    connection = client._writer
    renewed = sidecar.authority.issue(WEB, "renewed")
    sidecar.serve(web, tls_mode=TlsMode.STRICT, credential=renewed)

    def is_presented() -> bool:
        caller = sidecar.caller(web, CLIENT)
        caller.get()
        shown = ssl.DER_cert_to_PEM_cert(caller._writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        caller.close()
        return shown.strip() == renewed.chain.strip()

    until(is_presented, "the new certificate")
    assert client.get().answered_by == "app"
    assert client._writer is connection


def test_the_sidecar_trusts_a_root_certificate_until_its_removal(sidecar, web):
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    new = Authority("new")
    newcomer = sidecar.client_tls(new.issue(CLIENT))
    assert sidecar.caller(web, newcomer).get().status == 0
    own = sidecar.credential

    def trust(roots: str) -> None:
        renewed = type(own)(chain=own.chain, key=own.key, roots=roots)
        sidecar.serve(web, tls_mode=TlsMode.STRICT, credential=renewed)

    trust(own.roots + new.pem)
    until(lambda: sidecar.caller(web, newcomer).get().answered_by == "app", "the sidecar trusts the new root")
    assert sidecar.caller(web, CLIENT).get().answered_by == "app"
    trust(new.pem)
    until(lambda: sidecar.caller(web, CLIENT).get().status == 0, "the sidecar does not trust the old root any more")
    assert sidecar.caller(web, newcomer).get().answered_by == "app"


def test_each_mesh_client_gets_the_protocol_of_the_service_that_it_calls(sidecar, database):
    """R67, D15: two Services share a target port; plaintext clients get the protocol of the first Service."""
    port = sidecar.port(database.address.port, Protocol.TCP, Protocol.HTTP)
    served(sidecar, port, tls_mode=TlsMode.PERMISSIVE)
    assert is_echoed(sidecar, connected(sidecar, port, plain=True))
    assert is_echoed(sidecar, connected(sidecar, port))
    web = sidecar.caller(port, CLIENT, Protocol.HTTP).get()
    assert web.status == 502  # the proxy can't parse the database's greeting as HTTP
    port = sidecar.port(sidecar.echoes["app"].port, Protocol.HTTP, Protocol.TCP)
    served(sidecar, port, tls_mode=TlsMode.PERMISSIVE, access=closed(CLIENT, match=BOOKS))
    assert sidecar.caller(port, CLIENT).get("/books").status == 200
    named = sidecar.caller(port, mesh_tls(sidecar), Protocol.TCP)
    assert named.get("/books").status == 0  # the rules allow requests, but not connections


def test_a_plaintext_client_gets_the_greeting_of_a_server_that_speaks_first(sidecar, database):
    port = sidecar.port(database.address.port, Protocol.TCP_SERVER_FIRST)
    served(sidecar, port, tls_mode=TlsMode.PLAIN)
    assert echo_of_ping(sidecar, port) == "ping"


@pytest.mark.parametrize("protocol", [Protocol.TCP_SERVER_FIRST, Protocol.TCP])
def test_a_mesh_client_gets_the_greeting_of_a_server_that_speaks_first(sidecar, database, protocol):
    """Strict mode accepts the mesh's certificates with and without the mesh's ALPN."""
    port = served(sidecar, sidecar.port(database.address.port, protocol), tls_mode=TlsMode.STRICT)
    assert echo_of_ping(sidecar, port, mesh_tls(sidecar)) == "ping"
    assert echo_of_ping(sidecar, port, sidecar.client_tls(CLIENT)) == "ping"
    before = database.connections
    assert echo_of_ping(sidecar, port, mesh_tls(sidecar, None)) != "ping"
    assert echo_of_ping(sidecar, port, sidecar.client_tls(Authority().issue(CLIENT), [MESH_ALPN])) != "ping"
    assert database.connections == before


def test_data_sent_before_the_application_is_connected_arrives_complete(sidecar, database):
    access = closed(CLIENT, connections=True)
    port = served(sidecar, sidecar.port(database.address.port, Protocol.TCP), tls_mode=TlsMode.STRICT, access=access)
    text = "0123456789" * 100_000
    tls = mesh_tls(sidecar)
    assert sidecar.network.run(talk(Address(ADDRESS, port.port), text, tls=tls)).echo == text


@pytest.mark.parametrize("protocol", [Protocol.TLS, Protocol.TCP])
def test_the_applications_own_tls_passes_in_all_modes_but_strict(sidecar, tmp_path, protocol):
    file = certificate(tmp_path)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(file)
    server = greeting_server(sidecar.network, "secret", own)
    outsider = ssl.create_default_context(cafile=str(file))
    port = sidecar.port(server.address.port, protocol)
    for tls_mode in (TlsMode.PLAIN, TlsMode.READY, TlsMode.PERMISSIVE):
        served(sidecar, port, tls_mode=tls_mode)
        assert until(lambda: echo_of_ping(sidecar, port, outsider) == "ping", f"TLS passes in {tls_mode}")
    sidecar.serve(port, tls_mode=TlsMode.STRICT)
    until(lambda: echo_of_ping(sidecar, port, outsider) == "SSLCertVerificationError", "the mesh's own certificate")
    server.close()


@pytest.mark.parametrize("tls_mode", [TlsMode.PERMISSIVE, TlsMode.STRICT])
def test_a_denied_client_gets_no_byte_and_no_connection_to_the_application(sidecar, database, tls_mode):
    """R68, R69: not even the greeting of a server that speaks first."""
    port = sidecar.port(database.address.port, Protocol.TCP_SERVER_FIRST)
    served(sidecar, port, tls_mode=tls_mode, access=closed(CLIENT, connections=True))
    assert echo_of_ping(sidecar, port, mesh_tls(sidecar)) == "ping"
    before = database.connections
    assert echo_of_ping(sidecar, port, mesh_tls(sidecar, OTHER)) != "ping"
    assert echo_of_ping(sidecar, port, sidecar.client_tls(OTHER)) != "ping"
    served(sidecar, port, tls_mode=tls_mode, access=closed(CLIENT))
    until(lambda: echo_of_ping(sidecar, port, mesh_tls(sidecar)) != "ping", "all connections are denied")
    assert database.connections - before <= 1  # allowed before the change took effect


def test_a_withdrawn_access_rule_closes_open_connections(sidecar, database):
    """R69: the sidecar closes these connections within seconds; a port that keeps its rule accepts connections."""
    port, other = (sidecar.port(database.address.port, Protocol.TCP) for _ in range(2))
    allowed = closed(CLIENT, connections=True)
    sidecar.serve(port, other, tls_mode=TlsMode.STRICT, access=allowed)
    sidecar.wait_for(other)
    mine = connected(sidecar, port)
    grant = Grant(origin=TARGET, sources=(CLIENT,), port=other.port, connections=(ConnectionRule(name="all"),))
    sidecar.serve(port, other, tls_mode=TlsMode.STRICT, access=Access(closed=True, grants=(grant,)))
    assert is_closed(sidecar, mine)
    assert is_echoed(sidecar, connected(sidecar, other))


def test_strict_mode_closes_only_plaintext_connections(sidecar, database):
    """Connections over mutual TLS stay open."""
    port = sidecar.port(database.address.port, Protocol.TCP)
    served(sidecar, port, tls_mode=TlsMode.PERMISSIVE)
    mesh, plain = connected(sidecar, port), connected(sidecar, port, plain=True)
    sidecar.serve(port, tls_mode=TlsMode.STRICT)
    assert is_closed(sidecar, plain)
    assert is_echoed(sidecar, mesh)


def connected(sidecar: Sidecar, port: InboundPort, *, plain: bool = False) -> Caller:
    """Open a connection to the database, and read its greeting."""
    caller = sidecar.caller(port, None if plain else mesh_tls(sidecar))

    async def begin() -> None:
        caller._reader, caller._writer = await caller.open()
        caller._writer.write(WORDS)
        assert await caller._reader.readexactly(6 + len(WORDS)) == b"hello\n" + WORDS

    sidecar.network.run(begin())
    return caller


def is_echoed(sidecar: Sidecar, caller: Caller) -> bool:
    async def ping() -> bool:
        caller._writer.write(b"ping")
        return await caller._reader.readexactly(4) == b"ping"

    return sidecar.network.run(ping())


def is_closed(sidecar: Sidecar, caller: Caller) -> bool:
    """Wait until the sidecar closes a connection; return whether the client got no data before."""

    async def last() -> bool:
        try:
            return await caller._reader.read() == b""
        except ConnectionError:
            return True

    return sidecar.network.run(last())
