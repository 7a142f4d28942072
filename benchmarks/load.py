"""Load for the benchmarks: a small backend, and closed-loop clients that keep their connections.

`wrk` drives more than Python can; it is used when it is installed. What a proxy costs (CPU per request) does not depend
on who drives it.
"""

import asyncio
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
WRK_UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


class Load(NamedTuple):
    """What one slice of load saw; times in milliseconds."""

    requests: int
    failed: int
    seconds: float
    p50: float
    p99: float


class _Backend(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.head = b""

    def data_received(self, data: bytes) -> None:
        self.head += data
        while (end := self.head.find(b"\r\n\r\n")) >= 0:
            self.head = self.head[end + 4 :]
            self.transport.write(ANSWER)  # type: ignore[attr-defined]  # a transport of a stream can write


async def serve_backend() -> None:
    """Serve on a free port of loopback and print it; runs as a process of its own."""
    server = await asyncio.get_running_loop().create_server(_Backend, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Backend:
    """A backend in its own process, for `with`."""

    def __enter__(self) -> int:
        self.process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        return int(self.process.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


class _Client(asyncio.Protocol):
    def __init__(self, request: bytes, until: float) -> None:
        self.request = request
        self.until = until
        self.times: list[float] = []
        self.failed = 0
        self.done = asyncio.get_running_loop().create_future()
        self.answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._ask()

    def _ask(self) -> None:
        self.sent = time.perf_counter()
        self.transport.write(self.request)  # type: ignore[attr-defined]  # a transport of a stream can write

    def data_received(self, data: bytes) -> None:
        self.answer += data
        if not self.answer.endswith(b"\r\n\r\nok"):
            if self.answer.startswith(b"HTTP/1.1 5"):
                self.failed += 1
                self.transport.close()
            return
        self.answer = b""
        now = time.perf_counter()
        self.times.append(now - self.sent)
        if now < self.until:
            self._ask()
        else:
            self.transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def drive(port: int, *, connections: int, seconds: float) -> Load:
    """Send requests to 127.0.0.1:`port` for some seconds, each connection as fast as it gets answers."""
    if shutil.which("wrk"):
        return await asyncio.to_thread(_wrk, port, connections, seconds)
    return await _drive(port, connections, seconds)


async def _drive(port: int, connections: int, seconds: float) -> Load:
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    request = f"GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode()
    clients = [
        (await loop.create_connection(lambda: _Client(request, began + seconds), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    for client in clients:
        await client.done
    times = sorted(moment * 1000 for client in clients for moment in client.times)
    failed = sum(client.failed for client in clients)
    if not times:
        return Load(0, failed, time.perf_counter() - began, 0, 0)
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
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


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used (utime and stime of proc(5), in ticks of 10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    uvloop.run(serve_backend())
