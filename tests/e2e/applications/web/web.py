"""HTTP for the programs of the applications: a server that answers with JSON, and a client that reads it."""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

PATIENCE_S = 60
Respond = Callable[[str, str, Mapping[str, str]], tuple[int, Any]]
"""Returns a status and a body for a method, a path with its query, and the headers."""


class JsonServer(ThreadingHTTPServer):
    """A server that keeps all connections of a busy machine."""

    request_queue_size = 128


def serve(port: int, respond: Respond) -> None:
    """Serve a port of all addresses until SIGTERM."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = respond(self.command, self.path, self.headers)  # type: ignore[arg-type]  # a mapping of strings
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    JsonServer(("", port), Answer).serve_forever()


def fetch(url: str, *, method: str = "GET", **headers: str) -> Any:
    """Return the JSON of a URL. Raises HTTPError."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with urlopen(Request(url, method=method, headers=named), timeout=PATIENCE_S) as answer:
        return json.load(answer)
