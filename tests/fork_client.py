"""Start headgate with a server that has already imported it (`fork_server`).

usage: fork_client.py NAME ARGUMENT...

As a program it stands for `headgate`: it forwards streams and signals, and ends as headgate does. It imports little, because
tests start it often.
"""

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Forked:
    """A forked headgate, with the methods of `subprocess.Popen` that its users need. Threads may share it."""

    def __init__(self, server: str, words: Sequence[str], files: tuple[int, int, int], *, user: int = 0) -> None:
        """Start headgate with stdin, stdout and stderr; `user` is its user and group ID, by default those of the server."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(f"\0{server}")
        directory = os.getcwd()  # noqa: PTH109  # importing pathlib would double the time of a start
        request = {"words": words, "directory": directory, "environ": dict(os.environ), "user": user}
        socket.send_fds(self._socket, [json.dumps(request).encode()], files)
        self.pid = int(self._socket.recv(100))
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or minus the number of the signal that ended headgate; None while it runs."""
        try:
            return self.wait(0)
        except TimeoutError:
            return None

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the end of headgate; return the same as `poll`. Raises TimeoutError after a few seconds."""
        if self._code is None:
            polled = select.poll()
            polled.register(self._socket.fileno(), select.POLLIN)
            if not polled.poll(None if seconds is None else seconds * 1000):
                raise TimeoutError(f"headgate, process {self.pid}, has not ended within {seconds} s")
            self._code = int(self._socket.recv(100, socket.MSG_PEEK))  # another thread may wait too
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless headgate has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def close(self) -> None:
        """Close the connection; this kills a headgate that runs."""
        self._socket.close()


def main(server: str, *words: str) -> None:
    """Run headgate as this process."""
    process = Forked(server, words, (0, 1, 2))
    for number in FORWARDED:
        signal.signal(number, lambda number, _: process.send_signal(number))
    code = process.wait()
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
