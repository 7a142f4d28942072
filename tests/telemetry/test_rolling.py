"""A window's sum that goes on from one question to the next is what adding up anew gives."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headgate.telemetry.histogram import BUCKETS
from headgate.telemetry.rolling import Rolling
from headgate.telemetry.slots import Slot
from headgate.telemetry.tally import SENT, UNREACHED, add, class_cell, counts, pack, unpack

CELLS = (0, 17, BUCKETS - 1, SENT, UNREACHED, class_cell(200), class_cell(503))
TALLIES = st.dictionaries(st.sampled_from(CELLS), st.integers(1, 1 << 30), min_size=1, max_size=4)
SLOTS = st.lists(st.dictionaries(st.integers(0, 3), TALLIES, min_size=1), min_size=12, max_size=20)
MOVES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 5)), max_size=12)


def slot(flows):
    table = {}
    for flow, tally in flows.items():
        add(table, flow, tally)
    return Slot(0, 1, pack(table), Counter())


@given(SLOTS, MOVES)
def test_the_sum_of_a_window_that_moves_is_exact_wherever_it_is_and_whoever_stops_half_way(flows, moves):
    slots, rolling, first, last = [slot(one) for one in flows], Rolling(), 0, 8
    for gone, come, steps in [(0, 0, 0), *moves]:
        first, last = min(first + gone, last), last + come
        for number, _ in enumerate(rolling.move(slots[first:last])):
            if number == steps - 1:
                break
        for _ in rolling.move(slots[first:last]):
            pass
        table = {}
        for one in slots[first:last]:
            unpack(one.words, table)
        assert dict(rolling) == {number: counts(row) for number, row in table.items()}
