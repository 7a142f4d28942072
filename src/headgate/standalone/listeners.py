"""Opens listening sockets on loopback addresses; port 0 selects the port of the last start if it is free."""

import os
import socket
from pathlib import Path

from headgate.errors import HeadgateError
from headgate.standalone.address_pool import FIRST_RANGE

LOOPBACK = "127.0.0.1"
FIRST_LOCALHOST_PORT = 18080
"""The port of names below `.localhost` for the first range; the next ranges have the next ports."""
_UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_USUAL_LOWEST = 1024  # the default of Linux for ip_unprivileged_port_start


def listen(address: str, last: str) -> socket.socket:
    """Return a socket that listens on `address`, which is `host:port`. Raises HeadgateError.

    Port 0 selects the port of `last`, the address of the last start, or any free port if that port is in use.
    """
    host, port = split_address(address)
    old = split_address(last)[1] if last else 0
    for candidate in (port or old, port):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(128)
        except OSError as error:
            listener.close()
            reason = error.strerror
        else:
            return listener
    raise HeadgateError(f"can't listen on {address}: {reason}; choose another port, or port 0 for any free port")


def free_address(address: str, last: str, *, is_adopted: bool) -> str:
    """Return a free `host:port` for another process, selected as by `listen`.

    With `is_adopted`, the process still runs from the last start. It listens on `last`, so `last` counts as free.
    """
    if is_adopted and last and split_address(address)[1] in {0, split_address(last)[1]}:
        return last
    with listen(address, last) as listener:
        return address_of(listener)


def localhost_port(selected: int, number: int, last: int, *, is_adopted: bool) -> int:
    """Return a free port on LOOPBACK for another process, for names below `.localhost`. Raises HeadgateError.

    With `selected` 0, it is that of the range `number`, which no other headgate of this machine has; if another program has it, that
    of the `last` start, or any free port. With `is_adopted`, the other process still listens on `last`.
    """
    preferred = selected or FIRST_LOCALHOST_PORT + number - FIRST_RANGE
    if is_adopted and last and selected in {0, last}:
        return last
    for address in (f"{LOOPBACK}:{preferred}", *(() if selected else (f"{LOOPBACK}:0",))):
        try:
            return split_address(free_address(address, f"{LOOPBACK}:{last}", is_adopted=False))[1]
        except HeadgateError as error:
            reason = error
    raise reason


def address_of(listener: socket.socket) -> str:
    """Return the address of a socket as `host:port`."""
    host, port = listener.getsockname()
    return f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Split a loopback address `host:port` into host and port. Raises HeadgateError for any other text."""
    host, _, port = address.rpartition(":")
    if host.startswith("127.") and port.isdecimal() and int(port) > 65535:
        raise HeadgateError(
            f"{address!r}: port {port} is out of range 1 to 65535; choose another port, or 0 for a free one"
        )
    if not host.startswith("127.") or not port.isdecimal():
        raise HeadgateError(f"{address!r} is not a loopback address; write for example {LOOPBACK}:15001")
    return host, int(port)


def lowest_port() -> int:
    """Return the smallest TCP port that this user may listen on."""
    if os.geteuid() == 0:
        return 0
    try:
        return int(_UNPRIVILEGED.read_text())
    except (OSError, ValueError):
        return _USUAL_LOWEST
