"""A sliding sum equals the sum of its buckets computed from scratch."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headgate.telemetry.counters.counts import SENT, UNREACHED, Counts, class_index
from headgate.telemetry.counters.flows import Flow, Peer
from headgate.telemetry.counters.histogram import BUCKETS, gathered
from headgate.telemetry.counters.sliding_sum import SlidingSum
from headgate.telemetry.counters.time_buckets import TimeBucket, flows_in, pack_flows, unpack_flows

INDEXES = (0, SENT, UNREACHED, class_index(200), class_index(503))
LATENCIES = st.dictionaries(st.sampled_from((0, 17, BUCKETS - 1)), st.integers(1, 1 << 28), max_size=3)
COUNTERS = st.dictionaries(st.sampled_from(INDEXES), st.integers(1, 1 << 40), min_size=1, max_size=4)
COUNTS = st.builds(Counts.of, COUNTERS, LATENCIES.map(gathered))
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


def moved(total, buckets, names):
    for _ in total.slide(buckets, names):
        pass


@given(st.dictionaries(st.integers(0, 1 << 30), COUNTS))
def test_unpacking_returns_the_packed_flows(flows):
    packed = pack_flows(flows)
    assert dict(unpack_flows(packed)) == flows
    assert list(flows_in(packed)) == list(flows)


@given(SLOTS, MOVES)
def test_the_sum_is_exact_after_complete_and_interrupted_slides(flows, moves):
    buckets, total, first, last = [TimeBucket(0, 1, pack_flows(one), Counter()) for one in flows], SlidingSum(), 0, 8
    for gone, come, steps in [(0, 0, 0), *moves]:
        first, last = min(first + gone, last), last + come
        for number, _ in enumerate(total.slide(buckets[first:last], NAMES)):
            if number == steps - 1:
                break
        moved(total, buckets[first:last], NAMES)
        here = [(NAMES[number], counts) for one in flows[first:last] for number, counts in one.items()]
        assert total.flows == added(here)
        arrived = total.arrived()
        assert arrived.requests == added((flow.destination.pod, counts) for flow, counts in here if not flow.copy)
        assert arrived.copies == added((flow.destination.pod, counts) for flow, counts in here if flow.copy)


def test_a_flow_number_may_be_reused_before_the_sum_slides():
    counts, total = Counts.of({class_index(200): 1}), SlidingSum()
    old, *stay, late = (TimeBucket(0, 1, {number: counts}, Counter()) for number in (0, 1, 1, 1, 0))
    moved(total, [old, *stay], NAMES)
    moved(total, [*stay, late], [NAMES[2], *NAMES[1:]])
    assert set(total.flows) == {NAMES[1], NAMES[2]}
    assert set(total.arrived().requests) == {NAMES[1].destination.pod}
    assert set(total.arrived().copies) == {NAMES[2].destination.pod}
