"""A backend for the chaos tests: answers with its name and counts each request in a file that survives a kill.

usage: backend.py COUNTS NAME=HOST:PORT...

The counter of each NAME is the memory-mapped file `NAME.PID` of eight bytes in the directory COUNTS: it is correct even
after the process was killed. `GET /slow` is answered after 50 ms, so that some requests are always in flight. SIGTERM ends
the process at once, as with most programs. It imports neither asyncio nor pathlib, which would take three quarters of the
start's processor time.
"""

import mmap
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress

TYPE_CHECKING = False  # as in typing, which is not imported
if TYPE_CHECKING:
    from pathlib import Path

SLOW_S = 0.05
NUMBER = struct.Struct("<Q")


class Counter:
    """A number in a memory-mapped file, which survives the process."""

    def __init__(self, path: str) -> None:
        with open(path, "w+b") as file:  # noqa: PTH123 - pathlib is not imported
            file.write(bytes(NUMBER.size))
            file.flush()
            self._memory = mmap.mmap(file.fileno(), NUMBER.size)
        self._value = 0

    def add(self) -> None:
        """Increment the counter."""
        self._value += 1
        NUMBER.pack_into(self._memory, 0, self._value)


class Connection:
    """One HTTP/1.1 connection; requests must have no body."""

    def __init__(self, name: str, counter: Counter, opened: socket.socket) -> None:
        self.answer = f"HTTP/1.1 200 OK\r\ncontent-length: {len(name)}\r\n\r\n{name}".encode()
        self.socket = opened
        self._counter = counter
        self._head = b""

    def receive(self) -> list[bool] | None:
        """Return for each request that is now complete whether its answer is slow; None after the end of the connection."""
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            return None
        *heads, self._head = (self._head + data).split(b"\r\n\r\n")
        for _ in heads:
            self._counter.add()
        return [head.startswith(b"GET /slow ") for head in heads]

    def respond(self) -> None:
        """Send one answer, or nothing if the client has closed the connection."""
        with suppress(OSError):
            self.socket.sendall(self.answer)


class BackendServer:
    """Serves all names of the process; `delayed` has the connections of slow answers and their times, in order."""

    def __init__(self, directory: str, places: list[str]) -> None:
        self.listeners: dict[int, tuple[str, Counter, socket.socket]] = {}
        self.open: dict[int, Connection] = {}
        self.delayed: deque[tuple[float, Connection]] = deque()
        self.ready = select.epoll()
        for place in places:
            name, _, address = place.partition("=")
            host, _, port = address.rpartition(":")
            listener = socket.create_server((host, int(port)), backlog=100)
            self.listeners[listener.fileno()] = name, Counter(f"{directory}/{name}.{os.getpid()}"), listener
            self.ready.register(listener.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        """Serve until the process is killed."""
        while True:
            wait = max(self.delayed[0][0] - time.monotonic(), 0) if self.delayed else None
            for file, _ in self.ready.poll(wait):
                if file in self.listeners:
                    self._accept(file)
                else:
                    self._answer(self.open[file])
            while self.delayed and self.delayed[0][0] <= time.monotonic():
                self.delayed.popleft()[1].respond()

    def _accept(self, file: int) -> None:
        name, counter, listener = self.listeners[file]
        opened, _ = listener.accept()
        self.open[opened.fileno()] = Connection(name, counter, opened)
        self.ready.register(opened.fileno(), select.EPOLLIN)

    def _answer(self, connection: Connection) -> None:
        slow = connection.receive()
        if slow is None:
            del self.open[connection.socket.fileno()]
            connection.socket.close()
            return
        for is_slow in slow:
            if is_slow:
                self.delayed.append((time.monotonic() + SLOW_S, connection))
            else:
                connection.respond()


def counts(directory: "Path") -> dict[str, int]:
    """Return the number of requests of each name, over all of its processes."""
    requests: dict[str, int] = {}
    for path in directory.iterdir():
        name = path.name.rpartition(".")[0]
        requests[name] = requests.get(name, 0) + NUMBER.unpack(path.read_bytes())[0]
    return requests


if __name__ == "__main__":
    BackendServer(sys.argv[1], sys.argv[2:]).serve()
