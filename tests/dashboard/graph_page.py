"""A browser with the graph alone, served with the page's content security policy."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

PAGE = Path("src/headgate/dashboard/page")
TEST_PAGE = Path(__file__).parent / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; font-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class _Files(SimpleHTTPRequestHandler):
    """Serve the page, and the test's page below /test."""

    def translate_path(self, path: str) -> str:
        if path == "/":
            return str(TEST_PAGE / "index.html")
        root = TEST_PAGE if path.startswith("/test/") else PAGE
        return str(root / path.removeprefix("/test/").lstrip("/"))

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served() -> Iterator[str]:
    """Serve the graph; yield the address of its page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
