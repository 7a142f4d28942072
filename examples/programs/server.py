"""An HTTP server that answers with its version and the name of its pod.

Environment: VERSION, or ANSWER for another response. FAILING_PERCENT of the requests get 500, SLOW_PERCENT wait half a second. With
LOG_REQUESTS each is a line of the log. PORT and HOST say where it listens, 8080 on all addresses by default.
"""

import os
import random
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

POD = os.environ.get("POD_NAME") or socket.gethostname()
ANSWER = f"{os.environ.get('ANSWER') or os.environ['VERSION'] + ' ' + POD}\n".encode()
FAILING = float(os.environ.get("FAILING_PERCENT", "0")) / 100
SLOW = float(os.environ.get("SLOW_PERCENT", "0")) / 100
SLOW_SECONDS = 0.5
LOG_REQUESTS = "LOG_REQUESTS" in os.environ
GRACE_SECONDS = 10


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, Requests)
        self.is_ending = False
        self.running = 0
        self.changed = threading.Condition()

    def count(self, step: int) -> None:
        with self.changed:
            self.running += step
            self.changed.notify_all()

    def end(self, *_: object) -> None:
        self.is_ending = True
        threading.Thread(target=self.shutdown).start()

    def wait_for_requests(self) -> None:
        """Wait until all requests that have begun are answered."""
        with self.changed:
            self.changed.wait_for(lambda: self.running == 0, timeout=GRACE_SECONDS)


class Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self.answer(200)
            return
        self.server.count(+1)
        try:
            if LOG_REQUESTS:
                print(f"GET {self.path}\n", end="")  # one write: requests are answered in parallel
            if random.random() < SLOW:
                time.sleep(SLOW_SECONDS)
            self.answer(500 if random.random() < FAILING else 200)
        finally:
            self.server.count(-1)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(ANSWER)))
        if self.server.is_ending:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, format: str, *args: object) -> None:
        pass


server = Server((os.environ.get("HOST", ""), int(os.environ.get("PORT", "8080"))))
signal.signal(signal.SIGTERM, server.end)
print(f"listening on {server.server_address[0]!s}:{server.server_address[1]}")
server.serve_forever(poll_interval=0.05)
server.wait_for_requests()
