"""Windows are exact to a second for new traffic and coarser for old traffic; their flows are limited (R85, R98)."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.telemetry.counters.counts import (
    CONNECTIONS,
    FAILED,
    RECEIVED,
    SENT,
    SUCCEEDED,
    UNREACHED,
    Counts,
    class_index,
)
from headgate.telemetry.counters.flows import Flow, Peer
from headgate.telemetry.counters.histogram import bucket_of, gathered
from headgate.telemetry.counters.packed_counters import NARROW, by_index
from headgate.telemetry.counters.sliding_sum import SlidingSum
from headgate.telemetry.counters.time_buckets import COARSE, KEPT, LENGTH
from headgate.telemetry.windows import MOST_SUMS, TOO_MANY, Windows, WindowsCheckpoint

OK = Counts.of({class_index(200): 1})
SEVERAL = (
    OK,
    Counts.of({class_index(503): 2}, gathered({17: 1, 18: 1})),
    Counts(gathered({17: 3, 40: 1})),
    Counts.of({SENT: 5, CONNECTIONS: 1}),
)


def flow(name):
    return Flow(source=Peer(pod=f"default/{name}"), destination=Peer(pod="default/web-0"))


class Clock:
    """A monotonic clock that tests advance, with a different wall clock."""

    def __init__(self):
        self.now = 5000.0

    def __call__(self):
        return self.now

    def wall(self):
        return self.now + 1e9


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def windows(clock):
    return Windows(clock=clock, wall=clock.wall)


def other(clock, **options):
    return Windows(clock=clock, wall=clock.wall, **options)


async def successes(windows, seconds):
    reading = await windows.read(seconds)
    return {found.source.pod.partition("/")[2]: counts.success for found, counts in reading.flows.items()}


async def test_a_window_has_exactly_the_requests_in_it(windows, clock):
    """R85. A window of thirty seconds."""
    windows.add(flow("old"), OK)
    clock.now += 20
    windows.add(flow("new"), OK)
    windows.add(flow("new"), OK)
    assert await successes(windows, 30) == {"old": 1, "new": 2}
    assert await successes(windows, 10) == {"new": 2}
    clock.now += 15
    assert await successes(windows, 30) == {"new": 2}
    clock.now += 20
    assert await successes(windows, 30) == {}
    reading = await windows.read(30)
    assert (reading.end, reading.window) == (clock.wall(), 30)


@given(
    st.lists(st.tuples(st.floats(0, 40), st.sampled_from("ab")), max_size=80),
    st.floats(1, KEPT),
)
async def test_every_window_is_exact_to_the_time_buckets_at_its_edge(events, seconds):
    clock = Clock()
    windows, happened = other(clock), []
    for pause, name in events:
        clock.now += pause
        windows.add(flow(name), OK)
        happened.append(clock.now)
    found = sum((await successes(windows, seconds)).values())
    edge = LENGTH if seconds < 110 else COARSE
    assert sum(moment > clock.now - seconds + edge for moment in happened) <= found
    assert found <= sum(moment > clock.now - seconds - edge for moment in happened)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.25, 1.0, 7.0, 40.0, 1000.0]), st.integers(0, 5), st.sampled_from(SEVERAL)),
        max_size=40,
    ),
    st.lists(st.sampled_from([5, 30, 120, KEPT]), min_size=1),
)
async def test_repeated_queries_have_the_same_result_as_a_first_query(happened, asked):
    """Repeated queries slide a cached sum; a first query computes it from scratch."""
    clock = Clock()
    windows = other(clock)
    for (pause, name, counts), seconds in zip(happened, itertools.cycle(asked), strict=False):
        clock.now += pause
        windows.add(flow(name), counts)
        statuses = await windows.read(seconds)
        again = other(clock)
        again.restore(windows.checkpoint())
        assert await again.read(seconds) == statuses


async def test_responses_count_as_success_or_failure(windows):
    """D22. A status below 500 is a success. In gRPC, OK and client errors are successes."""
    statuses = {class_index(status): 1 for status in (200, 302, 404)}
    statuses |= {class_index(503): 2, class_index(0): 3, class_index(200, "0"): 1, class_index(200, "5"): 1}
    statuses |= {class_index(200, "14"): 4, class_index(200, "99"): 1}
    statuses |= {CONNECTIONS: 5, UNREACHED: 8, FAILED: 6, SUCCEEDED: 7, SENT: 1 << 45, RECEIVED: 7}
    assert class_index(700) == class_index(0)
    windows.add(flow("a"), Counts.of(statuses, gathered({bucket_of(1000): 2})))
    windows.add(flow("a"), Counts.of({SENT: 1 << 45}))
    (found,) = (await windows.read(30)).flows.values()
    assert (found.success, found.failure) == (5 + 7, 2 + 3 + 4 + 1 + 6)
    assert dict(found.classes) == {
        "2xx": 1,
        "3xx": 1,
        "4xx": 1,
        "5xx": 2,
        "none": 3,
        "grpc-0": 1,
        "grpc-2": 1,
        "grpc-5": 1,
        "grpc-14": 4,
    }
    assert (found.connections, found.unreached) == (5, 8)
    assert (found.count(SENT), found.count(RECEIVED)) == (1 << 46, 7)
    assert by_index(found.latency, NARROW) == {bucket_of(1000): 2}


async def test_a_restarted_headgate_has_the_same_windows(windows, clock):
    for number in range(200):
        windows.add(flow(number % 7), OK)
        clock.now += 3
    windows.note("odd", 2)
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(windows.checkpoint()), type=WindowsCheckpoint)
    for seconds in (10, 60, 900):
        clock.now += 5
        again = other(clock)
        again.restore(kept)
        assert await again.read(seconds) == await windows.read(seconds)
    clock.now += KEPT
    again = other(clock)
    again.restore(kept)
    assert await successes(again, KEPT) == {}


async def test_flows_beyond_the_limit_are_left_out_and_readings_mention_them(clock):
    windows = other(clock, most_flows=10)
    for number in range(13):
        windows.add(flow(number), OK)
    reading = await windows.read(30)
    assert len(reading.flows) == 10
    assert reading.cut == (f"{TOO_MANY}: 3",)
    clock.now += 60
    windows.add(flow(1), OK)
    assert (await windows.read(30)).cut == ()


async def test_flows_that_ended_make_room_for_new_flows(clock):
    windows = other(clock, most_flows=10)
    for number in range(50):
        windows.add(flow(number), OK)
        clock.now += KEPT / 5
    windows.add(flow("last"), OK)
    assert await successes(windows, 30) == {"last": 1}
    assert (await windows.read(KEPT)).cut == ()
    again = other(clock, most_flows=10)
    again.restore(windows.checkpoint())
    assert await again.read(KEPT) == await windows.read(KEPT)


async def test_readings_of_several_windows_are_shared_at_once_and_limited(windows, clock, monkeypatch):
    """The status reads two windows, and would have made the graph of each viewer again."""
    summed = SlidingSum.slide

    def slow(total, *arguments):
        clock.now += 0.01
        yield from summed(total, *arguments)

    monkeypatch.setattr(SlidingSum, "slide", slow)
    windows.add(flow("a"), OK)
    first, recent = await windows.read(30), await windows.read(10)
    assert await windows.read(30) is first
    assert await windows.read(10) is recent
    assert (await windows.read(20)) is not first
    assert await windows.read(30) is first
    for seconds in range(40, 40 + MOST_SUMS):
        await windows.read(seconds)
    assert await windows.read(30) is not first


async def test_a_reading_has_only_the_notes_from_its_window(windows, clock):
    windows.note("late reports")
    windows.note("late reports", 2)
    assert (await windows.read(30)).cut == ("late reports: 3",)
    clock.now += 31
    assert (await windows.read(30)).cut == ()


@pytest.mark.parametrize("seconds", [5.0, 30.0, 120.0])
@pytest.mark.parametrize("interval", [2.0, 5.0])
@pytest.mark.parametrize("step", range(7))
async def test_no_request_is_in_two_consecutive_windows(clock, seconds, interval, step):
    """R85. Two proxies report 100 requests per interval; `step` is the phase of the reader against these reports.

    A reader with another phase cuts the buckets in between. What no window has came before the first or after the last one.
    """
    windows = other(clock)
    events = sorted(
        [
            *(
                (phase + number * interval, "report")
                for phase in (0.13, 0.77)
                for number in range(int(5 * seconds / interval))
            ),
            *((step * interval / 7 + number * seconds, "read") for number in range(6)),
            *((1.7 * number, "other read") for number in range(int(3 * seconds))),
        ]
    )
    began, reported, counted = clock.now, [], 0
    for moment, event in events:
        clock.now = began + moment
        if event == "report":
            windows.add(flow("a"), Counts.of({class_index(200): 100}))
            reported.append(moment)
        else:
            found = (await successes(windows, seconds if event == "read" else 7.0)).get("a", 0)
            counted += found if event == "read" else 0
    last = step * interval / 7 + 5 * seconds
    assert counted == 100 * sum(moment <= last for moment in reported)


async def test_long_windows_that_follow_each_other_count_no_request_twice(clock):
    """Buckets are merged after two minutes, regardless of where a window ended."""
    windows, total, reported = other(clock), 0, 0
    for second in range(4 * 300):
        clock.now += 1
        windows.add(flow("a"), OK)
        reported += 1
        if second % 300 == 299:
            reading = await windows.read(300)
            (counts,) = reading.flows.values()
            assert 300 - COARSE - 1 <= reading.window <= 300
            assert counts.success == pytest.approx(reading.window, abs=1)  # the rate is exact
            total += counts.success
    assert total <= reported


async def test_a_window_has_at_least_the_time_of_two_reports(clock):
    windows = other(clock, shortest=4.0)
    windows.add(flow("a"), OK)
    clock.now += 3
    reading = await windows.read(1)
    assert (reading.window, len(reading.flows)) == (4.0, 1)
    assert (await windows.read(5)).window == 5


async def test_stored_windows_are_read_while_all_threads_of_other_work_are_busy(clock, windows):
    windows.add(flow("a"), OK)
    clock.now += 20
    may_end = Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    busy = asyncio.create_task(asyncio.to_thread(may_end.wait))
    try:
        readings = await asyncio.wait_for(asyncio.gather(*(windows.read(60, clock.wall()) for _ in range(2))), 30)
    finally:
        may_end.set()
        await busy
    assert readings[0].flows == {flow("a"): OK}
    assert readings[1] is readings[0]
