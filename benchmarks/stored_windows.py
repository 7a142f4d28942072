"""Measure the stored windows of a day: processor time for a second, bytes, and the time to read them.

All flows have requests in each window, which is the worst case: a flow without a request takes no space in a window.
"""

import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headgate.standalone.state_files import StateFiles
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.flows import Flow, Peer
from headgate.telemetry.counters.histogram import gathered
from headgate.telemetry.counters.stored_windows import SHORT_S
from headgate.telemetry.stored_blocks import BlockKeeper
from headgate.telemetry.windows import Windows

REQUESTS = 10  # of a flow in a window
REPORT_S = 5
START = 1_800_000_000.0


class Scale(NamedTuple):
    """The numbers of flows, and the simulated minutes."""

    flows: Sequence[int]
    minutes: int


USUAL = Scale(flows=(1_000, 20_000), minutes=21)
SMALLEST = Scale(flows=(20,), minutes=11)


async def measure(scale: Scale) -> None:
    """Print the costs for each number of flows."""
    for count in scale.flows:
        with tempfile.TemporaryDirectory() as directory:
            await _measure(count, scale.minutes, Path(directory))


async def _measure(count: int, minutes: int, directory: Path) -> None:
    now = START
    windows = Windows(clock=lambda: now, wall=lambda: now)
    keeper = BlockKeeper(windows, StateFiles(directory))
    draw = random.Random(1)
    flows = _flows(count, draw)
    reported = [_counts(number, draw) for number in range(1_000)]
    adding = keeping = 0.0
    for flow in flows:
        windows.add(flow, reported[0])
    for second in range(0, 60 * minutes, REPORT_S):
        now = START + second
        began = time.process_time()
        for number in range(count):
            windows.stored.add(number, reported[(number + second) % len(reported)], now)
        adding += time.process_time() - began
        if not second % SHORT_S:
            began = time.process_time()
            await keeper.keep()
            keeping += time.process_time() - began
    stored, seconds = windows.stored, 60 * minutes
    short = sum(block.size for block in stored.short) / len(stored.short)
    long = sum(block.size for block in stored.long) / len(stored.long)
    print(
        f"{count} flows: {1000 * adding / seconds:.2f} ms to add and {1000 * keeping / seconds:.2f} ms to keep, for a second; "
        f"{short / count / 6:.0f} bytes for a flow in 10 s, {long / count / 10:.0f} in a minute; "
        f"a day without limits {(60 * short + 138 * long) / 1e6:.0f} MB; "
        f"10 minutes read in {await _timed(lambda: windows.read(600, START + 600)):.2f} s"
    )


async def _timed(read: Callable[[], Awaitable[Any]]) -> float:
    began = time.process_time()
    await read()
    return time.process_time() - began


def _flows(count: int, draw: random.Random) -> Sequence[Flow]:
    pods = [f"default/app-{number % 50}-{draw.getrandbits(40):010x}-{number:05}" for number in range(count // 8 + 2)]
    return [
        Flow(
            source=Peer(pod=draw.choice(pods)),
            destination=Peer(pod=draw.choice(pods)),
            service=(name := f"default/app-{number % 50}"),
            port=8080,
            backend=name,
            target=number,
            secured=True,
        )
        for number in range(count)
    ]


def _counts(number: int, draw: random.Random) -> Counts:
    buckets: dict[int, int] = {}
    for _ in range(REQUESTS * REPORT_S // SHORT_S):
        bucket = max(0, round(draw.gauss(40 + number % 40, 6)))
        buckets[bucket] = buckets.get(bucket, 0) + 1
    return Counts.of({class_index(200): sum(buckets.values())}, gathered(buckets))
