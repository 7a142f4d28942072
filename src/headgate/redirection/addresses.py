"""The address from which the proxy's inbound side calls the application over IPv6.

Over IPv4 that is one of loopback's 16 million addresses (127.0.0.6). IPv6's loopback has a single one, which says nothing
about who calls, so another is added to the device `lo`: nobody outside can reach it, or send anything from it.
"""

import errno
import fcntl
import socket
import struct

from headgate.redirection.errors import RedirectionError
from headgate.redirection.rules import INBOUND_SOURCE

_ADD, _REMOVE = 0x8916, 0x8936  # SIOCSIFADDR, SIOCDIFADDR
_REQUEST = "=16sIi"  # struct in6_ifreq: address, length of the prefix, number of the device
_ADDRESS, _, _LENGTH = INBOUND_SOURCE[6].partition("/")


def add() -> bool:
    """Give loopback the address; say whether it was missing. Raises RedirectionError."""
    return _change(_ADD, but=errno.EEXIST)


def remove() -> bool:
    """Take the address away; say whether it was there. Raises RedirectionError."""
    return _change(_REMOVE, but=errno.EADDRNOTAVAIL)


def _change(request: int, *, but: int) -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as asked:
            number = socket.if_nametoindex("lo")
            packed = struct.pack(_REQUEST, socket.inet_pton(socket.AF_INET6, _ADDRESS), int(_LENGTH), number)
            fcntl.ioctl(asked, request, packed)
    except OSError as error:
        if error.errno == but:
            return False
        raise RedirectionError(
            f"the address {_ADDRESS} of the device lo can't be changed: {error.strerror}. It is where the sidecar calls"
            " the application from, and takes the capability NET_ADMIN"
        ) from error
    return True
