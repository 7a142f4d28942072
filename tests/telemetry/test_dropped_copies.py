"""Counts of dropped mirrored requests (copies): each mirror has a count, which expires when no more are dropped."""

import asyncio

import pytest

from headgate.telemetry import dropped_copies
from headgate.telemetry.dropped_copies import QUIET_SECONDS, DroppedCopies

SHOP, CART = "mirror/default/shop/80", "mirror/default/cart/80"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_each_mirror_has_its_own_count_of_dropped_copies(clock):
    found = DroppedCopies(clock)
    found.add(SHOP, 3)
    found.add(CART, 1)
    found.add(SHOP, 4)
    assert found.now.get() == {SHOP: 7, CART: 1}


def test_the_count_of_a_mirror_expires_after_a_quiet_time_and_starts_from_zero(clock):
    found = DroppedCopies(clock)
    found.add(SHOP, 3)
    clock.now += QUIET_SECONDS / 2
    found.add(CART, 1)
    assert found.expire() == QUIET_SECONDS / 2
    clock.now += QUIET_SECONDS / 2
    found.expire()
    assert found.now.get() == {CART: 1}
    clock.now += QUIET_SECONDS / 2
    assert found.expire() is None
    assert found.now.get() == {}
    found.add(SHOP, 1)
    assert found.now.get() == {SHOP: 1}


async def test_readers_are_notified_of_the_first_drop_and_of_the_expiry(monkeypatch):
    monkeypatch.setattr(dropped_copies, "QUIET_SECONDS", 0.01)
    found = DroppedCopies(asyncio.get_running_loop().time)
    task = asyncio.create_task(found.run())
    seen = found.now.changes()
    assert await anext(seen) == {}
    found.add(SHOP, 3)
    assert await anext(seen) == {SHOP: 3}
    assert await anext(seen) == {}
    task.cancel()
