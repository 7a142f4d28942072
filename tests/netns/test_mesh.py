"""Transparent sidecars end to end: what applications notice, and what somebody on the wire does."""

import ssl
from collections import Counter

import pytest
from tests.e2e.protocols import certificate
from tests.netns.conftest import ECHO, EVERYBODY_STRICT, GREETING, H2, ONE, OWN_TLS, SELF, TWO, WEB, Where
from tests.netns.objects import mirror, split, strict
from tests.netns.traffic import CLOSED, Application, ask, ask_h2, ask_often, talk

from headgate.settings import Settings

OFF = Settings(mtls="off")
MARKER = b"the-marker-that-nobody-may-read"
SOURCE = "127.0.0.6"


@pytest.fixture(params=["permissive", "strict"])
def mesh(request, lab, services):
    """The lab with mutual TLS, as far as clients with a sidecar notice: not at all."""
    lab.serve(*services, *(EVERYBODY_STRICT if request.param == "strict" else []))
    return lab


def test_http_reaches_the_application_with_the_clients_identity_proven(mesh):
    client, one = mesh.members["client"], mesh.members["one"]
    app = one.apps[8080]
    app.seen.clear()
    answer = mesh.run(ask(client, ONE, "POST", "/path?query", body=b"text", headers=[("x-mine", "1")]))
    assert (answer.status, answer.body) == (200, "one")
    (seen,) = app.seen
    assert (seen.method, seen.path, seen.headers["x-mine"]) == ("POST", "/path?query", "1")
    assert seen.peer == SOURCE  # what the sidecar calls from
    assert "spiffe://cluster.local/ns/default/sa/client" in str(seen.headers)


def test_http2_from_end_to_end(mesh):
    found = mesh.run(ask_h2(mesh.members["client"], H2, 20))
    assert found == {"one": 10, "two": 10}
    assert mesh.members["one"].apps[8080].seen[-1].method == "HTTP/2"


def test_both_services_of_one_port_speak_their_own_protocol(mesh):
    client = mesh.members["client"]  # D15, R67
    assert mesh.run(ask_often(client, WEB, 4)) == {"one": 2, "two": 2}
    assert mesh.members["one"].apps[8080].seen[-1].method == "GET"
    assert mesh.run(ask_h2(client, H2, 4)) == {"one": 2, "two": 2}


def test_tcp_where_the_client_speaks_first(mesh):
    assert mesh.run(talk(mesh.members["client"], ECHO, b"hello")) == ("", "hello")


def test_tcp_where_the_server_speaks_first(mesh):
    assert mesh.run(talk(mesh.members["client"], GREETING, b"hello", listen_first=True)) == ("one", "hello")


def test_an_applications_own_tls_passes_through(mesh, own_tls):
    assert mesh.run(talk(mesh.members["client"], OWN_TLS, b"hello", ssl=own_tls, server_hostname="db")) == ("", "hello")


@pytest.fixture(scope="module")
def own_tls(lab, tmp_path_factory):
    path = certificate(tmp_path_factory.mktemp("tls"))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(path)
    lab.listen(lab.members["two"], 7443, "echo", serving)
    return ssl.create_default_context(cafile=str(path))


def test_a_split_is_exact(mesh, services):
    strictness = EVERYBODY_STRICT if mesh.compiled.mesh.workloads[0].stage.value == "strict" else []
    mesh.serve(*services, *strictness, split("canary", "web", one=90, two=10))
    assert mesh.run(ask_often(mesh.members["client"], WEB, 100)) == {"one": 90, "two": 10}


def test_a_split_of_connections_is_exact(mesh, services, served_alone):
    mesh.serve(*services, *served_alone, split("canary", "echo", echo_one=90, echo_two=10))
    one, two = (mesh.members[name].apps[7000].peers for name in ("one", "two"))
    before = len(one), len(two)
    for _ in range(20):
        assert mesh.run(talk(mesh.members["client"], ECHO, b"x")) == ("", "x")
    assert (len(one) - before[0], len(two) - before[1]) == (18, 2)
