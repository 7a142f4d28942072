"""XXH64 by its published values, and who has a slot."""

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
def test_known_values(data, value):
    assert xxh64(data) == value


def test_a_slot_is_one_of_ten_thousand():
    assert {slot_of(f"user-{number}") // 1000 for number in range(200)} == set(range(10))


def test_the_sides_share_the_slots_in_their_order():
    sticky = Sticky(kind="source", slot_ranges=(SlotRange(slots=1, ref=V1), SlotRange(slots=9_999)))
    assert slot_range_at(sticky, 0).ref == V1
    assert slot_range_at(sticky, 1).ref is None
    assert slot_range_at(sticky, 9_999).ref is None
    with pytest.raises(ValueError, match="no side"):
        slot_range_at(sticky, 10_000)
