"""The addresses on which the control plane's servers listen."""

import socket

import pytest

from headgate.kubernetes.sockets import listen


@pytest.mark.parametrize(
    ("is_dual", "hosts"),
    [
        pytest.param(
            True,
            ("127.0.0.1", "::1"),
            marks=pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs a kernel with IPv6"),
        ),
        (False, ("127.0.0.1",)),
    ],
)
def test_servers_accept_connections_over_each_family_of_the_node(
    monkeypatch: pytest.MonkeyPatch, is_dual: bool, hosts: tuple[str, ...]
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: is_dual)
    with listen(0) as server:
        for host in hosts:
            socket.create_connection((host, server.getsockname()[1]), timeout=10).close()
