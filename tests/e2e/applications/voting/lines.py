"""Servers and clients of protocols with one line for each request and each answer."""

import signal
import socket
import socketserver
import sys
from collections.abc import Callable

PATIENCE_S = 60


class LineServer(socketserver.ThreadingTCPServer):
    """A server with a thread for each connection."""

    allow_reuse_address = daemon_threads = True


def serve(port: int, respond: Callable[[str, bool], tuple[str, bool]]) -> None:
    """Serve a port of all addresses until SIGTERM.

    `respond` returns the answer to a line, and whether the client is authenticated by now, which it gets with the line.
    """

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            authenticated = False
            for line in self.rfile:
                answer, authenticated = respond(line.decode().strip(), authenticated)
                self.wfile.write(f"{answer}\n".encode())

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    LineServer(("", port), Answer).serve_forever()


class LineClient:
    """A connection to a server, until the object is gone."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = socket.create_connection((host, port), PATIENCE_S)
        self._answers = self._connection.makefile()

    def send(self, line: str) -> str:
        """Send a line; return the answer."""
        self._connection.sendall(f"{line}\n".encode())
        answer = self._answers.readline()
        if not answer:
            raise ConnectionError("the server has closed the connection")
        return answer.strip()
