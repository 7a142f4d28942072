"""What the end of a replica waits for: that webhook requests go elsewhere, and that proxies reach the next replica."""

import asyncio

import pytest
from tests.ports import free_port

from headgate.kubernetes import handover
from headgate.kubernetes.handover import hand_over

DEADLINE_S = 60


@pytest.fixture
def next_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """The port of the next replica, on which nothing listens."""
    found = free_port()
    monkeypatch.setattr(handover, "XDS_ADDRESS", f"127.0.0.1:{found}")
    monkeypatch.setattr(handover, "PROPAGATION_S", 0)
    return found


async def test_an_active_replica_waits_until_the_next_one_accepts_connections(next_port: int) -> None:
    """D28."""
    attempted, ended = asyncio.Event(), asyncio.create_task(hand_over(was_active=True))

    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        attempted.set()

    async with await asyncio.start_server(refuse, "127.0.0.1", next_port), asyncio.timeout(DEADLINE_S):
        await attempted.wait()
        await ended


@pytest.mark.usefixtures("next_port")
async def test_a_replica_without_a_successor_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "LONGEST_S", 2 * handover.POLL_S)
    async with asyncio.timeout(DEADLINE_S):
        await hand_over(was_active=True)


@pytest.mark.usefixtures("next_port")
async def test_a_standby_replica_waits_for_no_other_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "LONGEST_S", 10 * DEADLINE_S)
    async with asyncio.timeout(DEADLINE_S):
        await hand_over(was_active=False)
