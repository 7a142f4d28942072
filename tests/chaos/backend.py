"""A backend for the chaos tests: answers with its name and counts each request in a file that survives a kill.

usage: backend.py COUNTS NAME=HOST:PORT...

The counter of each NAME is the memory-mapped file `NAME.PID` of eight bytes in the directory COUNTS: it is correct even
after the process was killed. `GET /slow` is answered after 50 ms, so that some requests are always in flight. SIGTERM ends
the process at once, as with most programs.
"""

import asyncio
import mmap
import os
import struct
import sys
from functools import partial
from pathlib import Path

SLOW_S = 0.05
NUMBER = struct.Struct("<Q")


class Counter:
    """A number in a memory-mapped file, which survives the process."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(NUMBER.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), NUMBER.size)
        self._value = 0

    def add(self) -> None:
        """Increment the counter."""
        self._value += 1
        NUMBER.pack_into(self._memory, 0, self._value)


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection; requests must have no body."""

    def __init__(self, name: str, counter: Counter) -> None:
        self._answer = f"HTTP/1.1 200 OK\r\ncontent-length: {len(name)}\r\n\r\n{name}".encode()
        self._counter = counter
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._head += data
        while (end := self._head.find(b"\r\n\r\n")) >= 0:
            slow = self._head.startswith(b"GET /slow ")
            self._head = self._head[end + 4 :]
            self._counter.add()
            asyncio.get_running_loop().call_later(SLOW_S if slow else 0, self._transport.write, self._answer)


def counts(directory: Path) -> dict[str, int]:
    """Return the number of requests of each name, over all of its processes."""
    found: dict[str, int] = {}
    for path in directory.iterdir():
        name = path.name.rpartition(".")[0]
        found[name] = found.get(name, 0) + NUMBER.unpack(path.read_bytes())[0]
    return found


async def serve(directory: Path, places: list[str]) -> None:
    """Serve each NAME=HOST:PORT until the process is killed."""
    loop = asyncio.get_running_loop()
    for place in places:
        name, _, address = place.partition("=")
        host, _, port = address.rpartition(":")
        counter = Counter(directory / f"{name}.{os.getpid()}")
        await loop.create_server(partial(Connection, name, counter), host, int(port))
    await loop.create_future()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2:]))
