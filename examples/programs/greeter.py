"""A TCP server that greets each connection with its version, before the client has sent anything.

Environment: VERSION; PORT and HOST say where it listens, 5000 on all addresses by default.
"""

import os
import signal
import socketserver
import sys

GREETING = f"{os.environ['VERSION']}\n".encode()


class Greeting(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(GREETING)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
Server((os.environ.get("HOST", ""), int(os.environ.get("PORT", "5000"))), Greeting).serve_forever()
