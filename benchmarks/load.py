"""Load for the benchmarks: a small backend, and closed-loop clients with keep-alive connections.

The load generator is `wrk` if it is installed, because Python reaches lower rates. CPU time per request does not depend
on the generator.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

NAME_BYTES = 2
"""The length of a backend's name, which is its response body, so that clients know which backend answered."""
WRK_UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


class Load(NamedTuple):
    """The results of one slice of load; times in milliseconds."""

    requests: int
    failed: int
    seconds: float
    p50: float
    p99: float


class _Backend(asyncio.Protocol):
    def __init__(self, name: str) -> None:
        self.answer = f"HTTP/1.1 200 OK\r\ncontent-length: {NAME_BYTES}\r\n\r\n{name}".encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)  # uvloop's transports inherit from no class
        self.head = b""

    def data_received(self, data: bytes) -> None:
        self.head += data
        while (end := self.head.find(b"\r\n\r\n")) >= 0:
            self.head = self.head[end + 4 :]
            self.transport.write(self.answer)


async def serve_backend(name: str, host: str) -> None:
    """Serve on a free port of `host`, and print the port. Run this in a separate process."""
    server = await asyncio.get_running_loop().create_server(lambda: _Backend(name), host, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Backend:
    """A context manager that runs a backend in its own process; it responds with its name of two letters."""

    def __init__(self, name: str = "ok", *, host: str = "127.0.0.1", processor: int | None = None) -> None:
        self.name = name
        self.host = host
        self.processor = processor

    def __enter__(self) -> int:
        command = [sys.executable, __file__, self.name, self.host]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        port = int(self.process.stdout.readline())
        if self.processor is not None:
            pin(self.process.pid, self.processor)
        return port

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


class Answered(NamedTuple):
    """One request: the times of sending and of the response (`time.perf_counter`), and the backend."""

    sent: float
    answered: float
    name: str


class Client(asyncio.Protocol):
    """One connection that sends requests in a closed loop until `go_on()` is False, with pauses of `pause` seconds."""

    def __init__(self, host: str, go_on: Callable[[], bool], pause: float) -> None:
        self.request = f"GET / HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        self.go_on = go_on
        self.pause = pause
        self.seen: list[Answered] = []
        self.failed = 0
        self.waiting = False
        self.done = asyncio.get_running_loop().create_future()
        self.answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)
        self._begin()

    def _begin(self) -> None:
        """Send the first request on the open connection."""
        self._ask()

    def _ask(self) -> None:
        self.waiting = True
        self.sent = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.answer += data
        if self.answer[-NAME_BYTES - 4 : -NAME_BYTES] != b"\r\n\r\n":
            if self.answer.startswith(b"HTTP/1.1 5"):
                self.transport.close()  # a response that is not from a backend counts as failed
            return
        self.waiting = False
        self.seen.append(Answered(self.sent, time.perf_counter(), self.answer[-NAME_BYTES:].decode()))
        self.answer = b""
        if not self.go_on():
            self.transport.close()
        elif self.pause:
            asyncio.get_running_loop().call_later(self.pause, self._ask)
        else:
            self._ask()

    def connection_lost(self, _: Exception | None) -> None:
        self.failed += self.waiting
        self.done.set_result(None)


async def drive(port: int, *, connections: int, seconds: float) -> Load:
    """Send requests to 127.0.0.1:`port` for a few seconds, on each connection as fast as responses arrive."""
    if shutil.which("wrk"):
        return await asyncio.to_thread(_wrk, port, connections, seconds)
    return await _drive(port, connections, seconds)


async def connect(address: str, connections: int, go_on: Callable[[], bool], *, pause: float = 0) -> list[Client]:
    """Start clients of `host:port`; each sends its next request after the response to the previous request."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    pairs = [
        await loop.create_connection(lambda: Client(address, go_on, pause), host, int(port)) for _ in range(connections)
    ]
    return [client for _, client in pairs]


async def _drive(port: int, connections: int, seconds: float) -> Load:
    began = time.perf_counter()
    clients = await connect(f"127.0.0.1:{port}", connections, lambda: time.perf_counter() < began + seconds)
    for client in clients:
        await client.done
    times = sorted((one.answered - one.sent) * 1000 for client in clients for one in client.seen)
    failed = sum(client.failed for client in clients)
    p50, p99 = (times[len(times) // 2], times[len(times) * 99 // 100]) if times else (0.0, 0.0)
    return Load(len(times), failed, time.perf_counter() - began, p50, p99)


def _wrk(port: int, connections: int, seconds: float) -> Load:
    whole = max(1, round(seconds))
    command = ["wrk", "--latency", "-t1", f"-c{connections}", f"-d{whole}s", f"http://127.0.0.1:{port}/"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    requests = re.search(r"(\d+) requests in ([\d.]+)(m?s)", text)
    assert requests, text
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    p50, p99 = (_latency(text, mark) for mark in ("50%", "99%"))
    return Load(int(requests[1]), int(failed[1]) if failed else 0, float(whole), p50, p99)


def _latency(text: str, mark: str) -> float:
    found = re.search(rf"{mark}\s+([\d.]+)(us|ms|s)", text)
    assert found, text
    return float(found[1]) * WRK_UNITS[found[2]]


def generator() -> str:
    """Return the name of the load generator that `drive` uses."""
    return "wrk" if shutil.which("wrk") else "Python clients (wrk is not installed)"


def pin(pid: int, processor: int) -> None:
    """Pin a process with all of its threads to one CPU, if the machine has several."""
    if processor < (os.cpu_count() or 1):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {processor})


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process in seconds. Raises OSError if the process has ended."""
    return time.clock_gettime(~pid << 3 | 2)  # what clock_getcpuclockid(3) returns: exact, where proc(5) counts 10 ms


if __name__ == "__main__":
    uvloop.run(serve_backend(*sys.argv[1:]))
