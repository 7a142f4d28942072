"""Refuse the connections to a pod from the moment at which its application has closed its listeners.

A caller's proxy that does not know yet that the pod ends tries another pod when a connection is refused. It can't when
the sidecar accepts the connection, and closes it because the application accepts none. So this module imports little: an
application that closes its listeners before the hook looks at them loses connections until then.
"""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from headgate.cli.admin_socket import post
from headgate.envoy.node_ids import INBOUND_PORT, OUTBOUND_PORT, PROBE_PORT
from headgate.envoy.proxy_container import ADMIN_SOCKET, DIRECTORY
from headgate.errors import ProxyError

LISTEN, ESTABLISHED = "0A", "01"  # codes of socket states in /proc/net/tcp
_OWN_PORTS = frozenset({OUTBOUND_PORT, INBOUND_PORT, PROBE_PORT})
_POLL_S, _REPORTED_S = 0.02, 0.5
"""Between two looks at the application's listeners where the kernel does not report closed sockets, and where it does. With
the shorter time a hook needed a tenth of a processor, because a look reads all sockets of the pod."""
_NETLINK_SOCK_DIAG = 4  # linux/netlink.h
_CLOSED_TCP_SOCKETS = 1 << 0 | 1 << 2  # SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY of linux/sock_diag.h
_REMOTE_PORT = struct.Struct("!22xH")  # a netlink header of 16 bytes, then idiag_dport of inet_diag_msg
_LARGEST_MESSAGE = 1 << 16


def refuse_after_application() -> None:
    """Wait until the application has closed its listeners, and close the sidecar's inbound ones. Open connections stay."""
    with _ClosedListeners() as closed:
        while any(listeners_of_application()):
            closed.wait()
    with contextlib.suppress(ProxyError):  # Envoy has ended, and accepts no connection
        post_to_envoy("/drain_listeners?inboundonly")


def listeners_of_application() -> Iterator[int]:
    """Yield the ports on which the application listens."""
    return (port for port, state in sockets() if state == LISTEN and port not in _OWN_PORTS)


def connections_of_sidecar() -> Iterator[int]:
    """Yield the port of each connection to the sidecar, without those of probes."""
    return (port for port, state in sockets() if state == ESTABLISHED and port in _OWN_PORTS - {PROBE_PORT})


def sockets() -> Iterator[tuple[int, str]]:
    """Yield the local port and the state of each TCP socket of the pod."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_ = line.split()
            yield int(local.rpartition(":")[2], 16), state


def post_to_envoy(path: str) -> None:
    """Send a request to Envoy's admin interface. Raises ProxyError.

    Hooks have no limit of their own: an Envoy without processor time would end without it, and lose its requests. The
    kubelet kills the container at the end of the pod's grace period.
    """
    post(Path(DIRECTORY) / ADMIN_SOCKET, path, limit_s=None)


class _ClosedListeners:
    """The listening sockets of this network namespace that are closed, as the kernel reports them to any user."""

    def __init__(self) -> None:
        self._sources: list[socket.socket] = []
        self._reports = False
        with contextlib.suppress(OSError):  # the kernel reports none, or a sandbox has no such sockets
            source = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
            self._sources.append(source)
            source.bind((0, _CLOSED_TCP_SOCKETS))
            socket.create_server(("127.0.0.1", 0)).close()  # the first report, if the kernel makes any

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for source in self._sources:
            source.close()

    def wait(self) -> None:
        """Wait until the kernel reports a closed listener, at most until the next look at all listeners."""
        end = time.monotonic() + (_REPORTED_S if self._reports else _POLL_S)
        while (left := end - time.monotonic()) > 0:
            for source in select.select(self._sources, [], [], left)[0]:
                try:
                    message, self._reports = source.recv(_LARGEST_MESSAGE), True
                except OSError:  # more messages than the kernel keeps
                    return
                if len(message) >= _REMOTE_PORT.size and not _REMOTE_PORT.unpack_from(message)[0]:
                    return
