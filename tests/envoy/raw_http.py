"""HTTP over plain sockets: a server whose bytes a test writes, and a client that shows every response as it came."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple

from tests.waiting import until
from tests.wire import DEADLINE_S, Address

_LINGER_0 = struct.pack("ii", 1, 0)  # closing the socket resets the connection
_END = b"\r\n\r\n"


class RawHead(NamedTuple):
    """The first line and the headers of a message; names of `fields` are in lower case, `names` as they were sent."""

    line: str
    fields: tuple[tuple[str, str], ...]
    names: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The status of a response."""
        return int(self.line.split()[1])

    @property
    def method(self) -> str:
        """The method of a request."""
        return self.line.split()[0]

    def values(self, name: str) -> list[str]:
        """Return the values of a header."""
        return [value for key, value in self.fields if key == name]

    def get(self, name: str) -> str:
        """Return the values of a header, joined by commas; empty if it is absent."""
        return ",".join(self.values(name))


class RawMessage(NamedTuple):
    """A request or a final response with its body; `trailers` follow a chunked body."""

    head: RawHead
    body: bytes
    trailers: tuple[tuple[str, str], ...] = ()


class RawConnection:
    """One connection. Methods raise ConnectionError if the peer has closed it, and TimeoutError if nothing comes."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.settimeout(DEADLINE_S)
        self._read = b""
        self.requests = 0

    def send(self, data: bytes | str) -> None:
        """Send bytes."""
        self._sock.sendall(data.encode() if isinstance(data, str) else data)

    def head(self) -> RawHead:
        """Return the next head."""
        while _END not in self._read:
            self._receive()
        text, _, self._read = self._read.partition(_END)
        line, *lines = text.decode("latin-1").split("\r\n")
        return RawHead(line, tuple(map(_field, lines)), tuple(item.partition(":")[0] for item in lines))

    def exactly(self, count: int) -> bytes:
        """Return the next bytes."""
        while len(self._read) < count:
            self._receive()
        data, self._read = self._read[:count], self._read[count:]
        return data

    def rest(self) -> bytes:
        """Return all bytes until the peer closes the connection."""
        with contextlib.suppress(ConnectionError):
            while True:
                self._receive()
        data, self._read = self._read, b""
        return data

    def body(self, head: RawHead, *, is_response: bool = False) -> RawMessage:
        """Return the message of a head: its body has a length, or is chunked, or a response's ends with the connection."""
        if head.get("transfer-encoding") == "chunked":
            return self._chunks(head)
        if length := head.get("content-length"):
            return RawMessage(head, self.exactly(int(length)))
        return RawMessage(head, self.rest() if is_response and head.status not in {101, 204, 304} else b"")

    def message(self) -> RawMessage:
        """Return the next request."""
        return self.body(self.head())

    def response(self) -> RawMessage:
        """Return the next response."""
        return self.body(self.head(), is_response=True)

    def _chunks(self, head: RawHead) -> RawMessage:
        body = b""
        while size := int(self._line(), 16):
            body += self.exactly(size)
            self._line()
        trailers = []
        while line := self._line():
            trailers.append(_field(line))
        return RawMessage(head, body, tuple(trailers))

    def _line(self) -> str:
        while b"\r\n" not in self._read:
            self._receive()
        line, _, self._read = self._read.partition(b"\r\n")
        return line.decode("latin-1")

    def _receive(self) -> None:
        data = self._sock.recv(1 << 16)
        if not data:
            raise ConnectionError("closed")
        self._read += data

    def wait_for_bytes(self) -> None:
        """Wait until the peer sends a byte, without reading it."""
        if not self._read and not self._sock.recv(1, socket.MSG_PEEK):
            raise ConnectionError("closed")

    def is_silent(self, seconds: float) -> bool:
        """Return whether the peer sends nothing for a few seconds."""
        self._sock.settimeout(seconds)
        try:
            self.wait_for_bytes()
        except TimeoutError:
            return True
        finally:
            self._sock.settimeout(DEADLINE_S)
        return False

    def wait_at_most(self, seconds: float) -> None:
        """Change how long the methods wait for bytes."""
        self._sock.settimeout(seconds)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def finish(self) -> None:
        """Send no more; the peer can still send."""
        with contextlib.suppress(OSError):  # it is closed
            self._sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Reset the connection."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        self._sock.close()


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip(" \t")


def connect(address: Address) -> RawConnection:
    """Open a connection."""
    return RawConnection(socket.create_connection(address, DEADLINE_S))


Serve = Callable[[RawConnection], None]


def answer(body: bytes | str = b"", status: str = "200 OK", *lines: str) -> bytes:
    """Return a response with a length."""
    content = body.encode() if isinstance(body, str) else body
    fields = "".join(f"{line}\r\n" for line in lines)
    return f"HTTP/1.1 {status}\r\n{fields}content-length: {len(content)}\r\n\r\n".encode() + content


class RawServer:
    """A server that runs `serve` whenever bytes of a new request arrive on a connection, in a thread.

    `serve` reads requests, may append them to `seen`, and may close the connection. By default it answers each request with
    200 and its first line. `requests` of a connection counts the calls.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._listening = socket.create_server((host, 0), backlog=256)
        self.address = Address(*self._listening.getsockname())
        self.seen: list[RawMessage] = []
        self.connections = 0
        self._open: set[RawConnection] = set()
        self.serve: Serve = self.echo
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def use(self, serve: Serve | None = None) -> None:
        """Serve requests differently from now on, by default as at first; forget what was seen."""
        self.serve, self.seen, self.connections = serve or self.echo, [], 0

    def echo(self, connection: RawConnection) -> None:
        """Answer a request with 200 and its first line."""
        request = connection.message()
        self.seen.append(request)
        connection.send(answer(b"" if request.head.method == "HEAD" else request.head.line))

    def close(self) -> None:
        """Stop listening; wait until no thread accepts connections.

        The thread would go on with the number of the closed socket, and with a signal take a connection of the next server.
        """
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()

    def end_connections(self) -> None:
        """End all connections, and wait until the proxy has closed them too."""

        def have_ended() -> bool:
            for connection in tuple(self._open):
                connection.finish()
            return not self._open

        until(have_ended, "all connections are closed")

    def wait_for_end_of_connections(self) -> None:
        """Wait until the proxy has closed all connections."""
        until(lambda: not self._open, "all connections are closed")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                self.connections += 1
                connection = RawConnection(sock)
                self._open.add(connection)
                threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: RawConnection) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):  # the proxy has closed the connection, or the server itself
                while True:
                    connection.wait_for_bytes()
                    connection.requests += 1
                    self.serve(connection)
        finally:
            connection.close()
            self._open.discard(connection)
