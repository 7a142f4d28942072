"""The program of most test pods: an HTTP server that answers with its $NAME and writes a dot for each request.

The dots are in the file $COUNT, so that a test can count requests after the pod has ended. It imports no asyncio, which
would take three times the processor time of the start.
"""

import os
import select
import signal
import socket
import time

NAME = os.environ["NAME"]
QUIET_S = 0.3  # after SIGTERM, the seconds without a request before the server ends, so that no request is lost
COUNT = os.open(os.environ["COUNT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
BODY = f"{NAME}\n".encode()
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


class PodServer:
    """Serves every $PORT_... of the environment. Each open connection has the begun request that it received last."""

    def __init__(self) -> None:
        ports = {value for name, value in os.environ.items() if name.startswith("PORT_")}
        servers = [socket.create_server((os.environ["HOST"], int(port)), backlog=100) for port in ports]
        self.listeners = {server.fileno(): server for server in servers}
        self.open: dict[int, tuple[socket.socket, bytes]] = {}
        self.ready = select.epoll()
        self.last = 0.0  # the time of the last request, and later of SIGTERM
        self.signals, self.wakeup = socket.socketpair()
        self.wakeup.setblocking(False)
        signal.set_wakeup_fd(self.wakeup.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)
        for file in (*self.listeners, self.signals.fileno()):
            self.ready.register(file, select.EPOLLIN)

    def serve(self) -> None:
        """Serve until SIGTERM, and then until no request has arrived for `QUIET_S`."""
        is_ending = False
        while not is_ending or time.monotonic() < self.last + QUIET_S:
            for file, _ in self.ready.poll(QUIET_S / 10 if is_ending else None):
                if file in self.listeners:
                    connection, _ = self.listeners[file].accept()
                    self.open[connection.fileno()] = connection, b""
                    self.ready.register(connection.fileno(), select.EPOLLIN)
                elif file in self.open:
                    self.answer(file)
                else:
                    self.signals.recv(100)
                    self.last, is_ending = time.monotonic(), True

    def answer(self, file: int) -> None:
        """Answer each complete request of a connection; requests have no body."""
        connection, begun = self.open[file]
        try:
            data = connection.recv(65536)
            *heads, rest = (begun + data).split(b"\r\n\r\n")
            if heads:
                self.last = time.monotonic()
            connection.sendall(RESPONSE * len(heads))
        except OSError:  # also without a route, after a pod network is removed
            data, heads, rest = b"", [], b""
        os.write(COUNT, b"." * len(heads))
        if data:
            self.open[file] = connection, rest
        else:
            del self.open[file]
            connection.close()


PodServer().serve()
