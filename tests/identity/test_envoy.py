"""Tests of certificates with a real Envoy as a server that requires client certificates (R76)."""

import json
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from tests.identity.fakes import DOMAIN, wanted
from tests.ports import free_port

from headgate.identity.authority import Authority, Leaf, make_signer, new_root, sign
from headgate.identity.issuers import CertificateSpec
from headgate.standalone.proxies.envoy_binary import find_envoy

pytestmark = pytest.mark.e2e
READY = "starting main dispatch loop"


def leaf(authority: Authority, item: CertificateSpec) -> Leaf:
    return sign(make_signer(authority, "the test"), item, time.time(), timedelta(hours=1))


def echo_listener(port: int, own: Leaf, roots: str) -> dict:
    """Return an echo listener that trusts `roots` and has the certificate `own`."""
    kinds = "type.googleapis.com/envoy.extensions"
    certificate = {
        "certificate_chain": {"inline_string": own.chain},
        "private_key": {"inline_string": own.key.reveal()},
    }
    tls = {
        "@type": f"{kinds}.transport_sockets.tls.v3.DownstreamTlsContext",
        "require_client_certificate": True,
        "common_tls_context": {
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_3"},
            "tls_certificates": [certificate],
            "validation_context": {"trusted_ca": {"inline_string": roots}},
        },
    }
    echo = {"name": "echo", "typed_config": {"@type": f"{kinds}.filters.network.echo.v3.Echo"}}
    chain = {"transport_socket": {"name": "tls", "typed_config": tls}, "filters": [echo]}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {"name": f"on {port}", "address": address, "filter_chains": [chain]}


class Server:
    """An Envoy with a listener for each trust domain and set of roots."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._listeners: list[dict] = []

    def listen(self, own: Leaf, roots: str) -> int:
        port = free_port()
        self._listeners.append(echo_listener(port, own, roots))
        return port

    def start(self) -> None:
        config = json.dumps({"static_resources": {"listeners": self._listeners}})
        command = [find_envoy(os.environ), "--disable-hot-restart", "--concurrency", "1", "--config-yaml", config]
        envoy = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True)
        self._stack.callback(envoy.communicate)
        self._stack.callback(envoy.terminate)
        assert envoy.stderr is not None
        assert any(READY in line for line in envoy.stderr), "Envoy ended"


@pytest.fixture
def server() -> Iterator[Server]:
    with ExitStack() as stack:
        yield Server(stack)


def call(port: int, own: Leaf, roots: str, directory: Path) -> bytes:
    """Send a text by mutual TLS to the server `foo`; return the answer, empty if client or server rejects a
    certificate."""
    (directory / "own.pem").write_text(own.chain + own.key.reveal())
    context = ssl.create_default_context(cadata=roots)
    context.load_cert_chain(directory / "own.pem")
    raw = socket.create_connection(("127.0.0.1", port))
    try:
        with context.wrap_socket(raw, server_hostname="foo") as connection:
            connection.sendall(b"hello")
            return connection.recv(5)
    except (ssl.SSLError, ConnectionError):
        raw.close()
        return b""


def test_envoy_accepts_only_workloads_of_its_own_trust_domain(server: Server, tmp_path: Path) -> None:
    """The third certificate is of another trust domain, signed by the trusted root; nameConstraints reject it."""
    domains = (DOMAIN, "mesh", "prod-1.example.com")
    authorities = {domain: new_root(domain, time.time()) for domain in domains}
    ports = {
        domain: server.listen(leaf(authority, wanted("web", "foo", domain=domain)), authority.certificate)
        for domain, authority in authorities.items()
    }
    server.start()
    for domain, authority in authorities.items():
        port, roots = ports[domain], authority.certificate
        assert call(port, leaf(authority, wanted("caller", domain=domain)), roots, tmp_path) == b"hello", domain
        stranger = new_root(domain, time.time())
        assert call(port, leaf(stranger, wanted("caller", domain=domain)), roots, tmp_path) == b"", domain
        assert call(port, leaf(authority, wanted("caller", domain="example.org")), roots, tmp_path) == b"", domain


def test_envoy_accepts_certificates_of_a_trust_domain_with_an_underscore(server: Server, tmp_path: Path) -> None:
    authority = new_root("my_mesh", time.time())
    port = server.listen(leaf(authority, wanted("web", "foo", domain="my_mesh")), authority.certificate)
    server.start()
    assert call(port, leaf(authority, wanted("caller", domain="my_mesh")), authority.certificate, tmp_path) == b"hello"


def test_old_and_new_certificates_accept_each_other_during_a_rotation(server: Server, tmp_path: Path) -> None:
    """R76. Servers and clients before and after a step accept each other, except when trust-new is skipped."""
    old, new = new_root(DOMAIN, time.time()), new_root(DOMAIN, time.time())
    both = old.certificate + new.certificate
    steps = {
        "trust-new": server.listen(leaf(old, wanted("web", "foo")), both),
        "sign-new": server.listen(leaf(new, wanted("web", "foo")), both),
        "drop-old": server.listen(leaf(new, wanted("web", "foo")), new.certificate),
    }
    server.start()
    before, after = leaf(old, wanted("caller")), leaf(new, wanted("caller"))
    assert call(steps["trust-new"], before, old.certificate, tmp_path) == b"hello"
    assert call(steps["trust-new"], after, both, tmp_path) == b"hello"
    assert call(steps["sign-new"], before, both, tmp_path) == b"hello"
    assert call(steps["sign-new"], after, both, tmp_path) == b"hello"
    assert call(steps["drop-old"], after, both, tmp_path) == b"hello"
    assert call(steps["drop-old"], before, both, tmp_path) == b""
