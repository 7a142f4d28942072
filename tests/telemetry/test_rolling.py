"""A window's sum that goes on from one question to the next is what adding up anew gives."""

from collections import Counter
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from headgate.telemetry.counts import SENT, UNREACHED, Counts, class_lane
from headgate.telemetry.histogram import BUCKETS, gathered
from headgate.telemetry.records import flows_in, pack, records
from headgate.telemetry.rolling import Rolling
from headgate.telemetry.slots import Slot

LANES = (0, SENT, UNREACHED, class_lane(200), class_lane(503))
LATENCIES = st.dictionaries(st.sampled_from((0, 17, BUCKETS - 1)), st.integers(1, 1 << 28), max_size=3)
OTHERS = st.dictionaries(st.sampled_from(LANES), st.integers(1, 1 << 40), min_size=1, max_size=4)
COUNTS = st.builds(Counts.of, OTHERS, LATENCIES.map(gathered))
FLOWS = st.dictionaries(st.integers(0, 3) | st.just(100_000), COUNTS, min_size=1)
SLOTS = st.lists(FLOWS, min_size=12, max_size=20)
MOVES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 5)), max_size=12)


@given(FLOWS)
def test_records_are_what_was_packed(flows):
    packed = pack(flows)
    assert dict(records(packed)) == flows
    assert list(flows_in(packed)) == list(flows)


@given(SLOTS, MOVES)
def test_the_sum_of_a_window_that_moves_is_exact_wherever_it_is_and_whoever_stops_half_way(flows, moves):
    slots, rolling, first, last = [Slot(0, 1, pack(one), Counter()) for one in flows], Rolling(), 0, 8
    for gone, come, steps in [(0, 0, 0), *moves]:
        first, last = min(first + gone, last), last + come
        for number, _ in enumerate(rolling.move(slots[first:last])):
            if number == steps - 1:
                break
        for _ in rolling.move(slots[first:last]):
            pass
        numbers = {number for one in flows[first:last] for number in one}
        assert rolling.rows == {
            number: reduce(Counts.plus, (one[number] for one in flows[first:last] if number in one))
            for number in numbers
        }
