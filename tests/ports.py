"""Free ports for programs that start to listen later, without other programs taking these ports in between.

The kernel may choose a released ephemeral port again for any program. Ephemeral ports begin at 32 768, and ports of
processes behind sidecars at 20 000, so the ports here are lower.
"""

import itertools
import os
import socket

_NUMBERS = range(10_000, 15_000)
_turns = itertools.count(os.getpid() * 97)  # concurrent runs begin at different numbers


def free_port(address: str = "127.0.0.1") -> int:
    """Return a free port of an address; each call returns another port."""
    while True:
        port = _NUMBERS[next(_turns) % len(_NUMBERS)]
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore old connections in TIME_WAIT
            try:
                tried.bind((address, port))
            except OSError:
                continue
            return port
