"""A sidecar's inbound side as the real Envoy serves it: stages of mutual TLS, identities, and who may do what (R61 to R76)."""

import asyncio
import itertools
import os
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
from tests.e2e.inbound_rig import ADDRESS, CLIENT, OTHER, WEB, Authority, Caller, Sidecar, account, ask_h2
from tests.e2e.protocols import TcpServer, certificate, greeting_server, http2_server, talk, upgrade
from tests.e2e.test_grpc import Greeter
from tests.e2e.wire import Address
from tests.e2e.world import until

from headgate.envoy import probes
from headgate.envoy.upstream_tls import MESH_ALPN, UNREACHED_HEADER
from headgate.model.requests import Match
from headgate.model.requests import Path as PathMatch
from headgate.model.routing import (
    Access,
    ConnectionRule,
    Grant,
    InboundPort,
    Probe,
    Protocol,
    RequestRule,
    TlsMode,
    Workload,
)
from headgate.resources.meta import Key

BOOKS = Match(path=PathMatch(kind="regex", value="/books.*"), methods=("GET",))
TARGET = Key("access.smi-spec.io", "TrafficTarget", "default", "cars")
WORDS = b"longer than the head of a TLS record"  # or the sidecar would wait for more
MIXED = [TlsMode.READY, TlsMode.PERMISSIVE]


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
    """A port before an HTTP application."""
    return sidecar.port(sidecar.echoes["app"].port)


@pytest.fixture
def database(sidecar: Sidecar) -> Iterator[TcpServer]:
    """An application that speaks first."""
    server = greeting_server(sidecar.network, "hello")
    yield server
    server.close()


def closed(*sources: str, match: Match | None = None, name: str = "routes/books", connections: bool = False) -> Access:
    """Only for these identities: some requests, or all connections."""
    grant = Grant(
        origin=TARGET,
        sources=sources,
        requests=(RequestRule(name=name, match=match),) if match else (),
        connections=(ConnectionRule(name="all"),) if connections else (),
    )
    return Access(closed=True, grants=(grant,))


def served(sidecar: Sidecar, port: InboundPort, **more: object) -> InboundPort:
    """Serve one port until it takes connections."""
    sidecar.serve(port, **more)
    sidecar.wait_for(port)
    return port


def tls_of_the_mesh(sidecar: Sidecar, identity: str | None = CLIENT) -> ssl.SSLContext:
    return sidecar.client_tls(identity, [MESH_ALPN])


def heard(sidecar: Sidecar, port: InboundPort, tls: ssl.SSLContext | None = None) -> str:
    """Connect and listen; return what came back of what was sent, or the error's name."""
    try:
        return sidecar.network.run(talk(Address(ADDRESS, port.port), "ping", tls=tls)).echo
    except (OSError, EOFError) as error:
        return type(error).__name__


def test_strict_takes_nobody_who_does_not_prove_an_identity_of_the_mesh(sidecar, web):
    """R74, R76: a port that takes mutual TLS only."""
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    assert sidecar.caller(web, CLIENT).get().answered_by == "app"
    sidecar.take_requests("app")
    strangers = {
        "plaintext": None,
        "no certificate": sidecar.client_tls(None),
        "of another authority": sidecar.client_tls(Authority().issue(CLIENT)),
        "of another trust domain": sidecar.client_tls(account("client", "other.local")),
        "of a longer trust domain": sidecar.client_tls(account("client", "cluster.local.evil")),
        "no identity": sidecar.client_tls(sidecar.authority.issue("", "client")),
        "an identity that is only a DNS name": sidecar.client_tls(sidecar.authority.issue("", CLIENT)),
        "an older TLS": sidecar.client_tls(CLIENT, newest=ssl.TLSVersion.TLSv1_2),
    }
    answers = {name: sidecar.caller(web, tls).get().status for name, tls in strangers.items()}
    assert answers == dict.fromkeys(strangers, 0)
    assert sidecar.take_requests("app") == []


@pytest.mark.parametrize("tls_mode", MIXED)
def test_on_the_way_to_strict_both_are_taken(sidecar, web, tls_mode):
    served(sidecar, web, tls_mode=tls_mode)
    assert sidecar.caller(web, CLIENT).get().answered_by == "app"
    assert sidecar.caller(web).get().answered_by == "app"
    assert sidecar.caller(web, sidecar.client_tls(Authority().issue(CLIENT))).get().status == 0


def test_the_plain_stage_takes_plaintext_only(sidecar, web):
    served(sidecar, web, tls_mode=TlsMode.PLAIN)
    assert sidecar.caller(web).get().answered_by == "app"
    assert sidecar.caller(web, CLIENT).get().status == 0


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl on the PATH")
def test_openssl_sees_the_names_of_the_certificate(sidecar, web, tmp_path):
    """R75: the subject names of a TLSConfig are on the certificate, beside the identity."""
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    place = ["-connect", f"{ADDRESS}:{web.port}"]
    shown = subprocess.run(["openssl", "s_client", *place], input=b"", capture_output=True, check=False).stdout
    names = x509.load_pem_x509_certificate(shown).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["web.default.svc", "foo", "bar"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [WEB]


@pytest.mark.parametrize("protocol", [Protocol.HTTP2, Protocol.HTTP_ANY])
def test_the_codec_follows_the_client_without_an_agreement(sidecar, protocol):
    """R65: a sidecar that calls agrees on no protocol, and speaks HTTP/2 to a port that has it."""
    server = http2_server(sidecar.network, "two")
    port = served(sidecar, sidecar.port(server.address.port, protocol), tls_mode=TlsMode.STRICT)

    async def ask() -> str:
        return await ask_h2(await sidecar.caller(port, CLIENT).open(), "web.example")

    assert sidecar.network.run(ask()) == "two"


def test_grpc_is_served_and_refused_by_method(sidecar, tmp_path):
    """R65, R69: clients from outside agree on HTTP/2, and a refusal is a status of gRPC."""
    greeter = Greeter("v1")
    try:
        hello = Match(path=PathMatch(kind="exact", value="/Greeter/Hello"))
        port = sidecar.port(greeter.address.port, Protocol.HTTP2)
        served(sidecar, port, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=hello))
        own = sidecar.authority.issue(CLIENT)
        trust = grpc.ssl_channel_credentials(own.roots.encode(), own.key.reveal().encode(), own.chain.encode())
        options = [("grpc.ssl_target_name_override", "foo"), ("grpc.enable_http_proxy", 0)]
        with grpc.secure_channel(f"{ADDRESS}:{port.port}", trust, options) as calls:
            assert calls.unary_unary("/Greeter/Hello")(b"I am ", timeout=20) == b"I am v1"
            with pytest.raises(grpc.RpcError) as refused:
                calls.unary_unary("/Greeter/Refuse")(b"", timeout=20)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert CLIENT in refused.value.details()
    finally:
        greeter.close()


def test_websockets_pass(sidecar):
    server = TcpServer(sidecar.network, _agreeing)
    port = served(sidecar, sidecar.port(server.address.port), tls_mode=TlsMode.PERMISSIVE)
    assert sidecar.network.run(upgrade(Address(ADDRESS, port.port), "ping")) == ["101", "there", "ping"]


async def _agreeing(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    reader, writer = stream
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nthere\n")
    while data := await reader.read(4096):
        writer.write(data)


def test_the_application_learns_who_called_and_nobody_can_say_it_for_others(sidecar, web):
    """R70: the identity is the certificate's; what a client writes into the header is dropped."""
    served(sidecar, web, tls_mode=TlsMode.PERMISSIVE)
    forged = f"URI={OTHER}"
    sidecar.caller(web, CLIENT).get(x_forwarded_client_cert=forged)
    header = sidecar.last_headers("app")["x-forwarded-client-cert"]
    assert f"URI={CLIENT}" in header
    assert OTHER not in header
    sidecar.caller(web).get(x_forwarded_client_cert=forged)
    assert "x-forwarded-client-cert" not in sidecar.last_headers("app")


@pytest.mark.parametrize("known", [True, False])
def test_no_other_spelling_of_the_callers_header_reaches_the_application(sidecar, web, known):
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


def test_requests_are_allowed_by_identity_method_and_path(sidecar, web):
    """R68, R70: the rules of a TrafficTarget."""
    served(sidecar, web, tls_mode=TlsMode.PERMISSIVE, access=closed(CLIENT, match=BOOKS))
    client = sidecar.caller(web, CLIENT)
    assert client.get("/books/1?page=2").status == 200
    assert client.get("/cars").status == 403
    assert client.get("/books", "POST").status == 403
    assert sidecar.caller(web, OTHER).get("/books").status == 403
    assert sidecar.caller(web).get("/books").status == 403
    assert [seen.path for seen in sidecar.take_requests("app")] == ["/books/1?page=2"]


def test_who_is_refused_is_told_so_and_no_more(sidecar, web):
    served(sidecar, web, tls_mode=TlsMode.PERMISSIVE, access=closed(CLIENT, match=BOOKS))
    known = sidecar.caller(web, OTHER).get("/books").body
    assert OTHER in known
    assert known.startswith("headgate: access denied")
    assert known.count("\n") == 1
    assert CLIENT not in known
    assert "without mutual TLS" in sidecar.caller(web).get("/books").body


@pytest.mark.parametrize(
    "path",
    ["/books/../cars", "/books//cars", "/books/./x", "/books/..", "/books%2f..%2fcars", "/books/%2E%2e/x", "/books\\x"],
)
def test_paths_that_can_be_read_in_two_ways_are_never_allowed_by_a_rule_about_paths(sidecar, web, path):
    """D21: an application may read such a path as another one than the rule does."""
    served(sidecar, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS))
    assert sidecar.caller(web, CLIENT).get(path).status in {400, 403}
    assert sidecar.take_requests("app") == []


def test_names_on_a_certificate_are_no_identities(sidecar, web):
    """R70, R75: who may choose the names of his pods can't become somebody else by them."""
    served(sidecar, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS))
    borrowed = sidecar.client_tls(sidecar.authority.issue(OTHER, CLIENT))
    assert sidecar.caller(web, borrowed).get("/books").status == 403


def test_a_client_that_comes_again_proves_again_who_it_is(sidecar, web):
    """A resumed session would not: what was proven in the first one is gone, or out of date."""
    served(sidecar, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS))
    tls = sidecar.client_tls(CLIENT)

    def get(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession, bool]:
        place = socket.create_connection((ADDRESS, web.port))
        with place, tls.wrap_socket(place, server_hostname="web", session=session) as secured:
            secured.sendall(b"GET /books HTTP/1.1\r\nhost: web\r\n\r\n")
            return secured.recv(12), secured.session, secured.session_reused

    first, session, _ = get(None)
    again, _, resumed = get(session)
    assert (first, again, resumed) == (b"HTTP/1.1 200", b"HTTP/1.1 200", False)


def test_a_change_of_access_bites_on_live_connections_at_once(sidecar, web):
    """R69: the policy for requests comes with the routes."""
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    client = sidecar.caller(web, CLIENT)
    statuses = [client.get("/books").status]
    connection = client._writer
    for access in (closed(OTHER, match=BOOKS), closed(CLIENT, match=BOOKS), Access(closed=True)):
        sidecar.serve(web, tls_mode=TlsMode.STRICT, access=access)
        statuses.append(client.get("/books").status)
    assert statuses == [200, 403, 200, 403]
    assert client._writer is connection


def test_counters_name_the_rule_that_allowed(sidecar, web):
    """The rule has a name of its own: counters of another test's rule go away with its filter chain, while this looks."""
    served(sidecar, web, tls_mode=TlsMode.STRICT, access=closed(CLIENT, match=BOOKS, name="routes/counted"))
    denied = sidecar.count("http.inbound.rbac.denied")
    sidecar.caller(web, CLIENT).get("/books")
    sidecar.caller(web, CLIENT).get("/cars")
    assert sidecar.count("rbac.policy.default/cars/routes/counted.allowed") == 1
    assert sidecar.count("http.inbound.rbac.denied") == denied + 1


def test_connect_is_not_offered(sidecar, web):
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    assert sidecar.caller(web, CLIENT).get("db:5432", "CONNECT").status == 403


def test_an_application_that_does_not_listen_is_marked_as_not_reached(sidecar):
    """The caller's proxy may try another pod then; an application's own errors are not marked."""
    nobody = sidecar.port(sidecar.free().port)
    broken = sidecar.port(sidecar.echoes["app"].port)
    sidecar.echoes["app"].status = "503 Service Unavailable"
    sidecar.serve(nobody, broken, tls_mode=TlsMode.STRICT)
    sidecar.wait_for(nobody)
    answer = sidecar.caller(nobody, CLIENT).get()
    assert (answer.status, answer.headers.get(UNREACHED_HEADER)) == (503, "true")
    assert "does not accept connections" in answer.body
    answer = sidecar.caller(broken, CLIENT).get()
    assert (answer.status, answer.headers.get(UNREACHED_HEADER)) == (503, None)


def test_a_new_certificate_ends_no_connection(sidecar, web):
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    client = sidecar.caller(web, CLIENT)
    assert client.get().answered_by == "app"
    connection = client._writer
    renewed = sidecar.authority.issue(WEB, "renewed")
    sidecar.serve(web, tls_mode=TlsMode.STRICT, credential=renewed)

    def is_shown() -> bool:
        caller = sidecar.caller(web, CLIENT)
        caller.get()
        shown = ssl.DER_cert_to_PEM_cert(caller._writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        caller.close()
        return shown.strip() == renewed.chain.strip()

    until(is_shown, "the new certificate")
    assert client.get().answered_by == "app"
    assert client._writer is connection


def test_a_new_authority_is_believed_when_it_comes_and_the_old_one_until_it_goes(sidecar, web):
    served(sidecar, web, tls_mode=TlsMode.STRICT)
    new = Authority("new")
    stranger = sidecar.client_tls(new.issue(CLIENT))
    assert sidecar.caller(web, stranger).get().status == 0
    own = sidecar.credential

    def believe(roots: str) -> None:
        renewed = type(own)(chain=own.chain, key=own.key, roots=roots)
        sidecar.serve(web, tls_mode=TlsMode.STRICT, credential=renewed)

    believe(own.roots + new.pem)
    until(lambda: sidecar.caller(web, stranger).get().answered_by == "app", "the new authority")
    assert sidecar.caller(web, CLIENT).get().answered_by == "app"
    believe(new.pem)
    until(lambda: sidecar.caller(web, CLIENT).get().status == 0, "the old authority is gone")
    assert sidecar.caller(web, stranger).get().answered_by == "app"


def test_each_client_gets_the_protocol_of_the_service_that_it_means(sidecar, database):
    """R67, D15: two Services lead to one port; plaintext is what the first of them says."""
    port = sidecar.port(database.address.port, Protocol.TCP, Protocol.HTTP)
    served(sidecar, port, tls_mode=TlsMode.PERMISSIVE)
    assert echoes(sidecar, connected(sidecar, port, plain=True))
    assert echoes(sidecar, connected(sidecar, port))
    web = sidecar.caller(port, CLIENT, Protocol.HTTP).get()
    assert web.status == 502  # what the database says is no HTTP, and something that reads HTTP noticed
    port = sidecar.port(sidecar.echoes["app"].port, Protocol.HTTP, Protocol.TCP)
    served(sidecar, port, tls_mode=TlsMode.PERMISSIVE, access=closed(CLIENT, match=BOOKS))
    assert sidecar.caller(port, CLIENT).get("/books").status == 200
    named = sidecar.caller(port, tls_of_the_mesh(sidecar), Protocol.TCP)
    assert named.get("/books").status == 0  # nobody may open connections


def test_a_server_that_speaks_first_is_heard_in_plaintext(sidecar, database):
    port = sidecar.port(database.address.port, Protocol.TCP_SERVER_FIRST)
    served(sidecar, port, tls_mode=TlsMode.PLAIN)
    assert heard(sidecar, port) == "ping"


@pytest.mark.parametrize("protocol", [Protocol.TCP_SERVER_FIRST, Protocol.TCP])
def test_a_server_that_speaks_first_is_heard_by_the_mesh(sidecar, database, protocol):
    """Strict takes the mesh's TLS without its mark too, and nothing else."""
    port = served(sidecar, sidecar.port(database.address.port, protocol), tls_mode=TlsMode.STRICT)
    assert heard(sidecar, port, tls_of_the_mesh(sidecar)) == "ping"
    assert heard(sidecar, port, sidecar.client_tls(CLIENT)) == "ping"
    before = database.connections
    assert heard(sidecar, port, tls_of_the_mesh(sidecar, None)) != "ping"
    assert heard(sidecar, port, sidecar.client_tls(Authority().issue(CLIENT), [MESH_ALPN])) != "ping"
    assert database.connections == before


def test_much_arrives_whole_although_the_application_is_reached_late(sidecar, database):
    access = closed(CLIENT, connections=True)
    port = served(sidecar, sidecar.port(database.address.port, Protocol.TCP), tls_mode=TlsMode.STRICT, access=access)
    text = "0123456789" * 100_000
    tls = tls_of_the_mesh(sidecar)
    assert sidecar.network.run(talk(Address(ADDRESS, port.port), text, tls=tls)).echo == text


@pytest.mark.parametrize("protocol", [Protocol.TLS, Protocol.TCP])
def test_the_applications_own_tls_passes_until_strict(sidecar, tmp_path, protocol):
    file = certificate(tmp_path)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(file)
    server = greeting_server(sidecar.network, "secret", own)
    stranger = ssl.create_default_context(cafile=str(file))
    port = sidecar.port(server.address.port, protocol)
    for tls_mode in (TlsMode.PLAIN, TlsMode.READY, TlsMode.PERMISSIVE):
        served(sidecar, port, tls_mode=tls_mode)
        assert until(lambda: heard(sidecar, port, stranger) == "ping", f"passed on in {tls_mode}")
    sidecar.serve(port, tls_mode=TlsMode.STRICT)
    until(lambda: heard(sidecar, port, stranger) == "SSLCertVerificationError", "the mesh's own certificate")
    server.close()


@pytest.mark.parametrize("tls_mode", [TlsMode.PERMISSIVE, TlsMode.STRICT])
def test_who_may_not_connect_hears_nothing_and_reaches_nobody(sidecar, database, tls_mode):
    """R68, R69: not even the greeting of a server that speaks first, and no connection that does nothing."""
    port = sidecar.port(database.address.port, Protocol.TCP_SERVER_FIRST)
    served(sidecar, port, tls_mode=tls_mode, access=closed(CLIENT, connections=True))
    assert heard(sidecar, port, tls_of_the_mesh(sidecar)) == "ping"
    before = database.connections
    assert heard(sidecar, port, tls_of_the_mesh(sidecar, OTHER)) != "ping"
    assert heard(sidecar, port, sidecar.client_tls(OTHER)) != "ping"
    served(sidecar, port, tls_mode=tls_mode, access=closed(CLIENT))
    until(lambda: heard(sidecar, port, tls_of_the_mesh(sidecar)) != "ping", "nobody may connect")
    assert database.connections - before <= 1  # the last one that was allowed


def test_access_that_is_withdrawn_ends_open_connections(sidecar, database):
    """R69: connections end within seconds, those of nobody else."""
    port, other = (sidecar.port(database.address.port, Protocol.TCP) for _ in range(2))
    allowed = closed(CLIENT, connections=True)
    sidecar.serve(port, other, tls_mode=TlsMode.STRICT, access=allowed)
    sidecar.wait_for(other)
    mine = connected(sidecar, port)
    grant = Grant(origin=TARGET, sources=(CLIENT,), port=other.port, connections=(ConnectionRule(name="all"),))
    sidecar.serve(port, other, tls_mode=TlsMode.STRICT, access=Access(closed=True, grants=(grant,)))
    assert ends(sidecar, mine)
    assert echoes(sidecar, connected(sidecar, other))


def test_mutual_tls_stays_when_plaintext_goes(sidecar, database):
    """A change of tls_mode ends the connections that are not taken any more, and no others."""
    port = sidecar.port(database.address.port, Protocol.TCP)
    served(sidecar, port, tls_mode=TlsMode.PERMISSIVE)
    mesh, plain = connected(sidecar, port), connected(sidecar, port, plain=True)
    sidecar.serve(port, tls_mode=TlsMode.STRICT)
    assert ends(sidecar, plain)
    assert echoes(sidecar, mesh)


def connected(sidecar: Sidecar, port: InboundPort, *, plain: bool = False) -> Caller:
    """Open a connection to the database, and hear its greeting."""
    caller = sidecar.caller(port, None if plain else tls_of_the_mesh(sidecar))

    async def begin() -> None:
        caller._reader, caller._writer = await caller.open()
        caller._writer.write(WORDS)
        assert await caller._reader.readexactly(6 + len(WORDS)) == b"hello\n" + WORDS

    sidecar.network.run(begin())
    return caller


def echoes(sidecar: Sidecar, caller: Caller) -> bool:
    async def ping() -> bool:
        caller._writer.write(b"ping")
        return await caller._reader.readexactly(4) == b"ping"

    return sidecar.network.run(ping())


def ends(sidecar: Sidecar, caller: Caller) -> bool:
    """Wait for the other side to end a connection."""

    async def last() -> bool:
        try:
            return await caller._reader.read() == b""
        except ConnectionError:
            return True

    return sidecar.network.run(last())


def test_health_checks_reach_the_application_without_an_identity(sidecar):
    """What the orchestrator asks for, and nothing else."""
    everywhere = f"127.99.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"  # the port is always the same
    application = sidecar.echoes["app"].port
    found = (
        Probe(name="app/readiness", port=application, path="/healthz?full=1"),
        Probe(name="app/liveness", port=application, path="alive"),
    )
    workload = Workload(name="default/web-1", address=ADDRESS, identity=WEB, tls_mode=TlsMode.STRICT, probes=found)
    sidecar.push_parts(*probes.parts(workload, wildcard=everywhere, source="127.0.0.6"))
    caller = Caller(sidecar.network, Address(everywhere, 15020))
    sidecar.callers.append(caller)
    until(lambda: caller.get("/app/readiness").answered_by == "app", "the listener for health checks")
    assert sidecar.last_path("app") == "/healthz?full=1"
    assert caller.get("/app/liveness").status == 200
    assert sidecar.last_path("app") == "/alive"
    assert [caller.get(path).status for path in ("/", "/healthz", "/app/readiness/x", "/app/startup")] == [404] * 4
    assert caller.get("/app/readiness", "POST").status == 404
    sidecar.echoes["app"].status = "302 Found"
    assert caller.get("/app/readiness").status == 302
