"""Free ports for programs that start to listen later, without other programs taking these ports in between.

The kernel may choose a released ephemeral port again for any program. Ephemeral ports begin at 32 768, and ports of
processes behind sidecars at 20 000, so the ports here are lower. All test processes of a user count in one file, so that
no port is returned twice before its program listens.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

_NUMBERS = range(10_000, 15_000)
_COUNTER = Path(tempfile.gettempdir()) / f"headgate-tests-ports-{os.getuid()}"


def free_port(address: str = "127.0.0.1") -> int:
    """Return a free port of an address; each call returns another port, also in other processes."""
    while True:
        port = _NUMBERS[_turn() % len(_NUMBERS)]
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore old connections in TIME_WAIT
            try:
                tried.bind((address, port))
            except OSError:
                continue
            return port


def _turn() -> int:
    with _COUNTER.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        turn = int(file.read() or 0)
        file.truncate(0)
        file.write(str(turn + 1))
    return turn
