"""The hash function XXH64, compared with published values, and the slot ranges of users."""

import pytest

from headgate.model.hash_slots import slot_of, slot_range_at, xxh64
from headgate.model.routing import PortRef, SlotRange, Sticky

V1 = PortRef("default/v1", 80)
ISHMAEL = b"Call me Ishmael. Some years ago--never mind how long precisely-"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"as", 0x1C330FB2D66BE179),
        (b"abc", 0x44BC2CF5AD770999),
        (ISHMAEL, 0x02A2E85470D6FD96),
    ],
)
def test_xxh64_matches_published_values(data, value):
    assert xxh64(data) == value


def test_slots_are_below_ten_thousand():
    assert {slot_of(f"user-{number}") // 1000 for number in range(200)} == set(range(10))


def test_slot_range_at_follows_the_order_of_the_ranges():
    sticky = Sticky(kind="source", slot_ranges=(SlotRange(slots=1, ref=V1), SlotRange(slots=9_999)))
    assert slot_range_at(sticky, 0).ref == V1
    assert slot_range_at(sticky, 1).ref is None
    assert slot_range_at(sticky, 9_999).ref is None
    with pytest.raises(ValueError, match="no slot range"):
        slot_range_at(sticky, 10_000)
