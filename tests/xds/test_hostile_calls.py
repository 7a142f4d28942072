"""Clients without credentials can't fill the memory of the xDS server."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.xds.half_calls import HalfCalls
from tests.xds.hostile_server import UNARY_METHOD

from headgate.xds import server
from headgate.xds.authentication import SECRET_BYTES, LocalTokens
from headgate.xds.fleet import Fleet
from headgate.xds.server import MAX_STREAMS_OF_CONNECTION, METHOD, XdsServer

ROOT = Path(__file__).parents[2]
MB = 1024 * 1024
CONNECTIONS = 12
SENT = 2 * MB  # of each call's request
GROWTH = 64 * MB  # 24 MB are in the flow-control windows of the calls until they are rejected


class Victim(NamedTuple):
    """A running server: its process and its socket."""

    process: subprocess.Popen[str]
    path: Path

    def peak(self) -> int:
        """Return the peak of resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    path = tmp_path / "xds.sock"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.xds.hostile_server", str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield Victim(process, path)
        process.stdin.close()


@pytest.mark.parametrize("method", [UNARY_METHOD, METHOD])
def test_requests_of_unknown_clients_are_not_kept(victim: Victim, method: str) -> None:
    """gRPC reads the request of a unary method first: then these 12 connections take 780 MB, as long as they want."""
    before = victim.peak()
    clients = [HalfCalls(victim.path, method, MAX_STREAMS_OF_CONNECTION, SENT) for _ in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(HalfCalls.send, clients))
    assert {len(client.ended) for client in clients} == {MAX_STREAMS_OF_CONNECTION}
    assert victim.peak() - before <= GROWTH
    for client in clients:
        client.close()


async def test_a_connection_without_a_call_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = "grpc.max_connection_idle_ms"
    assert dict(server.OPTIONS)[idle] == 60_000
    monkeypatch.setattr(server, "OPTIONS", ((idle, 100),))
    xds = XdsServer(Fleet(), LocalTokens(bytes(SECRET_BYTES)))
    await xds.start(f"unix:{tmp_path}/xds.sock")
    client = HalfCalls(tmp_path / "xds.sock", METHOD, 0, 0)
    await asyncio.to_thread(client.await_end)
    client.close()
    await xds.stop()
