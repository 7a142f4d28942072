"""The order in which streams bring their proxies up to date."""

import asyncio
import ctypes
import resource
from pathlib import Path

import pytest

from headgate.xds import fleet
from headgate.xds.fleet import Turn, Turns

PAGE = resource.getpagesize()


class Streams:
    """Streams by name, and those that went on, in order."""

    def __init__(self) -> None:
        self._turns = Turns()
        self.went_on: list[str] = []

    def begin(self, name: str) -> Turn:
        return Turn(self._turns, lambda: self.went_on.append(name))


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    monkeypatch.setattr(fleet, "AT_ONCE", 1)
    return Streams()


async def test_one_after_the_other_has_its_turn(streams: Streams) -> None:
    first, second, third = (streams.begin(name) for name in ("first", "second", "third"))
    assert [turn.take() for turn in (first, second, third)] == [True, False, False]
    first.dispense()
    assert streams.went_on == ["second"]
    assert second.take()
    second.dispense()
    assert streams.went_on == ["second", "third"]
    third.dispense()


async def test_a_stream_that_has_begun_goes_before_those_that_have_not(streams: Streams) -> None:
    first, second, third = (streams.begin(name) for name in ("first", "second", "third"))
    assert [turn.take() for turn in (first, second, third)] == [True, False, False]
    first.rest()
    assert not first.take()
    second.dispense()
    assert streams.went_on == ["second", "first"]
    first.dispense()
    third.dispense()


async def test_a_stream_that_ends_gives_its_turn_away(streams: Streams) -> None:
    first, second, third = (streams.begin(name) for name in ("first", "second", "third"))
    assert [turn.take() for turn in (first, second, third)] == [True, False, False]
    second.dispense()
    first.dispense()
    assert streams.went_on == ["third"]
    third.dispense()


async def test_a_proxy_that_does_not_answer_makes_others_wait_for_a_while_only(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "TURN_SECONDS", 0.0)
    first, second = streams.begin("first"), streams.begin("second")
    assert [first.take(), second.take()] == [True, False]
    while not streams.went_on:
        await asyncio.sleep(0)
    assert first.take()
    second.dispense()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc, which keeps freed memory")
async def test_freed_memory_goes_back_to_the_system_after_the_last_turn(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "QUIET_SECONDS", 0.0)
    blocks = [bytes(60_000) for _ in range(2000)]
    kept = blocks[::100]  # so that what is free lies between what is not
    blocks.clear()
    before = resident_pages()
    turn = streams.begin("first")
    assert turn.take()
    turn.dispense()
    async with asyncio.timeout(20):
        while (before - resident_pages()) * PAGE < 50_000_000:
            await asyncio.sleep(0)
    assert kept


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])
