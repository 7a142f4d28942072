"""Stored windows cover each second once, their sums are exact, and blocks stay within their limits (R85)."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.telemetry.counters import stored_windows
from headgate.telemetry.counters.blocks import UNCOUNTED, WindowBlock, merge_blocks, pack_block, read_block
from headgate.telemetry.counters.counts import SENT, Counts, class_index
from headgate.telemetry.counters.flows import Flow, Peer
from headgate.telemetry.counters.histogram import bucket_of, gathered
from headgate.telemetry.counters.stored_windows import (
    CLOCK_SET_BACK,
    LONG_KEPT_S,
    LONG_S,
    SHORT_KEPT_S,
    StoredWindows,
    choose_windows,
)
from headgate.telemetry.counters.time_buckets import TimeBucket

START = 1_800_000_000.0  # a multiple of an hour
FLOWS = [Flow(source=Peer(pod=f"default/{name}"), destination=Peer(pod="default/web-0")) for name in "abc"]
OK = Counts.of({class_index(200): 1}, gathered({bucket_of(1000): 1}))
SEVERAL = (OK, Counts.of({class_index(503): 2}), Counts.of({SENT: 1 << 40}), Counts(gathered({0: 3, 169: 1})))


def keep(stored: StoredWindows, now: float) -> None:
    """Close windows and make all blocks that are due."""
    stored.advance(now)
    while buckets := stored.due():
        stored.put(pack_block(buckets, FLOWS), buckets)
    while blocks := stored.due_merge(now):
        stored.put_merged(merge_blocks(blocks, LONG_S))
    stored.trim(now)


def blocks_of(stored: StoredWindows) -> Sequence[WindowBlock]:
    blocks, closed = stored.blocks()
    return [*blocks, *([pack_block(closed, FLOWS)] if closed else ())]


def summed(stored: StoredWindows, begin: float, end: float) -> dict[Flow, Counts]:
    total: dict[Flow, Counts] = {}
    for block, indexes in choose_windows(blocks_of(stored), begin, end):
        for _, counts_of in read_block(block, indexes):
            for flow, counts in counts_of.items():
                total[flow] = total.get(flow, Counts()).plus(counts)
    return total


def spans(stored: StoredWindows, begin: float, end: float) -> list[tuple[float, float]]:
    return [
        (block.windows[index].start - START, block.windows[index].end - START)
        for block, indexes in choose_windows(blocks_of(stored), begin, end)
        for index in indexes
    ]


def filled(seconds: int, *, every: int = 10, stored: StoredWindows | None = None) -> StoredWindows:
    """Return windows with a request every few seconds, whose blocks are made each time."""
    stored = stored or StoredWindows()
    for second in range(0, seconds, every):
        stored.add(0, OK, START + second)
        keep(stored, START + second)
    keep(stored, START + seconds)
    return stored


@given(
    st.lists(st.tuples(st.floats(0.1, 50), st.integers(0, 2), st.sampled_from(SEVERAL)), min_size=1, max_size=60),
    st.integers(1, 5),
)
def test_consecutive_times_have_each_count_once(added: list[tuple[float, int, Counts]], parts: int) -> None:
    stored, now = StoredWindows(), START
    total: dict[Flow, Counts] = {}
    for pause, number, counts in added:
        now += pause
        stored.add(number, counts, now)
        total[FLOWS[number]] = total.get(FLOWS[number], Counts()).plus(counts)
        keep(stored, now)
    keep(stored, now + 10)
    length = (now + 10 - START) / parts
    read: dict[Flow, Counts] = {}
    for part in range(parts):
        begin, end = START + part * length, START + (part + 1) * length
        if any(begin < (start + stop) / 2 + START <= end for start, stop in spans(stored, START, now + 10)):
            for flow, counts in summed(stored, begin, end).items():
                read[flow] = read.get(flow, Counts()).plus(counts)
    assert read == total


def test_windows_last_10_seconds_and_end_at_multiples_of_10_seconds() -> None:
    stored = StoredWindows()
    stored.add(0, OK, START + 3)
    keep(stored, START + 25)
    assert spans(stored, START, START + 60) == [(3, 10), (10, 20)]
    assert [len(counts) for counts in (summed(stored, START, START + 10), summed(stored, START + 10, START + 20))] == [
        1,
        0,
    ]


def test_counts_of_an_hour_ago_and_earlier_are_in_windows_of_a_minute() -> None:
    stored = filled(2 * SHORT_KEPT_S)
    end = START + 2 * SHORT_KEPT_S
    assert {stop - start for start, stop in spans(stored, START, end - SHORT_KEPT_S)} == {60}
    assert {stop - start for start, stop in spans(stored, end - SHORT_KEPT_S, end)} == {10}
    assert summed(stored, START, end)[FLOWS[0]] == Counts(gathered({bucket_of(1000): 720}), OK.counters * 720)
    assert spans(stored, START, end) == sorted(set(spans(stored, START, end)))
    assert sum(stop - start for start, stop in spans(stored, START, end)) == 2 * SHORT_KEPT_S


def test_a_time_within_a_window_is_answered_by_this_window() -> None:
    stored = filled(2 * SHORT_KEPT_S)
    assert spans(stored, START + 70, START + 80) == [(60, 120)]
    assert spans(stored, START - 70, START - 60) == []


def test_a_reading_keeps_its_windows_while_blocks_are_made_and_dropped() -> None:
    stored = filled(590)
    blocks, closed = stored.blocks()
    begun = [(bucket.start - START, bucket.end - START) for bucket in closed]
    keep(stored, START + 600)
    keep(stored, START + 2 * SHORT_KEPT_S)
    assert [(block.start - START, block.end - START) for block in blocks] == [(n, n + 60) for n in range(0, 540, 60)]
    assert begun == [(bucket.start - START, bucket.end - START) for bucket in closed]
    assert begun == [(start, start + 10) for start in range(540, 590, 10)]


def test_windows_are_dropped_after_a_day() -> None:
    stored = filled(LONG_KEPT_S + SHORT_KEPT_S, every=50)
    first = spans(stored, 0, START + 2 * LONG_KEPT_S)[0][0]
    assert SHORT_KEPT_S - stored_windows.LONG_BLOCK_S <= first <= SHORT_KEPT_S


def test_blocks_beyond_the_limits_of_bytes_are_dropped_and_minutes_are_merged_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = filled(SHORT_KEPT_S).short[0].size
    monkeypatch.setattr(stored_windows, "SHORT_BYTES", 5 * size)
    stored = filled(SHORT_KEPT_S)
    assert sum(block.size for block in stored.short) <= 5 * size
    assert sum(stop - start for start, stop in spans(stored, START, START + SHORT_KEPT_S)) == SHORT_KEPT_S
    assert summed(stored, START, START + SHORT_KEPT_S)[FLOWS[0]].success == SHORT_KEPT_S // 10
    monkeypatch.setattr(stored_windows, "LONG_BYTES", 3 * stored.long[0].size)
    stored = filled(SHORT_KEPT_S)
    assert (len(stored.long), spans(stored, START, START + SHORT_KEPT_S)[-1]) == (3, (3590, 3600))


def test_a_suspended_machine_has_no_windows_of_that_time() -> None:
    stored = StoredWindows()
    stored.add(0, OK, START)
    keep(stored, START + 3600)
    stored.add(0, OK, START + 3605)
    keep(stored, START + 3610)
    assert spans(stored, START, START + 3610) == [(0, 10), (3600, 3610)]


def test_windows_are_dropped_when_the_clock_is_set_back_by_more_than_a_minute() -> None:
    stored = filled(600)
    keep(stored, START + 570)
    assert len(spans(stored, START, START + 600)) == 60
    keep(stored, START + 100)
    keep(stored, START + 110)
    ((block, _),) = choose_windows(blocks_of(stored), START, START + 600)
    assert (block.start, block.windows[0].notes) == (START + 100, {CLOCK_SET_BACK: 1})


def test_merged_windows_have_the_notes_of_all_their_windows() -> None:
    buckets = [TimeBucket(START + 10 * n, START + 10 * n + 10, {}, Counter({"late": 1, f"n{n}": 2})) for n in range(2)]
    (window,) = merge_blocks([pack_block(buckets, FLOWS)], LONG_S).windows
    assert (window.start, window.end, window.notes) == (START, START + 20, {"late": 2, "n0": 2, "n1": 2})


def test_merged_windows_note_the_seconds_without_counts_between_their_windows() -> None:
    starts = (0, 10, 40, 60)
    buckets = [TimeBucket(START + start, START + start + 10, {}, Counter()) for start in starts]
    merged = merge_blocks([pack_block(buckets, FLOWS)], LONG_S)
    assert [window.notes for window in merged.windows] == [{UNCOUNTED: 20}, {}]
    later = pack_block([TimeBucket(START + 90, START + 120, {}, Counter())], FLOWS)
    assert [window.notes for window in merge_blocks([merged, later], LONG_S).windows] == [
        {UNCOUNTED: 20},
        {UNCOUNTED: 20},
    ]


def test_a_block_can_be_read_after_it_was_encoded_and_only_its_selected_flows() -> None:
    buckets = [TimeBucket(START, START + 10, {0: OK, 2: SEVERAL[1]}, Counter())]
    block = msgspec.msgpack.decode(msgspec.msgpack.encode(pack_block(buckets, FLOWS)), type=WindowBlock)
    ((_, counts),) = read_block(block, [0], lambda flow: flow == FLOWS[2])
    assert counts == {FLOWS[2]: SEVERAL[1]}
