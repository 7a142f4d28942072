"""Tests of the slots that limit how many streams send at the same time."""

import asyncio
import ctypes
import resource
from pathlib import Path

import pytest

from headgate.xds import send_slots
from headgate.xds.send_slots import SendSlot, SendSlots

PAGE = resource.getpagesize()


class Streams:
    """Creates slots of named streams; `resumed` has the streams that resumed after waiting, in order."""

    def __init__(self) -> None:
        self._slots = SendSlots()
        self.resumed: list[str] = []

    def begin(self, name: str) -> SendSlot:
        return SendSlot(self._slots, lambda: self.resumed.append(name))


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    monkeypatch.setattr(send_slots, "SLOTS", 1)
    return Streams()


async def test_streams_get_the_only_slot_in_order(streams: Streams) -> None:
    first, second, third = (streams.begin(name) for name in ("first", "second", "third"))
    assert [slot.acquire() for slot in (first, second, third)] == [True, False, False]
    first.finish()
    assert streams.resumed == ["second"]
    assert second.acquire()
    second.finish()
    assert streams.resumed == ["second", "third"]
    third.finish()


async def test_a_stream_that_has_already_sent_goes_before_new_streams(streams: Streams) -> None:
    first, second, third = (streams.begin(name) for name in ("first", "second", "third"))
    assert [slot.acquire() for slot in (first, second, third)] == [True, False, False]
    first.release()
    assert not first.acquire()
    second.finish()
    assert streams.resumed == ["second", "first"]
    first.finish()
    third.finish()


async def test_a_waiting_stream_that_ends_leaves_the_queue(streams: Streams) -> None:
    first, second, third = (streams.begin(name) for name in ("first", "second", "third"))
    assert [slot.acquire() for slot in (first, second, third)] == [True, False, False]
    second.finish()
    first.finish()
    assert streams.resumed == ["third"]
    third.finish()


async def test_a_proxy_that_does_not_answer_holds_its_slot_only_for_a_limited_time(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_slots, "SLOT_SECONDS", 0.0)
    first, second = streams.begin("first"), streams.begin("second")
    assert [first.acquire(), second.acquire()] == [True, False]
    while not streams.resumed:
        await asyncio.sleep(0)
    assert first.acquire()
    second.finish()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc, which keeps freed memory")
async def test_freed_memory_returns_to_the_system_when_all_slots_are_free(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_slots, "TRIM_DELAY_SECONDS", 0.0)
    blocks = [bytes(60_000) for _ in range(2000)]
    kept = blocks[::100]  # fragments the heap, so that glibc does not return the memory by itself
    blocks.clear()
    before = resident_pages()
    slot = streams.begin("first")
    assert slot.acquire()
    slot.finish()
    async with asyncio.timeout(60):
        while (before - resident_pages()) * PAGE < 50_000_000:
            await asyncio.sleep(0)
    assert kept


def test_closed_slots_start_no_thread_at_the_end_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_slots, "TRIM_DELAY_SECONDS", 0.0)
    errors: list[object] = []

    async def serve() -> None:
        loop, slots = asyncio.get_running_loop(), SendSlots()
        loop.set_exception_handler(lambda _loop, error: errors.append(error))
        first, last = (SendSlot(slots, lambda: None) for _ in range(2))
        assert first.acquire()
        first.finish()
        assert last.acquire()
        slots.close()
        last.finish()  # the server's end ends the streams
        await loop.shutdown_default_executor()  # starts a thread, whose end the due timers precede

    asyncio.run(serve())
    assert errors == []


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])
