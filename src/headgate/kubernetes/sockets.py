"""The sockets of the control plane's servers."""

import socket


def listen(port: int) -> socket.socket:
    """Listen on all addresses of the pod: IPv4, and IPv6 if the node has it, whose pods may have IPv6 addresses only."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port), family=socket.AF_INET)
