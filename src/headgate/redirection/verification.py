"""Verify the redirection of a pod's connections from within the pod, without privileges.

The rules redirect a connection to the address `INBOUND_SOURCE` to the sidecar's outbound port, and nothing listens at its
original destination. So the connection succeeds only if the kernel has the rules.
"""

import errno
import socket
import sys
import time

from headgate.envoy.node_ids import OUTBOUND_PORT
from headgate.errors import HeadgateError
from headgate.redirection.iptables import pod_families
from headgate.redirection.rules import INBOUND_SOURCE

POLL_S = 0.1
CONNECT_S = 1.0
LOOPBACK = {4: "127.0.0.1", 6: "::1"}
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


class NotRedirectedError(HeadgateError):
    """The pod's connections are not redirected in time."""


def wait_until_redirected(node: str, patience_s: float) -> None:
    """Wait until all TCP connections of this network namespace are redirected. Raises NotRedirectedError.

    `node` is the name of the pod's node, whose agent adds the rules.
    """
    end = time.monotonic() + patience_s
    if not is_redirected():
        sys.stderr.write(f"waiting for the node agent of the node {node}, which redirects the pod's connections\n")
    while not is_redirected():
        if time.monotonic() > end:
            raise NotRedirectedError(
                f"the pod's connections are not redirected to its sidecar after {patience_s:g} s: the node agent of the node"
                f" {node} must do it; see `kubectl -n headgate-system get pods -o wide` and its log"
            )
        time.sleep(POLL_S)  # the kernel reports no change of rules to unprivileged processes


def is_redirected() -> bool:
    """Return whether the rules of each IP family that the pod uses are there."""
    return all(map(_is_redirected, pod_families()))


def _is_redirected(version: int) -> bool:
    family, (address, _, _) = _FAMILIES[version], INBOUND_SOURCE[version].partition("/")
    with socket.socket(family) as proxy, socket.socket(family) as destination, socket.socket(family) as client:
        try:
            _listen(proxy, LOOPBACK[version])
            destination.bind((address, 0))  # no other socket can listen at this port, and this one does not
            client.bind((LOOPBACK[version], 0))
            client.settimeout(CONNECT_S)
            client.connect((address, destination.getsockname()[1]))
        except OSError:
            return False
    return True


def _listen(proxy: socket.socket, address: str) -> None:
    """Listen in place of the sidecar; it listens itself if the container starts again while the application runs."""
    proxy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        proxy.bind((address, OUTBOUND_PORT))
        proxy.listen()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
