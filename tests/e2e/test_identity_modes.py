"""Workloads under load migrate from plaintext to mutual TLS and back (R74, R77)."""

import socket
import ssl
from collections.abc import Callable

import pytest
from tests.e2e import identity_rig as rig
from tests.e2e.running_mesh import RunningMesh
from tests.waiting import until
from tests.wire import Address

SERVED = b"HTTP/1.1 200 OK"


def speaks_tls(address: Address) -> bool:
    """Return whether a server completes a TLS 1.3 handshake; the server requests a client certificate afterwards."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(address, timeout=60) as plain, trust.wrap_socket(plain):
            return True
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.parametrize("mode", ["off", "permissive"])
def test_no_request_fails_when_a_tls_config_is_created_and_deleted(
    shared_mesh: Callable[..., RunningMesh], mode: str
) -> None:
    """The TLSConfig becomes programmed once the server rejects plaintext. Its deletion allows plaintext again."""
    mesh = shared_mesh(rig.site, "--mtls", mode)
    server = rig.only_pod(mesh, rig.SERVER)
    address = rig.pod_address(server)
    assert rig.plaintext_answer(address) == SERVED
    assert speaks_tls(address) == (mode == "permissive")
    with rig.load_without_loss(mesh, mesh.root) as load:
        mesh.submit(rig.strict_tls())
        assert "1 of 1" in rig.headgate_wait(mesh, "tlsconfig/strict")
        assert rig.plaintext_answer(address) == b""
        assert speaks_tls(address)
        rig.wait_for_requests(load)
        assert (
            rig.sidecar_counter(mesh, server, "ssl.handshake") > 0
        )  # R74; it ends with the filter chain of mutual TLS
        mesh.delete("tlsconfig/strict")
        until(lambda: rig.plaintext_answer(address) == SERVED)
        rig.wait_for_requests(load)
        until(lambda: speaks_tls(address) == (mode == "permissive"))
    assert rig.only_pod(mesh, rig.SERVER)["metadata"]["uid"] == server["metadata"]["uid"]  # the pod was never replaced
    assert mesh.complaints == []


def test_no_request_fails_when_headgate_restarts_with_another_mtls_mode(
    shared_mesh: Callable[..., RunningMesh],
) -> None:
    """The next start continues the mTLS migration from the proxies' TLS modes: to strict, and back (R74, R77)."""
    mesh = shared_mesh(rig.site, "--mtls", "off")
    servers = rig.pods(mesh, rig.SERVER)
    addresses = [rig.pod_address(server) for server in servers]
    assert not any(map(speaks_tls, addresses))
    with rig.load_without_loss(mesh, mesh.root) as load:
        mesh.kill()
        mesh.options = ("--mtls", "strict")
        mesh.start()
        until(lambda: not any(map(rig.plaintext_answer, addresses)))
        rig.wait_for_requests(load)
        mesh.kill()
        mesh.options = ("--mtls", "off")
        mesh.start()
        until(lambda: not any(map(speaks_tls, addresses)))
        rig.wait_for_requests(load)
    assert {pod["metadata"]["uid"] for pod in rig.pods(mesh, rig.SERVER)} == {
        pod["metadata"]["uid"] for pod in servers
    }  # the pods were never replaced
    assert mesh.complaints == []
