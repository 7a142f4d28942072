"""A window's sum that goes on from one question to the next is what adding up anew gives."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headgate.telemetry.counts import SENT, UNREACHED, Counts, class_lane
from headgate.telemetry.flows import Flow, Peer
from headgate.telemetry.histogram import BUCKETS, gathered
from headgate.telemetry.records import flows_in, pack, records
from headgate.telemetry.rolling import Rolling
from headgate.telemetry.slots import Slot

LANES = (0, SENT, UNREACHED, class_lane(200), class_lane(503))
LATENCIES = st.dictionaries(st.sampled_from((0, 17, BUCKETS - 1)), st.integers(1, 1 << 28), max_size=3)
OTHERS = st.dictionaries(st.sampled_from(LANES), st.integers(1, 1 << 40), min_size=1, max_size=4)
COUNTS = st.builds(Counts.of, OTHERS, LATENCIES.map(gathered))
FLOWS = st.dictionaries(st.integers(0, 3), COUNTS, min_size=1)
SLOTS = st.lists(FLOWS, min_size=12, max_size=20)
NAMES = tuple(
    Flow(source=Peer(outside="gateway"), destination=Peer(pod=pod), service=service, copy=copy)
    for pod, service, copy in [
        ("d/a", "d/x", False),
        ("d/a", "d/y", False),
        ("d/a", "d/x", True),
        ("d/b", "d/x", False),
    ]
)
MOVES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 5)), max_size=12)


def added(pairs):
    found = {}
    for key, counts in pairs:
        found[key] = found.get(key, Counts()).plus(counts)
    return found


def moved(rolling, slots, names):
    for _ in rolling.move(slots, names):
        pass


@given(st.dictionaries(st.integers(0, 1 << 30), COUNTS))
def test_records_are_what_was_packed(flows):
    packed = pack(flows)
    assert dict(records(packed)) == flows
    assert list(flows_in(packed)) == list(flows)


@given(SLOTS, MOVES)
def test_the_sum_of_a_window_that_moves_is_exact_wherever_it_is_and_whoever_stops_half_way(flows, moves):
    slots, rolling, first, last = [Slot(0, 1, pack(one), Counter()) for one in flows], Rolling(), 0, 8
    for gone, come, steps in [(0, 0, 0), *moves]:
        first, last = min(first + gone, last), last + come
        for number, _ in enumerate(rolling.move(slots[first:last], NAMES)):
            if number == steps - 1:
                break
        moved(rolling, slots[first:last], NAMES)
        here = [(NAMES[number], counts) for one in flows[first:last] for number, counts in one.items()]
        assert rolling.flows == added(here)
        arrived = rolling.arrived()
        assert arrived.requests == added((flow.destination.pod, counts) for flow, counts in here if not flow.copy)
        assert arrived.copies == added((flow.destination.pod, counts) for flow, counts in here if flow.copy)


def test_the_number_of_a_flow_that_ended_may_be_anothers_before_the_sum_moves_on():
    counts, rolling = Counts.of({class_lane(200): 1}), Rolling()
    old, *stay, late = (Slot(0, 1, {number: counts}, Counter()) for number in (0, 1, 1, 1, 0))
    moved(rolling, [old, *stay], NAMES)
    moved(rolling, [*stay, late], [NAMES[2], *NAMES[1:]])
    assert set(rolling.flows) == {NAMES[1], NAMES[2]}
    assert set(rolling.arrived().requests) == {NAMES[1].destination.pod}
    assert set(rolling.arrived().copies) == {NAMES[2].destination.pod}
