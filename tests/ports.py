"""Ports for what listens only later: other programs must not get them meanwhile.

A number that the kernel chose and that is given back may be the next one that it chooses, for whoever asks. It chooses
from 32 768 on, and processes behind sidecars get theirs from 20 000 on, so the numbers below are nobody's by chance.
"""

import itertools
import os
import socket

_NUMBERS = range(10_000, 15_000)
_turns = itertools.count(os.getpid() * 97)  # two runs at a time begin at different numbers


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port of an address that nobody listens on, another one on each call."""
    while True:
        port = _NUMBERS[next(_turns) % len(_NUMBERS)]
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections are no listeners
            try:
                tried.bind((address, port))
            except OSError:
                continue
            return port
