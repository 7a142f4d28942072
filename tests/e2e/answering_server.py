"""The HTTP server in pods of networks of pods: its answer is the value of a variable of its environment."""

import sys
from collections.abc import Sequence

PROGRAM = """
import http.server, os, sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/healthz":
            print("request", flush=True)
        body = os.environ[sys.argv[1]].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


port = int(sys.argv[2] if len(sys.argv) > 2 else os.environ["PORT"])
host = "" if len(sys.argv) > 2 else os.environ["HOST"]
http.server.ThreadingHTTPServer((host, port), Handler).serve_forever()
"""


def answering(variable: str, port: str = "") -> Sequence[str]:
    """Return the command of a server that answers with a variable, and prints a line for each request except those for /healthz.

    It listens on a fixed `port` of all addresses, or without one on `$HOST` and `$PORT`.
    """
    return [sys.executable, "-c", PROGRAM, variable, *filter(None, [port])]
