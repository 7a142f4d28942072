"""Blocks of stored windows are saved, restored, and never count a request twice after a crash (R85)."""

import asyncio
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headgate.errors import NoCounts, TelemetryError, Unavailable
from headgate.objects.ports import StateStorage
from headgate.standalone.state_files import StateFiles
from headgate.telemetry.counters.blocks import UNCOUNTED
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.flows import Flow, Peer
from headgate.telemetry.counters.stored_windows import BLOCK_S, LONG_BLOCK_S, LONG_KEPT_S, SHORT_KEPT_S
from headgate.telemetry.stored_blocks import LATEST_S, BlockKeeper, SavedBlock
from headgate.telemetry.windows import Windows, WindowsCheckpoint

START = 1_800_000_000.0
FLOW = Flow(source=Peer(pod="default/client"), destination=Peer(pod="default/web-0"), service="default/web")
OK = Counts.of({class_index(200): 1})


class Process:
    """A process of headgate with windows, and a wall clock that tests advance."""

    def __init__(self, storage: StateStorage | None, now: float = START) -> None:
        self.now = now
        self.windows = Windows(clock=lambda: self.now, wall=lambda: self.now)
        self.keeper = BlockKeeper(self.windows, storage)

    async def restored(self, checkpoint: WindowsCheckpoint | None = None) -> "Process":
        await self.keeper.restore()
        if checkpoint:
            self.windows.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(checkpoint), type=WindowsCheckpoint))
        await self.keeper.keep()
        return self

    async def count(self, seconds: int) -> None:
        """Count a request each 10 seconds."""
        for _ in range(0, seconds, 10):
            self.windows.add(FLOW, OK)
            self.now += 10
            await self.keeper.keep()

    async def requests(self, seconds: float, end: float | None = None) -> int:
        reading = await self.windows.read(seconds, self.now if end is None else end)
        return sum(counts.success for counts in reading.flows.values())


class FullDisk(StateFiles):
    """A storage that saves nothing while it is full."""

    is_full = True

    async def save(self, name: str, state: bytes) -> None:
        if self.is_full:
            raise Unavailable("no space left on device")
        await super().save(name, state)


async def test_the_next_process_has_the_windows_of_the_day(tmp_path: Path) -> None:
    storage = StateFiles(tmp_path)
    process = await Process(storage).restored()
    await process.count(2 * SHORT_KEPT_S)
    later = await Process(storage, process.now).restored(process.windows.checkpoint())
    assert await later.windows.read(3 * SHORT_KEPT_S, process.now) == await process.windows.read(
        3 * SHORT_KEPT_S, process.now
    )
    assert await later.requests(3 * SHORT_KEPT_S) == 2 * SHORT_KEPT_S // 10
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


async def test_a_killed_process_loses_no_window_and_counts_none_twice(tmp_path: Path) -> None:
    """A checkpoint is older than the last block, or newer: both have the windows of that minute."""
    storage = StateFiles(tmp_path)
    process = await Process(storage).restored()
    await process.count(50)
    older = process.windows.checkpoint()
    await process.count(20)
    for checkpoint, requests in ((older, 6), (process.windows.checkpoint(), 7)):
        later = await Process(storage, process.now).restored(checkpoint)
        later.now += 10
        assert await later.requests(600) == requests


async def test_a_process_that_ends_while_blocks_are_merged_loses_no_window(tmp_path: Path) -> None:
    storage = StateFiles(tmp_path)
    process = await Process(storage).restored()
    await process.count(LONG_BLOCK_S - 10)
    process.windows.add(FLOW, OK)
    process.now += 10
    keeping = asyncio.create_task(process.keeper.keep())
    while len(process.windows.stored.short) < LONG_BLOCK_S // BLOCK_S:
        await asyncio.sleep(0)
    keeping.cancel()
    await asyncio.wait({keeping})
    assert (keeping.cancelled(), process.windows.stored.long) == (True, [])
    later = await Process(storage, process.now).restored(process.windows.checkpoint())
    assert await later.requests(LONG_BLOCK_S) == LONG_BLOCK_S // 10


async def test_a_block_that_cannot_be_saved_remains_in_the_checkpoint(tmp_path: Path) -> None:
    storage = FullDisk(tmp_path)
    process = await Process(storage).restored()
    await process.count(BLOCK_S + int(LATEST_S) - 10)
    storage.is_full = False
    later = await Process(storage, process.now).restored(process.windows.checkpoint())
    assert await later.requests(600) == (BLOCK_S + LATEST_S - 10) // 10


async def test_a_block_is_saved_only_after_a_checkpoint_has_its_counts(tmp_path: Path) -> None:
    process = await Process(StateFiles(tmp_path)).restored()
    process.windows.stored.durable_until = START
    await process.count(60)
    assert (list(tmp_path.iterdir()), len(process.windows.stored.short)) == ([], 0)
    process.windows.stored.durable_until = process.now
    await process.keeper.keep()
    assert (len(list(tmp_path.iterdir())), len(process.windows.stored.short)) == (1, 1)
    await process.count(int(60 + LATEST_S))  # without a further checkpoint, the block is in memory only
    assert (len(list(tmp_path.iterdir())), len(process.windows.stored.short)) == (1, 2)
    assert await process.requests(600) == (120 + LATEST_S) // 10


async def test_the_states_of_dropped_blocks_are_cleared(tmp_path: Path) -> None:
    process = await Process(StateFiles(tmp_path)).restored()
    await process.count(SHORT_KEPT_S)
    process.now += 2 * LONG_KEPT_S
    await process.count(20)
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {0}


def truncated(state: bytes) -> bytes:
    return state[:100]


def changed(state: bytes) -> bytes:
    """Change the last byte, which belongs to the compressed counts."""
    return state[:-1] + bytes([state[-1] ^ 1])


def without_windows(state: bytes) -> bytes:
    saved = msgspec.msgpack.decode(state, type=SavedBlock)
    block = msgspec.msgpack.encode({**msgspec.msgpack.decode(saved.block), "windows": []})
    return msgspec.msgpack.encode(msgspec.structs.replace(saved, block=block, checksum=zlib.crc32(block)))


@pytest.mark.parametrize("damaged", [truncated, changed, without_windows])
async def test_a_damaged_file_costs_only_its_own_windows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: Callable[[bytes], bytes]
) -> None:
    storage = StateFiles(tmp_path)
    process = await Process(storage).restored()
    await process.count(300)
    path = tmp_path / f"short-{int(START // 60 + 2) % 61}"
    path.write_bytes(damaged(path.read_bytes()))
    later = await Process(storage, process.now).restored(process.windows.checkpoint())
    reading = await later.windows.read(600, process.now)
    assert await later.requests(600) == 24
    assert reading.cut == (f"{UNCOUNTED}: 60",)
    assert caplog.text.count(f"({path.name}) can't be read, so they are missing") == 1
    await later.count(LONG_BLOCK_S - 300)
    assert [len(block.windows) for block in later.windows.stored.long] == [9]


async def test_a_damaged_block_in_memory_is_dropped_and_later_blocks_are_merged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = await Process(StateFiles(tmp_path)).restored()
    await process.count(300)
    short = process.windows.stored.short
    short[1] = msgspec.structs.replace(short[1], records=short[1].records[:-1])
    with pytest.raises(TelemetryError, match="from 2027-01-15T08:01:00Z to 2027-01-15T08:02:00Z are damaged"):
        await process.requests(300)
    await process.count(LONG_BLOCK_S - 300)
    assert await process.requests(LONG_BLOCK_S) == 54
    assert [len(block.windows) for block in process.windows.stored.long] == [9]
    assert caplog.text.count("are damaged") == 1
    assert (tmp_path / f"short-{int(START // 60 + 1) % 61}").read_bytes() == b""


async def test_a_full_disk_is_logged_once_and_later_blocks_are_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FullDisk(tmp_path)
    process = await Process(storage).restored()
    await process.count(200)
    assert caplog.text.count("can't be saved") == 1
    storage.is_full = False
    await process.count(60)
    later = await Process(storage, process.now).restored(process.windows.checkpoint())
    assert await later.requests(600) == 26


async def test_times_in_which_headgate_did_not_run_are_no_zeros(tmp_path: Path) -> None:
    storage = StateFiles(tmp_path)
    process = await Process(storage).restored()
    await process.count(120)
    later = await Process(storage, process.now + 600).restored(process.windows.checkpoint())
    await later.count(60)
    with pytest.raises(
        NoCounts, match=r"no counts of the 1m0s before 2027-01-15T08:10:00Z; .* begin at 2027-01-15T08:00:00Z"
    ):
        await later.windows.read(60, START + 600)
    reading = await later.windows.read(3600, later.now)
    assert (reading.window, reading.cut) == (780, (f"{UNCOUNTED}: 600",))
    assert await later.requests(3600) == 18


async def test_without_a_storage_the_windows_end_with_the_process() -> None:
    process = await Process(None).restored()
    with pytest.raises(NoCounts, match="no window is stored yet"):
        await process.requests(60)
    await process.count(60)
    assert await process.requests(600) == 6
